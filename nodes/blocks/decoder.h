/* A pre-norm transformer decoder, from config keys and checkpoint names to an og_decoder.
 *
 * The layout is the one that Llama and Qwen share: RMSNorm, q/k/v/o without bias, RoPE in
 * halves layout, gated SiLU. Optional: per-head q and k norms (Qwen3), layer scales on both
 * branches (Mimi), a window.
 *
 *     og_decoder_cfg c;
 *     rc = og_decoder_cfg_read(section, "code_predictor_config.", &c, err);
 *     c.qk_norm = 1;
 *     og_decoder net = {0};
 *     rc = og_decoder_bind(&net, &c, &store, bind, "code_predictor.model.", err);
 *     rc = og_bind_finish(bind, err);
 *     rc = og_decoder_place(&net, &store, err);
 *     ...
 *     og_decoder_free(&net);
 */
#ifndef OG_BLOCKS_DECODER_H
#define OG_BLOCKS_DECODER_H

#include "nodes/blocks/place.h"
#include "nodes/node.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct og_decoder_cfg {
    int hidden, inter, layers, heads, kv_heads, head_dim;
    int64_t max_positions;
    float theta, eps;
    int window;      /* 0: full causal */
    int qk_norm;     /* self_attn.{q,k}_norm */
    int layer_scale; /* self_attn_layer_scale, mlp_layer_scale */
} og_decoder_cfg;

/* Read hidden_size, intermediate_size, num_hidden_layers, num_attention_heads,
 * num_key_value_heads, head_dim (default hidden_size / num_attention_heads), rope_theta,
 * rms_norm_eps, hidden_act (silu), attention_bias (false), max_position_embeddings (default
 * 32768); each key behind prefix, which is "" or ends in a dot. The last three fields of
 * out are set to 0. */
OG_MUST_CHECK int og_decoder_cfg_read(const json_t *section, const char *prefix,
                                      og_decoder_cfg *out, og_err *err);
/* Number of weights, with the final norm. */
int64_t og_decoder_params(const og_decoder_cfg *c);

/* Bind layers.N.* and norm.weight below prefix (after the binder's own prefix); faults of
 * names and shapes wait for og_bind_finish. net must be zeroed; og_decoder_free takes it
 * also after a failure. tap names stay with the caller (net->tap). */
OG_MUST_CHECK int og_decoder_bind(og_decoder *net, const og_decoder_cfg *c, og_store *store,
                                  og_bind *b, const char *prefix, og_err *err);
/* Bring all weights to the store's device, once the binder has finished. */
OG_MUST_CHECK int og_decoder_place(og_decoder *net, og_store *store, og_err *err);
void og_decoder_free(og_decoder *net); /* the weights are the store's */
/* Bytes of all bound weights. */
size_t og_decoder_bytes(const og_decoder *net);

#ifdef __cplusplus
}
#endif
#endif
