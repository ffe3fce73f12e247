/* Checks of sampling and of the macro ops. */
#include "kernels/check.h"

int og_op_sample(og_exec *ex, og_tensor *ids, og_tensor *logits,
                 const og_sample_row *rows, const og_tensor *history,
                 const og_tensor *allowed, const og_tensor *stop_ids) {
    OG__CHECK(og__usable(ex, "sample", "ids", ids, "logits", logits, "history", history,
                         "allowed", allowed, "stop_ids", stop_ids, NULL));
    if (logits->rank != 2 || !og__is_f32_rows(logits) || ids->dtype != OG_I32 ||
        ids->rank != 1 || ids->ne[0] != logits->ne[0])
        return og__eshape(ex, "sample", "logits must be f32 [R, V] and ids i32 [R]",
                          "ids", ids, "logits", logits, NULL);
    int64_t vocab = logits->ne[1];
    if (vocab < 1 || vocab > INT32_MAX)
        return og__eshape(ex, "sample", "the vocabulary is empty", "logits", logits,
                          NULL);
    if (og_tensor_present(history) &&
        (history->dtype != OG_I32 || !og__same_shape(history, logits) ||
         history->stride[1] != 1))
        return og__eshape(ex, "sample", "history must be i32 [R, V]", "history", history,
                          "logits", logits, NULL);
    if (og_tensor_present(allowed) &&
        (allowed->dtype != OG_U8 || allowed->rank != 1 || allowed->ne[0] != vocab ||
         !og_tensor_dense(allowed)))
        return og__eshape(ex, "sample", "allowed must be u8 [V]", "allowed", allowed,
                          "logits", logits, NULL);
    if (og_tensor_present(stop_ids) &&
        (stop_ids->dtype != OG_I32 || stop_ids->rank != 1 || !og_tensor_dense(stop_ids)))
        return og__eshape(ex, "sample", "stop_ids must be i32 [S]", "stop_ids", stop_ids,
                          NULL);
    if (!logits->ne[0]) return 0;
    size_t mark = og_exec_mark(ex);
    int rc = ex->dev->be->sample(ex, ids, logits, rows, history, allowed, stop_ids);
    og_exec_release(ex, mark);
    return rc;
}

static int check_net(og_exec *ex, const char *op, const og_decoder *net) {
    if (net->n_layers < 1 || net->n_heads < 1 || net->n_kv_heads < 1 || net->head_dim < 2)
        return og__fail(ex, OG_EINVAL,
                        "%s: %d layers, %d heads, %d kv heads, head_dim %d", op,
                        net->n_layers, net->n_heads, net->n_kv_heads, net->head_dim);
    if (net->inv_freq.rank != 1 || net->inv_freq.ne[0] * 2 != net->head_dim)
        return og__eshape(ex, op, "inv_freq must be [head_dim/2]", "inv_freq",
                          &net->inv_freq, NULL);
    return 0;
}

int og_op_decoder_stack(og_exec *ex, og_tensor *x, const og_decoder *net, og_kv *kv,
                        const og_rows *rows) {
    OG__CHECK(og__usable(ex, "decoder_stack", "x", x, NULL));
    if (x->rank != 2 || !og__is_f32_rows(x) || x->ne[0] != rows->n)
        return og__eshape(ex, "decoder_stack", "x must be f32 [R, D]", "x", x, NULL);
    OG__CHECK(check_net(ex, "decoder_stack", net));
    if (!rows->n) return 0;
    size_t mark = og_exec_mark(ex);
    int rc = ex->dev->be->decoder_stack ? ex->dev->be->decoder_stack(ex, x, net, kv, rows)
                                        : og__compose_decoder_stack(ex, x, net, kv, rows);
    og_exec_release(ex, mark);
    return rc;
}

int og_op_depth_ar(og_exec *ex, og_tensor *codes, const og_tensor *state,
                   const og_depth *net, og_kv *kv, const int32_t *slots,
                   const og_sample_row *rows) {
    OG__CHECK(og__usable(ex, "depth_ar", "codes", codes, "state", state, NULL));
    OG__CHECK(check_net(ex, "depth_ar", &net->net));
    if (state->rank != 2 || !og__is_f32_rows(state) || codes->rank != 2 ||
        codes->dtype != OG_I32 || codes->ne[0] != state->ne[0] ||
        codes->ne[1] != net->n_groups || net->n_groups < 1)
        return og__eshape(ex, "depth_ar",
                          "codes must be i32 [R, groups], state f32 [R, H]", "codes",
                          codes, "state", state, NULL);
    if (!state->ne[0] || net->n_groups == 1) return 0;
    size_t mark = og_exec_mark(ex);
    int rc = ex->dev->be->depth_ar
                 ? ex->dev->be->depth_ar(ex, codes, state, net, kv, slots, rows)
                 : og__compose_depth_ar(ex, codes, state, net, kv, slots, rows);
    og_exec_release(ex, mark);
    return rc;
}
