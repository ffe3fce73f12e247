#include "graph/cli/ops.h"

#include <stddef.h>

const og__op_doc og__op_docs[] = {
    {"copy", "move", "copy with a cast, any strides"},
    {"fill", "move", "one value everywhere"},
    {"gather_rows", "move", "rows of a table by id, widened to f32"},
    {"scatter_rows", "move", "rows to places by id"},
    {"unary", "map", "silu, gelu, relu, elu, tanh, sigmoid, exp"},
    {"binary", "map", "add, sub, mul, div; the second may stretch over rows"},
    {"scaled_add", "map", "residual branch with a layer scale"},
    {"snake", "map", "SnakeBeta of audio decoders"},
    {"clamp", "map", "limit to a range"},
    {"rms_norm", "norm", "root mean square norm"},
    {"layer_norm", "norm", "mean and variance norm"},
    {"linear", "linear", "several weights over one input, with an epilogue"},
    {"norm_linear", "linear", "rms_norm, then linear"},
    {"glu_linear", "linear", "rms_norm, then gate and up with an activation"},
    {"rope_table", "attention", "cosines and sines of positions"},
    {"qk_norm_rope_append", "attention",
     "norm q and k, rotate them, append k and v to pages"},
    {"attn_paged", "attention", "causal attention over pages, with a window if wanted"},
    {"row_sum", "rows", "sums of table rows: what a recipe describes"},
    {"conv1d", "convolution", "causal, dilated, with carried state"},
    {"conv1d_depthwise", "convolution", "causal, one channel at a time"},
    {"conv_transpose1d", "convolution", "causal upsampling with carried state"},
    {"sample", "sampling", "penalties, bans, temperature, top-k, top-p, min-p, one draw"},
    {"decoder_stack", "macro", "layers of a pre-norm decoder"},
    {"depth_ar", "macro", "code groups of a frame, one after another"},
    {NULL, NULL, NULL},
};
