/* The kernels of isa.h for AVX2. The target is set for this file alone: the rest of the program
 * runs on any x86-64, and these functions are called after a look at the processor. */
#if defined(__x86_64__)
#pragma GCC target("avx2,fma,f16c")
#define TILE 6

#include "kernels/cpu/isa.h"
#include "kernels/cpu/vmath.h"

#include "kernels/cpu/map_impl.h"
#include "kernels/cpu/attn_impl.h"
#include "kernels/cpu/dot_impl.h"

const og__isa og__isa_avx2 = {
    .name = "AVX2",
    .tile = TILE,
    .lanes = lanes,
    .dot = dot,
    .pack = pack,
    .gemm = gemm,
    .epilogue = epilogue,
    .unary = unary,
    .binary = binary,
    .scaled_add = scaled_add,
    .snake = snake,
    .clamp = clamp,
    .rms_norm = rms_norm,
    .layer_norm = layer_norm,
    .widen = widen,
    .add_widened = add_widened,
    .depthwise = depthwise,
    .norm_rope = norm_rope,
    .scores = scores,
    .softmax = softmax,
    .mix = mix,
};
#endif
