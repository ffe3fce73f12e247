/* Positions and attention. A task is one row and one kv head; keys are read page by page in
 * ascending order, so the expression of a row depends on nothing but its own keys. */
#include "kernels/cpu/cpu.h"
#include "kernels/elem.h"

#include <string.h>

typedef struct append_job {
    const og__isa *isa;
    float *q, *k;
    const float *v, *q_norm, *k_norm, *cos, *sin;
    int64_t heads, kv_heads, dim;
    float eps;
    const og_rows *rows;
    const og_kv *kv;
} append_job;

static void store(const og_tensor *t, int64_t at, const float *x, int64_t n) {
    if (t->dtype == OG_F32) {
        memcpy((float *)t->data + at, x, (size_t)n * sizeof *x);
        return;
    }
    for (int64_t i = 0; i < n; i++) og__elem_set(t->data, t->dtype, at + i, x[i]);
}

static void append_rows(void *arg, int64_t from, int64_t to) {
    const append_job *j = arg;
    int64_t dim = j->dim, width = j->kv_heads * dim;
    for (int64_t r = from; r < to; r++) {
        const float *cos = j->cos + r * dim / 2, *sin = j->sin + r * dim / 2;
        float *q = j->q + r * j->heads * dim, *k = j->k + r * width;
        for (int64_t h = 0; h < j->heads; h++)
            j->isa->norm_rope(q + h * dim, j->q_norm, j->eps, cos, sin, dim);
        for (int64_t h = 0; h < j->kv_heads; h++)
            j->isa->norm_rope(k + h * dim, j->k_norm, j->eps, cos, sin, dim);
        int64_t pos = j->rows->pos[3 * r];
        int64_t page = og__kv_page(j->kv, j->rows->slot[r], pos);
        int64_t at = (page * j->kv->page + pos % j->kv->page) * width;
        store(&j->kv->k, at, k, width);
        store(&j->kv->v, at, j->v + r * width, width);
    }
}

int og__cpu_qk_norm_rope_append(og_exec *ex, og_tensor *q, og_tensor *k,
                                const og_tensor *v, const og_tensor *q_norm,
                                const og_tensor *k_norm, float eps, const og_tensor *cos,
                                const og_tensor *sin, const og_rows *rows, og_kv *kv) {
    append_job j = {.isa = og__cpu_isa(ex),
                    .q = q->data,
                    .k = k->data,
                    .v = v->data,
                    .cos = cos->data,
                    .sin = sin->data,
                    .heads = q->ne[1],
                    .kv_heads = k->ne[1],
                    .dim = q->ne[2],
                    .eps = eps,
                    .rows = rows,
                    .kv = kv};
    OG__CHECK(og__cpu_vector(ex, q_norm, &j.q_norm));
    OG__CHECK(og__cpu_vector(ex, k_norm, &j.k_norm));
    if (og__measuring(ex)) return 0;
    og__cpu_rows(rows->n, (j.heads + 2 * j.kv_heads) * j.dim, append_rows, &j);
    return 0;
}

typedef struct attn_job {
    const og__isa *isa;
    float *y;
    const float *q;
    const og_kv *kv;
    const og_rows *rows;
    float scale;
    int window;
    int64_t heads, kv_heads, dim;
    int64_t units, per_task; /* a unit is a row and a kv head */
    float *scores;           /* [threads][most keys] */
    int64_t most;
} attn_job;

/* Keys [j, end) of one page; their number. Moves j on. */
static int64_t next_run(const attn_job *a, int32_t slot, int64_t head, int64_t *j,
                        int64_t end, int64_t *at) {
    int64_t page = a->kv->page, stop = (*j / page + 1) * page, n;
    *at =
        ((og__kv_page(a->kv, slot, *j) * page + *j % page) * a->kv_heads + head) * a->dim;
    n = (stop < end ? stop : end) - *j;
    *j += n;
    return n;
}

static const char *element(const og_tensor *t, int64_t at) {
    return (const char *)t->data + at * (int64_t)og_dtype_size(t->dtype);
}

static void attend(const attn_job *a, int64_t r, int64_t head, int64_t kv_head,
                   float *s) {
    int64_t at = (r * a->heads + head) * a->dim, pos = a->rows->pos[3 * r], key, n;
    int64_t from = a->window > 0 && pos >= a->window ? pos - a->window + 1 : 0;
    int64_t stride = a->kv_heads * a->dim, end = pos + 1;
    int32_t slot = a->rows->slot[r];
    og_dtype t = a->kv->k.dtype;
    float *y = a->y + at, max = -__builtin_inff();
    for (int64_t j = from, first = j; j < end; first = j) {
        n = next_run(a, slot, kv_head, &j, end, &key);
        max = a->isa->scores(s + first - from, a->q + at, element(&a->kv->k, key), t,
                             stride, n, a->dim, a->scale, max);
    }
    float sum = a->isa->softmax(s, end - from, max);
    memset(y, 0, (size_t)a->dim * sizeof *y);
    for (int64_t j = from, first = j; j < end; first = j) {
        n = next_run(a, slot, kv_head, &j, end, &key);
        a->isa->mix(y, s + first - from, element(&a->kv->v, key), t, stride, n, a->dim);
    }
    for (int64_t i = 0; i < a->dim; i++) y[i] /= sum;
}

static void attn_task(void *arg, int64_t task, int worker) {
    const attn_job *a = arg;
    int64_t group = a->heads / a->kv_heads, u = task * a->per_task, end = u + a->per_task;
    for (; u < end && u < a->units; u++)
        for (int64_t g = 0; g < group; g++)
            attend(a, u / a->kv_heads, u % a->kv_heads * group + g, u % a->kv_heads,
                   a->scores + worker * a->most);
}

static int64_t total_keys(const og_rows *rows, int window) {
    int64_t sum = 0;
    for (int r = 0; r < rows->n; r++) {
        int64_t n = rows->pos[3 * r] + 1;
        sum += window > 0 && n > window ? window : n;
    }
    return sum;
}

#define UNITS_MAX 65536
#define SERIAL_WORK 100000 /* multiply-adds that are not worth a parallel region */

int og__cpu_attn_paged(og_exec *ex, og_tensor *y, const og_tensor *q, const og_kv *kv,
                       const og_rows *rows, float scale, int window) {
    attn_job a = {.isa = og__cpu_isa(ex),
                  .y = y->data,
                  .q = q->data,
                  .kv = kv,
                  .rows = rows,
                  .scale = scale,
                  .window = window,
                  .heads = q->ne[1],
                  .kv_heads = kv->k.ne[2],
                  .dim = q->ne[2]};
    a.most = (int64_t)(kv->ring ? kv->ring : kv->max_pages) * kv->page;
    if (window > 0 && window < a.most) a.most = window;
    a.most = og__blocks(a.most) * OG__LANES;
    OG__CHECK(og__cpu_floats(ex, a.most * og__pool_threads(), &a.scores));
    if (og__measuring(ex)) return 0;
    a.units = rows->n * a.kv_heads;
    a.per_task = (a.units + UNITS_MAX - 1) / UNITS_MAX;
    if (total_keys(rows, window) * a.heads * a.dim < SERIAL_WORK) a.per_task = a.units;
    og__pool_run((a.units + a.per_task - 1) / a.per_task, attn_task, &a);
    return 0;
}
