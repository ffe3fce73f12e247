/* Rows: recipes as hooks build them. `+` adds columns, `..` appends rows.
 *
 * Closed rows are a list of terms each; at most one part is open, before closed row `at`:
 * row i of it is the sum of its open terms with index + step * i. Immutable; one userdata
 * block each.
 */
#include "graph/hook/internal.h"

#include <stdio.h>
#include <string.h>

og__rows *og__rows_new(lua_State *L, int32_t n, int64_t n_terms, int32_t n_spans,
                       int32_t n_open) {
    if (n > OG_HOOK_MAX_ROWS || n_terms > 8 * OG_HOOK_MAX_ROWS)
        luaL_error(L, "rows: too many (limit is %d rows)", OG_HOOK_MAX_ROWS);
    size_t terms = sizeof(og__rows), open = terms + (size_t)n_terms * sizeof(og_term);
    size_t spans = open + (size_t)n_open * sizeof(og_open_term);
    size_t off = spans + (size_t)n_spans * sizeof(og_row_span);
    size_t size = off + ((size_t)n + 1) * sizeof(int32_t);
    og__charge(L, 4 + (int64_t)(size / 64));
    char *block = lua_newuserdatauv(L, size, 0);
    memset(block, 0, size);
    og__rows *r = (og__rows *)(void *)block;
    r->serial = og__vm(L)->serial;
    r->n = n;
    r->n_terms = (int32_t)n_terms;
    r->n_spans = n_spans;
    r->n_open = n_open;
    r->source = -1;
    r->terms = (og_term *)(void *)(block + terms);
    r->open = (og_open_term *)(void *)(block + open);
    r->spans = (og_row_span *)(void *)(block + spans);
    r->off = (int32_t *)(void *)(block + off);
    luaL_setmetatable(L, OG__ROWS);
    return r;
}

og__rows *og__rows_at(lua_State *L, int i) {
    og__rows *r = og__test(L, i, OG__ROWS);
    if (r && r->serial != og__vm(L)->serial)
        luaL_error(L, "rows of another call: keep numbers and strings in ctx.state");
    return r;
}

static og__rows *check_rows(lua_State *L, int i) {
    og__rows *r = og__rows_at(L, i);
    if (!r) luaL_typeerror(L, i, "rows");
    return r;
}

/* ---- filling --------------------------------------------------------------------- */

/* Fills the rows of a new value from front to back. */
typedef struct filler {
    og__rows *r;
    int32_t row, term, span;
} filler;

static void put_terms(filler *f, const og_term *t, int32_t n) {
    if (n) memcpy(f->r->terms + f->term, t, (size_t)n * sizeof *t);
    f->term += n;
}

static void end_row(filler *f) {
    f->r->off[++f->row] = f->term;
}

static void put_row(filler *f, const og__rows *a, int32_t i) {
    put_terms(f, a->terms + a->off[i], a->off[i + 1] - a->off[i]);
}

/* Terms of row i of the open part, as of a closed row. */
static void put_open_row(filler *f, const og__rows *a, int32_t i) {
    for (int32_t k = 0; k < a->n_open; k++) {
        og_term t = a->open[k].term;
        t.index += a->open[k].step * i;
        put_terms(f, &t, 1);
    }
}

static void put_rows(filler *f, const og__rows *a, int32_t from, int32_t to) {
    for (int32_t i = from; i < to; i++) {
        put_row(f, a, i);
        end_row(f);
    }
}

/* Spans of a that lie in rows [from, to), moved to begin at row `at`. */
static void put_spans(filler *f, const og__rows *a, int32_t from, int32_t to,
                      int32_t at) {
    for (int32_t k = 0; k < a->n_spans; k++) {
        og_row_span s = a->spans[k];
        if (s.from < from || s.to > to) continue;
        s.from += at - from;
        s.to += at - from;
        f->r->spans[f->span++] = s;
    }
}

static int32_t count_spans(lua_State *L, const og__rows *a, int32_t from, int32_t to) {
    int32_t n = 0;
    for (int32_t k = 0; k < a->n_spans; k++) {
        const og_row_span *s = &a->spans[k];
        if (s->from >= from && s->to <= to)
            n++;
        else if (s->from < to && s->to > from)
            luaL_error(L, "sub: it would cut the %s span of rows %d to %d", s->kind,
                       (int)s->from + 1, (int)s->to);
    }
    return n;
}

static int64_t terms_of(const og__rows *a, int32_t from, int32_t to) {
    return to > from ? a->off[to] - a->off[from] : 0;
}

/* Copy the open part, its first `skip` rows left out. */
static void put_open(lua_State *L, og__rows *r, int32_t first, const og__rows *a,
                     int32_t skip) {
    for (int32_t k = 0; k < a->n_open; k++) {
        og_open_term t = a->open[k];
        int64_t index = (int64_t)t.term.index + (int64_t)t.step * skip;
        if (index > OG__MAX_ITEM) luaL_error(L, "rows: item beyond %d", OG__MAX_ITEM);
        t.term.index = (int32_t)index;
        r->open[first + k] = t;
    }
}

/* ---- sub, rep, as ---------------------------------------------------------------- */

static int sub_open(lua_State *L, const og__rows *a) {
    lua_Integer i = luaL_checkinteger(L, 2), j = luaL_optinteger(L, 3, 0);
    int closed = !lua_isnoneornil(L, 3);
    if (i < 0 || j < 0)
        return luaL_error(L, "sub: positions of open rows count from their start");
    if (i > OG_HOOK_MAX_ROWS || j > OG_HOOK_MAX_ROWS)
        return luaL_error(L, "sub: position beyond %d", OG_HOOK_MAX_ROWS);
    int32_t from = i > 0 ? (int32_t)i - 1 : 0, to = closed ? (int32_t)j : a->n;
    int32_t skip = from > a->at ? from - a->at : 0;
    int32_t head = from < a->at ? from : a->at;
    if (!closed) { /* the head from `from`, the open part, what follows it */
        int32_t n = a->n - head;
        og__rows *r = og__rows_new(L, n, terms_of(a, head, a->n),
                                   count_spans(L, a, head, a->n), a->n_open);
        filler f = {r, 0, 0, 0};
        put_rows(&f, a, head, a->n);
        put_spans(&f, a, head, a->n, 0);
        put_open(L, r, 0, a, skip);
        r->at = a->at - head;
        r->source = a->source;
        return 1;
    }
    int32_t stop = to < a->at ? to : a->at;
    if (head > stop) head = stop;
    int32_t first = from > a->at ? from : a->at, more = to > first ? to - first : 0;
    og__rows *r = og__rows_new(L, stop - head + more,
                               terms_of(a, head, stop) + (int64_t)more * a->n_open,
                               count_spans(L, a, head, stop), 0);
    filler f = {r, 0, 0, 0};
    put_rows(&f, a, head, stop);
    put_spans(&f, a, head, stop, 0);
    for (int32_t k = 0; k < more; k++) {
        put_open_row(&f, a, first - a->at + k);
        end_row(&f);
    }
    return 1;
}

static int rows_sub(lua_State *L) {
    og__rows *a = check_rows(L, 1);
    if (a->n_open) return sub_open(L, a);
    int32_t from, to;
    og__range(L, a->n, &from, &to);
    og__rows *r =
        og__rows_new(L, to - from, terms_of(a, from, to), count_spans(L, a, from, to), 0);
    filler f = {r, 0, 0, 0};
    put_rows(&f, a, from, to);
    put_spans(&f, a, from, to, 0);
    return 1;
}

static int rows_rep(lua_State *L) {
    og__rows *a = check_rows(L, 1);
    lua_Integer n = luaL_checkinteger(L, 2);
    if (a->n_open) return luaL_error(L, "rep: open rows have no length");
    if (n < 0) return luaL_error(L, "rep: negative count %I", n);
    if (n * (a->n ? 1 : 0) > OG_HOOK_MAX_ROWS || (a->n && n > OG_HOOK_MAX_ROWS / a->n))
        return luaL_error(L, "rep: more than %d rows", OG_HOOK_MAX_ROWS);
    if (!a->n) n = 0;
    int64_t terms = n * a->n_terms, spans = n * a->n_spans;
    if (spans > OG_HOOK_MAX_ROWS)
        return luaL_error(L, "rep: more than %d spans", OG_HOOK_MAX_ROWS);
    og__rows *r = og__rows_new(L, (int32_t)(n * a->n), terms, (int32_t)spans, 0);
    filler f = {r, 0, 0, 0};
    for (int32_t k = 0; k < (int32_t)n; k++) {
        put_spans(&f, a, 0, a->n, k * a->n);
        put_rows(&f, a, 0, a->n);
    }
    return 1;
}

/* Grid of as(): {h, w}, {t, h, w} or {t, h, w, seconds}. */
static void read_grid(lua_State *L, int i, og_row_span *s) {
    luaL_argexpected(L, lua_istable(L, i), i, "grid {t, h, w [, seconds]}");
    lua_Integer n = luaL_len(L, i);
    if (n < 2 || n > 4)
        luaL_error(L, "as: a grid is {t, h, w [, seconds]}, got %I numbers", n);
    s->grid[0] = 1;
    for (int k = 1; k <= n; k++) {
        lua_geti(L, i, k);
        if (k == 4)
            s->seconds = (float)luaL_checknumber(L, -1);
        else {
            lua_Integer v = luaL_checkinteger(L, -1);
            if (v < 1 || v > 1 << 20) luaL_error(L, "as: grid number %d is %I", k, v);
            s->grid[n == 2 ? k : k - 1] = (int32_t)v;
        }
        lua_pop(L, 1);
    }
}

/* A grid counts patches: an encoder may merge some into a row, and where it merges none a
 * mark may stand on either side. */
static int grid_fits(const og_row_span *s, int32_t n) {
    int64_t cells = (int64_t)s->grid[0] * s->grid[1] * s->grid[2];
    return n == 0 || cells % n == 0 || cells == n - 2;
}

static int rows_as(lua_State *L) {
    static const char *const kinds[] = {"image", "video", "audio", "latent", NULL};
    og__rows *a = check_rows(L, 1);
    const char *kind = luaL_checkstring(L, 2);
    og_row_span s = {.from = 0, .to = a->n};
    int k = 0;
    while (kinds[k] && strcmp(kinds[k], kind)) k++;
    if (!kinds[k])
        return luaL_error(L, "as: unknown kind '%s' (image, video, audio or latent)",
                          kind);
    if (a->n_open) return luaL_error(L, "as: open rows cannot be a span");
    snprintf(s.kind, sizeof s.kind, "%s", kind);
    if (!lua_isnoneornil(L, 3)) {
        read_grid(L, 3, &s);
        if (!grid_fits(&s, a->n))
            return luaL_error(L, "as: the grid %d x %d x %d does not fit %d rows",
                              (int)s.grid[0], (int)s.grid[1], (int)s.grid[2], (int)a->n);
    }
    og__rows *r = og__rows_new(L, a->n, a->n_terms, a->n > 0, 0);
    filler f = {r, 0, 0, 0};
    put_rows(&f, a, 0, a->n);
    if (a->n) r->spans[0] = s;
    return 1;
}

/* ---- .. -------------------------------------------------------------------------- */

static int rows_concat(lua_State *L) {
    og__rows *a = og__rows_at(L, 1), *b = og__rows_at(L, 2);
    if (!a || !b)
        return luaL_error(L, "rows: `..` wants rows on both sides, got %s .. %s",
                          og__what(L, 1), og__what(L, 2));
    if (a->n_open && b->n_open)
        return luaL_error(L,
                          "rows: `..` of two open parts (only one stream can be open)");
    const og__rows *open = a->n_open ? a : b;
    og__rows *r = og__rows_new(L, a->n + b->n, (int64_t)a->n_terms + b->n_terms,
                               a->n_spans + b->n_spans, open->n_open);
    filler f = {r, 0, 0, 0};
    put_rows(&f, a, 0, a->n);
    put_rows(&f, b, 0, b->n);
    put_spans(&f, a, 0, a->n, 0);
    put_spans(&f, b, 0, b->n, a->n);
    put_open(L, r, 0, open, 0);
    r->source = open->source;
    r->at = open == a ? a->at : a->n + b->at;
    return 1;
}

/* ---- + --------------------------------------------------------------------------- */

static int size_error(lua_State *L, const og__rows *a, const og__rows *b) {
    char x[16] = "open", y[16] = "open";
    if (!a->n_open) snprintf(x, sizeof x, "%d", (int)a->n);
    if (!b->n_open) snprintf(y, sizeof y, "%d", (int)b->n);
    return luaL_error(L, "rows: %s + %s", x, y);
}

/* Row i of the sum's operand: its own, or the one row that stretches. */
static void put_operand(filler *f, const og__rows *a, int32_t i, int stretched) {
    put_row(f, a, stretched ? 0 : i);
}

static int add_closed(lua_State *L, const og__rows *a, const og__rows *b) {
    int sa = a->n == 1 && b->n != 1, sb = b->n == 1 && a->n != 1;
    if (a->n != b->n && !sa && !sb) return size_error(L, a, b);
    int32_t n = sa ? b->n : a->n;
    int64_t terms = (sa ? (int64_t)n * a->n_terms : a->n_terms) +
                    (sb ? (int64_t)n * b->n_terms : b->n_terms);
    og__rows *r =
        og__rows_new(L, n, terms, (sa ? 0 : a->n_spans) + (sb ? 0 : b->n_spans), 0);
    filler f = {r, 0, 0, 0};
    for (int32_t i = 0; i < n; i++) {
        put_operand(&f, a, i, sa);
        put_operand(&f, b, i, sb);
        end_row(&f);
    }
    if (!sa) put_spans(&f, a, 0, n, 0);
    if (!sb) put_spans(&f, b, 0, n, 0);
    return 1;
}

/* The terms of a single closed row, the same in every open row. */
static void put_constant(og__rows *r, int32_t first, const og__rows *one) {
    for (int32_t k = 0; k < one->n_terms; k++)
        r->open[first + k] = (og_open_term){one->terms[k], 0};
}

/* Open rows plus one closed row, which stretches over all of them. */
static int add_one(lua_State *L, const og__rows *a, const og__rows *b) {
    const og__rows *open = a->n_open ? a : b, *one = a->n_open ? b : a;
    if (one->n != 1) return size_error(L, a, b);
    og__rows *r =
        og__rows_new(L, open->n, open->n_terms + (int64_t)open->n * one->n_terms,
                     open->n_spans, open->n_open + one->n_terms);
    filler f = {r, 0, 0, 0};
    for (int32_t i = 0; i < open->n; i++) {
        put_operand(&f, a, i, one == a);
        put_operand(&f, b, i, one == b);
        end_row(&f);
    }
    put_spans(&f, open, 0, open->n, 0);
    put_open(L, r, open == a ? 0 : one->n_terms, open, 0);
    put_constant(r, open == a ? open->n_open : 0, one);
    r->at = open->at;
    r->source = open->source;
    return 1;
}

/* Two open ones go in step: where one still has closed rows, the other's open rows are
 * written out. */
static int add_in_step(lua_State *L, const og__rows *a, const og__rows *b) {
    if (a->n > a->at || b->n > b->at)
        return luaL_error(L, "rows: open + open, but something follows an open part");
    int32_t n = a->n > b->n ? a->n : b->n;
    int64_t terms = (int64_t)a->n_terms + (int64_t)(n - a->n) * a->n_open + b->n_terms +
                    (int64_t)(n - b->n) * b->n_open;
    og__rows *r =
        og__rows_new(L, n, terms, a->n_spans + b->n_spans, a->n_open + b->n_open);
    filler f = {r, 0, 0, 0};
    for (int32_t i = 0; i < n; i++) {
        if (i < a->n)
            put_row(&f, a, i);
        else
            put_open_row(&f, a, i - a->n);
        if (i < b->n)
            put_row(&f, b, i);
        else
            put_open_row(&f, b, i - b->n);
        end_row(&f);
    }
    put_spans(&f, a, 0, a->n, 0);
    put_spans(&f, b, 0, b->n, 0);
    put_open(L, r, 0, a, n - a->n);
    put_open(L, r, a->n_open, b, n - b->n);
    r->at = n;
    r->source = a->source;
    return 1;
}

static int rows_add(lua_State *L) {
    og__rows *a = og__rows_at(L, 1), *b = og__rows_at(L, 2);
    if (!a || !b)
        return luaL_error(L, "rows: `+` wants rows on both sides, got %s + %s",
                          og__what(L, 1), og__what(L, 2));
    if (a->n_open && b->n_open) return add_in_step(L, a, b);
    if (a->n_open || b->n_open) return add_one(L, a, b);
    return add_closed(L, a, b);
}

/* ---- metatable ------------------------------------------------------------------- */

static const luaL_Reg METHODS[] = {
    {"sub", rows_sub}, {"rep", rows_rep}, {"as", rows_as}, {NULL, NULL}};

static int rows_index(lua_State *L) {
    og__near near;
    char hint[128];
    check_rows(L, 1);
    if (lua_type(L, 2) != LUA_TSTRING)
        return luaL_error(L, "rows cannot be read: a hook only describes them");
    const char *key = lua_tostring(L, 2);
    og__near_init(&near, key);
    for (const luaL_Reg *m = METHODS; m->name; m++) {
        if (!strcmp(key, m->name)) return lua_pushcfunction(L, m->func), 1;
        og__near_add(&near, m->name);
    }
    return luaL_error(L, "rows have no '%s'%s", key,
                      og__near_text(&near, hint, sizeof hint));
}

static int rows_len(lua_State *L) {
    og__rows *a = check_rows(L, 1);
    if (a->n_open) return luaL_error(L, "the length of open rows is not known");
    lua_pushinteger(L, a->n);
    return 1;
}

static int rows_set(lua_State *L) {
    return luaL_error(L, "rows cannot be changed");
}

void og__open_rows(lua_State *L) {
    static const luaL_Reg meta[] = {{"__index", rows_index},   {"__len", rows_len},
                                    {"__concat", rows_concat}, {"__add", rows_add},
                                    {"__newindex", rows_set},  {NULL, NULL}};
    og__meta(L, OG__ROWS, meta);
}
