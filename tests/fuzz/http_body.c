/* A body of the speech API, as far as what the engine is asked: two pipelines, one of which
 * clones voices. What is refused must have an answer, and that must be JSON. */
#include "graph/run/reload.h"
#include "graph/serve/speech.h"
#include "tests/fuzz/fuzz.h"

static og_server *server;

static og_engine *open_engine(const char *model) {
    static const char *const pipelines = OG_SOURCE_DIR "/pipelines";
    static const char *const lua = OG_SOURCE_DIR "/scripts/lua";
    og_plan_options o = OG_PLAN_OPTIONS_INIT;
    og_plan *plan = NULL;
    og_engine *e = NULL;
    o.pipeline = "qwen3_tts";
    o.model = model;
    o.pipeline_dirs = &pipelines, o.n_pipeline_dirs = 1;
    o.script_dirs = &lua, o.n_script_dirs = 1;
    o.threads = 1;
    if (og_plan_build(&o, 0, NULL, &plan, NULL) < 0) abort();
    if (og_engine_create(plan, NULL, &e, NULL) < 0) abort();
    og_plan_destroy(plan);
    return e;
}

/* A server without threads: nobody reads its news. */
static void open_server(void) {
    server = calloc(1, sizeof *server);
    if (!server) abort();
    pthread_mutex_init(&server->mu, NULL);
    pthread_mutex_init(&server->loop_mu, NULL);
    pthread_cond_init(&server->cond, NULL);
    server->opts = (og_serve_opts)OG_SERVE_OPTS_INIT;
    server->opts.voices_dir = fuzz_dir();
    server->closed = true;
    server->models[0].name = "demo";
    server->models[0].engine = open_engine(OG_SOURCE_DIR "/examples/voice");
    server->models[1].name = "base";
    server->models[1].engine =
        open_engine(OG_SOURCE_DIR "/tests/data/qwen3_tts/tiny-a/base");
    server->n_models = 2;
}

static void close_server(void) {
    if (!server) return;
    for (int i = 0; i < server->n_models; i++)
        og_engine_destroy(server->models[i].engine);
    pthread_mutex_destroy(&server->mu);
    pthread_mutex_destroy(&server->loop_mu);
    pthread_cond_destroy(&server->cond);
    free(server);
    server = NULL;
}

static void check_answer(const og__call *c) {
    const og__outbox *o = &c->out;
    if (o->status < 400 || !o->ended || o->length != (int64_t)o->len) abort();
    json_t *j = json_loadb(o->data + o->from, o->len, 0, NULL);
    json_t *e = json_object_get(j, "error");
    if (json_string_length(json_object_get(e, "message")) == 0) abort();
    json_decref(j);
}

/* The empty input ends the server: replay.c gives it last, and counts what is left. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    og__body b;
    og__ask a;
    if (size == 0) {
        close_server();
        return 0;
    }
    if (!server) open_server();
    og__call *c = og__call_create(server);
    if (!c) abort();
    og_str_addn(&c->body, (const char *)data, size);
    int rc = og__body_open(&b, c);
    if (rc == 0) {
        rc = og__ask_read(&b, &a);
        if (rc == 0 && (!a.model || !a.plan || og__text_tokens(a.plan, a.fields) < 0))
            abort();
        og__ask_clear(&a);
        og__body_close(&b);
    }
    if (rc < 0)
        check_answer(c);
    else if (c->out.status)
        abort();
    og__call_unref(c);
    return 0;
}
