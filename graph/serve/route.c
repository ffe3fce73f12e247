/* Which handler answers what. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "graph/serve/metrics.h"
#include "graph/serve/page.h"
#include "graph/serve/profile.h"
#include "graph/serve/reload.h"
#include "graph/serve/server.h"
#include "graph/serve/view.h"
#include "graph/serve/ws.h"

static const og__route routes[] = {
    {OG__GET, "/", og__get_page, true},
    {OG__GET, "/health", og__get_health, true},
    {OG__GET, "/metrics", og__get_metrics, true},
    {OG__GET, "/v1/graph", og__get_graph, false},
    {OG__GET, "/v1/graph/{}", og__get_graph, false},
    {OG__POST, "/v1/reload", og__post_reload, false},
    {OG__POST, "/start_profile", og__post_profile, false},
    {OG__POST, "/stop_profile", og__post_profile, false},
    {OG__GET, "/v1/models", og__get_models, false},
    {OG__GET, "/v1/models/{}", og__get_model, false},
    {OG__POST, "/v1/audio/speech", og__post_speech, false},
    {OG__POST, "/v1/audio/speech/batch", og__post_batch, false},
    {OG__GET, OG__WS_PATH, og__get_stream, false},
    {OG__GET, "/v1/audio/voices", og__get_voices, false},
    {OG__POST, "/v1/audio/voices", og__post_voice, false},
    {OG__DELETE, "/v1/audio/voices/{}", og__delete_voice, false},
};

/* One part of a path (its %xx are bytes already); empty and overlong parts match nothing. */
static bool take_param(const char **path, char *param) {
    size_t n = strcspn(*path, "/");
    if (n == 0 || n >= OG__PARAM_MAX) return false;
    memcpy(param, *path, n);
    param[n] = 0;
    *path += n;
    return true;
}

static bool matches(const char *pattern, const char *path, char *param) {
    while (*pattern) {
        if (pattern[0] == '{' && pattern[1] == '}') {
            if (!take_param(&path, param)) return false;
            pattern += 2;
        } else if (*pattern++ != *path++) {
            return false;
        }
    }
    return *path == 0;
}

const og__route *og__route_find(og__method m, const char *path, char *param,
                                const char **allowed) {
    static const char *const names[] = { /* one bit a method */
        "", "GET, HEAD, OPTIONS", "POST, OPTIONS", "GET, HEAD, POST, OPTIONS",
        "DELETE, OPTIONS", "GET, HEAD, DELETE, OPTIONS", "POST, DELETE, OPTIONS",
        "GET, HEAD, POST, DELETE, OPTIONS"};
    unsigned known = 0;
    *allowed = "";
    if (m == OG__HEAD) m = OG__GET;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (!matches(routes[i].path, path, param)) continue;
        if (routes[i].method == m) return &routes[i];
        *allowed = names[known |= 1u << routes[i].method];
    }
    return NULL;
}

/* The time it takes tells nothing of how much of a key was right. */
static bool same_key(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b);
    unsigned diff = (unsigned)(n ^ m);
    for (size_t i = 0; i < n; i++) diff |= (unsigned char)a[i] ^ (unsigned char)b[m ? i % m : 0];
    return diff == 0 && n == m;
}

bool og__key_ok(const og_server *s, const char *authorization) {
    bool ok = s->opts.n_api_keys == 0;
    const char *key = authorization;
    if (!strncasecmp(key, "bearer ", 7))
        for (key += 7; *key == ' '; key++) continue;
    else
        key = "";
    for (int i = 0; i < s->opts.n_api_keys; i++) ok |= same_key(key, s->opts.api_keys[i]);
    return ok;
}

static void nothing_more(og__call *c) {
    (void)c;
}

/* A handler that answers at once leaves no step behind. */
void og__route_run(og__call *c) {
    c->step = nothing_more;
    og__state state = og__server_state(c->server);
    if (state == OG__READY || c->route->open)
        c->route->handler(c);
    else
        og__reply_error(c, 503, NULL, state == OG__LOADING ? "loading" : "draining",
                        state == OG__LOADING ? "the server is still loading"
                                             : "the server is going down");
}
