/* The case table of the ops over a whole sequence, as cases.h has the other ops'. */
#ifndef OG_TESTS_SEQ_CASES_H
#define OG_TESTS_SEQ_CASES_H

#include "tests/kernels/cases.h"

typedef struct seq_case {
    const char *name;
    int (*run)(case_env *env, const struct seq_case *c);
    double tol; /* |got - want| <= tol * (|want| + rms of the wanted outputs) */
    const char *reason;
    int rows, in, out;          /* T, channels in and out */
    int taps, stride, dilation; /* of a convolution */
    int what;                   /* a padding mode, a flag */
    og_dtype t;                 /* of the weights */
} seq_case;

extern const seq_case seq_cases[];
extern const int n_seq_cases;

/* 0, or the op's error; the outputs are in env->out, the words in og_exec_error(env->ex). */
int seq_case_run(case_env *env, const seq_case *c);

/* Measure, make room, run. */
#define SEQ_TWICE(env, rc, call)                                                           \
    do {                                                                               \
        og_exec_reset((env)->ex);                                                      \
        og_exec_set_mode((env)->ex, OG_MEASURE);                                       \
        rc = (call);                                                                   \
        og_exec_reset((env)->ex);                                                      \
        og_exec_set_mode((env)->ex, OG_RUN);                                           \
        if (!rc) rc = og_exec_reserve((env)->ex, og_exec_peak((env)->ex), NULL);       \
        if (!rc) rc = (call);                                                          \
        og_exec_reset((env)->ex);                                                      \
    } while (0)

#endif
