#include "graph/run/voice.h"

#include <inttypes.h>
#include <string.h>

#include "graph/run/run.h"
#include "nodes/load/json.h"
#include "nodes/load/safetensors.h"

#define MAX_DEPTH 8
#define ALIGN 8 /* of the data behind the header */

int og_voice_is(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot && (!strcmp(dot, ".voice") || !strcmp(dot, ".safetensors"));
}

/* ---- which stages ------------------------------------------------------------------ */

static bool feeds(const og_plan *p, int field, int stage) {
    for (int i = 0; i < p->n_edges; i++) {
        const og_plan_edge *e = &p->edges[i];
        if (e->env || e->from[0].kind != OG_END_REQUEST || e->from[0].field != field) continue;
        for (int k = 0; k < e->n_to; k++)
            if (e->to[k].kind == OG_END_STAGE && e->to[k].stage == stage) return true;
    }
    return false;
}

int og_voice_taps(const og_plan *p, int field, og_request_tap *taps, int max) {
    int n = 0;
    for (int i = 0; i < p->n_order; i++) {
        const og_plan_stage *st = &p->stages[p->order[i]];
        if (!feeds(p, field, p->order[i])) continue;
        for (int k = 0; k < st->n_ports && n < max; k++)
            if ((st->ports[k].flags & OG_PORT_OUT) && st->ports[k].n_readers)
                taps[n++] = (og_request_tap){st->name, st->ports[k].name};
    }
    return n;
}

static uint64_t mix(uint64_t h, const void *data, size_t n) {
    const unsigned char *at = data;
    for (size_t i = 0; i < n; i++) h = (h ^ at[i]) * 1099511628211u;
    return h;
}

/* What a voice depends on of a stage: its arch and its weights, and no others'. */
static int add_stage(const og_plan *p, int stage, uint64_t *hash, og_err *err) {
    const og_plan_stage *st = &p->stages[stage];
    og_weights *w = NULL;
    int rc = og_model_weights(p->model, st->folder, &w, err);
    if (rc < 0) return rc;
    uint64_t weights = og_weights_fingerprint(w);
    *hash = mix(*hash, st->arch_name, strlen(st->arch_name) + 1);
    *hash = mix(*hash, &weights, sizeof weights);
    return 0;
}

/* ---- writing ------------------------------------------------------------------------ */

static json_t *tensor_json(const og_tensor *t, size_t *at) {
    json_t *shape = json_array();
    for (int i = 0; i < t->rank; i++) json_array_append_new(shape, json_integer(t->ne[i]));
    size_t from = *at;
    *at += og_tensor_bytes(t);
    return json_pack("{s:s, s:o, s:[I,I]}", "dtype", og_dtype_name(t->dtype), "shape",
                     shape, "data_offsets", (json_int_t)from, (json_int_t)*at);
}

static int set_text(json_t *o, const char *key, const json_t *value) {
    char *text = json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS);
    int rc = text ? json_object_set_new(o, key, json_string(text)) : -1;
    free(text);
    return rc;
}

static json_t *metadata(const json_t *facts, const char *name, const json_t *keep,
                        uint64_t checkpoint) {
    char hex[17];
    snprintf(hex, sizeof hex, "%016" PRIx64, checkpoint);
    json_t *m = json_pack("{s:s, s:s, s:s}", "format", OG_VOICE_FORMAT, "name", name,
                          "checkpoint", hex);
    json_t *none = json_object();
    if (m && (set_text(m, "facts", facts ? facts : none) < 0 ||
              set_text(m, "fields", keep ? keep : none) < 0)) {
        json_decref(m);
        m = NULL;
    }
    json_decref(none);
    return m;
}

static void add_header(og_str *out, const json_t *header) {
    char *text = json_dumps(header, JSON_COMPACT | JSON_SORT_KEYS);
    size_t n = text ? strlen(text) : 0, whole = (n + ALIGN - 1) / ALIGN * ALIGN;
    uint64_t length = whole;
    if (!text) out->oom = 1;
    og_str_addn(out, (const char *)&length, sizeof length); /* little endian, as we are */
    og_str_addn(out, text ? text : "", n);
    og_str_addn(out, "        ", whole - n);
    free(text);
}

int og_voice_pack(og_request *r, int field, const char *name, const json_t *keep,
                  og_str *out, og_err *err) {
    const og_plan *p = r->plan;
    og_tensor items[OG_VOICE_MAX_PORTS];
    size_t at = 0;
    int n = 0, last = -1, rc = 0;
    uint64_t checkpoint = 0;
    json_t *header = json_object();
    for (int i = 0; i < r->n_taps && n < OG_VOICE_MAX_PORTS && rc == 0; i++) {
        char key[256];
        int stage = og_plan_find_stage(p, r->taps[i].stage);
        if (og_request_tapped(r, i, 0, &items[n]) < 0) continue; /* off in this request */
        if (stage != last) rc = add_stage(p, last = stage, &checkpoint, err);
        snprintf(key, sizeof key, "%s.%s", r->taps[i].stage, r->taps[i].port);
        if (json_object_set_new(header, key, tensor_json(&items[n], &at)) < 0) out->oom = 1;
        n++;
    }
    if (rc == 0 && !n) rc = og_err_set(err, OG_EINVAL, "no stage made anything of the clip");
    const json_t *facts = json_object_get(r->hook_fields, p->fields[field].name);
    json_t *m = metadata(facts, name, keep, checkpoint);
    if (!m || json_object_set_new(header, "__metadata__", m) < 0) out->oom = 1;
    if (rc == 0) add_header(out, header);
    for (int i = 0; i < n && rc == 0; i++)
        og_str_addn(out, items[i].data, og_tensor_bytes(&items[i]));
    json_decref(header);
    if (rc == 0 && out->oom) rc = og_err_set(err, OG_ENOMEM, "no memory for the voice");
    return rc;
}

static int no_vector(const og_plan *p, int field, int n, int width, og_err *err) {
    if (width)
        return og_err_set(err, OG_EREJECT, "has %d numbers, this checkpoint's speaker vectors "
                          "have %d", n, width);
    return og_err_set(err, OG_EREJECT, "this pipeline makes no speaker vector of %s",
                      p->fields[field].name);
}

/* The output that is one vector; *width: that of the last one seen. */
static const og_plan_port *find_vector(const og_plan *p, const og_request_tap *taps, int n_taps,
                                       int n, int *tap, int *width) {
    *width = 0;
    for (int i = 0; i < n_taps; i++) {
        const og_plan_stage *st = &p->stages[og_plan_find_stage(p, taps[i].stage)];
        const og_plan_port *port = &st->ports[og_arch_port(st->arch, taps[i].port)];
        if (port->dtype != OG_F32) continue;
        *width = (int)port->width;
        *tap = i;
        if (port->width == n) return port;
    }
    return NULL;
}

int og_voice_pack_vector(const og_plan *p, int field, const char *name, const json_t *keep,
                         const float *x, int n, og_str *out, og_err *err) {
    og_request_tap taps[OG_VOICE_MAX_PORTS];
    int n_taps = og_voice_taps(p, field, taps, OG_VOICE_MAX_PORTS), tap = 0, width;
    uint64_t checkpoint = 0;
    char key[256];
    if (!find_vector(p, taps, n_taps, n, &tap, &width)) return no_vector(p, field, n, width, err);
    int rc = add_stage(p, og_plan_find_stage(p, taps[tap].stage), &checkpoint, err);
    if (rc < 0) return rc;
    snprintf(key, sizeof key, "%s.%s", taps[tap].stage, taps[tap].port);
    size_t bytes = (size_t)n * sizeof *x;
    json_t *header = json_pack("{s:{s:s, s:[i,i], s:[i,I]}, s:o}", key, "dtype",
                               og_dtype_name(OG_F32), "shape", 1, n, "data_offsets", 0,
                               (json_int_t)bytes, "__metadata__",
                               metadata(NULL, name, keep, checkpoint));
    if (header) add_header(out, header);
    og_str_addn(out, (const char *)x, bytes);
    rc = header && !out->oom ? 0 : og_err_set(err, OG_ENOMEM, "no memory for the voice");
    json_decref(header);
    return rc;
}

/* ---- reading ------------------------------------------------------------------------ */

static int open_voice(const char *path, og_weights **w, og_err *err) {
    int rc = og_weights_open(path, w, err);
    if (rc < 0) return rc == OG_ENOMEM ? rc : OG_EREJECT;
    const char *format = og_weights_metadata(*w, "format");
    if (format && !strcmp(format, OG_VOICE_FORMAT)) return 0;
    og_weights_close(*w);
    *w = NULL;
    return og_err_set(err, OG_EREJECT, "%s is no saved voice (its format is %.40s, not "
                      OG_VOICE_FORMAT ")", path, format ? format : "not told");
}

/* An object of the metadata, empty where the file has none. */
static int read_json(const og_weights *w, const char *path, const char *key, json_t **out,
                     og_err *err) {
    const char *text = og_weights_metadata(w, key);
    og_err bad = OG_ERR_INIT;
    size_t n = text ? strlen(text) : 0;
    if (n > OG_VOICE_MAX_JSON)
        return og_err_set(err, OG_EREJECT, "%s: %s has %zu bytes (limit is %u)", path, key, n,
                          OG_VOICE_MAX_JSON);
    *out = text ? og_json_parse(path, text, n, MAX_DEPTH, &bad) : json_object();
    if (json_is_object(*out)) return 0;
    json_decref(*out);
    *out = NULL;
    return og_err_set(err, OG_EREJECT, "%s: its %s are no JSON object", path, key);
}

static int add_defaults(const og_plan *p, const char *path, json_t *body, og_err *err) {
    og_weights *w;
    json_t *fields = NULL, *v;
    const char *key;
    int rc = open_voice(path, &w, err);
    if (rc < 0) return rc;
    rc = read_json(w, path, "fields", &fields, err);
    og_weights_close(w);
    json_object_foreach(fields, key, v) {
        const json_t *have = json_object_get(body, key);
        if (og_plan_find_field(p, key) < 0 || (have && !json_is_null(have))) continue;
        if (json_object_set(body, key, v) < 0)
            rc = og_err_set(err, OG_ENOMEM, "no memory for the request");
    }
    json_decref(fields);
    return rc;
}

int og_voice_defaults(const og_plan *p, json_t *body, og_err *err) {
    for (int i = 0; i < p->n_fields; i++) {
        const og_plan_field *f = &p->fields[i];
        const char *path = json_string_value(json_object_get(body, f->name));
        if (f->type.kind != OG_TYPE_AUDIO || !path || !og_voice_is(path)) continue;
        int rc = add_defaults(p, path, body, err);
        if (rc < 0) {
            if (err && rc == OG_EREJECT) err->code = rc; /* whatever the file's fault is */
            og_err_field(err, f->name);
            return rc;
        }
    }
    return 0;
}

static int check_items(const og_plan_port *port, const char *name, const og_tensor *t,
                       const char *path, og_err *err) {
    int64_t width = t->rank > 1 ? t->ne[1] : 1;
    if (t->rank <= 2 && t->dtype == port->dtype && width == port->width && t->ne[0] > 0 &&
        t->ne[0] <= INT32_MAX)
        return 0;
    return og_err_set(err, OG_EREJECT, "%s: %s is %s[%lld, %lld], this pipeline has %s[n, %lld]",
                      path, name, og_dtype_name(t->dtype), (long long)t->ne[0],
                      (long long)width, og_dtype_name(port->dtype), (long long)port->width);
}

static int add_preset(og_request *r, const og_request_tap *tap, const char *name,
                      const og_tensor *t, const char *path, og_err *err) {
    const og_plan *p = r->plan;
    int stage = og_plan_find_stage(p, tap->stage);
    int port = og_arch_port(p->stages[stage].arch, tap->port);
    int rc = check_items(&p->stages[stage].ports[port], name, t, path, err);
    if (rc < 0) return rc;
    if (r->n_presets == OG_VOICE_MAX_PORTS)
        return og_err_set(err, OG_EREJECT, "the voices of a request hold too many outputs "
                          "(limit is %d)", OG_VOICE_MAX_PORTS);
    size_t bytes = og_tensor_bytes(t);
    void *data = og_malloc(bytes);
    if (!data) return og_err_set(err, OG_ENOMEM, "no memory for the voice %s", path);
    memcpy(data, t->data, bytes);
    r->presets[r->n_presets++] = (og__preset){stage, port, t->ne[0], bytes, data};
    return 0;
}

static int check_checkpoint(const og_request *r, int first, const og_weights *w,
                            const char *path, og_err *err) {
    const char *text = og_weights_metadata(w, "checkpoint");
    uint64_t mine = 0;
    char hex[17];
    int rc = 0, last = -1;
    for (int i = first; i < r->n_presets && rc == 0; i++)
        if (r->presets[i].stage != last)
            rc = add_stage(r->plan, last = r->presets[i].stage, &mine, err);
    if (rc < 0) return rc;
    snprintf(hex, sizeof hex, "%016" PRIx64, mine);
    if (text && !strcmp(text, hex)) return 0;
    og_err_set(err, OG_EREJECT, "the voice %s was made with another checkpoint (%.16s; %s has "
               "%s)", path, text ? text : "not told", r->plan->model_dir, hex);
    og_err_hint(err, "save it again with the checkpoint that is to speak");
    return OG_EREJECT;
}

/* Taps stand in the order of the plan, so that of the tensors in the file is no matter. */
static int read_presets(og_request *r, int field, const og_weights *w, const char *path,
                        og_err *err) {
    og_request_tap taps[OG_VOICE_MAX_PORTS];
    int n = og_voice_taps(r->plan, field, taps, OG_VOICE_MAX_PORTS), first = r->n_presets;
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        char name[256];
        snprintf(name, sizeof name, "%s.%s", taps[i].stage, taps[i].port);
        const og_tensor *t = og_weights_find(w, name);
        if (t) rc = add_preset(r, &taps[i], name, t, path, err);
    }
    int known = r->n_presets - first;
    if (rc == 0 && (!known || known < (int)og_weights_count(w)))
        rc = og_err_set(err, OG_EREJECT, "%s: of its %d outputs %d are what this pipeline and "
                        "checkpoint make of %s", path, (int)og_weights_count(w), known,
                        r->plan->fields[field].name);
    return rc < 0 ? rc : check_checkpoint(r, first, w, path, err);
}

int og__voice_read(og_request *r, int field, const char *path, json_t **facts, og_err *err) {
    og_weights *w;
    *facts = NULL;
    int rc = open_voice(path, &w, err);
    if (rc < 0) return rc;
    rc = read_presets(r, field, w, path, err);
    if (rc == 0) rc = read_json(w, path, "facts", facts, err);
    og_weights_close(w);
    return rc;
}
