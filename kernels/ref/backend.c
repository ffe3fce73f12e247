#include "kernels/base/alloc.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/seq.h"

#include <stdio.h>

int og__host_alloc(og_device *dev, size_t bytes, void **out, og_err *err) {
    (void)dev;
    *out = og_lazy(bytes);
    if (*out) return 0;
    return og_err_set(err, OG_ENOMEM, "no memory for %zu bytes", bytes);
}

void og__host_free(og_device *dev, void *p) {
    (void)dev;
    og_lazy_free(p);
}

static int ref_open(og_device *dev, og_err *err) {
    (void)dev;
    (void)err;
    return 0;
}

static void ref_close(og_device *dev) {
    (void)dev;
}

static void ref_info(const og_device *dev, og_device_info *info) {
    (void)dev;
    snprintf(info->name, sizeof info->name, "plain C, 1 thread");
    info->deterministic = 1;
    info->threads = 1;
}

const og__backend og__backend_ref = {
    .name = "ref",
    .place = OG_PLACE_HOST,
    .open = ref_open,
    .close = ref_close,
    .info = ref_info,
    .alloc = og__host_alloc,
    .free = og__host_free,
    .copy = og__ref_copy,
    .fill = og__ref_fill,
    .gather_rows = og__ref_gather_rows,
    .scatter_rows = og__ref_scatter_rows,
    .unary = og__ref_unary,
    .binary = og__ref_binary,
    .scaled_add = og__ref_scaled_add,
    .snake = og__ref_snake,
    .clamp = og__ref_clamp,
    .rms_norm = og__ref_rms_norm,
    .layer_norm = og__ref_layer_norm,
    .linear = og__ref_linear,
    .rope_table = og__ref_rope_table,
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
    .depth_pass = og__ref_depth_pass,
};
