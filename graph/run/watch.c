#include "graph/run/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernels/base/alloc.h"

#define MAX_HOPS 40 /* symbolic links of one path, as the system's own limit */
#define EVENTS                                                                            \
    (IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE | IN_DELETE_SELF | \
     IN_MOVE_SELF | IN_ONLYDIR)

/* What stat says of a file; zeros where there is none. */
typedef struct facts {
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime;
} facts;

typedef struct watched {
    char *path;
    bool named;    /* since the last renewal */
    facts told;    /* as it was when it was looked into last */
    facts seen;    /* at the last look */
    uint64_t text; /* hash of what was in it; 0: no file */
} watched;

/* A name in a folder that a path leads through: a link, the file, or what is absent. */
typedef struct link_name {
    int wd;
    bool used;
    char name[NAME_MAX + 1];
} link_name;

struct og_watch {
    void (*changed)(void *arg);
    void *arg;
    int events, wake; /* inotify, eventfd */
    pthread_t thread;
    bool started, stop;
    pthread_mutex_t mu; /* what follows, and stop */
    watched files[OG_WATCH_MAX_FILES];
    int n_files;
    link_name links[OG_WATCH_MAX_LINKS];
    int n_links;
};

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- files ----------------------------------------------------------------------- */

static facts look(const char *path) {
    struct stat st;
    facts f;
    memset(&f, 0, sizeof f);
    if (stat(path, &st) < 0) return f;
    f.dev = st.st_dev;
    f.ino = st.st_ino;
    f.size = st.st_size;
    f.mtime = st.st_mtim;
    return f;
}

static bool same(const facts *a, const facts *b) {
    return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           a->mtime.tv_sec == b->mtime.tv_sec && a->mtime.tv_nsec == b->mtime.tv_nsec;
}

static uint64_t hash_text(const char *path) {
    unsigned char buf[4096];
    uint64_t h = 14695981039346656037u;
    size_t all = 0;
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return 0;
    while (all < OG_WATCH_MAX_BYTES && (n = read(fd, buf, sizeof buf)) > 0) {
        for (ssize_t i = 0; i < n; i++) h = (h ^ buf[i]) * 1099511628211u;
        all += (size_t)n;
    }
    close(fd);
    return n < 0 ? 0 : h;
}

/* Look into a file whose facts have changed. Whether its text has. */
static bool look_into(watched *f, bool always) {
    facts now = look(f->path);
    f->seen = now;
    if (!always && same(&now, &f->told)) return false;
    uint64_t text = now.ino ? hash_text(f->path) : 0;
    bool changed = text != f->text;
    f->told = now;
    f->text = text;
    return changed;
}

static bool any_changed(og_watch *w) {
    bool changed = false;
    for (int i = 0; i < w->n_files; i++) changed |= look_into(&w->files[i], false);
    return changed;
}

/* Whether a file is not what it was, and has stayed so since the look before: a file that is
 * being written is let alone. */
static bool any_settled(og_watch *w) {
    bool settled = false;
    for (int i = 0; i < w->n_files; i++) {
        watched *f = &w->files[i];
        facts now = look(f->path);
        settled |= !same(&now, &f->told) && same(&now, &f->seen);
        f->seen = now;
    }
    return settled;
}

/* ---- folders --------------------------------------------------------------------- */

static void watch_name(og_watch *w, const char *dir, const char *name) {
    int wd = inotify_add_watch(w->events, dir[0] ? dir : "/", EVENTS);
    if (wd < 0) return; /* the look every half second is left */
    for (int i = 0; i < w->n_links; i++) {
        if (w->links[i].wd != wd || strcmp(w->links[i].name, name) != 0) continue;
        w->links[i].used = true;
        return;
    }
    if (w->n_links == OG_WATCH_MAX_LINKS) return;
    link_name *l = &w->links[w->n_links++];
    l->wd = wd;
    l->used = true;
    snprintf(l->name, sizeof l->name, "%s", name);
}

/* Split the first name off a path. Returns what follows it. */
static const char *first_name(const char *path, char name[NAME_MAX + 1]) {
    while (*path == '/') path++;
    size_t n = strcspn(path, "/");
    snprintf(name, NAME_MAX + 1, "%.*s", (int)(n > NAME_MAX ? NAME_MAX : n), path);
    return path + n;
}

/* Follow an absolute path name by name; watch every link on it, and where it ends. */
static void watch_path(og_watch *w, const char *path) {
    char left[PATH_MAX], dir[PATH_MAX] = "", name[NAME_MAX + 1], full[PATH_MAX + NAME_MAX + 2];
    int hops = 0;
    snprintf(left, sizeof left, "%s", path);
    const char *rest = first_name(left, name);
    while (name[0]) {
        struct stat st;
        snprintf(full, sizeof full, "%s/%s", dir, name);
        bool there = lstat(full, &st) == 0, last = strspn(rest, "/") == strlen(rest);
        bool is_link = there && S_ISLNK(st.st_mode);
        if (is_link || !there || last) watch_name(w, dir, name);
        if (is_link) {
            char target[PATH_MAX], next[PATH_MAX];
            ssize_t n = readlink(full, target, sizeof target - 1);
            if (n <= 0 || ++hops > MAX_HOPS) return;
            target[n] = 0;
            int wrote = snprintf(next, sizeof next, "%s%s", target, rest);
            if (wrote >= (int)sizeof next) return;
            if (target[0] == '/') dir[0] = 0;
            memcpy(left, next, (size_t)wrote + 1);
            rest = left;
        } else {
            if (!there || last || strlen(full) >= sizeof dir) return;
            memcpy(dir, full, strlen(full) + 1);
        }
        rest = first_name(rest, name);
    }
}

static void watch_all(og_watch *w) {
    for (int i = 0; i < w->n_links; i++) w->links[i].used = false;
    for (int i = 0; i < w->n_files; i++) watch_path(w, w->files[i].path);
    int kept = 0;
    for (int i = 0; i < w->n_links; i++) {
        if (w->links[i].used) {
            w->links[kept++] = w->links[i];
            continue;
        }
        bool shared = false;
        for (int k = 0; k < w->n_links; k++)
            shared |= w->links[k].used && w->links[k].wd == w->links[i].wd;
        if (!shared) inotify_rm_watch(w->events, w->links[i].wd);
    }
    w->n_links = kept;
}

/* A file that is created is told of when it is closed; links and folders never are. */
static bool is_news(og_watch *w, const struct inotify_event *ev) {
    if (ev->mask & (IN_Q_OVERFLOW | IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED)) return true;
    for (int i = 0; i < w->n_links; i++)
        if (w->links[i].wd == ev->wd && ev->len && !strcmp(w->links[i].name, ev->name))
            return true;
    return false;
}

/* Read what there is. Whether any of it is about our files. */
static bool take_events(og_watch *w) {
    char buf[16384] __attribute__((aligned(__alignof__(struct inotify_event))));
    bool news = false;
    ssize_t n;
    while ((n = read(w->events, buf, sizeof buf)) > 0) {
        pthread_mutex_lock(&w->mu);
        for (char *at = buf; at < buf + n;) {
            const struct inotify_event *ev = (const struct inotify_event *)at;
            news |= is_news(w, ev);
            at += sizeof *ev + ev->len;
        }
        pthread_mutex_unlock(&w->mu);
    }
    return news;
}

/* ---- the thread ------------------------------------------------------------------ */

typedef struct burst {
    bool open;
    int64_t began, last;
} burst;

static int time_left(const burst *b) {
    if (!b->open) return OG_WATCH_LOOK_MS;
    int64_t quiet = b->last + OG_WATCH_QUIET_MS, longest = b->began + OG_WATCH_LONGEST_MS;
    int64_t left = (quiet < longest ? quiet : longest) - now_ms();
    return left > 0 ? (int)left : 0;
}

/* Folders first, so that what happens after the look is an event. */
static bool has_changed(og_watch *w) {
    pthread_mutex_lock(&w->mu);
    watch_all(w);
    bool changed = any_changed(w);
    pthread_mutex_unlock(&w->mu);
    return changed;
}

static bool has_settled(og_watch *w) {
    pthread_mutex_lock(&w->mu);
    bool settled = any_settled(w);
    pthread_mutex_unlock(&w->mu);
    return settled;
}

static bool is_stopped(og_watch *w) {
    pthread_mutex_lock(&w->mu);
    bool stop = w->stop;
    pthread_mutex_unlock(&w->mu);
    return stop;
}

static void *watch_main(void *arg) {
    og_watch *w = arg;
    burst b = {0};
    while (!is_stopped(w)) {
        struct pollfd fds[] = {{w->events, POLLIN, 0}, {w->wake, POLLIN, 0}};
        int n = poll(fds, 2, time_left(&b));
        if (n > 0 && (fds[0].revents & POLLIN) && take_events(w)) {
            b.last = now_ms();
            if (!b.open) b.began = b.last;
            b.open = true;
        }
        bool over = b.open && time_left(&b) == 0;
        if (over || (n == 0 && !b.open && has_settled(w))) {
            b.open = false;
            if (has_changed(w)) w->changed(w->arg);
        }
    }
    return NULL;
}

/* ---- making ---------------------------------------------------------------------- */

int og_watch_create(void (*changed)(void *arg), void *arg, og_watch **out, og_err *err) {
    og_watch *w = og_calloc(1, sizeof *w);
    *out = NULL;
    if (!w) return og_err_set(err, OG_ENOMEM, "no memory for a watch");
    w->changed = changed;
    w->arg = arg;
    w->events = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    w->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pthread_mutex_init(&w->mu, NULL);
    if (w->events < 0 || w->wake < 0) {
        og_err_set(err, OG_EIO, "cannot watch files: %s", strerror(errno));
        og_watch_destroy(w);
        return OG_EIO;
    }
    *out = w;
    return 0;
}

int og_watch_start(og_watch *w, og_err *err) {
    if (pthread_create(&w->thread, NULL, watch_main, w) != 0)
        return og_err_set(err, OG_EIO, "cannot start a thread that watches files");
    w->started = true;
    return 0;
}

void og_watch_destroy(og_watch *w) {
    uint64_t one = 1;
    if (!w) return;
    pthread_mutex_lock(&w->mu);
    w->stop = true;
    pthread_mutex_unlock(&w->mu);
    /* Where it fails the thread wakes by itself, a look later. */
    if (w->started && write(w->wake, &one, sizeof one) < 0) errno = 0;
    if (w->started) pthread_join(w->thread, NULL);
    for (int i = 0; i < w->n_files; i++) og_free(w->files[i].path);
    if (w->events >= 0) close(w->events);
    if (w->wake >= 0) close(w->wake);
    pthread_mutex_destroy(&w->mu);
    og_free(w);
}

static watched *find(og_watch *w, const char *path) {
    for (int i = 0; i < w->n_files; i++)
        if (strcmp(w->files[i].path, path) == 0) return &w->files[i];
    return NULL;
}

static void add_locked(og_watch *w, const char *path) {
    watched *f = find(w, path);
    if (!f && w->n_files < OG_WATCH_MAX_FILES) {
        char *copy = og_strdup(path);
        if (!copy) return;
        f = &w->files[w->n_files++];
        memset(f, 0, sizeof *f);
        f->path = copy;
        watch_path(w, copy);
        look_into(f, true);
    }
    if (f) f->named = true;
}

void og_watch_add(og_watch *w, const char *path) {
    char cwd[PATH_MAX], full[2 * PATH_MAX];
    if (path[0] != '/' && getcwd(cwd, sizeof cwd)) {
        int n = snprintf(full, sizeof full, "%s/%s", cwd, path);
        if (n >= (int)sizeof full) return;
        path = full;
    }
    pthread_mutex_lock(&w->mu);
    add_locked(w, path);
    pthread_mutex_unlock(&w->mu);
}

void og_watch_renew(og_watch *w) {
    pthread_mutex_lock(&w->mu);
    for (int i = 0; i < w->n_files; i++) w->files[i].named = false;
    pthread_mutex_unlock(&w->mu);
}

void og_watch_prune(og_watch *w) {
    int kept = 0;
    pthread_mutex_lock(&w->mu);
    for (int i = 0; i < w->n_files; i++) {
        if (w->files[i].named)
            w->files[kept++] = w->files[i];
        else
            og_free(w->files[i].path);
    }
    w->n_files = kept;
    watch_all(w);
    pthread_mutex_unlock(&w->mu);
}
