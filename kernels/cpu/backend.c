/* The CPU backend: which instruction set, the pool, and the table. */
#include "kernels/cpu/cpu.h"
#include "kernels/ref/seq.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const og__backend backend_plain;

static int has_avx2(void) {
#if defined(__clang__) && defined(__x86_64__) /* it may not know the name f16c */
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#elif defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
#else
    return 0;
#endif
}

static int has_avx512(void) {
#if defined(__x86_64__)
    return has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
#else
    return 0;
#endif
}

static const og__isa *isa_named(const char *name) {
#if defined(__x86_64__)
    if (!strcmp(name, "avx512") && has_avx512()) return &og__isa_avx512;
    if (!strcmp(name, "avx2") && has_avx2()) return &og__isa_avx2;
#endif
    (void)name;
    return NULL;
}

/* NULL in *out means plain C. */
static int choose_isa(const og__isa **out, og_err *err) {
    const char *want = getenv("OG_ISA");
    *out = NULL;
    if (!want || !*want) {
        *out = isa_named("avx512");
        if (!*out) *out = isa_named("avx2");
        return 0;
    }
    if (!strcmp(want, "ref")) return 0;
    if (strcmp(want, "avx2") != 0 && strcmp(want, "avx512") != 0) {
        og_err_set(err, OG_EINVAL, "OG_ISA is '%s'", want);
        og_err_hint(err, "it can be ref, avx2 or avx512");
        return OG_EINVAL;
    }
    *out = isa_named(want);
    if (*out) return 0;
    return og_err_set(err, OG_EUNSUPPORTED, "OG_ISA is '%s', which this processor lacks",
                      want);
}

static int cpu_open(og_device *dev, og_err *err) {
    const og__isa *isa;
    OG__CHECK(choose_isa(&isa, err));
    OG__CHECK(og__pool_acquire(dev->threads, err));
    dev->impl = (void *)isa;
    if (!isa) dev->be = &backend_plain;
    return 0;
}

static void cpu_close(og_device *dev) {
    (void)dev;
    og__pool_release();
}

static void cpu_info(const og_device *dev, og_device_info *info) {
    const og__isa *isa = dev->impl;
    info->deterministic = 1;
    info->threads = isa ? og__pool_threads() : 1;
    snprintf(info->name, sizeof info->name, "%s, %d thread%s",
             isa ? isa->name : "plain C", info->threads, info->threads == 1 ? "" : "s");
}

#define HOST_PART                                                                        \
    .name = "cpu", .place = OG_PLACE_HOST, .open = cpu_open, .close = cpu_close,         \
    .info = cpu_info, .alloc = og__host_alloc, .free = og__host_free,                    \
    .scatter_rows = og__ref_scatter_rows, .rope_table = og__ref_rope_table,              \
    .depth_pass = og__ref_depth_pass

const og__backend og__backend_cpu = {
    HOST_PART,
    .copy = og__cpu_copy,
    .fill = og__cpu_fill,
    .gather_rows = og__cpu_gather_rows,
    .unary = og__cpu_unary,
    .binary = og__cpu_binary,
    .scaled_add = og__cpu_scaled_add,
    .snake = og__cpu_snake,
    .clamp = og__cpu_clamp,
    .rms_norm = og__cpu_rms_norm,
    .layer_norm = og__cpu_layer_norm,
    .linear = og__cpu_linear,
    .qk_norm_rope_append = og__cpu_qk_norm_rope_append,
    .attn_paged = og__cpu_attn_paged,
    .row_sum = og__cpu_row_sum,
    .conv1d = og__cpu_conv1d,
    .conv1d_depthwise = og__cpu_conv1d_depthwise,
    .pad_time = og__cpu_pad_time,
    .magnitude = og__cpu_magnitude,
    .log_floor = og__cpu_log_floor,
    .softmax_time = og__cpu_softmax_time,
    .time_stats = og__cpu_time_stats,
    .rvq_nearest = og__cpu_rvq_nearest,
    .sample = og__cpu_sample,
};

/* For processors without AVX2, and for OG_ISA=ref. */
static const og__backend backend_plain = {
    HOST_PART,
    .copy = og__ref_copy,
    .fill = og__ref_fill,
    .gather_rows = og__ref_gather_rows,
    .unary = og__ref_unary,
    .binary = og__ref_binary,
    .scaled_add = og__ref_scaled_add,
    .snake = og__ref_snake,
    .clamp = og__ref_clamp,
    .rms_norm = og__ref_rms_norm,
    .layer_norm = og__ref_layer_norm,
    .linear = og__ref_linear,
    .qk_norm_rope_append = og__ref_qk_norm_rope_append,
    .attn_paged = og__ref_attn_paged,
    .row_sum = og__ref_row_sum,
    .conv1d = og__ref_conv1d,
    .conv1d_depthwise = og__ref_conv1d_depthwise,
    .pad_time = og__ref_pad_time,
    .conv1d_valid = og__ref_conv1d_valid,
    .magnitude = og__ref_magnitude,
    .log_floor = og__ref_log_floor,
    .softmax_time = og__ref_softmax_time,
    .time_stats = og__ref_time_stats,
    .rvq_nearest = og__ref_rvq_nearest,
    .sample = og__ref_sample,
};
