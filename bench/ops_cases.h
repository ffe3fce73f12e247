/* The ops at the sizes that Qwen3-TTS gives them, ready to be timed.
 *
 * One row is one op. `make` lays out inputs and says what a call moves and computes;
 * `call` runs it once. Weights are views into one pool of noise much larger than a cache,
 * and every call takes the next ones, so that they come from memory as in a decode step.
 * Activations are made once a case and stay warm, as they do there too.
 *
 *     ops_env env;
 *     ops_open(&env, "cpu", 2, &err);
 *     if (ops_make(&env, &ops_cases[i]) == 0) ops_call(&env, &ops_cases[i]);
 *     ops_close(&env);
 */
#ifndef OG_BENCH_OPS_CASES_H
#define OG_BENCH_OPS_CASES_H

#include "kernels/ops.h"

#define OPS_BLOCKS 64
#define OPS_LAYERS 5
#define OPS_GROUPS 16

typedef struct ops_env {
    og_device *dev;
    og_exec *ex;
    int device_works_alone; /* calls return before they are done */
    char *pool;             /* weights and KV; device memory */
    size_t cursor;
    void *blocks[OPS_BLOCKS]; /* device memory of the case */
    int n_blocks;
    double bytes, flops; /* of one call of the case */
    og_tensor x, y[3], state, ids;
    og_rows rows;
    const int32_t *table; /* pages of a KV */
    const int32_t *slots;
    const og_sample_row *params;
    og_row_prog prog;
    int pages;
} ops_env;

typedef struct ops_case ops_case;
struct ops_case {
    const char *name;
    int (*make)(ops_env *env, const ops_case *c);
    int (*call)(ops_env *env, const ops_case *c);
    og_dtype t;     /* of the weights */
    int rows, k, n; /* rows, width in, width out */
    int taps, step; /* convolutions: kernel; dilation or stride */
    int heads, kv_heads, dim, past;
    int what;
};

extern const ops_case ops_cases[];
extern const int n_ops_cases;

OG_MUST_CHECK int ops_open(ops_env *env, const char *backend, int threads, og_err *err);
void ops_close(ops_env *env);
/* Drop the last case and make this one, scratch reserved. 0 or the op's error, whose
 * words are in og_exec_error(env->ex). */
OG_MUST_CHECK int ops_make(ops_env *env, const ops_case *c);
OG_MUST_CHECK int ops_call(ops_env *env, const ops_case *c);

#endif
