/* The matrix product behind linear and conv1d: which of the two kernels of the dot family,
 * how the work is cut into tasks, and where the activations come from. Nothing here can
 * change a bit of the result. */
#include "kernels/cpu/cpu.h"

/* Up to this many rows weights are read in place; beyond, packing them pays. */
#define FEW_ROWS 36
#define DOT_COLUMNS 64 /* of a task on few rows */
#define M_CHUNK 480    /* rows of a task on many rows; a multiple of any tile */
#define GROUP 16       /* tiles whose partial sums are kept at a time */
#define L1_BYTES 24576 /* activations of a tile within one chunk of K */

typedef struct matmul {
    const og__isa *isa;
    const og__taps *x;
    const og__product *p;
    int n;
    int64_t m, blocks;
    float *lanes; /* few rows: [m][taps * blocks * 16] */
    /* many rows */
    int64_t m_chunk, n_chunks, panels;
    float *scratch;
    int64_t per_worker, panel_size;
} matmul;

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* ---- activations ------------------------------------------------------------------ */

static int segment_of(const og_rows *rows, int64_t r) {
    int lo = 0, hi = rows->n_seg - 1;
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (rows->cu[mid] <= r)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

/* Where row r's input columns are: its segment's first row, end and state. */
typedef struct place {
    int64_t row, first, end;
    const float *state;
} place;

static place locate(const og__taps *x, int64_t r) {
    place p = {r, 0, 0, NULL};
    if (x->taps == 1) return p;
    int s = segment_of(x->rows, r);
    int64_t depth = (int64_t)(x->taps - 1) * x->dilation;
    p.first = x->rows->cu[s];
    p.end = x->rows->cu[s + 1];
    p.state =
        x->state + (x->by_segment ? s : x->rows->slot[p.first]) * depth * x->state_ld;
    return p;
}

static const float *tap_row(const og__taps *x, const place *p, int tap) {
    int64_t back = (int64_t)(x->taps - 1 - tap) * x->dilation,
            t = p->row - p->first - back;
    if (t >= 0) return x->x + (p->row - back) * x->ld;
    return p->state + ((int64_t)(x->taps - 1) * x->dilation + t) * x->state_ld;
}

/* The place of the row after p's. */
static place next_place(const og__taps *x, place p) {
    if (x->taps > 1 && p.row + 1 >= p.end) return locate(x, p.row + 1);
    p.row++;
    return p;
}

static void store(const matmul *mm, const og__product *p, const float *raw, int64_t ldraw,
                  int64_t row, int64_t rows, int64_t from, int64_t n) {
    og__block b = {.y = p->y + row * p->ldy + from,
                   .raw = raw,
                   .ldy = p->ldy,
                   .ldraw = ldraw,
                   .ldr = p->ldr,
                   .rows = rows,
                   .from = from,
                   .n = n};
    if (p->residual) b.residual = p->residual + row * p->ldr + from;
    mm->isa->epilogue(&b, &p->epi);
}

/* ---- few rows ----------------------------------------------------------------------- */

static int64_t dot_tasks(const og__product *p) {
    return ceil_div(p->n, DOT_COLUMNS);
}

static void dot_task(void *arg, int64_t task, int worker) {
    const matmul *mm = arg;
    const og__product *p = mm->p;
    (void)worker;
    for (; task >= dot_tasks(p); p++) task -= dot_tasks(p);
    float raw[FEW_ROWS * DOT_COLUMNS];
    int64_t from = task * DOT_COLUMNS, n = min64(DOT_COLUMNS, p->n - from);
    int64_t k = p->w.taps * mm->blocks * OG__LANES;
    mm->isa->dot(raw, DOT_COLUMNS, mm->lanes, k, (int)mm->m, &p->w, from, (int)n);
    store(mm, p, raw, DOT_COLUMNS, 0, mm->m, from, n);
}

static void lanes_task(void *arg, int64_t r, int worker) {
    const matmul *mm = arg;
    (void)worker;
    place at = locate(mm->x, r);
    int64_t width = mm->blocks * OG__LANES;
    float *to = mm->lanes + r * mm->x->taps * width;
    for (int j = 0; j < mm->x->taps; j++, to += width)
        mm->isa->lanes(to, tap_row(mm->x, &at, j), width, mm->p->w.dtype);
}

static int few_rows(og_exec *ex, matmul *mm) {
    int64_t size = mm->m * mm->x->taps * mm->blocks * OG__LANES, tasks = 0;
    OG__CHECK(og__cpu_floats(ex, size, &mm->lanes));
    if (og__measuring(ex)) return 0;
    if (size < OG__CPU_SERIAL)
        for (int64_t r = 0; r < mm->m; r++) lanes_task(mm, r, 0);
    else
        og__pool_run(mm->m, lanes_task, mm);
    for (int i = 0; i < mm->n; i++) tasks += dot_tasks(&mm->p[i]);
    og__pool_run(tasks, dot_task, mm);
    return 0;
}

/* ---- many rows ---------------------------------------------------------------------- */

/* Step through K; a zeroed chunk begins. Returns 0 at the end. */
static int next_chunk(const matmul *mm, og__chunk *c) {
    int64_t fit = L1_BYTES / (mm->isa->tile * OG__LANES * (int64_t)sizeof(float));
    c->block += c->blocks;
    if (c->block >= mm->blocks) {
        c->tap += c->taps;
        c->block = 0;
    }
    int left = mm->x->taps - c->tap;
    if (left <= 0) return 0;
    c->blocks = min64(mm->blocks - c->block, fit);
    c->taps = 1;
    if (c->blocks == mm->blocks)
        c->taps = (int)min64(min64(left, OG__TAPS_MAX), fit / mm->blocks);
    return 1;
}

static float *chunk_panel(const matmul *mm, float *panel, const og__chunk *c) {
    return panel + (c->tap * mm->blocks + c->block) * OG__LANES * OG__PANEL;
}

/* Tiles of rows [from, to) against one panel, one chunk of K after another. */
static void run_group(const matmul *mm, const og__product *p, float *panel, float *part,
                      const float **rows, int64_t from, int64_t to, int64_t column) {
    int tile = mm->isa->tile, taps = mm->x->taps;
    float tile_out[16 * OG__PANEL];
    int64_t n_tiles = ceil_div(to - from, tile);
    place at = locate(mm->x, from);
    for (int64_t i = 0; i < n_tiles * tile; i++) {
        if (i && from + i < to) at = next_place(mm->x, at);
        const float **out = rows + i / tile * taps * tile + i % tile;
        for (int j = 0; j < taps; j++) out[j * tile] = tap_row(mm->x, &at, j);
    }
    og__chunk c = {0, 0, 0, 0};
    for (int more = next_chunk(mm, &c), begins = 1; more; begins = 0) {
        og__chunk this = c;
        more = next_chunk(mm, &c);
        for (int64_t i = 0; i < n_tiles; i++) {
            int m = (int)min64(tile, to - from - i * tile);
            const float **tile_rows = rows + i * taps * tile;
            mm->isa->gemm(tile_out, part + i * OG__LANES * tile * OG__PANEL, tile_rows,
                          i + 1 < n_tiles ? tile_rows + taps * tile : NULL, m,
                          chunk_panel(mm, panel, &this), &this, p->w.dtype, begins,
                          !more);
            if (!more)
                store(mm, p, tile_out, OG__PANEL, from + i * tile, m, column,
                      min64(OG__PANEL, p->n - column));
        }
    }
}

static void gemm_task(void *arg, int64_t task, int worker) {
    const matmul *mm = arg;
    const og__product *p = mm->p;
    int64_t chunk = task / mm->panels, panel_index = task % mm->panels;
    for (; panel_index >= ceil_div(p->n, OG__PANEL); p++)
        panel_index -= ceil_div(p->n, OG__PANEL);
    float *panel = mm->scratch + worker * mm->per_worker;
    float *part = panel + mm->panel_size;
    const float **rows =
        (const float **)(part + GROUP * OG__LANES * mm->isa->tile * OG__PANEL);
    int64_t column = panel_index * OG__PANEL;
    og__chunk c = {0, 0, 0, 0};
    while (next_chunk(mm, &c))
        mm->isa->pack(chunk_panel(mm, panel, &c), &p->w, column,
                      (int)min64(OG__PANEL, p->n - column), &c);
    int64_t from = chunk * mm->m_chunk, end = min64(mm->m, from + mm->m_chunk);
    for (; from < end; from += GROUP * mm->isa->tile)
        run_group(mm, p, panel, part, rows, from,
                  min64(end, from + GROUP * mm->isa->tile), column);
}

/* Rows per task: M_CHUNK, fewer when there would be too few tasks for the threads. */
static void cut_rows(matmul *mm, int threads) {
    int64_t least = 4 * mm->isa->tile, want = ceil_div(4 * threads, mm->panels);
    int64_t size = ceil_div(mm->m, want);
    if (size > M_CHUNK) size = M_CHUNK;
    if (size < least) size = least;
    mm->m_chunk = ceil_div(size, mm->isa->tile) * mm->isa->tile;
    mm->n_chunks = ceil_div(mm->m, mm->m_chunk);
    while (mm->n_chunks * mm->panels > OG__POOL_MAX_TASKS) {
        mm->m_chunk *= 2;
        mm->n_chunks = ceil_div(mm->m, mm->m_chunk);
    }
}

static int many_rows(og_exec *ex, matmul *mm) {
    int threads = og__pool_threads(), tile = mm->isa->tile;
    int64_t pointers = GROUP * tile * mm->x->taps;
    mm->panel_size = mm->x->taps * mm->blocks * OG__LANES * OG__PANEL;
    mm->per_worker = mm->panel_size + GROUP * OG__LANES * tile * OG__PANEL +
                     ceil_div(pointers * (int64_t)sizeof(float *), 64) * 16;
    OG__CHECK(og__cpu_floats(ex, threads * mm->per_worker, &mm->scratch));
    if (og__measuring(ex)) return 0;
    for (int i = 0; i < mm->n; i++) mm->panels += ceil_div(mm->p[i].n, OG__PANEL);
    cut_rows(mm, threads);
    og__pool_run(mm->n_chunks * mm->panels, gemm_task, mm);
    return 0;
}

int og__cpu_matmul(og_exec *ex, const og__taps *x, int64_t m, const og__product *p,
                   int n) {
    matmul mm = {.isa = og__cpu_isa(ex),
                 .x = x,
                 .p = p,
                 .n = n,
                 .m = m,
                 .blocks = og__blocks(p->w.width)};
    if (m <= FEW_ROWS) return few_rows(ex, &mm);
    if (og__measuring(ex)) { /* a step with fewer rows must fit as well */
        matmul few = mm;
        size_t mark = og_exec_mark(ex);
        few.m = FEW_ROWS;
        OG__CHECK(few_rows(ex, &few));
        og_exec_release(ex, mark);
    }
    return many_rows(ex, &mm);
}

int og__cpu_epilogue(og_exec *ex, og__product *p, const og_tensor *bias,
                     const og_epilogue *epi) {
    og__mat m;
    OG__CHECK(og__cpu_vector(ex, bias, &p->epi.bias));
    if (!epi) return 0;
    p->epi.act = epi->act;
    OG__CHECK(og__cpu_vector(ex, epi->scale, &p->epi.scale));
    if (epi->residual && og__mat_as(epi->residual, p->n, &m)) {
        p->residual = (const float *)m.p;
        p->ldr = m.ld;
    }
    return 0;
}
