/* Elementwise ops and norms: rows are dealt to the pool when there is enough to do. */
#include "kernels/cpu/cpu.h"

#define FLAT 4096 /* elements of a row when a dense tensor is seen as one run */

typedef struct rows_job {
    og__rows_fn *fn;
    void *arg;
    int64_t n, per_task;
} rows_job;

static void rows_task(void *arg, int64_t task, int worker) {
    const rows_job *j = arg;
    (void)worker;
    int64_t from = task * j->per_task, to = from + j->per_task;
    j->fn(j->arg, from, to < j->n ? to : j->n);
}

void og__cpu_rows(int64_t n, int64_t width, og__rows_fn *fn, void *arg) {
    if (n * width < OG__CPU_SERIAL || n == 1) {
        fn(arg, 0, n);
        return;
    }
    int64_t tasks = n * width / (OG__CPU_SERIAL / 2), most = 8 * og__pool_threads();
    if (tasks > most) tasks = most;
    rows_job j = {fn, arg, n, (n + tasks - 1) / tasks};
    og__pool_run((n + j.per_task - 1) / j.per_task, rows_task, &j);
}

int og__cpu_floats(og_exec *ex, int64_t n, float **out) {
    og_tensor t = og_exec_alloc(ex, OG_F32, 1, &n);
    *out = t.data;
    return og__usable(ex, "cpu", "scratch", &t, NULL);
}

int og__cpu_vector(og_exec *ex, const og_tensor *v, const float **out) {
    *out = NULL;
    if (!og_tensor_present(v)) return 0;
    int64_t n = og_tensor_count(v);
    if (v->dtype == OG_F32) {
        *out = v->data;
        return 0;
    }
    float *wide;
    OG__CHECK(og__cpu_floats(ex, n, &wide));
    if (!og__measuring(ex)) og__cpu_isa(ex)->widen(wide, v->data, v->dtype, n);
    *out = wide;
    return 0;
}

typedef struct map_job {
    const og__isa *isa;
    og__mat y, a, b;
    int64_t total; /* of the flat view: the last row may be short */
    int what;
    const float *u, *v;
    float lo, hi;
} map_job;

static float *row(const og__mat *m, int64_t r) {
    return (float *)m->p + r * m->ld;
}

static int64_t width_of(const map_job *j, int64_t r) {
    int64_t left = j->total - r * j->y.cols;
    return left < j->y.cols ? left : j->y.cols;
}

static int dense(const og__mat *m) {
    return m->ld == m->cols || m->rows == 1;
}

static og__mat flat(const og__mat *m) {
    int64_t n = m->rows * m->cols;
    return (og__mat){m->p, m->dtype, (n + FLAT - 1) / FLAT, FLAT, FLAT};
}

/* Set up y and a, and b unless NULL; dense tensors without per-column vectors go flat. */
static map_job job(og_exec *ex, const og_tensor *y, const og_tensor *a,
                   const og_tensor *b, int columns) {
    map_job j = {.isa = og__cpu_isa(ex), .y = og__mat_of(y), .a = og__mat_of(a)};
    j.b = b ? og__mat_of(b) : j.a;
    j.total = j.y.rows * j.y.cols;
    if (columns || !dense(&j.y) || !dense(&j.a) || !dense(&j.b)) return j;
    j.y = flat(&j.y);
    j.a = flat(&j.a);
    j.b = flat(&j.b);
    return j;
}

static void run(map_job *j, og__rows_fn *fn) {
    og__cpu_rows(j->y.rows, j->y.cols, fn, j);
}

static void unary_rows(void *arg, int64_t from, int64_t to) {
    const map_job *j = arg;
    for (int64_t r = from; r < to; r++)
        j->isa->unary(row(&j->y, r), row(&j->a, r), width_of(j, r), (og_act)j->what);
}

int og__cpu_unary(og_exec *ex, og_tensor *y, const og_tensor *x, og_act act) {
    map_job j = job(ex, y, x, NULL, 0);
    j.what = (int)act;
    run(&j, unary_rows);
    return 0;
}

static void binary_rows(void *arg, int64_t from, int64_t to) {
    const map_job *j = arg;
    for (int64_t r = from; r < to; r++)
        j->isa->binary(row(&j->y, r), row(&j->a, r), j->u ? j->u : row(&j->b, r),
                       width_of(j, r), (og_binary)j->what);
}

int og__cpu_binary(og_exec *ex, og_tensor *y, const og_tensor *a, const og_tensor *b,
                   og_binary op) {
    int stretch = b->rank == 1 && a->rank > 1;
    map_job j = job(ex, y, a, stretch ? NULL : b, stretch);
    j.what = (int)op;
    if (stretch) j.u = b->data;
    run(&j, binary_rows);
    return 0;
}

static void scaled_add_rows(void *arg, int64_t from, int64_t to) {
    const map_job *j = arg;
    for (int64_t r = from; r < to; r++)
        j->isa->scaled_add(row(&j->y, r), row(&j->a, r), row(&j->b, r), j->u,
                           width_of(j, r));
}

int og__cpu_scaled_add(og_exec *ex, og_tensor *y, const og_tensor *a, const og_tensor *b,
                       const og_tensor *scale) {
    const float *u;
    OG__CHECK(og__cpu_vector(ex, scale, &u));
    if (og__measuring(ex)) return 0;
    map_job j = job(ex, y, a, b, u != NULL);
    j.u = u;
    run(&j, scaled_add_rows);
    return 0;
}

static void snake_rows(void *arg, int64_t from, int64_t to) {
    const map_job *j = arg;
    for (int64_t r = from; r < to; r++)
        j->isa->snake(row(&j->y, r), row(&j->a, r), j->u, j->v, j->y.cols);
}

int og__cpu_snake(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *alpha,
                  const og_tensor *inv_beta) {
    map_job j = job(ex, y, x, NULL, 1);
    j.u = alpha->data;
    j.v = inv_beta->data;
    run(&j, snake_rows);
    return 0;
}

static void clamp_rows(void *arg, int64_t from, int64_t to) {
    const map_job *j = arg;
    for (int64_t r = from; r < to; r++)
        j->isa->clamp(row(&j->y, r), row(&j->a, r), width_of(j, r), j->lo, j->hi);
}

int og__cpu_clamp(og_exec *ex, og_tensor *y, const og_tensor *x, float lo, float hi) {
    map_job j = job(ex, y, x, NULL, 0);
    j.lo = lo;
    j.hi = hi;
    run(&j, clamp_rows);
    return 0;
}

static void rms_norm_rows(void *arg, int64_t from, int64_t to) {
    const map_job *j = arg;
    for (int64_t r = from; r < to; r++)
        j->isa->rms_norm(row(&j->y, r), row(&j->a, r), j->u, j->y.cols, j->lo);
}

int og__cpu_rms_norm(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                     float eps) {
    const float *u;
    OG__CHECK(og__cpu_vector(ex, w, &u));
    if (og__measuring(ex)) return 0;
    map_job j = job(ex, y, x, NULL, 1);
    j.u = u;
    j.lo = eps;
    run(&j, rms_norm_rows);
    return 0;
}

static void layer_norm_rows(void *arg, int64_t from, int64_t to) {
    const map_job *j = arg;
    for (int64_t r = from; r < to; r++)
        j->isa->layer_norm(row(&j->y, r), row(&j->a, r), j->u, j->v, j->y.cols, j->lo);
}

int og__cpu_layer_norm(og_exec *ex, og_tensor *y, const og_tensor *x, const og_tensor *w,
                       const og_tensor *b, float eps) {
    const float *u, *v;
    OG__CHECK(og__cpu_vector(ex, w, &u));
    OG__CHECK(og__cpu_vector(ex, b, &v));
    if (og__measuring(ex)) return 0;
    map_job j = job(ex, y, x, NULL, 1);
    j.u = u;
    j.v = v;
    j.lo = eps;
    run(&j, layer_norm_rows);
    return 0;
}
