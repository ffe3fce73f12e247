/* --tap: what passed a port, as .npy files or in the JSON output. Codes and tokens become
 * int64, everything else f32, whatever the engine keeps them in. */
#include <string.h>

#include "graph/cli/run.h"
#include "graph/spec/schema.h"
#include "nodes/media/npy.h"

static bool is_integer(og_dtype t) {
    return t == OG_I64 || t == OG_I32 || t == OG_I16 || t == OG_I8 || t == OG_U64 ||
           t == OG_U32 || t == OG_U16 || t == OG_U8 || t == OG_BOOL;
}

/* ---- reading -STAGE.PORT=FILE- ------------------------------------------------ */

static int bad_stage(og__cli *cli, const og_plan *p, const char *stage) {
    const char *names[OG_PIPELINE_MAX_STAGES];
    int n = 0;
    while (n < p->n_stages && n < OG_PIPELINE_MAX_STAGES)
        names[n] = p->stages[n].name, n++;
    const char *best = og_near(stage, names, n);
    og__usage(cli, "--tap: this plan has no stage '%s'", stage);
    return best ? og__hint("did you mean '%s'?", best) : OG__EXIT_USAGE;
}

static int bad_port(og__cli *cli, const og_plan_stage *st, const char *port) {
    og_str s = OG_STR_INIT;
    for (int i = 0; i < st->n_ports; i++)
        if (st->ports[i].flags & OG_PORT_OUT)
            og_str_addf(&s, "%s%s", s.len ? ", " : "", st->ports[i].name);
    og__usage(cli, "--tap: stage '%s' has no output '%s'", st->name, port);
    if (s.data) og__hint("its outputs are %s", s.data);
    og_str_free(&s);
    return OG__EXIT_USAGE;
}

static int check_port(og__cli *cli, const og_plan *p, const og_request_tap *t) {
    int stage = og_plan_find_stage(p, t->stage);
    if (stage < 0) return bad_stage(cli, p, t->stage);
    const og_plan_stage *st = &p->stages[stage];
    for (int i = 0; i < st->n_ports; i++)
        if ((st->ports[i].flags & OG_PORT_OUT) && !strcmp(st->ports[i].name, t->port))
            return 0;
    return bad_port(cli, st, t->port);
}

static int read_tap(og__cli *cli, const og_plan *p, const og__output *o, const char *arg,
                    og_request_tap *tap, const char **file) {
    og_err err = OG_ERR_INIT;
    char *copy = og_arena_strdup(cli->arena, arg);
    if (!copy) return og__usage(cli, "out of memory");
    char *eq = strchr(copy, '='), *dot = strchr(copy, '.');
    if (eq) *eq = 0;
    if (!dot || (eq && dot > eq) || (eq && !eq[1])) {
        og__usage(cli, "--tap takes STAGE.PORT=FILE.npy, not '%s'", arg);
        return og__hint("--tap talker.codes=codes.npy");
    }
    *dot = 0;
    *tap = (og_request_tap){copy, dot + 1};
    *file = eq ? eq + 1 : NULL;
    int rc = check_port(cli, p, tap);
    if (rc) return rc;
    if (!*file && o->kind != OG__JSON) {
        og__usage(cli, "--tap %s: which file?", arg);
        return og__hint("--tap %s=FILE.npy; without a file only with -o FILE.json", arg);
    }
    return *file && og__can_write(*file, &err) < 0 ? (og__report(&err), OG__EXIT_USAGE)
                                                   : 0;
}

int og__taps_plan(og__cli *cli, const og_plan *p, const og__output *o, og__taps *out) {
    int n = 0;
    const char *const *args = og__args_all(cli, "tap", &n);
    *out = (og__taps){0};
    out->taps = og_arena_alloc(cli->arena, (size_t)(n + 1) * sizeof *out->taps);
    out->files = og_arena_alloc(cli->arena, (size_t)(n + 1) * sizeof *out->files);
    if (!args || !out->taps || !out->files) return og__usage(cli, "out of memory");
    for (int i = 0; i < n; i++) {
        int rc = read_tap(cli, p, o, args[i], &out->taps[i], &out->files[i]);
        if (rc) return rc;
        out->n = i + 1;
    }
    return 0;
}

/* ---- writing ------------------------------------------------------------------ */

static int64_t integer_at(const og_tensor *t, int64_t i) {
    const char *at = (const char *)t->data + (size_t)i * og_dtype_size(t->dtype);
    uint64_t u = 0;
    memcpy(&u, at, og_dtype_size(t->dtype)); /* little endian */
    switch (t->dtype) {
    case OG_I32: return (int32_t)u;
    case OG_I16: return (int16_t)u;
    case OG_I8: return (int8_t)u;
    default: return (int64_t)u;
    }
}

static float float_at(const og_tensor *t, int64_t i) {
    const char *at = (const char *)t->data + (size_t)i * og_dtype_size(t->dtype);
    uint16_t h;
    float f;
    double d;
    switch (t->dtype) {
    case OG_F16: memcpy(&h, at, sizeof h); return og_f16_to_f32(h);
    case OG_BF16: memcpy(&h, at, sizeof h); return og_bf16_to_f32(h);
    case OG_F64: memcpy(&d, at, sizeof d); return (float)d;
    case OG_F8_E4M3: return og_f8_e4m3_to_f32(*(const uint8_t *)at);
    case OG_F8_E5M2: return og_f8_e5m2_to_f32(*(const uint8_t *)at);
    default: memcpy(&f, at, sizeof f); return f;
    }
}

/* Rows of t as int64 or f32, in one new block (og_free). */
static void *widened(const og_tensor *t, og_dtype *dtype) {
    int64_t n = og_tensor_count(t);
    *dtype = is_integer(t->dtype) ? OG_I64 : OG_F32;
    void *out = og_malloc((size_t)n * og_dtype_size(*dtype) + 1);
    for (int64_t i = 0; out && i < n; i++) {
        if (*dtype == OG_I64)
            ((int64_t *)out)[i] = integer_at(t, i);
        else
            ((float *)out)[i] = float_at(t, i);
    }
    return out;
}

/* FILE with ".k" before its extension, for lanes after the first. */
static void lane_file(const char *file, int lane, char *buf, size_t size) {
    const char *dot = strrchr(file, '.');
    if (!dot || strchr(dot, '/')) dot = file + strlen(file);
    if (lane == 0)
        snprintf(buf, size, "%s", file);
    else
        snprintf(buf, size, "%.*s.%d%s", (int)(dot - file), file, lane, dot);
}

static int write_npy(const char *path, const og_tensor *t, og_err *err) {
    og_dtype dtype;
    og_npy_out *out = NULL;
    void *data = widened(t, &dtype);
    if (!data) return og_err_set(err, OG_ENOMEM, "no memory for '%s'", path);
    int rc = og_npy_create(path, dtype, t->rank - 1, t->ne + 1, &out, err);
    if (rc == 0) {
        rc = og_npy_append(out, data, t->ne[0], err);
        if (rc == 0)
            rc = og_npy_commit(out, err);
        else
            og_npy_abort(out);
    }
    og_free(data);
    return rc;
}

static int host_only(const og_tensor *t, const og_request_tap *tap, og_err *err) {
    if (t->place.kind == OG_PLACE_HOST && og_tensor_dense(t)) return 0;
    return og_err_set(err, OG_EUNSUPPORTED, "tap %s.%s: the items are not in host memory",
                      tap->stage, tap->port);
}

int og__taps_write(const og__taps *t, og_request *r, og_err *err) {
    int rc = 0;
    for (int i = 0; i < t->n && rc == 0; i++) {
        og_tensor items;
        for (int lane = 0; t->files[i] && rc == 0; lane++) {
            char path[4096];
            if (og_request_tapped(r, i, lane, &items) < 0) {
                if (lane == 0)
                    rc = og_err_set(err, OG_ENOENT,
                                    "tap %s.%s: the stage was off in this request",
                                    t->taps[i].stage, t->taps[i].port);
                break;
            }
            lane_file(t->files[i], lane, path, sizeof path);
            rc = host_only(&items, &t->taps[i], err);
            if (rc == 0) rc = write_npy(path, &items, err);
        }
    }
    return rc;
}

static json_t *tensor_json(const og_tensor *t) {
    json_t *shape = json_array(), *data = json_array();
    int64_t n = og_tensor_count(t);
    bool whole = is_integer(t->dtype);
    for (int d = 0; d < t->rank; d++)
        json_array_append_new(shape, json_integer(t->ne[d]));
    int64_t width = t->rank > 1 && t->ne[0] ? n / t->ne[0] : 0;
    for (int64_t i = 0; i < n; i++) {
        json_t *v =
            whole ? json_integer(integer_at(t, i)) : json_real((double)float_at(t, i));
        if (width && i % width == 0) json_array_append_new(data, json_array());
        json_array_append_new(
            width ? json_array_get(data, json_array_size(data) - 1) : data, v);
    }
    return json_pack("{s:o, s:s, s:o}", "shape", shape, "dtype",
                     whole ? "int64" : "float32", "data", data);
}

json_t *og__taps_json(const og__taps *t, og_request *r) {
    json_t *all = json_object();
    for (int i = 0; i < t->n; i++) {
        og_tensor items;
        for (int lane = 0; og_request_tapped(r, i, lane, &items) == 0; lane++) {
            char name[256], suffix[16] = "";
            if (items.place.kind != OG_PLACE_HOST || !og_tensor_dense(&items)) continue;
            if (lane) snprintf(suffix, sizeof suffix, ".%d", lane);
            snprintf(name, sizeof name, "%s.%s%s", t->taps[i].stage, t->taps[i].port,
                     suffix);
            json_object_set_new(all, name, tensor_json(&items));
        }
    }
    return all;
}
