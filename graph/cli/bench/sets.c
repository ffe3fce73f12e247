/* Built-in texts, files of lines, random words. */
#include "graph/cli/bench/sets.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/cli/bench/decode.h"

#define LINE_MAX_BYTES ((size_t)1 << 20)
#define CLIP_RATE 24000
#define CLIP_SECONDS 3

static int words_of(const char *s) {
    int n = 0;
    for (bool in = false; *s; s++) {
        bool space = *s == ' ' || *s == '\t';
        n += !space && !in;
        in = !space;
    }
    return n;
}

static int no_memory(og_err *err) {
    return og_err_set(err, OG_ENOMEM, "out of memory");
}

static int built_in(og_arena *arena, bool design, og__set *out, og_err *err) {
    out->name = design ? "english-design" : "english";
    out->n = og__n_english;
    out->prompts = og_arena_alloc(arena, (size_t)out->n * sizeof *out->prompts);
    if (!out->prompts) return no_memory(err);
    for (int i = 0; i < out->n; i++) {
        og__prompt *p = &out->prompts[i];
        p->text = og__english[i];
        p->words = words_of(p->text);
        if (!design) continue;
        p->extra = og_arena_printf(arena, "{\"instructions\": \"%s\"}",
                                   og__english_voices[i % og__n_english_voices]);
        if (!p->extra) return no_memory(err);
    }
    return 0;
}

/* ---- files -------------------------------------------------------------------- */

typedef struct reader {
    og_arena *arena;
    const char *path;
    int line;
    bool lst;
} reader;

static int at(const reader *r, og_err *err, const char *msg) {
    og_src src = {r->path, r->line, 1};
    return og_err_at(err, OG_EFORMAT, src, "%s", msg);
}

static int json_line(reader *r, const char *s, og__prompt *p, og_err *err) {
    json_error_t e;
    json_t *j = json_loads(s, JSON_REJECT_DUPLICATES, &e);
    if (!j) {
        og_src src = {r->path, r->line, e.column > 0 ? e.column : 1};
        return og_err_at(err, OG_EFORMAT, src, "%s", e.text);
    }
    const char *key = json_object_get(j, "text") ? "text" : "input";
    const char *text = json_string_value(json_object_get(j, key));
    int rc = 0;
    if (!text || !*text) {
        rc = at(r, err, "the object has no \"text\" (or \"input\") that is a string");
    } else {
        p->text = og_arena_strdup(r->arena, text);
        json_object_del(j, key);
        char *rest = json_object_size(j) ? json_dumps(j, JSON_COMPACT) : NULL;
        p->extra = rest ? og_arena_strdup(r->arena, rest) : NULL;
        if (!p->text || (rest && !p->extra)) rc = no_memory(err);
        free(rest);
    }
    json_decref(j);
    return rc;
}

/* id|text of the clip|clip|text to speak */
static int lst_line(reader *r, char *s, og__prompt *p, og_err *err) {
    char *part[4];
    int n = 0;
    for (char *save, *t = strtok_r(s, "|", &save); t && n < 4;
         t = strtok_r(NULL, "|", &save))
        part[n++] = t;
    if (n < 4) return at(r, err, "four fields are needed: id|text of clip|clip|text");
    const char *slash = strrchr(r->path, '/');
    p->text = og_arena_strdup(r->arena, part[3]);
    p->ref_text = og_arena_strdup(r->arena, part[1]);
    p->ref_audio = slash && part[2][0] != '/'
                       ? og_arena_printf(r->arena, "%.*s/%s", (int)(slash - r->path),
                                         r->path, part[2])
                       : og_arena_strdup(r->arena, part[2]);
    return p->text && p->ref_text && p->ref_audio ? 0 : no_memory(err);
}

static int one_line(reader *r, char *s, og__prompt *p, og_err *err) {
    json_t *check = json_string(s);
    json_decref(check);
    if (!check) return at(r, err, "the line is not UTF-8");
    *p = (og__prompt){0};
    int rc = 0;
    if (r->lst)
        rc = lst_line(r, s, p, err);
    else if (*s == '{')
        rc = json_line(r, s, p, err);
    else if (!(p->text = og_arena_strdup(r->arena, s)))
        rc = no_memory(err);
    if (rc == 0) p->words = words_of(p->text);
    return rc;
}

static int add_line(reader *r, char *s, og__prompt **list, int *n, int *cap,
                    og_err *err) {
    size_t len = strlen(s);
    while (len > 0 && strchr(" \t\r\n", s[len - 1])) s[--len] = 0;
    while (*s == ' ' || *s == '\t') s++;
    if (!*s) return 0;
    if (*n == OG__SET_MAX) return at(r, err, "too many lines (limit is 1000000)");
    if (*n == *cap) {
        int room = *cap ? 2 * *cap : 64;
        og__prompt *more = og_realloc(*list, (size_t)room * sizeof *more);
        if (!more) return no_memory(err);
        *list = more;
        *cap = room;
    }
    int rc = one_line(r, s, &(*list)[*n], err);
    if (rc == 0) ++*n;
    return rc;
}

static int read_lines(reader *r, FILE *f, og__prompt **list, int *n, og_err *err) {
    char *line = NULL;
    size_t room = 0;
    ssize_t len;
    int cap = 0, rc = 0;
    while (rc == 0 && (len = getline(&line, &room, f)) >= 0) {
        r->line++;
        if ((size_t)len > LINE_MAX_BYTES)
            rc = at(r, err, "the line is longer than 1 MiB");
        else if (strlen(line) != (size_t)len)
            rc = at(r, err, "the line holds a NUL character");
        else
            rc = add_line(r, line, list, n, &cap, err);
    }
    if (rc == 0 && ferror(f))
        rc = og_err_set(err, OG_EIO, "cannot read '%s': %s", r->path, strerror(errno));
    free(line);
    return rc;
}

static int from_file(og_arena *arena, const char *path, og__set *out, og_err *err) {
    const char *dot = strrchr(path, '.');
    reader r = {.arena = arena, .path = path, .lst = dot && !strcmp(dot, ".lst")};
    og__prompt *list = NULL;
    FILE *f = fopen(path, "re");
    if (!f) {
        int code = errno == ENOENT ? OG_ENOENT : OG_EIO;
        return og_err_set(err, code, "cannot read '%s': %s", path, strerror(errno));
    }
    int rc = read_lines(&r, f, &list, &out->n, err);
    fclose(f);
    if (rc == 0 && out->n == 0)
        rc = og_err_set(err, OG_EINVAL, "'%s' holds no texts", path);
    if (rc == 0) {
        out->name = og_arena_strdup(arena, path);
        out->prompts = og_arena_alloc(arena, (size_t)out->n * sizeof *list);
        if (!out->name || !out->prompts)
            rc = no_memory(err);
        else
            memcpy(out->prompts, list, (size_t)out->n * sizeof *list);
    }
    og_free(list);
    return rc;
}

int og__set_load(og_arena *arena, const char *what, og__set *out, og_err *err) {
    *out = (og__set){0};
    if (!strcmp(what, "english")) return built_in(arena, false, out, err);
    if (!strcmp(what, "english-design")) return built_in(arena, true, out, err);
    return from_file(arena, what, out, err);
}

/* ---- random words ------------------------------------------------------------- */

static const char *const common[] = {
    "about",   "after",  "again",  "air",     "along",    "always",  "apple",  "ask",
    "back",    "bell",   "bird",   "blue",    "boat",     "book",    "bread",  "bridge",
    "bring",   "call",   "carry",  "cloud",   "cold",     "corner",  "dance",  "day",
    "door",    "dream",  "early",  "earth",   "evening",  "fall",    "far",    "field",
    "fire",    "flower", "follow", "friend",  "garden",   "green",   "hand",   "hear",
    "hill",    "home",   "house",  "keep",    "lamp",     "late",    "leaf",   "letter",
    "light",   "listen", "long",   "market",  "moon",     "morning", "music",  "never",
    "night",   "north",  "ocean",  "often",   "open",     "paper",   "path",   "quiet",
    "rain",    "read",   "river",  "road",    "room",     "school",  "shadow", "silver",
    "sing",    "small",  "snow",   "song",    "spring",   "stone",   "story",  "street",
    "summer",  "table",  "tell",   "thunder", "tomorrow", "travel",  "tree",   "valley",
    "village", "walk",   "warm",   "watch",   "water",    "west",    "wheel",  "window",
    "winter",  "wonder", "write",  "yellow",
};

static const char *random_text(og_arena *arena, og__rng *r, int words) {
    og_str s = OG_STR_INIT;
    for (int i = 0; i < words; i++) {
        const char *w = common[og__rng_below(r, (int)(sizeof common / sizeof *common))];
        og_str_addf(&s, "%s%s", i ? " " : "", w);
    }
    og_str_add(&s, ".");
    const char *text = s.oom ? NULL : og_arena_strdup(arena, s.data);
    og_str_free(&s);
    return text;
}

int og__set_random(og_arena *arena, uint64_t seed, int n, int min, int max, og__set *out,
                   og_err *err) {
    og__rng r = {seed ^ 0x72616e646f6du};
    *out = (og__set){.name = "random", .n = n};
    out->prompts = og_arena_alloc(arena, (size_t)n * sizeof *out->prompts);
    if (!out->prompts) return no_memory(err);
    for (int i = 0; i < n; i++) {
        int words = min + og__rng_below(&r, max - min + 1);
        if (words < 1) words = 1;
        out->prompts[i].words = words;
        out->prompts[i].text = random_text(arena, &r, words);
        if (!out->prompts[i].text) return no_memory(err);
    }
    return 0;
}

/* ------------------------------------------------------------------------------- */

int og__set_order(const og__set *set, uint64_t seed, bool shuffle, int n, int *order,
                  og_err *err) {
    og__rng r = {seed ^ 0x6f72646572u};
    int *all = og_malloc((size_t)set->n * sizeof *all);
    if (!all) return no_memory(err);
    for (int i = 0; i < set->n; i++) all[i] = i;
    for (int i = 0; i < n; i++) {
        int k = i % set->n; /* all[0 .. k-1] have had their turn in this round */
        int j = shuffle ? k + og__rng_below(&r, set->n - k) : k, t = all[j];
        all[j] = all[k];
        order[i] = all[k] = t;
    }
    og_free(all);
    return 0;
}

double og__spoken_seconds(const char *text) {
    int n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
    return n / 14.0;
}

/* Harmonics of 120 Hz under a slow envelope: nobody's voice, but loud and voiced, so that an
 * encoder has something to work on. */
static int16_t clip_sample(int i) {
    double t = (double)i / CLIP_RATE, v = 0;
    for (int k = 1; k <= 12; k++) v += sin(2 * M_PI * 120 * k * t) / k;
    return (int16_t)(6000 * v * (0.55 + 0.45 * sin(2 * M_PI * 4 * t)));
}

static void put(unsigned char *to, uint32_t v, int bytes) {
    for (int i = 0; i < bytes; i++) to[i] = (unsigned char)(v >> 8 * i);
}

const char *og__made_up_clip(og_arena *arena) {
    enum { N = CLIP_RATE * CLIP_SECONDS };
    unsigned char *b = og_malloc(44 + 2 * N);
    og_str s = OG_STR_INIT;
    if (!b) return NULL;
    memcpy(b, "RIFF....WAVEfmt ", 16);
    put(b + 4, 36 + 2 * N, 4);
    put(b + 16, 16, 4);
    put(b + 20, 1, 2);
    put(b + 22, 1, 2);
    put(b + 24, CLIP_RATE, 4);
    put(b + 28, 2 * CLIP_RATE, 4);
    put(b + 32, 2, 2);
    put(b + 34, 16, 2);
    memcpy(b + 36, "data", 4);
    put(b + 40, 2 * N, 4);
    for (int i = 0; i < N; i++) put(b + 44 + 2 * i, (uint16_t)clip_sample(i), 2);
    og_str_add(&s, "data:audio/wav;base64,");
    og__base64_encode(b, 44 + 2 * N, &s);
    og_free(b);
    const char *url = s.oom ? NULL : og_arena_strdup(arena, s.data);
    og_str_free(&s);
    return url;
}
