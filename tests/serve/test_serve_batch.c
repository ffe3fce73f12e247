/* Batches of speech over a real socket: each item is what it is alone, whatever the others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph/serve/server.h"
#include "tests/serve/serve_rig.h"

#define BATCH "/v1/audio/speech/batch"

static served demo;

static int open_demo(void **state) {
    (void)state;
    og_serve_opts o = OG_SERVE_OPTS_INIT;
    o.max_body = 1 << 20;
    served_open(&demo, NULL, &o);
    return 0;
}

static int close_demo(void **state) {
    (void)state;
    served_close(&demo);
    return 0;
}

static json_t *send_batch(const char *body) {
    reply r = http_ask(demo.port, "POST", BATCH, body);
    char v[64];
    if (r.status != 200) fail_msg("status %d: %.300s", r.status, r.body);
    assert_false(r.cut);
    assert_string_equal(header_of(&r, "content-type", v, sizeof v), "application/json");
    json_t *j = json_of(&r);
    reply_free(&r);
    return j;
}

static json_t *result(json_t *j, int i) {
    json_t *r = json_array_get(json_object_get(j, "results"), (size_t)i);
    assert_int_equal(json_integer_value(json_object_get(r, "index")), i);
    return r;
}

static const char *text_of(json_t *o, const char *key) {
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

static json_int_t count(json_t *o, const char *key) {
    return json_integer_value(json_object_get(o, key));
}

/* The audio of an item is that of the same request alone. */
static void assert_alone(json_t *item, const char *body) {
    reply r = http_ask(demo.port, "POST", "/v1/audio/speech", body);
    og_str bytes = OG_STR_INIT;
    char v[64];
    assert_string_equal(text_of(item, "status"), "success");
    assert_null(json_object_get(item, "error"));
    assert_int_equal(og__data_url(text_of(item, "audio_data"), &bytes, NULL), 0);
    assert_int_equal(r.status, 200);
    assert_int_equal(bytes.len, r.n);
    assert_memory_equal(bytes.data, r.body, r.n);
    assert_string_equal(text_of(item, "media_type"),
                        header_of(&r, "content-type", v, sizeof v));
    json_t *usage = json_object_get(item, "usage");
    assert_int_equal(count(usage, "output_tokens"),
                     strtol(header_of(&r, "x-vllm-omni-output-tokens", v, sizeof v), NULL, 10));
    assert_int_equal(count(usage, "input_tokens") + count(usage, "output_tokens"),
                     count(usage, "total_tokens"));
    og_str_free(&bytes);
    reply_free(&r);
}

static void assert_item_error(json_t *item, const char *param) {
    json_t *e = json_object_get(item, "error");
    assert_string_equal(text_of(item, "status"), "error");
    assert_string_equal(text_of(e, "param"), param);
    assert_int_equal(strncmp(text_of(e, "message"), param, strlen(param)), 0);
    assert_string_equal(text_of(e, "type"), "invalid_request_error");
    assert_null(json_object_get(item, "audio_data"));
    assert_null(json_object_get(item, "media_type"));
    assert_null(json_object_get(item, "usage"));
}

/* B055: a blank text is an error of its item, and of no other. */
static void test_b055_items_stand_alone(void **state) {
    (void)state;
    json_t *j = send_batch(
        "{\"voice\": \"rms\", \"seed\": 7, \"response_format\": \"pcm\", \"speed\": null, \"items\": ["
        "{\"input\": \"Good morning.\"},"
        "{\"input\": \" \\t\\n\"},"
        "{\"input\": \"And now for something else.\", \"response_format\": \"flac\", \"seed\": 9},"
        "{\"input\": 5},"
        "{\"input\": \"x\", \"stream\": true},"
        "\"hello\","
        "{\"input\": \"Hm.\", \"response_format\": null, \"voice\": null, \"model\": \"nobody\"}]}");
    assert_int_equal(count(j, "total"), 7);
    assert_int_equal(count(j, "succeeded"), 2);
    assert_int_equal(count(j, "failed"), 5);
    assert_int_equal(strncmp(text_of(j, "id"), "speech-batch-", 13), 0);
    assert_alone(result(j, 0), "{\"input\": \"Good morning.\", \"voice\": \"rms\", \"seed\": 7, "
                               "\"response_format\": \"pcm\"}");
    assert_item_error(result(j, 1), "items[1].input");
    assert_alone(result(j, 2), "{\"input\": \"And now for something else.\", \"voice\": \"rms\", "
                               "\"seed\": 9, \"response_format\": \"flac\"}");
    assert_item_error(result(j, 3), "items[3].input");
    assert_item_error(result(j, 4), "items[4].stream");
    assert_item_error(result(j, 5), "items[5]");
    json_t *e = json_object_get(result(j, 6), "error");
    assert_string_equal(text_of(e, "param"), "items[6].model");
    assert_string_equal(text_of(e, "code"), "model_not_found");
    json_decref(j);
}

/* More items than fit a step of the engine, each with a seed of its own. */
static void test_many_items_in_order(void **state) {
    (void)state;
    enum { N = 24 };
    og_str body = OG_STR_INIT;
    og_str_addf(&body, "{\"voice\": \"rms\", \"items\": [");
    for (int i = 0; i < N; i++)
        og_str_addf(&body, "%s{\"input\": \"Number %d.\", \"seed\": %d}", i ? "," : "", i, i);
    og_str_addf(&body, "]}");
    json_t *j = send_batch(body.data);
    assert_int_equal(count(j, "succeeded"), N);
    for (int i = 0; i < N; i += 7) {
        char alone[128];
        snprintf(alone, sizeof alone, "{\"voice\": \"rms\", \"input\": \"Number %d.\", \"seed\": %d}",
                 i, i);
        assert_alone(result(j, i), alone);
    }
    json_decref(j);
    og_str_free(&body);
    wait_idle(&demo, 10);
}

static void test_bodies_that_are_no_batch(void **state) {
    (void)state;
    static const struct {
        const char *body, *param;
        int status;
    } rows[] = {{"{}", "items", 400},
                {"{\"items\": []}", "items", 400},
                {"{\"items\": {}}", "items", 400},
                {"{\"items\": null}", "items", 400},
                {"{\"items\": [{\"input\": \"x\"}], \"stream\": true}", "stream", 400},
                {"{\"items\": [{\"input\": \"x\"}], \"model\": 4}", "model", 400},
                {"{\"items\": [{\"input\": \"x\"}], \"model\": \"nobody\"}", "model", 404},
                {"[1]", NULL, 400}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        reply r = http_ask(demo.port, "POST", BATCH, rows[i].body);
        assert_error(&r, rows[i].status, rows[i].param);
    }
    og_str many = OG_STR_INIT;
    og_str_addf(&many, "{\"items\": [1");
    for (int i = 0; i < 200; i++) og_str_addf(&many, ",1");
    og_str_addf(&many, "]}");
    reply r = http_ask(demo.port, "POST", BATCH, many.data);
    assert_error(&r, 400, "items");
    og_str_free(&many);
}

/* A time limit of one item is no other's. */
static void test_time_limit_of_an_item(void **state) {
    (void)state;
    json_t *j = send_batch("{\"voice\": \"rms\", \"items\": [{\"input\": \"One, two, three, four, "
                           "five, six, seven, eight, nine, ten, eleven, twelve.\", "
                           "\"timeout\": 0.001}, {\"input\": \"One.\"}]}");
    json_t *e = json_object_get(result(j, 0), "error");
    if (e) assert_string_equal(text_of(e, "code"), "timeout"); /* it may have been faster */
    assert_string_equal(text_of(result(j, 1), "status"), "success");
    json_decref(j);
}

/* A client that hangs up takes all its items with it. */
static void test_client_gone(void **state) {
    (void)state;
    static const char body[] =
        "{\"voice\": \"rms\", \"items\": [{\"input\": \"One two three four five six seven.\"},"
        "{\"input\": \"One two three four five six seven.\"}]}";
    int fd = dial(demo.port);
    char head[256];
    snprintf(head, sizeof head, "POST " BATCH " HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n",
             sizeof body - 1);
    send_text(fd, head);
    send_text(fd, body);
    nap(0.02);
    close(fd);
    wait_idle(&demo, 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_b055_items_stand_alone),
        cmocka_unit_test(test_many_items_in_order),
        cmocka_unit_test(test_bodies_that_are_no_batch),
        cmocka_unit_test(test_time_limit_of_an_item),
        cmocka_unit_test(test_client_gone),
    };
    return cmocka_run_group_tests(tests, open_demo, close_demo);
}
