/* Admission: a request body against the pipeline's fields, before anything is queued.
 *
 * Numbers outside min and max are refused; a number between two steps is rounded down and
 * reported; so are the sides of a size. Text that must be there must not be blank: white
 * space of any script (U+3000 too) and invisible marks do not count. */
#include "graph/compile/plan.h"
#include "graph/spec/schema.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_SIDE 65536
#define MAX_LIST 4096

typedef struct check {
    const og_plan *plan;
    const og_plan_field *field;
    og_diags *notes;
    og_err *err;
} check;

static const og_src nowhere = {0};

static json_t *refuse(check *c, const char *fmt, ...) OG_PRINTF(2, 3);
static json_t *refuse(check *c, const char *fmt, ...) {
    char buf[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    og_err_set(c->err, OG_EREJECT, "%s: %s", c->field->name, buf);
    og_err_field(c->err, c->field->name);
    return NULL;
}

static json_t *no_memory(check *c) {
    og_err_set(c->err, OG_ENOMEM, "out of memory");
    return NULL;
}

static const char *json_kind(const json_t *v) {
    static const char *const names[] = {"an object", "a list", "a string", "an integer",
                                        "a number",  "true",   "false",    "null"};
    return names[json_typeof(v)];
}

/* ---- blank ----------------------------------------------------------------------- */

/* Code point at *p, which moves on; malformed bytes count as themselves. */
static uint32_t code_point(const unsigned char **p) {
    const unsigned char *s = *p;
    int n = s[0] < 0x80 ? 0 : s[0] >= 0xf0 ? 3 : s[0] >= 0xe0 ? 2 : s[0] >= 0xc0 ? 1 : 0;
    uint32_t c = n == 0 ? s[0] : s[0] & (0x3fu >> n);
    int i = 1;
    for (; i <= n && (s[i] & 0xc0) == 0x80; i++) {
        c = c << 6 | (s[i] & 0x3fu);
    }
    *p = s + (i ? i : 1);
    return c;
}

static bool invisible(uint32_t c) {
    return c <= 0x20 || (c >= 0x7f && c <= 0xa0) || c == 0xad || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200f) || (c >= 0x2028 && c <= 0x202f) ||
           (c >= 0x205f && c <= 0x206f) || c == 0x3000 || c == 0xfeff || c == 0x180e;
}

static bool blank(const char *text) {
    const unsigned char *p = (const unsigned char *)text;
    while (*p) {
        if (!invisible(code_point(&p))) {
            return false;
        }
    }
    return true;
}

/* ---- values ---------------------------------------------------------------------- */

static json_t *pick_word(check *c, const char *text) {
    const og_plan_field *f = c->field;
    if (!f->n_one_of) {
        json_t *v = json_string(text);
        return v ? v : no_memory(c);
    }
    for (int i = 0; i < f->n_one_of; i++) {
        if (strcasecmp(f->one_of[i], text) == 0) {
            json_t *v = json_string(f->one_of[i]);
            return v ? v : no_memory(c);
        }
    }
    og_str list = OG_STR_INIT;
    for (int i = 0; i < f->n_one_of && list.len < 300; i++) {
        og_str_addf(&list, "%s%s", i ? ", " : "", f->one_of[i]);
    }
    refuse(c, "'%.80s' is none of: %s", text, list.data ? list.data : "");
    const char *best = og_near(text, f->one_of, f->n_one_of);
    if (best) {
        og_err_hint(c->err, "did you mean '%s'?", best);
    }
    og_str_free(&list);
    return NULL;
}

static json_t *text_value(check *c, const json_t *v) {
    const char *s = json_string_value(v);
    if (!s) {
        return refuse(c, "must be a string, not %s", json_kind(v));
    }
    if (!c->field->optional && !c->field->def && !c->field->type.list && blank(s)) {
        return refuse(c, "must not be blank");
    }
    return pick_word(c, s);
}

static json_t *bool_value(check *c, const json_t *v) {
    static const char *const yes[] = {"true", "yes", "on", "1"};
    static const char *const no[] = {"false", "no", "off", "0"};
    const char *s = json_string_value(v);
    if (json_is_boolean(v)) {
        return json_boolean(json_is_true(v));
    }
    for (int i = 0; s && i < 4; i++) {
        if (strcasecmp(s, yes[i]) == 0 || strcasecmp(s, no[i]) == 0) {
            return json_boolean(strcasecmp(s, yes[i]) == 0);
        }
    }
    return refuse(c, "must be true or false, not %s", s ? "this text" : json_kind(v));
}

/* Round down to the step, counted from min. */
static double stepped(check *c, double v) {
    const og_plan_field *f = c->field;
    double base = f->has_min ? f->min : 0;
    double r =
        f->has_step && f->step > 0 ? base + floor((v - base) / f->step) * f->step : v;
    if (r != v) {
        og_diags_warn(c->notes, nowhere,
                      "%s: %g was rounded down to %g (step %g from %g)", f->name, v, r,
                      f->step, base);
    }
    return r;
}

static bool in_range(check *c, double v) {
    const og_plan_field *f = c->field;
    if (f->has_min && v < f->min) {
        refuse(c, "%g is too small: the least is %g", v, f->min);
        return false;
    }
    if (f->has_max && v > f->max) {
        refuse(c, "%g is too large: the most is %g", v, f->max);
        return false;
    }
    return true;
}

static json_t *int_value(check *c, const json_t *v) {
    const char *s = json_string_value(v);
    json_int_t n = json_integer_value(v);
    char *end = NULL;
    errno = 0;
    if (s) {
        n = strtoll(s, &end, 10);
    }
    bool whole = json_is_real(v) && json_real_value(v) == floor(json_real_value(v)) &&
                 fabs(json_real_value(v)) < 9e15;
    if (whole) {
        n = (json_int_t)json_real_value(v);
    }
    if ((s && (end == s || *end || errno)) || (!s && !json_is_integer(v) && !whole)) {
        return refuse(c, "must be an integer, not %s", s ? "this text" : json_kind(v));
    }
    if (!in_range(c, (double)n)) {
        return NULL;
    }
    json_t *out =
        json_integer(c->field->has_step ? (json_int_t)stepped(c, (double)n) : n);
    return out ? out : no_memory(c);
}

static json_t *float_value(check *c, const json_t *v) {
    const char *s = json_string_value(v);
    double x = json_number_value(v);
    char *end = NULL;
    if (s) {
        x = strtod(s, &end);
    }
    if ((s && (end == s || *end)) || (!s && !json_is_number(v)) || !isfinite(x)) {
        return refuse(c, "must be a number, not %s", s ? "this text" : json_kind(v));
    }
    if (!in_range(c, x)) {
        return NULL;
    }
    json_t *out = json_real(stepped(c, x));
    return out ? out : no_memory(c);
}

static bool side_ok(check *c, json_int_t *side) {
    if (*side < 1 || *side > MAX_SIDE) {
        refuse(c, "a side of %" JSON_INTEGER_FORMAT " pixels is out of range (1 to %d)",
               *side, MAX_SIDE);
        return false;
    }
    json_int_t step = c->field->has_step ? (json_int_t)c->field->step : 0;
    json_int_t r = step > 0 ? *side / step * step : *side;
    if (r == 0) {
        refuse(c,
               "a side of %" JSON_INTEGER_FORMAT " pixels is below the least, %" PRId64,
               *side, (int64_t)step);
        return false;
    }
    if (r != *side) {
        og_diags_warn(c->notes, nowhere,
                      "%s: a side of %" JSON_INTEGER_FORMAT
                      " was rounded down to %" JSON_INTEGER_FORMAT,
                      c->field->name, *side, r);
    }
    *side = r;
    return true;
}

static json_t *size_value(check *c, const json_t *v) {
    json_int_t w = 0, h = 0;
    const char *s = json_string_value(v);
    if (s) {
        char *end;
        w = strtoll(s, &end, 10);
        bool x = end != s && (*end == 'x' || *end == 'X');
        const char *second = end + 1;
        h = x ? strtoll(second, &end, 10) : 0;
        if (!x || end == second || *end) {
            return refuse(c, "a size is WIDTHxHEIGHT, not '%.40s'", s);
        }
    } else if (json_is_integer(json_object_get(v, "width")) &&
               json_is_integer(json_object_get(v, "height"))) {
        w = json_integer_value(json_object_get(v, "width"));
        h = json_integer_value(json_object_get(v, "height"));
    } else {
        return refuse(c, "must be WIDTHxHEIGHT or {width, height}, not %s", json_kind(v));
    }
    if (!side_ok(c, &w) || !side_ok(c, &h)) {
        return NULL;
    }
    json_t *out = json_pack("{s:I,s:I}", "width", w, "height", h);
    return out ? out : no_memory(c);
}

static json_t *media_value(check *c, const json_t *v) {
    const char *s = json_string_value(v);
    if ((!s && !json_is_object(v)) || (s && blank(s))) {
        return refuse(c, "must be a path, a URL or an object, not %s",
                      s ? "blank text" : json_kind(v));
    }
    json_t *out = json_deep_copy(v);
    return out ? out : no_memory(c);
}

static json_t *messages_value(check *c, const json_t *v) {
    if (!json_is_array(v) || json_array_size(v) == 0) {
        return refuse(c, "must be a list of messages, not %s",
                      json_is_array(v) ? "an empty list" : json_kind(v));
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *m = json_array_get(v, i);
        const json_t *content = json_object_get(m, "content");
        content = content ? content : json_object_get(m, "parts");
        if (!json_is_string(json_object_get(m, "role"))) {
            return refuse(c, "message %zu has no role", i + 1);
        }
        if (!json_is_string(content) && !json_is_array(content)) {
            return refuse(c, "message %zu has no content", i + 1);
        }
    }
    json_t *out = json_deep_copy(v);
    return out ? out : no_memory(c);
}

static json_t *item_value(check *c, const json_t *v) {
    switch (c->field->type.kind) {
    case OG_TYPE_TEXT: return text_value(c, v);
    case OG_TYPE_BOOL: return bool_value(c, v);
    case OG_TYPE_INT: return int_value(c, v);
    case OG_TYPE_FLOAT: return float_value(c, v);
    case OG_TYPE_SIZE: return size_value(c, v);
    case OG_TYPE_MESSAGES: return messages_value(c, v);
    default: return media_value(c, v);
    }
}

static int push(check *c, json_t *list, const json_t *item) {
    json_t *v = item_value(c, item);
    if (!v) {
        return -1;
    }
    if (json_array_append_new(list, v) < 0) {
        no_memory(c);
        return -1;
    }
    return 0;
}

/* "a,b" from the command line. */
static int split(check *c, json_t *list, const char *text) {
    while (text) {
        const char *comma = strchr(text, ',');
        size_t n = comma ? (size_t)(comma - text) : strlen(text);
        json_t *item = json_stringn(text, n);
        int rc = item ? push(c, list, item) : -1;
        if (!item) {
            refuse(c, "is not valid UTF-8");
        }
        json_decref(item);
        if (rc < 0) {
            return rc;
        }
        text = comma ? comma + 1 : NULL;
    }
    return 0;
}

static json_t *list_value(check *c, const json_t *v) {
    json_t *list = json_array();
    int rc = list ? 0 : -1;
    if (!list) {
        return no_memory(c);
    }
    if (json_is_string(v)) {
        rc = split(c, list, json_string_value(v));
    } else if (!json_is_array(v)) {
        refuse(c, "must be a list, not %s", json_kind(v));
        rc = -1;
    } else if (json_array_size(v) > MAX_LIST) {
        refuse(c, "%zu items are too many (limit is %d)", json_array_size(v), MAX_LIST);
        rc = -1;
    }
    for (size_t i = 0; rc == 0 && json_is_array(v) && i < json_array_size(v); i++) {
        rc = push(c, list, json_array_get(v, i));
    }
    if (rc < 0) {
        json_decref(list);
        return NULL;
    }
    return list;
}

/* ---- the body -------------------------------------------------------------------- */

static int check_field(check *c, const json_t *in, json_t *out) {
    const og_plan_field *f = c->field;
    const json_t *v = json_object_get(in, f->name);
    json_t *value = NULL;
    if (v && !json_is_null(v)) {
        value = f->type.list ? list_value(c, v) : item_value(c, v);
        if (!value) {
            return -1;
        }
    } else if (f->def) {
        value = json_deep_copy(f->def);
        if (!value) {
            no_memory(c);
            return -1;
        }
    } else if (f->optional || f->has_area) {
        return 0;
    } else {
        refuse(c, "is missing");
        return -1;
    }
    if (json_object_set_new(out, f->name, value) < 0) {
        no_memory(c);
        return -1;
    }
    return 0;
}

static void unknown_fields(const og_plan *p, const json_t *in, og_diags *notes) {
    const char *names[256];
    int n = 0;
    for (; n < p->n_fields && n < 256; n++) {
        names[n] = p->fields[n].name;
    }
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)in, key, v) {
        if (og_plan_find_field(p, key) < 0) {
            og_diags_warn(notes, nowhere, "unknown field '%.80s' is ignored", key);
            og_diags_suggest(notes, og_near(key, names, n));
        }
    }
}

int og_plan_request_check(const og_plan *p, const json_t *in, json_t **out,
                          og_diags *notes, og_err *err) {
    *out = NULL;
    if (!json_is_object(in)) {
        return og_err_set(err, OG_EREJECT, "a request is an object, not %s",
                          in ? json_kind(in) : "nothing");
    }
    og_err local = OG_ERR_INIT;
    err = err ? err : &local;
    json_t *body = json_object();
    if (!body) {
        return og_err_set(err, OG_ENOMEM, "out of memory");
    }
    unknown_fields(p, in, notes);
    for (int i = 0; i < p->n_fields; i++) {
        check c = {p, &p->fields[i], notes, err};
        if (check_field(&c, in, body) < 0) {
            json_decref(body);
            return err->code;
        }
    }
    *out = body;
    return 0;
}
