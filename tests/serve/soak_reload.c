/* The overlay of the soak: settings that change what is said, files that are wrong, and files
 * that are caught half written. A document is one flow mapping, so that a part of it is never
 * a document of its own. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tests/serve/soak.h"

/* Replicas of both stages, then of the talker's sequences. */
static const char *const settings[SOAK_SETTINGS] = {
    "{stages: [{stage_id: 0, num_replicas: %d, max_num_seqs: %d, "
    "default_sampling_params: "
    "{max_tokens: 12}}, {stage_id: 1, num_replicas: %d, max_num_seqs: 4}]}\n",
    "{stages: [{stage_id: 0, num_replicas: %d, max_num_seqs: %d, "
    "default_sampling_params: "
    "{max_tokens: 9, temperature: 1.1, top_k: 50}}, {stage_id: 1, num_replicas: %d}]}\n",
    "{async_chunk: false, stages: [{stage_id: 0, num_replicas: %d, max_num_seqs: %d, "
    "default_sampling_params: {max_tokens: 14}, subtalker_sampling_params: {temperature: "
    "1.3}}, "
    "{stage_id: 1, num_replicas: %d}]}\n",
    "{connectors: {c: {name: SharedMemoryConnector, extra: {codec_chunk_frames: 3}}}, "
    "stages: "
    "[{stage_id: 0, num_replicas: %d, max_num_seqs: %d, default_sampling_params: "
    "{max_tokens: "
    "10, repetition_penalty: 1.2}, output_connectors: {to_stage_1: c}}, {stage_id: 1, "
    "num_replicas: %d, input_connectors: {from_stage_0: c}}]}\n",
};

static const char *const bad[] = {
    "{stages: [{stage_id: 0, max_num_seqs: many}]}\n",
    "{stages: [{stage_id: 7, max_num_seqs: 2}]}\n",
    "{stages: [{stage_id: 0, stage_id: 0}]}\n",
    "{stages: [{stage_id: 0, max_num_seqs: 4, default_sampling_params: {temperature: "
    "-3}}]}\n",
    "{stages: [{stage_id: 0, max_num_seqs: 2}\n",
    "[]]\n",
    "{stages: \xff\xfe}\n",
};

static void setting_text(int setting, int replicas, int seqs, char *buf, size_t size) {
    snprintf(buf, size, settings[setting], replicas, seqs, replicas);
}

/* As editors do it: another file, then a rename. */
static void save(soak_world *w, const char *text) {
    char temp[112];
    snprintf(temp, sizeof temp, "%s.new", w->overlay);
    FILE *f = fopen(temp, "w");
    if (!f || fputs(text, f) < 0 || fclose(f) != 0 || rename(temp, w->overlay) != 0)
        soak_problem(w, "cannot write the overlay: %s", strerror(errno));
}

static bool put(int fd, const char *bytes, size_t n, off_t at) {
    return pwrite(fd, bytes, n, at) == (ssize_t)n;
}

/* In place, with a pause in the middle. Each state in between is the beginning of a document,
 * old or new, without its end. */
static void save_slowly(soak_world *w, const char *text, uint64_t *rng) {
    size_t n = strlen(text), cut = 10 + (size_t)soak_below(rng, 10);
    int fd = open(w->overlay, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && ftruncate(fd, (off_t)cut) == 0 && put(fd, text, cut, 0);
    size_t more = ok ? cut + (size_t)soak_below(rng, (int)(n - cut - 4)) : cut;
    ok = ok && put(fd, text + cut, more - cut, (off_t)cut);
    soak_nap(0.001 * soak_below(rng, 400));
    ok = ok && put(fd, text + more, n - more, (off_t)more);
    if (fd >= 0) close(fd);
    if (!ok) soak_problem(w, "cannot write the overlay: %s", strerror(errno));
    atomic_fetch_add(&w->n->half_files, 1);
}

static int generation(const soak_world *w) {
    og_engine_stats st;
    og_engine_get_stats(w->engine, &st);
    return st.generation;
}

/* A good file: it must be in force soon, by the watch or by hand. */
static void apply(soak_world *w, int setting, const char *text, uint64_t *rng) {
    long epoch = atomic_load(&w->reloads.begun) + 1;
    int before = generation(w), how = rng ? soak_below(rng, 3) : 0;
    og_reload_outcome outcome;
    og_err err = OG_ERR_INIT;
    w->setting_of[epoch % SOAK_EPOCHS] = setting;
    atomic_store(&w->reloads.begun, epoch);
    if (how == 2)
        save_slowly(w, text, rng);
    else
        save(w, text);
    if (how == 0 && og_reloader_run(w->reloader, "by hand", &outcome, &err) < 0)
        soak_problem(w, "a good overlay was not taken: %s", err.msg);
    double end = soak_clock() + SOAK_WAIT_S;
    while (generation(w) == before && soak_clock() < end) soak_nap(0.002);
    if (generation(w) != before + 1)
        soak_problem(w, "after one reload generation %d became %d", before,
                     generation(w));
    atomic_store(&w->reloads.settled, epoch);
    atomic_fetch_add(&w->n->reloads, 1);
}

/* A bad file: said to be one, and nothing changes. */
static void apply_bad(soak_world *w, uint64_t *rng) {
    int before = generation(w),
        which = soak_below(rng, (int)(sizeof bad / sizeof *bad) + 1);
    og_reload_outcome outcome = OG_RELOADED_SAME;
    og_err err = OG_ERR_INIT;
    if (which < (int)(sizeof bad / sizeof *bad))
        save(w, bad[which]);
    else
        unlink(w->overlay);
    int rc = og_reloader_run(w->reloader, "by hand", &outcome, &err);
    if (rc == 0 || outcome < OG_RELOADED_REFUSED || !err.msg[0])
        soak_problem(w, "bad overlay %d was %s: %s", which,
                     og_reload_outcome_name(outcome), err.msg);
    soak_nap(0.15 * soak_below(rng, 2)); /* for the watch */
    if (generation(w) != before)
        soak_problem(w, "bad overlay %d made a generation", which);
    if (which == (int)(sizeof bad / sizeof *bad)) save(w, bad[0]);
    atomic_fetch_add(&w->n->bad_files, 1);
}

void soak_settle(soak_world *w, int setting) {
    char text[640];
    int now = w->setting_of[atomic_load(&w->reloads.settled) % SOAK_EPOCHS];
    if (now == setting) {
        setting_text((setting + 1) % SOAK_SETTINGS, 2, 4, text, sizeof text);
        apply(w, (setting + 1) % SOAK_SETTINGS, text, NULL);
    }
    setting_text(setting, 2, 4, text, sizeof text);
    apply(w, setting, text, NULL);
}

void *soak_reload_main(void *world) {
    soak_world *w = world;
    uint64_t rng = w->opts.seed * 77 + 5;
    char text[640];
    while (soak_go_on(w)) {
        int now = w->setting_of[atomic_load(&w->reloads.settled) % SOAK_EPOCHS];
        int next = (now + 1 + soak_below(&rng, SOAK_SETTINGS - 1)) % SOAK_SETTINGS;
        if (soak_below(&rng, 3) == 0) {
            apply_bad(w, &rng);
        } else {
            setting_text(next, 1 + soak_below(&rng, 3), 2 + soak_below(&rng, 4), text,
                         sizeof text);
            apply(w, next, text, &rng);
        }
        soak_nap(0.05 * soak_below(&rng, 12));
    }
    return NULL;
}

int soak_make_plan(soak_world *w, int setting, bool alone, og_plan **out, og_err *err) {
    char text[640];
    setting_text(setting, alone ? 1 : 2, alone ? 1 : 4, text, sizeof text);
    save(w, text);
    w->pipelines = OG_SOURCE_DIR "/pipelines";
    w->lua = OG_SOURCE_DIR "/scripts/lua";
    w->plan = (og_plan_options)OG_PLAN_OPTIONS_INIT;
    w->plan.pipeline = "qwen3_tts";
    w->plan.model = OG_SOURCE_DIR "/examples/voice";
    w->plan.deploy = w->overlay;
    w->plan.pipeline_dirs = &w->pipelines, w->plan.n_pipeline_dirs = 1;
    w->plan.script_dirs = &w->lua, w->plan.n_script_dirs = 1;
    w->plan.threads = 1;
    return og_plan_build(&w->plan, 0, NULL, out, err);
}
