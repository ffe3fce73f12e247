/* Tensors: what every op reads and writes.
 *
 * og_tensor is a value: copying it copies the view, never the data. It owns nothing.
 * ne[] is outermost first (row-major), strides count elements, rank is 1 to 6.
 *
 *     og_tensor x = og_tensor_2d(OG_F32, rows, width, data);
 *     og_tensor top = og_tensor_rows(&x, 0, 4);      // the first four rows
 */
#ifndef OG_TENSOR_H
#define OG_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OG_MAX_RANK 6

/* name, bytes per element, spelling in safetensors */
#define OG_DTYPE_LIST(X)    \
    X(OG_F32, 4, "F32")     \
    X(OG_F16, 2, "F16")     \
    X(OG_BF16, 2, "BF16")   \
    X(OG_F64, 8, "F64")     \
    X(OG_I64, 8, "I64")     \
    X(OG_I32, 4, "I32")     \
    X(OG_I16, 2, "I16")     \
    X(OG_I8, 1, "I8")       \
    X(OG_U64, 8, "U64")     \
    X(OG_U32, 4, "U32")     \
    X(OG_U16, 2, "U16")     \
    X(OG_U8, 1, "U8")       \
    X(OG_BOOL, 1, "BOOL")   \
    X(OG_F8_E4M3, 1, "F8_E4M3") \
    X(OG_F8_E5M2, 1, "F8_E5M2")

#define OG_DTYPE_ENUM(name, size, text) name,
typedef enum og_dtype { OG_DTYPE_LIST(OG_DTYPE_ENUM) OG_DTYPE_COUNT } og_dtype;
#undef OG_DTYPE_ENUM

size_t og_dtype_size(og_dtype t);
const char *og_dtype_name(og_dtype t);

/* Where bytes lie: host memory, or a CUDA device with its index. */
typedef enum og_place_kind { OG_PLACE_HOST, OG_PLACE_CUDA } og_place_kind;
typedef struct og_place {
    og_place_kind kind;
    int index;
} og_place;

typedef struct og_tensor {
    og_dtype dtype;
    int rank;
    int64_t ne[OG_MAX_RANK];
    int64_t stride[OG_MAX_RANK];
    og_place place;
    void *data; /* NULL while an exec is measuring; may be misaligned for the dtype when it
                   is a weight mapped from a file: read it with memcpy or unaligned loads */
} og_tensor;

/* Dense host tensors over data that the caller owns. */
og_tensor og_tensor_1d(og_dtype t, int64_t a, void *data);
og_tensor og_tensor_2d(og_dtype t, int64_t a, int64_t b, void *data);
og_tensor og_tensor_3d(og_dtype t, int64_t a, int64_t b, int64_t c, void *data);
og_tensor og_tensor_nd(og_dtype t, int rank, const int64_t *ne, void *data);

int64_t og_tensor_count(const og_tensor *t); /* elements */
size_t og_tensor_bytes(const og_tensor *t);  /* of a dense tensor of this shape */
int og_tensor_dense(const og_tensor *t);     /* row-major without gaps */
int og_tensor_present(const og_tensor *t);   /* rank > 0: optional tensors have rank 0 */
/* View of rows [from, from + n) of the outermost dimension. */
og_tensor og_tensor_rows(const og_tensor *t, int64_t from, int64_t n);
/* The same dense data under another shape; the counts must agree. */
og_tensor og_tensor_view(const og_tensor *t, int rank, const int64_t *ne);
/* "f32[3,40]" into buf. Returns buf. */
char *og_tensor_str(const og_tensor *t, char *buf, size_t size);

/* Widen one element; the bits are exact for every float type here. */
float og_bf16_to_f32(uint16_t v);
float og_f16_to_f32(uint16_t v);
uint16_t og_f32_to_bf16(float v); /* round to nearest even */
uint16_t og_f32_to_f16(float v);
float og_f8_e4m3_to_f32(uint8_t v);
float og_f8_e5m2_to_f32(uint8_t v);

#ifdef __cplusplus
}
#endif
#endif
