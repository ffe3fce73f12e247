/* The dot family for f16 weights; a file of its own so that the three compile side by side. */
#include "kernels/cuda/gemv.cuh"

int og__cuda_dot_f16(og_exec *ex, const char *op, og__dot *d) {
    return dot_of<w_f16>(ex, op, d);
}
