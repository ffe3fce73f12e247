/* depth_ar with what all passes share done once before the first: the rows of every pass, their
 * parameters and the rope table; with the final norm within the head's product; and with a code
 * embedded where it is drawn. */
#include "kernels/cuda/cuda.h"

typedef struct passes {
    og__depth_pass first; /* its buffers, and behind them those of the others */
    og_tensor cos, sin;   /* of the rows of all passes: 2 n_seq, then n_seq each */
    og_tensor next;       /* the embedded input of the pass to come */
} passes;

static og_tensor scratch(og_exec *ex, og_dtype t, int64_t rows, int64_t cols) {
    return og_exec_alloc(ex, t, 2, (int64_t[]){rows, cols});
}

static int prepare(og_exec *ex, passes *p, const og_tensor *state, const og_depth *net,
                   const int32_t *slots, const og_sample_row *given) {
    int n_seq = (int)state->ne[0], n = net->n_groups - 1;
    int rows = (n + 1) * n_seq, half = net->net.head_dim / 2;
    og_tensor slot = scratch(ex, OG_I32, 3, n_seq), pos = scratch(ex, OG_I32, rows, 3);
    og_tensor cu = scratch(ex, OG_I32, 2, n_seq + 1);
    og_tensor params = scratch(ex, OG_U8, (int64_t)n * n_seq, (int64_t)sizeof *given);
    p->cos = scratch(ex, OG_F32, rows, half);
    p->sin = scratch(ex, OG_F32, rows, half);
    p->next = scratch(ex, OG_F32, n_seq, state->ne[1]);
    OG__CHECK(og__usable(ex, "depth_ar", "scratch", &p->next, "scratch", &slot, "scratch",
                         &pos, "scratch", &cu, "scratch", &params, "scratch", &p->cos,
                         "scratch", &p->sin, NULL));
    p->first = (og__depth_pass){n_seq,     0,        slots,   given,
                                slot.data, pos.data, cu.data, params.data};
    if (og__measuring(ex)) return 0;
    OG__CHECK(og__cuda_depth_passes(ex, &p->first, n));
    og_rows all = {rows, n_seq, p->first.slot, p->first.pos, p->first.cu};
    return og__cuda_rope_table(ex, &p->cos, &p->sin, &all, &net->net.inv_freq);
}

static int head(og_exec *ex, og_tensor *logits, const og_tensor *x, const og_decoder *net,
                const og_tensor *w) {
    if (!og_tensor_present(&net->final_norm))
        return og_op_linear(ex, 1, logits, x, w, NULL, NULL);
    return og_op_norm_linear(ex, 1, logits, x, &net->final_norm, net->eps, w, NULL);
}

static int one_pass(og_exec *ex, int g, const passes *p, og_tensor *codes,
                    const og_tensor *state, const og_depth *net, og_kv *kv) {
    int n_seq = p->first.n_seq, n = g ? n_seq : 2 * n_seq, from = g ? (g + 1) * n_seq : 0;
    og_rows rows = {n, n_seq, p->first.slot, p->first.pos, p->first.cu};
    const og_sample_row *params = p->first.params;
    if (!og__measuring(ex)) {
        rows.pos += 3 * from;
        params += g * n_seq;
        if (g) rows.slot += 2 * n_seq, rows.cu += n_seq + 1;
    }
    og_tensor cos = og_tensor_rows(&p->cos, from, n), sin = og_tensor_rows(&p->sin, from, n);
    og_tensor x = p->next, next = p->next, ids = og__depth_column(codes, g + 1);
    if (!g) OG__CHECK(og__depth_embed(ex, &x, g, codes, state, net));
    OG__CHECK(og__depth_project(ex, &x, net));
    OG__CHECK(og__compose_layers(ex, &x, &net->net, kv, &rows, &cos, &sin));
    og_tensor last = og__depth_last(&x, g, n_seq);
    og_tensor logits = scratch(ex, OG_F32, n_seq, net->head[g].ne[0]);
    OG__CHECK(head(ex, &logits, &last, &net->net, &net->head[g]));
    if (g + 2 < net->n_groups)
        return og__cuda_sample_embed(ex, &ids, &logits, params, &net->embed[g], &next);
    return og_op_sample(ex, &ids, &logits, params, NULL, NULL, NULL);
}

/* Tables of the state's width; others are refused with words by the composed op. */
static int is_plain(const og_depth *net, int64_t width) {
    for (int g = 0; g + 1 < net->n_groups; g++)
        if (net->embed[g].rank != 2 || !og__is_weight(net->embed[g].dtype) ||
            net->embed[g].ne[1] != width || net->embed[g].stride[1] != 1)
            return 0;
    return 1;
}

/* With a listener the norm and the pass have to be told apart. */
int og__cuda_depth_ar(og_exec *ex, og_tensor *codes, const og_tensor *state,
                      const og_depth *net, og_kv *kv, const int32_t *slots,
                      const og_sample_row *rows) {
    if (og_exec_tapped(ex) || !is_plain(net, state->ne[1]))
        return og__compose_depth_ar(ex, codes, state, net, kv, slots, rows);
    passes p;
    OG__CHECK(prepare(ex, &p, state, net, slots, rows));
    for (int g = 0; g + 1 < net->n_groups; g++) {
        size_t mark = og_exec_mark(ex);
        OG__CHECK(one_pass(ex, g, &p, codes, state, net, kv));
        og_exec_release(ex, mark);
    }
    return 0;
}
