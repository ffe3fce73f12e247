/* The dot family for bf16 weights; a file of its own so that the three compile side by side. */
#include "kernels/cuda/gemv.cuh"

int og__cuda_dot_bf16(og_exec *ex, const char *op, og__dot *d) {
    return dot_of<w_bf16>(ex, op, d);
}
