/* The case table of the ops: one row is one op on one set of shapes and types.
 *
 * A case makes its inputs from its seed (the same on every device), runs the op after a
 * MEASURE pass, and leaves its outputs in env->out. The tests compare a backend's outputs
 * with those of "ref" within the row's tolerance; bench runs the same rows.
 *
 *     case_env env;
 *     case_open(&env, "cpu", 2);
 *     for (int i = 0; i < n_cases; i++) case_run(&env, &cases[i]);
 *     case_close(&env);
 */
#ifndef OG_TESTS_CASES_H
#define OG_TESTS_CASES_H

#include "kernels/ops.h"

#define CASE_BLOCKS 512
#define CASE_OUTPUTS 32

typedef struct case_env {
    og_device *dev;
    og_exec *ex;
    uint32_t seed;
    void *blocks[CASE_BLOCKS]; /* device memory of the running case */
    int n_blocks;
    float *out; /* outputs of the last case, one behind another, on the host */
    int64_t n_out;
    int64_t ends[CASE_OUTPUTS]; /* where each output ends in out */
    int n_ends;
} case_env;

typedef struct og_case og_case;
struct og_case {
    const char *name;
    int (*run)(case_env *env, const og_case *c);
    /* |got - want| <= tol * (|want| + rms of the wanted output) */
    double tol;
    const char *reason;
    og_dtype t;  /* of the weights or of the KV */
    int misalign; /* bytes by which weights are off their alignment */
    int rows, k, n;
    int taps, dilation, segments;
    int heads, kv_heads, dim, window, ring, page;
    int what; /* activation, operation or flags of the case's own */
};

extern const og_case cases[];
extern const int n_cases;

/* 0, or the op's error; the words are in og_exec_error(env->ex). */
int case_open(case_env *env, const char *backend, int threads);
void case_close(case_env *env);
int case_run(case_env *env, const og_case *c);

/* Building blocks, also for tests of their own. Everything lives until case_clear. */
void case_clear(case_env *env);
float case_random(uint32_t *seed); /* uniform in [-1, 1) */
og_tensor case_tensor(case_env *env, og_dtype t, int rank, const int64_t *ne, float scale,
                      int misalign);
og_tensor case_zeros(case_env *env, og_dtype t, int rank, const int64_t *ne);
int32_t *case_ints(case_env *env, const int32_t *values, int n);
void *case_bytes(case_env *env, const void *bytes, size_t n);
/* Copy a dense tensor to the host as floats, behind the outputs so far. */
void case_keep(case_env *env, const og_tensor *t);

#endif
