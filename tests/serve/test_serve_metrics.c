/* GET /metrics: text that a scraper takes, and numbers that are right. */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph/serve/metrics.h"
#include "tests/serve/serve_rig.h"

#define SPEECH "/v1/audio/speech"
#define HELLO "\"input\": \"Good morning.\", \"voice\": \"rms\", \"seed\": 7"
#define FAMILIES 128

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

static char *scrape(int port) {
    reply r = http_ask(port, "GET", "/metrics", NULL);
    char type[64];
    assert_int_equal(r.status, 200);
    assert_non_null(header_of(&r, "content-type", type, sizeof type));
    assert_int_equal(strncmp(type, "text/plain; version=0.0.4", 25), 0);
    return r.body;
}

/* The number behind `name{labels}`, -1 when there is none. */
static double number_of(const char *text, const char *sample) {
    size_t n = strlen(sample);
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, sample, n) && line[n] == ' ') return strtod(line + n, NULL);
    }
    return -1;
}

static double scrape_one(int port, const char *sample) {
    char *text = scrape(port);
    double x = number_of(text, sample);
    free(text);
    return x;
}

/* A counter may trail the answer that it counts. */
static void wait_number(int port, const char *sample, double x) {
    double got = -1;
    for (int i = 0; i < 500; i++) {
        got = scrape_one(port, sample);
        if (got == x) return;
        nap(0.01);
    }
    fail_msg("%s is %g, not %g", sample, got, x);
}

/* ---- the form ------------------------------------------------------------------------------ */

static const char *take_name(const char *p, char *out, size_t size) {
    size_t n = strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:");
    assert_true(n > 0 && n < size && !isdigit((unsigned char)*p));
    snprintf(out, size, "%.*s", (int)n, p);
    return p + n;
}

/* {a="b",c="d"}: quotes and backslashes within are escaped. */
static const char *skip_labels(const char *p) {
    char name[64];
    while (*p != '}') {
        p = take_name(p, name, sizeof name);
        assert_int_equal(strncmp(p, "=\"", 2), 0);
        for (p += 2; *p != '"'; p++) {
            assert_true(*p && *p != '\n');
            p += *p == '\\';
        }
        p++;
        if (*p == ',') p++;
    }
    return p + 1;
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

/* A sample belongs to the family that was declared last. */
static void check_sample(const char *line, const char *family, const char *type) {
    char name[128], *end;
    const char *p = take_name(line, name, sizeof name);
    size_t n = strlen(family);
    assert_int_equal(strncmp(name, family, n), 0);
    bool histogram = !strcmp(type, "histogram");
    if (histogram)
        assert_true(!strcmp(name + n, "_bucket") || !strcmp(name + n, "_sum") ||
                    !strcmp(name + n, "_count"));
    else
        assert_int_equal(name[n], 0);
    if (*p == '{') p = skip_labels(p + 1);
    assert_int_equal(*p, ' ');
    double x = strtod(p, &end);
    assert_true(end > p && *end == 0);
    if (!strcmp(type, "counter")) assert_true(x >= 0);
}

static void check_family(const char *name, const char *type, char seen[][128], int *n) {
    for (int i = 0; i < *n; i++) assert_string_not_equal(seen[i], name);
    assert_true(*n < FAMILIES);
    snprintf(seen[(*n)++], 128, "%s", name);
    if (!strcmp(type, "counter")) assert_true(ends_with(name, "_total"));
    assert_true(!strcmp(type, "counter") || !strcmp(type, "gauge") || !strcmp(type, "histogram"));
    assert_true(!strncmp(name, "omni_graph_", 11) || !strncmp(name, "process_", 8));
}

static void check_form(char *text) {
    static char seen[FAMILIES][128];
    char help[128] = "", family[128] = "", type[32] = "";
    int n = 0;
    assert_true(ends_with(text, "\n"));
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (sscanf(line, "# HELP %127s", help) == 1) {
            assert_true(strlen(line) > 8 + strlen(help)); /* and a sentence */
        } else if (sscanf(line, "# TYPE %127s %31s", family, type) == 2) {
            assert_string_equal(family, help);
            check_family(family, type, seen, &n);
        } else {
            check_sample(line, family, type);
        }
    }
    assert_true(n > 40);
}

static void test_form(void **state) {
    (void)state;
    reply r = http_ask(demo.port, "POST", SPEECH, "{" HELLO "}");
    assert_int_equal(r.status, 200);
    reply_free(&r);
    char *text = scrape(demo.port);
    check_form(text);
    free(text);
}

/* Names may hold what a label must escape. */
static void test_labels_are_escaped(void **state) {
    (void)state;
    served s;
    og_err err = OG_ERR_INIT;
    served_open(&s, NULL, NULL);
    og_serve_model m = {.name = "a \"b\"\\c", .engine = s.rig.engine};
    assert_int_equal(og_server_add(s.server, &m, &err), 0);
    char *text = scrape(s.port);
    assert_non_null(strstr(text, "model=\"a \\\"b\\\"\\\\c\""));
    check_form(text);
    free(text);
    served_close(&s);
}

/* ---- the numbers ------------------------------------------------------------------------------ */

static void test_requests_are_counted(void **state) {
    (void)state;
    served s;
    served_open(&s, NULL, NULL);
    for (int i = 0; i < 3; i++) {
        reply r = http_ask(s.port, "POST", SPEECH, "{" HELLO "}");
        assert_int_equal(r.status, 200);
        reply_free(&r);
    }
    reply r = http_ask(s.port, "POST", SPEECH, "{" HELLO ", \"stream_format\": \"audio\"}");
    assert_int_equal(r.status, 200);
    reply_free(&r);
    r = http_ask(s.port, "POST", SPEECH, "{\"input\": 3}");
    assert_int_equal(r.status, 400);
    reply_free(&r);
    r = http_ask(s.port, "GET", "/nothing", NULL);
    reply_free(&r);
    wait_number(s.port, "omni_graph_http_requests_total{path=\"" SPEECH "\",method=\"POST\",status=\"200\"}", 4);
    wait_number(s.port, "omni_graph_http_requests_total{path=\"" SPEECH "\",method=\"POST\",status=\"400\"}", 1);
    wait_number(s.port, "omni_graph_http_requests_total{path=\"other\",method=\"GET\",status=\"404\"}", 1);
    wait_number(s.port, "omni_graph_speech_answers_total{model=\"demo\",outcome=\"ok\"}", 4);
    wait_number(s.port, "omni_graph_speech_seconds_count{model=\"demo\"}", 4);
    wait_number(s.port, "omni_graph_speech_first_audio_seconds_count{model=\"demo\"}", 4);
    wait_number(s.port, "omni_graph_speech_real_time_factor_bucket{model=\"demo\",le=\"+Inf\"}", 4);
    wait_number(s.port, "omni_graph_first_packet_seconds_count{model=\"demo\"}", 1);
    wait_number(s.port, "omni_graph_requests_finished_total{model=\"demo\"}", 4);
    wait_number(s.port, "omni_graph_requests_queued{model=\"demo\"}", 0);
    wait_number(s.port, "omni_graph_state{state=\"ready\"}", 1);
    char *text = scrape(s.port);
    assert_true(number_of(text, "omni_graph_speech_audio_seconds_total{model=\"demo\"}") > 3);
    assert_true(number_of(text, "process_resident_memory_bytes") > 1e6);
    assert_true(number_of(text, "process_open_fds") > 3);
    assert_true(number_of(text, "process_start_time_seconds") > 1.7e9);
    free(text);
    served_close(&s);
}

static void test_stages_are_counted(void **state) {
    (void)state;
    reply r = http_ask(demo.port, "POST", SPEECH, "{" HELLO "}");
    assert_int_equal(r.status, 200);
    reply_free(&r);
    wait_idle(&demo, 10);
    char *text = scrape(demo.port), sample[160];
    const og_plan *p = demo.rig.plan;
    double steps = 0;
    for (int i = 0; i < p->n_stages; i++) {
        const char *place = p->groups[p->stages[i].replicas[0].group].name;
        snprintf(sample, sizeof sample,
                 "omni_graph_stage_up{model=\"demo\",stage=\"%s\",replica=\"0\",place=\"%s\"}",
                 p->stages[i].name, place);
        assert_true(number_of(text, sample) == 1);
        snprintf(sample, sizeof sample,
                 "omni_graph_stage_steps_total{model=\"demo\",stage=\"%s\",replica=\"0\",place=\"%s\"}",
                 p->stages[i].name, place);
        steps += number_of(text, sample);
        snprintf(sample, sizeof sample,
                 "omni_graph_stage_slots_used{model=\"demo\",stage=\"%s\",replica=\"0\",place=\"%s\"}",
                 p->stages[i].name, place);
        assert_true(number_of(text, sample) == 0);
    }
    assert_true(steps > 5);
    free(text);
}

static void test_clients_that_go(void **state) {
    (void)state;
    double before = scrape_one(demo.port, "omni_graph_clients_gone_total");
    int fd = dial(demo.port);
    send_text(fd, "POST " SPEECH " HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n{\"in");
    nap(0.05);
    close(fd);
    wait_number(demo.port, "omni_graph_clients_gone_total", before + 1);
}

/* A listener who plays at once runs dry when pieces are late and nothing waits for him. */
static void test_underruns(void **state) {
    (void)state;
    og__call *c = og__call_create(demo.server);
    const og__model *m = og__server_model(demo.server, "demo");
    og__speech_totals a, b;
    og__metrics_totals(demo.server, m, &a);
    og__metrics_piece(c, m, 0);
    og__metrics_piece(c, m, 5); /* five seconds in hand */
    nap(0.05);
    og__metrics_piece(c, m, 0.01); /* ten milliseconds */
    og__metrics_piece(c, m, 0.02); /* he has begun again */
    og__metrics_totals(demo.server, m, &b);
    assert_int_equal(b.underruns - a.underruns, 1);
    og__call_unref(c);
}

/* The dashboard asks for nothing that is not there. */
static void test_dashboard(void **state) {
    (void)state;
    json_error_t e;
    json_t *j = json_load_file(OG_SOURCE_DIR "/examples/grafana.json", 0, &e);
    if (!j) fail_msg("%s", e.text);
    char *all = json_dumps(j, JSON_COMPACT), *text = scrape(demo.port), name[128];
    int n = 0;
    for (const char *p = all; (p = strstr(p, "omni_graph_")); p += strlen(name)) {
        char type[144];
        take_name(p, name, sizeof name);
        snprintf(type, sizeof type, "# TYPE %s ", name);
        if (ends_with(name, "_bucket")) strcpy(type + strlen(type) - strlen("_bucket "), " ");
        if (!strstr(text, type)) fail_msg("there is no %s", name);
        n++;
    }
    assert_true(n > 20);
    free(all);
    free(text);
    json_decref(j);
}

static void test_profiles_say_that_there_are_none(void **state) {
    (void)state;
    reply r = http_ask(demo.port, "POST", "/start_profile", "{}");
    assert_error(&r, 501, NULL);
    r = http_ask(demo.port, "POST", "/stop_profile", "{}");
    assert_error(&r, 501, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_form),
        cmocka_unit_test(test_labels_are_escaped),
        cmocka_unit_test(test_requests_are_counted),
        cmocka_unit_test(test_stages_are_counted),
        cmocka_unit_test(test_clients_that_go),
        cmocka_unit_test(test_underruns),
        cmocka_unit_test(test_dashboard),
        cmocka_unit_test(test_profiles_say_that_there_are_none),
    };
    return cmocka_run_group_tests(tests, open_demo, close_demo);
}
