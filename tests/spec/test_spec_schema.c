#include <jansson.h>

#include "graph/spec/schema.h"
#include "spec_test.h"

static void check_table(og_schema schema) {
    int n;
    const og_key *keys = og_keys(schema, &n);
    for (int i = 0; i < n; i++) {
        const og_key *k = &keys[i];
        if (!k->name || !k->doc || !k->doc[0] || !k->values) fail_msg("row %d", i);
        if (og_key_find(k->section, k->name) != k)
            fail_msg("'%s' is listed twice", k->name);
        if (k->inner && !(k->values & (OG_VALUE_MAP | OG_VALUE_LIST))) {
            fail_msg("'%s' has keys but is no map", k->name);
        }
        if (k->has_min && k->has_max && k->min >= k->max)
            fail_msg("range of '%s'", k->name);
        if (k->flags & OG_KEY_REMOVED) continue;
        if (k->doc[strlen(k->doc) - 1] != '.') fail_msg("'%s': no full stop", k->name);
    }
}

static void test_table(void **state) {
    (void)state;
    check_table(OG_SCHEMA_PIPELINE);
    check_table(OG_SCHEMA_OVERLAY);
}

static void test_near(void **state) {
    (void)state;
    assert_string_equal(og_key_near(OG_SECTION_OVERLAY_STAGE, "max_num_seq"),
                        "max_num_seqs");
    assert_string_equal(og_key_near(OG_SECTION_OVERLAY_STAGE, "divices"), "devices");
    assert_string_equal(og_key_near(OG_SECTION_EDGE, "hokk"), "hook");
    assert_string_equal(og_key_near(OG_SECTION_EDGE, "form"), "from");
    assert_null(og_key_near(OG_SECTION_EDGE, "entirely"));
    assert_null(og_key_near(OG_SECTION_EDGE, ""));
    char *longer = og_malloc(100000);
    memset(longer, 'a', 99999);
    longer[99999] = 0;
    assert_null(og_key_near(OG_SECTION_EDGE, longer));
    og_free(longer);
    static const char *const names[] = {"talker", "thinker"};
    assert_string_equal(og_near("tinker", names, 2), "thinker");
    assert_int_equal(og_owner_of("dit"), OG_OWNER_DIT);
    assert_int_equal(og_owner_of(NULL), OG_OWNER_ALL);
}

static json_t *schema(og_schema which) {
    og_str s = OG_STR_INIT;
    json_error_t why;
    og_schema_json(which, &s);
    json_t *j = json_loads(s.data, JSON_REJECT_DUPLICATES, &why);
    if (!j) fail_msg("line %d: %s", why.line, why.text);
    og_str_free(&s);
    return j;
}

/* Every $ref leads to a definition. */
static void check_refs(const json_t *root, const json_t *j) {
    const char *key;
    json_t *v;
    size_t i;
    json_object_foreach((json_t *)j, key, v) {
        if (!strcmp(key, "$ref")) {
            const char *name = json_string_value(v) + strlen("#/$defs/");
            if (!json_object_get(json_object_get(root, "$defs"), name))
                fail_msg("%s", name);
        }
        check_refs(root, v);
    }
    json_array_foreach((json_t *)j, i, v) check_refs(root, v);
}

static void test_json_schema(void **state) {
    (void)state;
    json_t *p = schema(OG_SCHEMA_PIPELINE), *o = schema(OG_SCHEMA_OVERLAY);
    check_refs(p, p);
    check_refs(o, o);
    json_t *edge = json_object_get(json_object_get(p, "$defs"), "edges");
    assert_true(json_is_false(json_object_get(edge, "additionalProperties")));
    assert_int_equal(json_array_size(json_object_get(edge, "required")), 2);
    assert_non_null(json_object_get(json_object_get(edge, "properties"), "hook"));
    json_decref(p);
    json_decref(o);
}

static void test_markdown(void **state) {
    (void)state;
    og_str s = OG_STR_INIT;
    og_schema_markdown(OG_SCHEMA_OVERLAY, &s);
    assert_non_null(strstr(s.data, "| `max_num_seqs` | int, 1 to 65536 |"));
    assert_non_null(strstr(s.data, "## connectors.*.extra"));
    og_str_free(&s);
    og_schema_markdown(OG_SCHEMA_PIPELINE, &s);
    assert_non_null(strstr(s.data, "| `node` | string, required |"));
    og_str_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_near),
        cmocka_unit_test(test_json_schema),
        cmocka_unit_test(test_markdown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
