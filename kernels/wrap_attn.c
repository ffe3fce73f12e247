/* Checks of positions and attention. */
#include "kernels/check.h"

static int check_table(og_exec *ex, const char *op, const og_tensor *cos,
                       const og_tensor *sin, int64_t rows, int64_t half) {
    OG__CHECK(og__usable(ex, op, "cos", cos, "sin", sin, NULL));
    if (cos->dtype == OG_F32 && cos->rank == 2 && cos->ne[0] == rows &&
        cos->ne[1] == half && og_tensor_dense(cos) && sin->dtype == OG_F32 &&
        og__same_shape(cos, sin) && og_tensor_dense(sin))
        return 0;
    return og__eshape(ex, op, "cos and sin must be dense f32 [R, head_dim/2]", "cos", cos,
                      "sin", sin, NULL);
}

int og_op_rope_table(og_exec *ex, og_tensor *cos, og_tensor *sin, const og_rows *rows,
                     const og_tensor *inv_freq) {
    OG__CHECK(og__usable(ex, "rope_table", "inv_freq", inv_freq, NULL));
    if (inv_freq->dtype != OG_F32 || inv_freq->rank != 1 || !og_tensor_dense(inv_freq))
        return og__eshape(ex, "rope_table", "inv_freq must be f32 [head_dim/2]",
                          "inv_freq", inv_freq, NULL);
    OG__CHECK(check_table(ex, "rope_table", cos, sin, rows->n, inv_freq->ne[0]));
    if (og__measuring(ex) || !og_tensor_count(cos)) return 0;
    return ex->dev->be->rope_table(ex, cos, sin, rows, inv_freq);
}

/* f32 [R, heads, D], dense. */
static int is_heads(const og_tensor *t, int64_t rows, int64_t dim) {
    return t->dtype == OG_F32 && t->rank == 3 && t->ne[0] == rows && t->ne[2] == dim &&
           og_tensor_dense(t);
}

/* On the host: the pages of positions [from, to] of a slot lie in the pool. */
static int check_pages(og_exec *ex, const char *op, const og_kv *kv, int32_t slot,
                       int64_t from, int64_t to) {
    int64_t limit = (int64_t)kv->max_pages * kv->page;
    if (from < 0 || (!kv->ring && to >= limit))
        return og__fail(ex, OG_ELIMIT, "%s: position %lld, a slot holds %lld", op,
                        (long long)to, (long long)limit);
    for (int64_t p = from / kv->page; p <= to / kv->page; p++) {
        int32_t page = og__kv_page(kv, slot, p * kv->page);
        if (page < 0 || page >= kv->k.ne[0])
            return og__fail(ex, OG_EINVAL, "%s: slot %d names page %d of %lld", op, slot,
                            page, (long long)kv->k.ne[0]);
    }
    return 0;
}

/* Pages of all keys that the rows touch; a segment's rows have ascending positions. */
static int check_reach(og_exec *ex, const char *op, const og_kv *kv, const og_rows *rows,
                       int window, int own_only) {
    if (og__measuring(ex) || ex->dev->place.kind != OG_PLACE_HOST) return 0;
    for (int s = 0; s < rows->n_seg; s++) {
        int a = rows->cu[s], b = rows->cu[s + 1];
        if (a == b) continue;
        int64_t first = rows->pos[3 * a], last = rows->pos[3 * (b - 1)], from = first;
        if (last - first != b - a - 1)
            return og__fail(ex, OG_EINVAL, "%s: positions of segment %d are not in a row",
                            op, s);
        if (!own_only) from = window > 0 && first >= window ? first - window + 1 : 0;
        if (kv->ring && last - from >= (int64_t)kv->ring * kv->page)
            return og__fail(ex, OG_ELIMIT, "%s: %lld positions, the ring holds %lld", op,
                            (long long)(last - from + 1), (long long)kv->ring * kv->page);
        OG__CHECK(check_pages(ex, op, kv, rows->slot[a], from, last));
    }
    return 0;
}

static int check_append(og_exec *ex, const og_tensor *q, const og_tensor *k,
                        const og_tensor *v, const og_tensor *q_norm, const og_tensor *k_norm,
                        const og_tensor *cos, const og_tensor *sin, const og_rows *rows,
                        const og_kv *kv) {
    const char *op = "qk_norm_rope_append";
    OG__CHECK(og__usable(ex, op, "q", q, "k", k, "v", v, "q_norm", q_norm, "k_norm",
                         k_norm, NULL));
    int64_t dim = q->rank == 3 ? q->ne[2] : 0;
    if (!is_heads(q, rows->n, dim) || !is_heads(k, rows->n, dim) ||
        !og__same_shape(k, v) || !is_heads(v, rows->n, dim) || dim % 2)
        return og__eshape(ex, op, "q, k and v must be dense f32 [R, heads, head_dim]",
                          "q", q, "k", k, "v", v, NULL);
    if ((og_tensor_present(q_norm) && !og__is_vector(q_norm, dim)) ||
        (og_tensor_present(k_norm) && !og__is_vector(k_norm, dim)))
        return og__eshape(ex, op, "norm weights must be [head_dim]", "q_norm", q_norm,
                          "k_norm", k_norm, NULL);
    OG__CHECK(check_table(ex, op, cos, sin, rows->n, dim / 2));
    OG__CHECK(og__check_kv(ex, op, kv, k->ne[1], dim));
    OG__CHECK(og__check_rows(ex, op, rows, q->ne[0], -1));
    return rows->n ? check_reach(ex, op, kv, rows, 0, 1) : 0;
}

int og_op_qk_norm_rope_append(og_exec *ex, og_tensor *q, og_tensor *k, const og_tensor *v,
                              const og_tensor *q_norm, const og_tensor *k_norm, float eps,
                              const og_tensor *cos, const og_tensor *sin,
                              const og_rows *rows, og_kv *kv) {
    OG__CHECK(check_append(ex, q, k, v, q_norm, k_norm, cos, sin, rows, kv));
    if (!rows->n) return 0;
    size_t mark = og_exec_mark(ex);
    int rc = ex->dev->be->qk_norm_rope_append(ex, q, k, v, q_norm, k_norm, eps, cos, sin,
                                              rows, kv);
    og_exec_release(ex, mark);
    return rc;
}

static int check_attn(og_exec *ex, const og_tensor *y, const og_tensor *q, const og_kv *kv,
                      const og_rows *rows, int window) {
    OG__CHECK(og__usable(ex, "attn_paged", "y", y, "q", q, NULL));
    int64_t dim = q->rank == 3 ? q->ne[2] : 0;
    if (!is_heads(q, rows->n, dim) || !is_heads(y, rows->n, dim) || !og__same_shape(y, q))
        return og__eshape(ex, "attn_paged",
                          "y and q must be dense f32 [R, heads, head_dim]", "y", y, "q",
                          q, NULL);
    int64_t heads = kv->k.rank == 4 ? kv->k.ne[2] : 0;
    if (heads < 1 || q->ne[1] % heads)
        return og__eshape(ex, "attn_paged", "heads must be a multiple of the kv heads",
                          "q", q, "kv", &kv->k, NULL);
    if (window < 0) return og__fail(ex, OG_EINVAL, "attn_paged: window %d", window);
    OG__CHECK(og__check_kv(ex, "attn_paged", kv, heads, dim));
    OG__CHECK(og__check_rows(ex, "attn_paged", rows, q->ne[0], -1));
    return rows->n ? check_reach(ex, "attn_paged", kv, rows, window, 0) : 0;
}

int og_op_attn_paged(og_exec *ex, og_tensor *y, const og_tensor *q, const og_kv *kv,
                     const og_rows *rows, float scale, int window) {
    OG__CHECK(check_attn(ex, y, q, kv, rows, window));
    if (!rows->n) return 0;
    size_t mark = og_exec_mark(ex);
    int rc = ex->dev->be->attn_paged(ex, y, q, kv, rows, scale, window);
    og_exec_release(ex, mark);
    return rc;
}

int og__append_attend(og_exec *ex, og_tensor *y, og_tensor *qkv, const og_decoder_layer *l,
                      float eps, const og_tensor *cos, const og_tensor *sin,
                      const og_rows *rows, og_kv *kv, float scale, int window) {
    const og__backend *be = ex->dev->be;
    if (!be->append_attend || rows->n > 2 * rows->n_seg) {
        OG__CHECK(og_op_qk_norm_rope_append(ex, &qkv[0], &qkv[1], &qkv[2], &l->q_norm,
                                            &l->k_norm, eps, cos, sin, rows, kv));
        return og_op_attn_paged(ex, y, &qkv[0], kv, rows, scale, window);
    }
    OG__CHECK(check_append(ex, &qkv[0], &qkv[1], &qkv[2], &l->q_norm, &l->k_norm, cos, sin,
                           rows, kv));
    OG__CHECK(check_attn(ex, y, &qkv[0], kv, rows, window));
    return be->append_attend(ex, y, qkv, l, eps, cos, sin, rows, kv, scale, window);
}
