/* The backends of this binary, and how a device is opened by name. */
#include "kernels/base/alloc.h"
#include "kernels/exec.h"

#include <string.h>

static const og__backend *const backends[] = {
    &og__backend_ref,
    &og__backend_cpu,
#ifdef OG_WITH_CUDA
    &og__backend_cuda,
#endif
};
#define N_BACKENDS (sizeof backends / sizeof backends[0])

static const char *const backend_names[] = {
    "ref",
    "cpu",
#ifdef OG_WITH_CUDA
    "cuda",
#endif
    NULL,
};

const char *const *og_device_backends(void) {
    return backend_names;
}

static const og__backend *find(const char *name) {
    for (size_t i = 0; i < N_BACKENDS; i++)
        if (!strcmp(backends[i]->name, name)) return backends[i];
    return NULL;
}

static int unknown(const char *name, og_err *err) {
    if (!strcmp(name, "cuda")) {
        og_err_set(err, OG_EUNSUPPORTED, "this build has no CUDA backend");
        og_err_hint(err, "configure with -DOG_CUDA=ON, or use backend: cpu");
        return OG_EUNSUPPORTED;
    }
    og_err_set(err, OG_EUNSUPPORTED, "there is no backend called '%s'", name);
    og_err_hint(err, "the backends are cpu, cuda and ref");
    return OG_EUNSUPPORTED;
}

int og_device_open(const char *backend, int index, int threads, og_device **out,
                   og_err *err) {
    *out = NULL;
    const og__backend *be = find(backend);
    if (!be) return unknown(backend, err);
    if (index < 0 || threads < 0)
        return og_err_set(err, OG_EINVAL,
                          "device index %d or thread count %d is negative", index,
                          threads);
    og_device *dev = og_calloc(1, sizeof *dev);
    if (!dev) return og_err_set(err, OG_ENOMEM, "no memory for a device");
    dev->be = be;
    dev->place.kind = be->place;
    dev->place.index = be->place == OG_PLACE_HOST ? 0 : index;
    dev->index = index;
    dev->threads = threads;
    int rc = be->open(dev, err);
    if (rc < 0) {
        og_free(dev);
        return rc;
    }
    *out = dev;
    return 0;
}

void og_device_close(og_device *dev) {
    if (!dev) return;
    dev->be->close(dev);
    og_free(dev);
}

void og_device_set_deterministic(og_device *dev, int on) {
    dev->deterministic = on != 0;
}

void og_device_info_get(const og_device *dev, og_device_info *info) {
    memset(info, 0, sizeof *info);
    info->backend = dev->be->name;
    dev->be->info(dev, info);
}

int og_device_alloc(og_device *dev, size_t bytes, void **out, og_err *err) {
    *out = NULL;
    return dev->be->alloc(dev, bytes, out, err);
}

void og_device_free(og_device *dev, void *p) {
    if (p) dev->be->free(dev, p);
}

int og_device_upload(og_device *dev, void *dst, const void *src, size_t bytes,
                     og_err *err) {
    if (dev->be->upload) return dev->be->upload(dev, dst, src, bytes, err);
    memcpy(dst, src, bytes);
    return 0;
}

int og_device_download(og_device *dev, void *dst, const void *src, size_t bytes,
                       og_err *err) {
    if (dev->be->download) return dev->be->download(dev, dst, src, bytes, err);
    memcpy(dst, src, bytes);
    return 0;
}
