/* A GPU: opening, memory, errors. Memory is plain cudaMalloc, zeroed on a stream of its own
 * that the caller waits for, so that no exec's stream is ever held up by loading. */
#include "kernels/cuda/cuda.h"
#include "kernels/base/alloc.h"

#include <stdio.h>
#include <string.h>

#define MIB (1024.0 * 1024.0)
#define LEAST_MAJOR 9 /* compute capability the kernels are built for */

int og__cuda_sticky(cudaError_t e) {
    switch (e) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorDevicesUnavailable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorUnknown: return 1;
    default: return 0;
    }
}

static const char *remember(og_device *dev, cudaError_t e) {
    og__cuda_device *d = og__cuda_device_of(dev);
    (void)cudaGetLastError(); /* an error that is not sticky must not meet the next call */
    if (!og__cuda_sticky(e)) return "";
    if (d) d->lost = 1;
    return "; the device is lost to this process, which must be restarted";
}

int og__cuda_report(og_device *dev, const char *what, cudaError_t e, og_err *err) {
    const char *lost = remember(dev, e);
    return og_err_set(err, OG_EDEVICE, "GPU %d: %s: %s (%s)%s", dev->index, what,
                      cudaGetErrorString(e), cudaGetErrorName(e), lost);
}

int og__cuda_fail(og_exec *ex, const char *op, cudaError_t e) {
    const char *lost = remember(ex->dev, e);
    return og__fail(ex, OG_EDEVICE, "%s: GPU %d: %s (%s)%s", op, ex->dev->index,
                    cudaGetErrorString(e), cudaGetErrorName(e), lost);
}

int og__cuda_launched(og_exec *ex, const char *op, cudaError_t e) {
    og__cuda_exec *c = og__cuda_exec_of(ex);
#ifdef OG_CUDA_INJECT
    if (e == cudaSuccess && ex->mode == OG_RUN) e = og__cuda_inject(op, c->stream);
#endif
    if (e == cudaSuccess && c->trace && ex->mode == OG_RUN)
        e = cudaStreamSynchronize(c->stream);
    return e == cudaSuccess ? 0 : og__cuda_fail(ex, op, e);
}

/* Others on the same GPU may have lost it: the driver knows. */
int og__cuda_lost(const og_device *dev) {
    og__cuda_device *d = og__cuda_device_of(dev);
    if (d->lost) return 1;
    cudaError_t e = cudaSetDevice(dev->index);
    if (e == cudaSuccess) e = cudaStreamQuery(d->io);
    if (e != cudaSuccess) (void)cudaGetLastError();
    return og__cuda_sticky(e);
}

static int no_device(og_device *dev, cudaError_t e, int count, og_err *err) {
    if (e == cudaErrorInsufficientDriver) {
        int driver = 0, runtime = 0;
        cudaDriverGetVersion(&driver);
        cudaRuntimeGetVersion(&runtime);
        return og__no_driver(driver, runtime, err);
    }
    if (e != cudaSuccess && e != cudaErrorNoDevice)
        return og__cuda_report(dev, "cannot be used", e, err);
    return og__no_gpu(dev->index, e == cudaSuccess ? count : 0, err);
}

static int describe(og_device *dev, og__cuda_device *d, og_err *err) {
    struct cudaDeviceProp p;
    cudaError_t e = cudaGetDeviceProperties(&p, dev->index);
    if (e != cudaSuccess) return og__cuda_report(dev, "properties", e, err);
    d->sms = p.multiProcessorCount;
    d->major = p.major;
    d->minor = p.minor;
    d->memory = p.totalGlobalMem;
    snprintf(d->name, sizeof d->name, "%.64s", p.name);
    if (p.major >= LEAST_MAJOR) return 0;
    return og_err_set(err, OG_EUNSUPPORTED, "GPU %d (%s) has compute capability %d.%d, this "
                      "build needs %d.0", dev->index, d->name, p.major, p.minor, LEAST_MAJOR);
}

int og__cuda_open(og_device *dev, og_err *err) {
    int count = 0;
    cudaError_t e = cudaGetDeviceCount(&count);
    if (e != cudaSuccess || dev->index >= count) {
        (void)cudaGetLastError();
        return no_device(dev, e, count, err);
    }
    og__cuda_device *d = og_calloc(1, sizeof *d);
    if (!d) return og_err_set(err, OG_ENOMEM, "no memory for a device");
    int rc = describe(dev, d, err);
    if (rc < 0) goto fail;
    rc = OG_EDEVICE;
    if ((e = cudaSetDevice(dev->index)) != cudaSuccess ||
        (e = cudaStreamCreateWithFlags(&d->io, cudaStreamNonBlocking)) != cudaSuccess) {
        og__cuda_report(dev, "cannot be used", e, err);
        goto fail;
    }
    dev->impl = d;
    return 0;
fail:
    og_free(d);
    return rc;
}

void og__cuda_close(og_device *dev) {
    og__cuda_device *d = og__cuda_device_of(dev);
    cudaSetDevice(dev->index);
    cudaStreamDestroy(d->io);
    og_free(d);
    dev->impl = NULL;
}

void og__cuda_info(const og_device *dev, og_device_info *info) {
    const og__cuda_device *d = og__cuda_device_of(dev);
    snprintf(info->name, sizeof info->name, "%s, sm_%d%d, %d SMs", d->name, d->major, d->minor,
             d->sms);
    info->deterministic = dev->deterministic;
    info->threads = 1;
    info->memory = d->memory;
}

static int no_memory(og_device *dev, size_t bytes, og_err *err) {
    size_t left = 0, total = 0;
    (void)cudaGetLastError();
    cudaMemGetInfo(&left, &total);
    return og_err_set(err, OG_ENOMEM, "GPU %d has no memory for %.1f MiB: %.1f of %.1f MiB "
                      "are free", dev->index, (double)bytes / MIB, (double)left / MIB,
                      (double)total / MIB);
}

int og__cuda_alloc(og_device *dev, size_t bytes, void **out, og_err *err) {
    og__cuda_device *d = og__cuda_device_of(dev);
    void *p = NULL;
    cudaError_t e = cudaSetDevice(dev->index);
    if (e == cudaSuccess) e = cudaMalloc(&p, bytes ? bytes : 1);
    if (e == cudaErrorMemoryAllocation) return no_memory(dev, bytes, err);
    if (e == cudaSuccess) e = cudaMemsetAsync(p, 0, bytes, d->io);
    if (e == cudaSuccess) e = cudaStreamSynchronize(d->io);
    if (e != cudaSuccess) {
        int rc = og__cuda_report(dev, "allocation", e, err);
        cudaFree(p);
        return rc;
    }
    *out = p;
    return 0;
}

void og__cuda_free(og_device *dev, void *p) {
    cudaSetDevice(dev->index);
    cudaFree(p);
}

static int move(og_device *dev, void *dst, const void *src, size_t bytes,
                enum cudaMemcpyKind kind, const char *what, og_err *err) {
    og__cuda_device *d = og__cuda_device_of(dev);
    cudaError_t e = cudaSetDevice(dev->index);
    if (e == cudaSuccess) e = cudaMemcpyAsync(dst, src, bytes, kind, d->io);
    if (e == cudaSuccess) e = cudaStreamSynchronize(d->io);
    return e == cudaSuccess ? 0 : og__cuda_report(dev, what, e, err);
}

int og__cuda_upload(og_device *dev, void *dst, const void *src, size_t bytes, og_err *err) {
    return move(dev, dst, src, bytes, cudaMemcpyHostToDevice, "upload", err);
}

int og__cuda_download(og_device *dev, void *dst, const void *src, size_t bytes, og_err *err) {
    return move(dev, dst, src, bytes, cudaMemcpyDeviceToHost, "download", err);
}

int og__cuda_alloc_host(og_device *dev, size_t bytes, void **out, og_err *err) {
    cudaError_t e = cudaSetDevice(dev->index);
    if (e == cudaSuccess) e = cudaHostAlloc(out, bytes ? bytes : 1, cudaHostAllocDefault);
    if (e != cudaSuccess) return og__cuda_report(dev, "pinned memory", e, err);
    memset(*out, 0, bytes);
    return 0;
}

void og__cuda_free_host(og_device *dev, void *p) {
    cudaSetDevice(dev->index);
    cudaFreeHost(p);
}
