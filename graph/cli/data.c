/* Where pipelines, hooks, overlays and the default checkpoint lie. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "graph/cli/cli.h"

#ifndef OG_SOURCE_DIR
#define OG_SOURCE_DIR ""
#endif

static bool is_dir(const char *path) {
    struct stat st;
    return path && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* root: "" or a folder with its slash. */
static void add(og_arena *arena, const char *root, const char *rest, const char **list,
                int *n, int max) {
    const char *path = og_arena_printf(arena, "%s%s", root, rest);
    if (*n < max && is_dir(path)) list[(*n)++] = path;
}

static void add_root(og_arena *arena, const char *root, og__data *d) {
    add(arena, root, "pipelines", d->pipelines, &d->n_pipelines, 4);
    add(arena, root, "scripts/lua", d->scripts, &d->n_scripts, 5);
    add(arena, root, "deploy", d->deploy, &d->n_deploy, 4);
    const char *voice = og_arena_printf(arena, "%sexamples/voice", root);
    if (!d->model && is_dir(voice)) d->model = voice;
}

/* PREFIX/share/omni-graph of PREFIX/bin/omni-graph, wherever that has been moved to. */
static const char *installed(og_arena *arena) {
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0) return NULL;
    exe[n] = 0;
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(exe, '/');
        if (!slash) return NULL;
        *slash = 0;
    }
    const char *root = og_arena_printf(arena, "%s/share/omni-graph/", exe);
    return is_dir(root) ? root : NULL;
}

/* A pipeline given by path brings the hooks that lie beside it and beside its folder. */
static void add_beside(og_arena *arena, const char *pipeline, og__data *d) {
    const char *slash = pipeline ? strrchr(pipeline, '/') : NULL;
    const char *dot = pipeline ? strrchr(pipeline, '.') : NULL;
    if (!slash && (!dot || strcmp(dot, ".yaml"))) return;
    const char *folder =
        slash ? og_arena_strndup(arena, pipeline, (size_t)(slash - pipeline) + 1) : "./";
    if (!folder) return;
    add(arena, folder, "", d->scripts, &d->n_scripts, 5);
    add(arena, folder, "../scripts/lua", d->scripts, &d->n_scripts, 5);
}

void og__data_find(og_arena *arena, const char *pipeline, og__data *out) {
    const char *only = getenv("OG_DATA_DIR");
    *out = (og__data){0};
    add_beside(arena, pipeline, out);
    if (only && *only) {
        const char *root = og_arena_printf(arena, "%s/", only);
        if (root) add_root(arena, root, out);
        return;
    }
    add_root(arena, "", out);
    const char *root = installed(arena);
    if (root)
        add_root(arena, root, out);
    else if (is_dir(OG_SOURCE_DIR))
        add_root(arena, OG_SOURCE_DIR "/", out);
}

og_pipeline *og__pipeline_open(og__cli *cli, const char *name) {
    og__data data;
    og__data_find(cli->arena, name, &data);
    og_diags *diags = og_diags_create();
    og_pipeline *p = NULL;
    og_err err = OG_ERR_INIT;
    int rc =
        diags ? og_pipeline_load(name, data.pipelines, data.n_pipelines, diags, &p, &err)
              : og_err_set(&err, OG_ENOMEM, "out of memory");
    if (rc < 0) {
        if (diags && og_diags_errors(diags))
            og__print_diags(diags, OG_SEVERITY_NOTE);
        else
            og__report(&err);
    }
    og_diags_destroy(diags);
    return rc < 0 ? NULL : p;
}
