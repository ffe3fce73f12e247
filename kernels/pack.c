/* Load-time repacks of convolution weights. Bytes move; no value is changed. */
#include "kernels/ops.h"

#include <string.h>

void og_pack_conv1d(og_tensor *y, const og_tensor *x) {
    int64_t cout = x->ne[0], cin = x->ne[1], k = x->ne[2];
    size_t es = og_dtype_size(x->dtype);
    const char *from = x->data;
    char *to = y->data;
    for (int64_t o = 0; o < cout; o++)
        for (int64_t j = 0; j < k; j++)
            for (int64_t c = 0; c < cin; c++, to += es)
                memcpy(to, from + (size_t)((o * cin + c) * k + j) * es, es);
}

void og_pack_conv_transpose1d(og_tensor *y, const og_tensor *x, int stride) {
    int64_t cin = x->ne[0], cout = x->ne[1], k = x->ne[2],
            taps = (k + stride - 1) / stride;
    size_t es = og_dtype_size(x->dtype);
    const char *from = x->data;
    char *to = y->data;
    for (int64_t p = 0; p < stride; p++)
        for (int64_t o = 0; o < cout; o++)
            for (int64_t j = 0; j < taps; j++) {
                int64_t column = p + (taps - 1 - j) * stride;
                for (int64_t c = 0; c < cin; c++, to += es) {
                    if (column < k)
                        memcpy(to, from + (size_t)((c * cout + o) * k + column) * es, es);
                    else
                        memset(to, 0, es);
                }
            }
}
