/* The edges of a step: placing weights, staging, fetching, stamps and graphs. A backend that
 * has none of them is a host backend, where memory is shared and work is done on return. */
#include "kernels/check.h"
#include "kernels/base/alloc.h"

#include <string.h>

#define PLACE_ALIGN 256

int og_device_place(og_device *dev, const og_tensor *host, og_tensor *out, og_err *err) {
    *out = *host;
    if (dev->place.kind == OG_PLACE_HOST) return 0;
    char text[96];
    if (!og_tensor_dense(host))
        return og_err_set(err, OG_EINVAL, "a tensor to place on the device has gaps: %s",
                          og_tensor_str(host, text, sizeof text));
    void *p;
    size_t bytes = og_tensor_bytes(host);
    OG__CHECK(og_device_alloc(dev, bytes ? bytes : PLACE_ALIGN, &p, err));
    int rc = bytes ? og_device_upload(dev, p, host->data, bytes, err) : 0;
    if (rc < 0) {
        og_device_free(dev, p);
        return rc;
    }
    out->data = p;
    out->place = dev->place;
    return 0;
}

void og_device_unplace(og_device *dev, og_tensor *t) {
    if (dev->place.kind == OG_PLACE_HOST || !og_tensor_present(t)) return;
    og_device_free(dev, t->data);
    t->data = NULL;
}

int og_device_alloc_host(og_device *dev, size_t bytes, void **out, og_err *err) {
    *out = NULL;
    if (dev->be->alloc_host) return dev->be->alloc_host(dev, bytes, out, err);
    *out = og_aligned(OG__SCRATCH_ALIGN, bytes);
    if (*out) return 0;
    return og_err_set(err, OG_ENOMEM, "no memory for %zu bytes", bytes);
}

void og_device_free_host(og_device *dev, void *p) {
    if (!p) return;
    if (dev->be->free_host) dev->be->free_host(dev, p);
    else og_free(p);
}

int og_device_lost(const og_device *dev) {
    return dev->be->lost ? dev->be->lost(dev) : 0;
}

int og_exec_stage_begin(og_exec *ex) {
    ex->staged = 0;
    return ex->dev->be->stage_begin ? ex->dev->be->stage_begin(ex) : 0;
}

int og_exec_stage(og_exec *ex, const void *host, size_t bytes, const void **dev) {
    if (ex->dev->be->stage) {
        ex->staged += bytes;
        if (ex->staged > ex->staged_peak) ex->staged_peak = ex->staged;
        return ex->dev->be->stage(ex, host, bytes, dev);
    }
    *dev = host;
    return 0;
}

size_t og_exec_staged(const og_exec *ex) {
    return ex->staged_peak;
}

int og_exec_stage_end(og_exec *ex) {
    return ex->dev->be->stage_end ? ex->dev->be->stage_end(ex) : 0;
}

int og_exec_fetch(og_exec *ex, void *host, const void *dev, size_t bytes) {
    if (og__measuring(ex) || !bytes) return 0;
    if (ex->dev->be->fetch) return ex->dev->be->fetch(ex, host, dev, bytes);
    memcpy(host, dev, bytes);
    return 0;
}

int og_exec_stamp(og_exec *ex, uint64_t *stamp) {
    *stamp = ++ex->stamps;
    return ex->dev->be->stamp ? ex->dev->be->stamp(ex, stamp) : 0;
}

static int reached(og_exec *ex, uint64_t stamp, int wait) {
    if (stamp > ex->stamps)
        return og__fail(ex, OG_EINVAL, "stamp %llu, the last one given is %llu",
                        (unsigned long long)stamp, (unsigned long long)ex->stamps);
    if (!stamp || !ex->dev->be->reached) return 1;
    return ex->dev->be->reached(ex, stamp, wait);
}

int og_exec_reached(og_exec *ex, uint64_t stamp) {
    return reached(ex, stamp, 0);
}

int og_exec_wait(og_exec *ex, uint64_t stamp) {
    int rc = reached(ex, stamp, 1);
    return rc < 0 ? rc : 0;
}

static int no_graphs(og_exec *ex) {
    return og__fail(ex, OG_EUNSUPPORTED, "backend %s records no graphs", ex->dev->be->name);
}

int og_exec_capture_begin(og_exec *ex) {
    if (!ex->dev->be->capture_begin) return no_graphs(ex);
    if (ex->mode == OG_CAPTURE)
        return og__fail(ex, OG_EINVAL, "the exec is being captured already");
    int rc = ex->dev->be->capture_begin(ex);
    if (rc == 0) ex->mode = OG_CAPTURE;
    return rc;
}

int og_exec_capture_end(og_exec *ex, og_graph **out) {
    *out = NULL;
    if (!ex->dev->be->capture_end) return no_graphs(ex);
    if (ex->mode != OG_CAPTURE) return og__fail(ex, OG_EINVAL, "nothing is being captured");
    ex->mode = OG_RUN;
    return ex->dev->be->capture_end(ex, out);
}

int og_graph_launch(og_exec *ex, og_graph *g) {
    if (!ex->dev->be->graph_launch) return no_graphs(ex);
    return ex->dev->be->graph_launch(ex, g);
}

void og_graph_destroy(og_exec *ex, og_graph *g) {
    if (g && ex->dev->be->graph_destroy) ex->dev->be->graph_destroy(ex, g);
}
