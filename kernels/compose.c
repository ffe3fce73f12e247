/* Macro ops made of other ops: the default of every backend that has no kernel of its own
 * for them. All intermediate results are scratch of the caller's exec. */
#include "kernels/check.h"

static og_tensor scratch_2d(og_exec *ex, int64_t rows, int64_t cols) {
    return og_exec_alloc(ex, OG_F32, 2, (int64_t[]){rows, cols});
}

static og_tensor normed(og_exec *ex, const og_tensor *x, const og_tensor *norm, float eps,
                        int *rc) {
    og_tensor y = og_exec_alloc(ex, OG_F32, x->rank, x->ne);
    *rc = og_op_rms_norm(ex, &y, x, norm, eps);
    return y;
}

int og__compose_norm_linear(og_exec *ex, int n, og_tensor *y, const og_tensor *x,
                            const og_tensor *norm, float eps, const og_tensor *w,
                            const og_tensor *bias) {
    int rc;
    og_tensor t = normed(ex, x, norm, eps, &rc);
    return rc < 0 ? rc : og_op_linear(ex, n, y, &t, w, bias, NULL);
}

int og__compose_glu_linear(og_exec *ex, og_tensor *y, const og_tensor *x,
                           const og_tensor *norm, float eps, const og_tensor *gate,
                           const og_tensor *up, og_act act) {
    int rc;
    og_tensor t = normed(ex, x, norm, eps, &rc);
    if (rc < 0) return rc;
    og_tensor half = og_exec_alloc(ex, OG_F32, y->rank, y->ne);
    og_tensor out[2] = {*y, half}, w[2] = {*gate, *up};
    OG__CHECK(og_op_linear(ex, 2, out, &t, w, NULL, NULL));
    OG__CHECK(og_op_unary(ex, y, y, act));
    return og_op_binary(ex, y, y, &half, OG_MUL);
}

/* The r phases are r * Cout channels of one causal convolution: [R, r * Cout] is [R * r, Cout]
 * in memory, and the bias repeats for each phase. */
int og__compose_conv_transpose1d(og_exec *ex, og_tensor *y, const og_tensor *x,
                                 const og_tensor *w, const og_tensor *bias,
                                 og_tensor *state, const og_rows *rows, int stride) {
    int64_t width = w->ne[0], cout = width / stride;
    og_tensor wide = og_tensor_view(y, 2, (int64_t[]){x->ne[0], width});
    og_tensor repeated = {0};
    if (og_tensor_present(bias)) {
        repeated = og_exec_alloc(ex, OG_F32, 1, (int64_t[]){width});
        og_tensor from = og_tensor_view(bias, 1, (int64_t[]){cout});
        for (int p = 0; p < stride; p++) {
            og_tensor part = og_tensor_rows(&repeated, p * cout, cout);
            OG__CHECK(og_op_copy(ex, &part, &from));
        }
    }
    return og_op_conv1d(ex, &wide, x, w, &repeated, state, rows, 1, NULL);
}

static int attention(og_exec *ex, og_tensor *x, const og_decoder *net,
                     const og_decoder_layer *l, og_kv *kv, const og_rows *rows,
                     const og_tensor *cos, const og_tensor *sin) {
    int64_t r = x->ne[0], dim = net->head_dim;
    int64_t q_ne[3] = {r, net->n_heads, dim}, kv_ne[3] = {r, net->n_kv_heads, dim};
    og_tensor qkv[3] = {og_exec_alloc(ex, OG_F32, 3, q_ne),
                        og_exec_alloc(ex, OG_F32, 3, kv_ne),
                        og_exec_alloc(ex, OG_F32, 3, kv_ne)};
    og_tensor w[3] = {l->q, l->k, l->v}, y = og_exec_alloc(ex, OG_F32, 3, q_ne);
    float scale = 1.0f / __builtin_sqrtf((float)dim);
    OG__CHECK(og_op_norm_linear(ex, 3, qkv, x, &l->input_norm, net->eps, w, NULL));
    OG__CHECK(og__append_attend(ex, &y, qkv, l, net->eps, cos, sin, rows, kv, scale,
                                net->window));
    og_epilogue add = {OG_ACT_NONE,
                       og_tensor_present(&l->attn_scale) ? &l->attn_scale : NULL, x};
    return og_op_linear(ex, 1, x, &y, &l->o, NULL, &add);
}

static int mlp(og_exec *ex, og_tensor *x, const og_decoder *net,
               const og_decoder_layer *l) {
    og_tensor h = scratch_2d(ex, x->ne[0], l->gate.ne[0]);
    OG__CHECK(og_op_glu_linear(ex, &h, x, &l->post_norm, net->eps, &l->gate, &l->up,
                               OG_ACT_SILU));
    og_epilogue add = {OG_ACT_NONE,
                       og_tensor_present(&l->mlp_scale) ? &l->mlp_scale : NULL, x};
    return og_op_linear(ex, 1, x, &h, &l->down, NULL, &add);
}

int og__compose_layers(og_exec *ex, og_tensor *x, const og_decoder *net, og_kv *kv,
                       const og_rows *rows, const og_tensor *cos, const og_tensor *sin) {
    const char *tap = net->tap ? net->tap : "decoder";
    for (int i = 0; i < net->n_layers; i++) {
        size_t mark = og_exec_mark(ex);
        OG__CHECK(attention(ex, x, net, &net->layers[i], &kv[i], rows, cos, sin));
        og_exec_release(ex, mark);
        og_tap(ex, x, "%s.layers.%d.attn", tap, i);
        OG__CHECK(mlp(ex, x, net, &net->layers[i]));
        og_exec_release(ex, mark);
        og_tap(ex, x, "%s.layers.%d", tap, i);
    }
    return 0;
}

int og__compose_decoder_stack(og_exec *ex, og_tensor *x, const og_decoder *net, og_kv *kv,
                              const og_rows *rows) {
    const char *tap = net->tap ? net->tap : "decoder";
    og_tensor cos = scratch_2d(ex, rows->n, net->head_dim / 2);
    og_tensor sin = scratch_2d(ex, rows->n, net->head_dim / 2);
    OG__CHECK(og_op_rope_table(ex, &cos, &sin, rows, &net->inv_freq));
    OG__CHECK(og__compose_layers(ex, x, net, kv, rows, &cos, &sin));
    if (!og_tensor_present(&net->final_norm)) return 0;
    OG__CHECK(og_op_rms_norm(ex, x, x, &net->final_norm, net->eps));
    og_tap(ex, x, "%s.norm", tap);
    return 0;
}

/* Row i of each pair in [n, 2, width], as [n, width]. */
static og_tensor pair_column(const og_tensor *x, int i) {
    og_tensor t = *x;
    t.rank = 2;
    t.ne[1] = x->ne[2];
    t.stride[1] = x->stride[2];
    if (t.data) t.data = (float *)x->data + i * x->stride[1];
    return t;
}

og_tensor og__depth_column(const og_tensor *codes, int g) {
    og_tensor t = *codes;
    t.rank = 1;
    if (t.data) t.data = (int32_t *)codes->data + g * codes->stride[1];
    return t;
}

int og__depth_embed(og_exec *ex, og_tensor *in, int g, const og_tensor *codes,
                    const og_tensor *state, const og_depth *net) {
    int64_t r = state->ne[0], h = state->ne[1];
    og_tensor ids = og__depth_column(codes, g);
    if (g) {
        *in = scratch_2d(ex, r, h);
        return og_op_gather_rows(ex, in, &net->embed[g - 1], &ids);
    }
    og_tensor pair = og_exec_alloc(ex, OG_F32, 3, (int64_t[]){r, 2, h});
    og_tensor even = pair_column(&pair, 0), odd = pair_column(&pair, 1);
    OG__CHECK(og_op_copy(ex, &even, state));
    OG__CHECK(og_op_gather_rows(ex, &odd, &net->first, &ids));
    *in = og_tensor_view(&pair, 2, (int64_t[]){2 * r, h});
    return 0;
}

int og__depth_project(og_exec *ex, og_tensor *x, const og_depth *net) {
    if (!og_tensor_present(&net->proj)) return 0;
    og_tensor p = scratch_2d(ex, x->ne[0], net->proj.ne[0]), from = *x;
    *x = p;
    return og_op_linear(ex, 1, &p, &from, &net->proj, &net->proj_bias, NULL);
}

og_tensor og__depth_last(const og_tensor *x, int g, int64_t n_seq) {
    if (g) return *x;
    og_tensor pair = og_tensor_view(x, 3, (int64_t[]){n_seq, 2, x->ne[1]});
    return pair_column(&pair, 1);
}

typedef struct depth_buffers {
    og_tensor slot, pos, cu, params;
} depth_buffers;

static depth_buffers depth_alloc(og_exec *ex, int64_t n_seq) {
    int64_t rows = 2 * n_seq, bytes = n_seq * (int64_t)sizeof(og_sample_row);
    return (depth_buffers){og_exec_alloc(ex, OG_I32, 1, (int64_t[]){rows}),
                           og_exec_alloc(ex, OG_I32, 1, (int64_t[]){3 * rows}),
                           og_exec_alloc(ex, OG_I32, 1, (int64_t[]){n_seq + 1}),
                           og_exec_alloc(ex, OG_U8, 1, (int64_t[]){bytes})};
}

static int depth_one(og_exec *ex, int g, const depth_buffers *b, og_tensor *codes,
                     const og_tensor *state, const og_depth *net, og_kv *kv,
                     const int32_t *slots, const og_sample_row *given) {
    int n_seq = (int)state->ne[0];
    og__depth_pass pass = {n_seq,        g,           slots,      given,
                           b->slot.data, b->pos.data, b->cu.data, b->params.data};
    if (!og__measuring(ex)) OG__CHECK(ex->dev->be->depth_pass(ex, &pass));
    og_rows rows = {g ? n_seq : 2 * n_seq, n_seq, pass.slot, pass.pos, pass.cu};
    og_tensor x;
    OG__CHECK(og__depth_embed(ex, &x, g, codes, state, net));
    OG__CHECK(og__depth_project(ex, &x, net));
    OG__CHECK(og_op_decoder_stack(ex, &x, &net->net, kv, &rows));
    og_tensor last = og__depth_last(&x, g, n_seq), ids = og__depth_column(codes, g + 1);
    og_tensor logits = scratch_2d(ex, n_seq, net->head[g].ne[0]);
    OG__CHECK(og_op_linear(ex, 1, &logits, &last, &net->head[g], NULL, NULL));
    og_tap(ex, &logits, "%s.head.%d", net->net.tap ? net->net.tap : "depth", g);
    return og_op_sample(ex, &ids, &logits, b->params.data, NULL, NULL, NULL);
}

int og__compose_depth_ar(og_exec *ex, og_tensor *codes, const og_tensor *state,
                         const og_depth *net, og_kv *kv, const int32_t *slots,
                         const og_sample_row *rows) {
    depth_buffers b = depth_alloc(ex, state->ne[0]);
    OG__CHECK(og__usable(ex, "depth_ar", "scratch", &b.slot, "scratch", &b.pos, "scratch",
                         &b.cu, "scratch", &b.params, NULL));
    for (int g = 0; g + 1 < net->n_groups; g++) {
        size_t mark = og_exec_mark(ex);
        OG__CHECK(depth_one(ex, g, &b, codes, state, net, kv, slots, rows));
        og_exec_release(ex, mark);
    }
    return 0;
}
