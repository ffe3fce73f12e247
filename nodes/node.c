#include "nodes/node.h"

#include <string.h>

int og_arch_port(const og_arch *a, const char *name) {
    for (int i = 0; a->ports && a->ports[i].name; i++)
        if (!strcmp(a->ports[i].name, name)) return i;
    return -1;
}

int og_arch_table(const og_arch *a, const char *name) {
    for (int i = 0; a->tables && a->tables[i].name; i++)
        if (!strcmp(a->tables[i].name, name)) return i;
    return -1;
}

void og_chunk_drop(og_chunk *c) {
    if (c->release) c->release(c->arg);
    c->release = NULL;
    c->items = (og_tensor){0};
    og_recipe_unref(c->rows);
    og_recipe_unref(c->fill);
    c->rows = c->fill = NULL;
}

int og_out_reserve(og_out *out, int64_t n, og_tensor *view) {
    return out->hooks->reserve(out, n, view);
}

void og_out_commit(og_out *out, int64_t n, int flags) {
    out->hooks->commit(out, n, flags);
}

int64_t og_out_room(const og_out *out) {
    return out->hooks->room(out);
}

void og_job_fail(og_job *job, const og_err *err) {
    job->hooks->fail(job, err);
}

void og_job_stopped(og_job *job, int32_t stop_id) {
    job->hooks->stopped(job, stop_id);
}
