/* GET /v1/graph and the page: what they hold, and that a browser can draw it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph/serve/view.h"
#include "tests/serve/serve_rig.h"

#define SPEECH "/v1/audio/speech"
#define HELLO "{\"input\": \"Good morning.\", \"voice\": \"rms\", \"seed\": 7}"

static served demo;

static int open_demo(void **state) {
    (void)state;
    served_open(&demo, NULL, NULL);
    return 0;
}

static int close_demo(void **state) {
    (void)state;
    served_close(&demo);
    return 0;
}

static json_t *graph_at(const char *path) {
    reply r = http_ask(demo.port, "GET", path, NULL);
    assert_int_equal(r.status, 200);
    json_t *j = json_of(&r);
    reply_free(&r);
    return j;
}

static json_t *find(json_t *list, const char *key, const char *name) {
    json_t *v;
    size_t i;
    json_array_foreach(list, i, v) {
        if (!strcmp(json_string_value(json_object_get(v, key)), name)) return v;
    }
    fail_msg("no %s '%s'", key, name);
    return NULL;
}

static json_int_t number(const json_t *o, const char *key) {
    json_t *v = json_object_get(o, key);
    assert_true(json_is_integer(v));
    return json_integer_value(v);
}

/* ---- /v1/graph ----------------------------------------------------------------------- */

static void test_plan_and_counters(void **state) {
    (void)state;
    reply r = http_ask(demo.port, "POST", SPEECH, HELLO);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    wait_idle(&demo, 10);
    json_t *j = graph_at("/v1/graph");
    assert_string_equal(json_string_value(json_object_get(j, "state")), "ready");
    json_t *m = find(json_object_get(j, "models"), "model", "demo");
    json_t *plan = json_object_get(m, "plan");
    json_t *edges = json_object_get(plan, "edges");
    assert_int_equal(json_array_size(json_object_get(plan, "stages")), demo.rig.plan->n_stages);
    assert_int_equal(json_array_size(edges), demo.rig.plan->n_edges);
    bool chunked = false;
    for (size_t i = 0; i < json_array_size(edges); i++)
        chunked |= json_array_size(json_object_get(json_array_get(edges, i), "chunk")) > 0;
    assert_true(chunked);
    for (int i = 0; i < demo.rig.plan->n_stages; i++) {
        const og_plan_stage *st = &demo.rig.plan->stages[i];
        json_t *s = find(json_object_get(m, "stages"), "stage", st->name);
        json_t *replicas = json_object_get(s, "replicas"), *one = json_array_get(replicas, 0);
        assert_int_equal(json_array_size(replicas), st->n_replicas);
        assert_string_equal(json_string_value(json_object_get(one, "state")), "up");
        for (const og__counter *c = og__counters; c->name; c++)
            assert_non_null(json_object_get(one, c->name));
        assert_true(number(one, "steps") > 0);
        assert_true(number(one, "batch_jobs") >= number(one, "steps"));
        assert_true(json_real_value(json_object_get(one, "step_seconds")) > 0);
        assert_int_equal(number(one, "slots_used"), 0);
        assert_true(number(one, "weight_bytes") > 0);
    }
    json_t *requests = json_object_get(m, "requests");
    assert_true(number(requests, "finished") >= 1);
    assert_int_equal(number(requests, "running"), 0);
    assert_int_equal(number(json_object_get(m, "reload"), "generation"), 1);
    json_decref(j);
}

static void test_one_model(void **state) {
    (void)state;
    json_t *j = graph_at("/v1/graph/tts-1"); /* another name of it */
    assert_int_equal(json_array_size(json_object_get(j, "models")), 1);
    json_decref(j);
    reply r = http_ask(demo.port, "GET", "/v1/graph/other", NULL);
    assert_error(&r, 404, "model");
}

static void test_keys_guard_the_graph_but_not_the_page(void **state) {
    (void)state;
    static const char *const keys[] = {"secret"};
    og_serve_opts o = OG_SERVE_OPTS_INIT;
    o.api_keys = keys;
    o.n_api_keys = 1;
    served s;
    served_open(&s, NULL, &o);
    reply r = http_ask(s.port, "GET", "/v1/graph", NULL);
    assert_error(&r, 401, NULL);
    r = http_ask(s.port, "POST", "/v1/reload", "{}");
    assert_error(&r, 401, NULL);
    static const char *const open[] = {"/", "/metrics"};
    for (int i = 0; i < 2; i++) {
        r = http_ask(s.port, "GET", open[i], NULL);
        assert_int_equal(r.status, 200);
        reply_free(&r);
    }
    served_close(&s);
}

/* ---- the page --------------------------------------------------------------------------- */

/* Nothing of it comes from elsewhere. */
static void test_page_is_whole(void **state) {
    (void)state;
    char v[128];
    reply r = http_ask(demo.port, "GET", "/", NULL);
    assert_int_equal(r.status, 200);
    assert_string_equal(header_of(&r, "content-type", v, sizeof v), "text/html; charset=utf-8");
    header_of(&r, "content-security-policy", v, sizeof v);
    assert_int_equal(strncmp(v, "default-src 'self' 'unsafe-inline'", 34), 0);
    assert_int_equal(strncmp(r.body, "<!doctype html>", 15), 0);
    assert_non_null(strstr(r.body, "</html>"));
    for (const char *p = r.body; (p = strstr(p, "://")); p += 3)
        assert_int_equal(strncmp(p, "://www.w3.org/2000/svg'", 23), 0); /* a name, not an address */
    assert_null(strstr(r.body, "src="));
    assert_null(strstr(r.body, "innerHTML"));
    reply_free(&r);
}

static char *read_all(FILE *f) {
    size_t n = 0, cap = 1 << 20;
    char *text = calloc(1, cap + 1);
    while (n < cap) {
        size_t k = fread(text + n, 1, cap - n, f);
        if (k == 0) break;
        n += k;
    }
    return text;
}

static bool has_browser(void) {
    return system("command -v chromium >/dev/null 2>&1") == 0;
}

/* In a real browser the stages are drawn, with their numbers. */
static void test_a_browser_draws_it(void **state) {
    (void)state;
    if (!has_browser()) {
        print_message("no chromium, the page is not drawn\n");
        skip();
    }
    char command[512];
    snprintf(command, sizeof command,
             "timeout 60 chromium --headless --no-sandbox --disable-gpu "
             "--user-data-dir=/tmp/og_page_%d --virtual-time-budget=3000 --dump-dom "
             "http://127.0.0.1:%d/ 2>/dev/null; rm -rf /tmp/og_page_%d",
             (int)getpid(), demo.port, (int)getpid());
    FILE *f = popen(command, "r");
    assert_non_null(f);
    char *dom = read_all(f);
    pclose(f);
    if (!dom[0]) {
        free(dom);
        print_message("chromium does not run here, the page is not drawn\n");
        skip();
    }
    for (int i = 0; i < demo.rig.plan->n_stages; i++) {
        char text[96];
        snprintf(text, sizeof text, ">%s</text>", demo.rig.plan->stages[i].name);
        if (!strstr(dom, text)) fail_msg("'%s' is not drawn in\n%.3000s", text, dom);
    }
    assert_non_null(strstr(dom, ">request</text>"));
    assert_non_null(strstr(dom, ">response</text>"));
    assert_non_null(strstr(dom, ">ready</span>"));
    assert_non_null(strstr(dom, "chunks "));
    assert_non_null(strstr(dom, "<option value=\"rms\">"));
    free(dom);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_and_counters),
        cmocka_unit_test(test_one_model),
        cmocka_unit_test(test_keys_guard_the_graph_but_not_the_page),
        cmocka_unit_test(test_page_is_whole),
        cmocka_unit_test(test_a_browser_draws_it),
    };
    return cmocka_run_group_tests(tests, open_demo, close_demo);
}
