/* The request of `run`: --request, then the field flags over it. */
#include <string.h>

#include "graph/cli/run.h"

static int base_object(og__cli *cli, json_t **out) {
    const char *arg = og__args_get(&cli->args, "request");
    og_err err = OG_ERR_INIT;
    json_error_t at;
    if (!arg) {
        *out = json_object();
        return *out ? 0 : og__usage(cli, "out of memory");
    }
    const char *text = og__read_text(cli->arena, arg, &err);
    if (!text) return og__report(&err);
    *out = json_loads(text, JSON_REJECT_DUPLICATES, &at);
    if (!*out) {
        fprintf(stderr, "%s:%d:%d: error: %s\n", arg[0] == '@' ? arg + 1 : "--request",
                at.line, at.column, at.text);
        return og__hint("--request takes a JSON object, or @FILE with one");
    }
    if (json_is_object(*out)) return 0;
    json_decref(*out);
    *out = NULL;
    return og__usage(cli, "--request must be a JSON object: {\"text\": \"...\"}");
}

/* What a shell's echo adds to a text is no part of it. */
static void chop_newline(og_str *s) {
    if (s->len && s->data[s->len - 1] == '\n') s->data[--s->len] = 0;
    if (s->len && s->data[s->len - 1] == '\r') s->data[--s->len] = 0;
}

static json_t *text_value(og__cli *cli, const og_plan_field *f, const char *text,
                          int *rc) {
    og_err err = OG_ERR_INIT;
    json_t *v;
    if (f->type.kind == OG_TYPE_TEXT && !strcmp(text, "-")) {
        og_str s = OG_STR_INIT;
        if (og__read_file("-", &s, &err) < 0) {
            *rc = og__report(&err);
            og_str_free(&s);
            return NULL;
        }
        chop_newline(&s);
        v = json_stringn(s.data ? s.data : "", s.len);
        og_str_free(&s);
    } else {
        v = json_string(text);
    }
    if (!v) *rc = og__usage(cli, "field %s: the text is not UTF-8", f->name);
    return v;
}

static int set_field(og__cli *cli, const og_plan_field *f, const og__given *g,
                     json_t *body, bool first) {
    int rc = OG__EXIT_USAGE;
    json_t *v = g->value ? text_value(cli, f, g->value, &rc) : json_true();
    if (!v) return rc;
    if (!f->type.list) return json_object_set_new(body, f->name, v) < 0 ? rc : 0;
    /* A list that is given once may be one text ("a,b"), which the field's type reads. */
    json_t *have = first ? NULL : json_object_get(body, f->name);
    if (!have) return json_object_set_new(body, f->name, v) < 0 ? rc : 0;
    if (!json_is_array(have)) {
        json_t *list = json_array();
        if (json_array_append(list, have) < 0 ||
            json_object_set_new(body, f->name, list) < 0)
            return rc;
        have = list;
    }
    return json_array_append_new(have, v) < 0 ? rc : 0;
}

static int field_of(const og_plan *p, const char *flag) {
    char name[128];
    snprintf(name, sizeof name, "%s", flag);
    for (int i = 0; i < p->n_fields; i++) {
        const char *a = p->fields[i].name, *b = name;
        while (*a && (*a == *b || (*a == '_' && *b == '-'))) a++, b++;
        if (!*a && !*b) return i;
    }
    return -1;
}

int og__fields_json(og__cli *cli, const og_plan *p, json_t **out) {
    const og__args *a = &cli->args;
    int rc = base_object(cli, out);
    for (int i = 0; i < a->n_given && rc == 0; i++) {
        const og__given *g = &a->given[i];
        bool first = true;
        if (g->origin != OG__FROM_FIELDS) continue;
        for (int j = 0; j < i; j++) first &= a->given[j].opt != g->opt;
        int field = field_of(p, g->opt->name);
        rc = field < 0 ? og__usage(cli, "this plan has no field '%s'", g->opt->name)
                       : set_field(cli, &p->fields[field], g, *out, first);
    }
    /* Pipelines that read the seed themselves get the one of the engine. */
    const char *seed = og__args_get(a, "seed");
    if (rc == 0 && seed && og_plan_find_field(p, "seed") >= 0 &&
        json_object_set_new(*out, "seed", json_string(seed)) < 0)
        rc = og__usage(cli, "out of memory");
    if (rc) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}
