/* `voice save`: what the encoders make of a reference clip, as a file that is used in place
 * of the clip. */
#include <string.h>

#include "graph/cli/run.h"
#include "graph/run/voice.h"

#define CLIP "ref_audio" /* the field whose clip is saved */

typedef struct save {
    og__cli *cli;
    const char *path, *name;
    og_plan *plan;
    og_engine *engine;
    og_request *request;
    og__watch *watch;
    int field;
    json_t *keep, *body; /* fields that belong to the voice; those of the request */
    og_request_tap taps[OG_VOICE_MAX_PORTS];
    int n_taps;
} save;

static int set_field(save *s, json_t *to, const char *name, json_t *value) {
    if (og_plan_find_field(s->plan, name) < 0) {
        json_decref(value);
        return og__usage(s->cli, "pipeline '%s' has no field '%s'", s->plan->name, name);
    }
    return json_object_set_new(to, name, value) < 0
               ? og__usage(s->cli, "field %s: the text is not UTF-8", name)
               : 0;
}

/* What the pipeline asks for and a voice does not depend on is there, and never used. */
static int fill_in(save *s) {
    int rc = 0;
    for (int i = 0; i < s->plan->n_fields && rc == 0; i++) {
        const og_plan_field *f = &s->plan->fields[i];
        if (f->type.kind == OG_TYPE_TEXT && !f->optional && !f->def)
            rc = set_field(s, s->body, f->name, json_string("."));
    }
    return rc;
}

static int read_fields(save *s) {
    const og__args *a = &s->cli->args;
    const char *text = og__args_get(a, "ref-text");
    s->keep = json_object();
    s->body = json_object();
    int rc = fill_in(s);
    if (!rc && text) rc = set_field(s, s->keep, "ref_text", json_string(text));
    if (!rc && og__args_has(a, "x-vector-only-mode"))
        rc = set_field(s, s->keep, "x_vector_only_mode", json_true());
    if (!rc) rc = set_field(s, s->body, CLIP, json_string(og__args_get(a, "ref-audio")));
    if (!rc && json_object_update(s->body, s->keep) < 0) rc = og__usage(s->cli, "out of memory");
    return rc;
}

static int find_stages(save *s) {
    const og_plan *p = s->plan;
    s->field = og_plan_find_field(p, CLIP);
    if (s->field >= 0)
        s->n_taps = og_voice_taps(p, s->field, s->taps, OG_VOICE_MAX_PORTS);
    if (s->n_taps) return 0;
    og__usage(s->cli, "with the checkpoint %s, pipeline '%s' makes nothing of " CLIP,
              p->model_dir, p->name);
    return og__hint("voices are saved with a checkpoint that clones them, a Base model");
}

static int prepare(save *s) {
    const og__args *a = &s->cli->args;
    og_err err = OG_ERR_INIT;
    const char *const needed[] = {"model", "ref-audio", "name", "output"};
    if (strcmp(a->pos[0], "save"))
        return og__usage(s->cli, "there is no 'voice %s', only 'voice save'", a->pos[0]);
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!og__args_get(a, needed[i]))
            return og__usage(s->cli, "voice save needs --%s", needed[i]);
    s->path = og__args_get(a, "output");
    s->name = og__args_get(a, "name");
    if (!og_voice_is(s->path))
        return og__usage(s->cli, "the file of a voice ends in .voice, '%s' does not", s->path);
    if (og__can_write(s->path, &err) < 0) return og__report(&err);
    int rc = og__plan_make(s->cli, a->n_pos > 1 ? a->pos[1] : NULL, 0, false, NULL, &s->plan);
    if (!rc) rc = find_stages(s);
    if (!rc) rc = read_fields(s);
    if (!rc && og__watch_create(&s->watch, &err) < 0) rc = og__report(&err);
    return rc;
}

static int encode(save *s, og_err *err) {
    og_event ev;
    og_request_desc d = {
        .fields = s->body, .taps = s->taps, .n_taps = s->n_taps, .taps_only = 1};
    int rc = og_engine_create(s->plan, NULL, &s->engine, err);
    if (rc == 0) rc = og_engine_submit(s->engine, &d, &s->request, err);
    if (rc < 0) return rc;
    og__watch_request(s->watch, s->request);
    while (og_request_next(s->request, -1, &ev) == OG_EVENT_ITEMS) continue;
    if (ev.kind == OG_EVENT_ERROR) *err = ev.err;
    return ev.kind == OG_EVENT_ERROR ? ev.err.code : 0;
}

static void tell(save *s) {
    og_str line = OG_STR_INIT;
    for (int i = 0; i < s->n_taps; i++) {
        og_tensor t;
        char shape[96];
        if (og_request_tapped(s->request, i, 0, &t) < 0) continue;
        og_tensor_str(&t, shape, sizeof shape);
        og_str_addf(&line, "%s %s.%s %s", line.len ? "," : "", s->taps[i].stage,
                    s->taps[i].port, shape);
    }
    fprintf(stderr, "%s: voice '%s',%s\n", s->path, s->name, line.data ? line.data : "");
    og_str_free(&line);
}

static int work(save *s) {
    og_err err = OG_ERR_INIT;
    og_str file = OG_STR_INIT;
    int rc = encode(s, &err);
    if (rc == 0) rc = og_voice_pack(s->request, s->field, s->name, s->keep, &file, &err);
    if (rc == 0) rc = og__write_file(s->path, file.data, file.len, &err);
    og_str_free(&file);
    if (rc == 0 && !og__args_has(&s->cli->args, "quiet")) tell(s);
    if (rc == 0) return OG__EXIT_OK;
    if (rc == OG_ECANCELED && og__watch_hit(s->watch)) return OG__EXIT_SIGNAL;
    og_err_set(&err, rc, "%s", og_strerror(rc));
    return og__report(&err);
}

static int run(og__cli *cli) {
    save s = {.cli = cli};
    int rc = prepare(&s);
    if (rc == 0) rc = work(&s);
    if (s.watch) og__watch_request(s.watch, NULL);
    og_request_free(s.request);
    og_engine_destroy(s.engine);
    og__watch_destroy(s.watch);
    json_decref(s.keep);
    json_decref(s.body);
    og_plan_destroy(s.plan);
    return rc;
}

static const og__opt options[] = {
    {"ref-audio", 0, OG__VALUE, "FILE", NULL, OG__FILL_FILE, false,
     "the clip: any common audio file"},
    {"ref-text", 0, OG__VALUE, "TEXT", NULL, OG__FILL_NONE, false,
     "what is said in it; kept with the voice"},
    {"x-vector-only-mode", 0, OG__SWITCH, NULL, NULL, OG__FILL_NONE, false,
     "keep the speaker vector alone: no text is needed, the likeness is less"},
    {"name", 'n', OG__VALUE, "NAME", NULL, OG__FILL_NONE, false, "what the voice is called"},
    {"output", 'o', OG__VALUE, "FILE", NULL, OG__FILL_FILE, false, "where to: NAME.voice"},
    OG__PLAN_OPTIONS,
    {"quiet", 'q', OG__SWITCH, NULL, NULL, OG__FILL_NONE, false, "only errors"},
    {0},
};

static const char *const examples[] = {
    "omni-graph voice save --model BASE_CHECKPOINT --ref-audio anna.wav --ref-text \"Good "
    "morning.\" --name anna -o anna.voice",
    "omni-graph run qwen3_tts --model BASE_CHECKPOINT --ref-audio anna.voice --text \"Hello.\" "
    "-o hello.wav",
    NULL,
};

const og__cmd og__cmd_voice = {
    .name = "voice",
    .usage = "save [PIPELINE]",
    .brief = "save a cloned voice, to be used without its audio",
    .doc = "Runs the encoders that listen to the reference audio and writes what they make of "
           "it, with the text, into one file. A request takes that file in place of the audio "
           "and gives the same samples. A voice belongs to the checkpoint that it was made "
           "with. PIPELINE: the one whose `match` fits the checkpoint.",
    .options = options,
    .words = "save",
    .min_pos = 1,
    .max_pos = 2,
    .examples = examples,
    .run = run,
};
