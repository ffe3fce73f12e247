/* The structs behind og_device and og_exec, for the files of this room.
 *
 * An exec's arena is a bump allocator over device memory. used counts every request, also
 * beyond the end, so that one measuring pass gives the true peak.
 */
#ifndef OG_KERNELS_EXEC_H
#define OG_KERNELS_EXEC_H

#include "kernels/backend.h"

#define OG__SCRATCH_ALIGN 64
#define OG__ERROR_MAX 512

struct og_device {
    const og__backend *be;
    og_place place;
    int index;
    int threads; /* asked for at open */
    int deterministic; /* bits over speed */
    void *impl;  /* of the backend */
};

struct og_exec {
    og_device *dev;
    og_exec_mode mode;
    unsigned char *arena;
    size_t cap, used, peak;
    size_t staged, staged_peak; /* bytes of a step that travel to the device */
    og_tap_fn *tap;
    void *tap_arg;
    void *impl;      /* of the backend: its stream */
    uint64_t stamps; /* given so far */
    char error[OG__ERROR_MAX];
};

static inline int og__measuring(const og_exec *ex) {
    return ex->mode == OG_MEASURE;
}

/* Why a GPU cannot be opened; versions as CUDA counts them (13000), driver 0: there is none. */
int og__no_driver(int driver, int runtime, og_err *err);
int og__no_gpu(int index, int count, og_err *err);

/* Write the words of a failure into the exec and return code. */
int og__fail(og_exec *ex, int code, const char *fmt, ...) OG_PRINTF(3, 4);

#endif
