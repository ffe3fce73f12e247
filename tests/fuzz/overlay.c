/* An overlay over its base: two documents with a byte FUZZ_SPLIT between them. */
#include "graph/spec/overlay.h"
#include "tests/fuzz/fuzz.h"

static void look(const og_overlay *ov) {
    og_str s = OG_STR_INIT;
    og_overlay_link l;
    int ids[8];
    og_overlay_json(ov, OG_OVERLAY_MERGED, &s);
    og_overlay_json(ov, OG_OVERLAY_EFFECTIVE, &s);
    og_overlay_explain(ov, &s);
    og_overlay_link_of(ov, 0, 1, &l);
    og_overlay_int(ov, "a", "max_num_seqs", 1);
    og_overlay_float(ov, "b", "default_sampling_params.temperature", 1);
    og_overlay_devices(ov, "a", ids, 8);
    og_str_free(&s);
}

static void ignore(void *user, const og_overlay_change *change) {
    *(int *)user += change->path[0] != 0;
}

static og_overlay *load(const char *path, int with_stages) {
    static const og_stage_ref refs[] = {{"a", 0, "ar_decoder"}, {"b", 1, "vocoder"}};
    og_overlay_opts o = {.path = path, .platform = "cuda"};
    og_diags *d = og_diags_create();
    og_overlay *ov = NULL;
    og_err err = OG_ERR_INIT;
    og_str s = OG_STR_INIT;
    if (with_stages) o.stages = refs, o.n_stages = 2;
    int rc = og_overlay_load(&o, d, &ov, &err);
    if ((rc == 0) != (ov != NULL)) abort();
    if (ov) look(ov);
    og_diags_print(d, &s);
    og_str_free(&s);
    og_diags_destroy(d);
    return ov;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char head[] = "base_config: base.yaml\n";
    size_t at = fuzz_split(data, size);
    char *top = malloc(at + sizeof head);
    if (!top) abort();
    memcpy(top, head, sizeof head - 1);
    if (at) memcpy(top + sizeof head - 1, data, at);
    fuzz_file("base.yaml", at < size ? data + at + 1 : data,
              at < size ? size - at - 1 : 0);
    const char *path = fuzz_file("top.yaml", top, at + sizeof head - 1);
    free(top);
    og_overlay *named = load(path, 1), *listed = load(path, 0);
    int n = 0;
    if (named && listed && og_overlay_diff(named, listed, ignore, &n) < 0) abort();
    og_overlay_destroy(named);
    og_overlay_destroy(listed);
    return 0;
}
