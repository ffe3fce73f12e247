/* Admission: many requests are admitted at the same time, in order, all stages or none.
 * Gates hold the executors in a step, so that these tests count steps and never time; they
 * look into the inboxes to know that a request has been asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

#include "graph/run/run.h"
#include "tests/run/stub.h"

#define LONG 900 /* tokens of a request that is there all the time */

static const char lanes_edges[] =
    "  - {from: {n: request.n}, to: {prompt: source.prompt}, hook: stub.lines, "
    "lanes: numbered}\n"
    "  - {from: source.tokens, to: voc.tokens, chunk: [1, 2, 4]}\n"
    "  - {from: voc.audio, to: response.audio, join: {gap: 0}}\n";
/* The two stages on executors of their own. */
static const char *const apart[] = {"source.devices=0", "voc.devices=1",
                                    "voc.max_num_seqs=1"};

static void open_engine(stub_env *s, const char *edges, const char *const *sets, int n) {
    /* One hook worker: requests reach the front door in the order of submission. */
    og_engine_opts opts = {.hook_workers = 1};
    atomic_store(&stub_n_told, 0);
    atomic_store(&stub_admits, 0);
    atomic_store(&stub_in_use, 0);
    assert_int_equal(stub_open_sets(s, edges, sets, n, &opts), 0);
}

static og_request *submit(stub_env *s, int n, int mode, int lanes) {
    og_err err = OG_ERR_INIT;
    og_request *r = NULL;
    json_t *f =
        json_pack("{s:i,s:i,s:i,s:i}", "n", n, "stamp", 1, "mode", mode, "lanes", lanes);
    og_request_desc d = {.fields = f, .has_seed = 1, .seed = 1};
    int rc = og_engine_submit(s->engine, &d, &r, &err);
    json_decref(f);
    assert_int_equal(rc, 0);
    return r;
}

static og_event_kind read_all(og_request *r, og_err *err) {
    og_event ev;
    og_event_kind kind;
    while ((kind = og_request_next(r, 20000, &ev)) == OG_EVENT_ITEMS) {
    }
    if (kind == OG_EVENT_ERROR && err) *err = ev.err;
    return kind;
}

static void finish(og_request *r) {
    assert_int_equal(read_all(r, NULL), OG_EVENT_DONE);
    og_request_free(r);
}

static void close_engine(stub_env *s) {
    stub_assert_drained(s);
    stub_close(s);
}

/* Jobs that wait for an executor to answer, and those that one has let in. */
static int jobs_asked(stub_env *s) {
    int n = atomic_load(&stub_admits);
    for (int x = 0; x < s->engine->n_executors; x++) {
        og_executor *ex = s->engine->executors[x];
        pthread_mutex_lock(&ex->mu);
        for (og__job *j = ex->admits; j; j = j->next_admit) n++;
        pthread_mutex_unlock(&ex->mu);
    }
    return n;
}

static bool has_been_refused(stub_env *s, og_request *r) {
    pthread_mutex_lock(&s->engine->mu);
    bool refused = r->refused && !r->asked;
    pthread_mutex_unlock(&s->engine->mu);
    return refused;
}

/* A bound on how long a broken engine is waited for, and nothing else. */
#define WAIT_FOR(what)                                                                   \
    do {                                                                                 \
        struct timespec pause = {0, 200000};                                             \
        for (int left = 50000; !(what); left--) {                                        \
            if (left == 0) fail_msg("never: %s", #what);                                 \
            nanosleep(&pause, NULL);                                                     \
        }                                                                                \
    } while (0)

static int told(void) {
    return atomic_load(&stub_n_told);
}

static uint64_t told_id(int i) {
    return atomic_load(&stub_told[i]);
}

/* With the source's gate closed: let it step until n prompts are in. Looked at only while it
 * stands in a step, so that none of these prompts has run. */
static void step_until_told(int n) {
    stub_gate_let(&stub_source_gate, 0);
    for (int i = 0; told() < n; i++) {
        assert_true(i < 10);
        stub_gate_let(&stub_source_gate, 1);
    }
}

static void test_all_that_fit_enter_in_one_step(void **state) {
    (void)state;
    stub_env s;
    open_engine(&s, stub_plain, NULL, 0);
    stub_gate_set(&stub_source_gate, true);
    og_request *r[STUB_SLOTS];
    r[0] = submit(&s, LONG, STUB_OK, 1);
    step_until_told(1);
    for (int i = 1; i < STUB_SLOTS; i++) r[i] = submit(&s, 5, STUB_OK, 1);
    WAIT_FOR(jobs_asked(&s) == 2 * STUB_SLOTS);
    assert_int_equal(told(), 1);
    stub_gate_let(&stub_source_gate, 1);
    assert_int_equal(told(), STUB_SLOTS); /* the step after that one has their prompts */
    for (int i = 0; i < STUB_SLOTS; i++) assert_int_equal(told_id(i), r[i]->id);
    stub_gate_set(&stub_source_gate, false);
    for (int i = 0; i < STUB_SLOTS; i++) finish(r[i]);
    close_engine(&s);
}

/* An engine at rest begins with the first; the others are in its second step. */
static void test_an_idle_engine_needs_two_steps(void **state) {
    (void)state;
    stub_env s;
    open_engine(&s, stub_plain, NULL, 0);
    stub_gate_set(&stub_source_gate, true);
    og_request *r[STUB_SLOTS];
    for (int i = 0; i < STUB_SLOTS; i++) r[i] = submit(&s, LONG, STUB_OK, 1);
    WAIT_FOR(jobs_asked(&s) == 2 * STUB_SLOTS);
    stub_gate_let(&stub_source_gate, 1);
    assert_int_equal(told(), STUB_SLOTS);
    stub_gate_set(&stub_source_gate, false);
    for (int i = 0; i < STUB_SLOTS; i++) finish(r[i]);
    close_engine(&s);
}

static void test_cancelled_before_the_answer(void **state) {
    (void)state;
    stub_env s;
    open_engine(&s, stub_plain, NULL, 0);
    stub_gate_set(&stub_source_gate, true);
    og_request *first = submit(&s, LONG, STUB_OK, 1);
    step_until_told(1);
    og_request *a = submit(&s, 5, STUB_OK, 1), *b = submit(&s, 5, STUB_OK, 1);
    og_request *c = submit(&s, 5, STUB_OK, 1);
    WAIT_FOR(jobs_asked(&s) == 8);
    og_request_cancel(b);
    og_event ev;
    assert_int_equal(og_request_next(b, 0, &ev), OG_EVENT_ERROR);
    assert_int_equal(ev.err.code, OG_ECANCELED);
    stub_gate_let(&stub_source_gate, 1);
    assert_int_equal(told(), 3);
    assert_int_equal(told_id(1), a->id);
    assert_int_equal(told_id(2), c->id);
    assert_int_equal(atomic_load(&stub_admits), 6); /* no node has seen it */
    stub_gate_set(&stub_source_gate, false);
    og_request_free(b);
    finish(a);
    finish(c);
    finish(first);
    close_engine(&s);
}

/* One stage has reserved, the other has not answered. */
static void test_cancelled_between_two_answers(void **state) {
    (void)state;
    stub_env s;
    open_engine(&s, stub_plain, apart, 2);
    assert_int_equal(s.engine->n_executors, 2);
    stub_gate_set(&stub_voc_gate, true);
    for (int x = 0; x < 2; x++) og__executor_kick(s.engine->executors[x]);
    stub_gate_let(&stub_voc_gate, 0);
    og_request *a = submit(&s, 5, STUB_OK, 1);
    WAIT_FOR(atomic_load(&stub_admits) == 1 && jobs_asked(&s) == 2);
    og_request_cancel(a);
    WAIT_FOR(atomic_load(&stub_in_use) == 0);
    stub_gate_set(&stub_voc_gate, false);
    og_request_free(a);
    assert_int_equal(told(), 0);
    finish(submit(&s, 5, STUB_OK, 1));
    close_engine(&s);
}

static void test_refused_by_one_let_go_by_all(void **state) {
    (void)state;
    stub_env s;
    open_engine(&s, stub_plain, apart, 3);
    og_request *a = submit(&s, 30, STUB_HANG, 1), *r[4];
    WAIT_FOR(told() == 1);
    for (int i = 0; i < 4; i++) r[i] = submit(&s, 5, STUB_OK, 1);
    WAIT_FOR(has_been_refused(&s, r[0]));
    WAIT_FOR(atomic_load(&stub_in_use) == 2); /* a's */
    assert_int_equal(told(), 1);
    og_request_free(a);
    for (int i = 0; i < 4; i++) finish(r[i]);
    assert_int_equal(told(), 5);
    close_engine(&s);
}

/* Two slots are free and the first one needs three: those behind it wait with it. */
static void test_nobody_passes_one_that_does_not_fit(void **state) {
    (void)state;
    stub_env s;
    open_engine(&s, lanes_edges, NULL, 0);
    og_request *a = submit(&s, 30, STUB_HANG, 1), *b = submit(&s, 30, STUB_HANG, 1);
    WAIT_FOR(told() == 2);
    og_request *big = submit(&s, 5, STUB_OK, 3), *small[5];
    WAIT_FOR(has_been_refused(&s, big));
    for (int i = 0; i < 5; i++) small[i] = submit(&s, 5, STUB_OK, 1);
    og_request_free(small[4]); /* leaves the queue from where it stands */
    og_engine_stats st;
    WAIT_FOR((og_engine_get_stats(s.engine, &st), st.queued == 5));
    assert_int_equal(told(), 2);
    og_request_free(a);
    assert_int_equal(read_all(big, NULL), OG_EVENT_DONE);
    for (int i = 0; i < 4; i++) finish(small[i]);
    for (int i = 2; i < 5; i++) assert_int_equal(told_id(i), big->id);
    og_request_free(big);
    og_request_free(b);
    close_engine(&s);
}

typedef struct crowd {
    stub_env *s;
    atomic_bool stop;
    int bad;
} crowd;

static void *crowd_main(void *arg) {
    crowd *c = arg;
    og_request *r[6] = {0};
    for (int i = 0; !atomic_load(&c->stop) || i % 6; i++) {
        og_request **at = &r[i % 6];
        if (*at) c->bad += read_all(*at, NULL) != OG_EVENT_DONE;
        og_request_free(*at);
        *at = submit(c->s, 1 + i % 9, STUB_OK, 1);
    }
    for (int i = 0; i < 6; i++) {
        c->bad += r[i] && read_all(r[i], NULL) != OG_EVENT_DONE;
        og_request_free(r[i]);
    }
    return NULL;
}

/* One that needs every slot of both replicas, in a crowd that never ends. */
static void test_a_large_one_does_not_starve(void **state) {
    (void)state;
    stub_env s;
    const char *sets[] = {"source.num_replicas=2", "voc.num_replicas=2",
                          "source.max_num_seqs=2", "voc.max_num_seqs=2"};
    open_engine(&s, lanes_edges, sets, 4);
    crowd c = {.s = &s};
    pthread_t t;
    pthread_create(&t, NULL, crowd_main, &c);
    WAIT_FOR(told() >= 12);
    for (int k = 0; k < 5; k++) {
        og_request *big = submit(&s, 5, STUB_OK, 4);
        assert_int_equal(read_all(big, NULL), OG_EVENT_DONE);
        int at = 0, passed = 0;
        while (at < STUB_TOLD - 1 && told_id(at) != big->id)
            passed += told_id(at++) > big->id;
        assert_int_equal(told_id(at), big->id);
        assert_true(passed <= 64);
        og_request_free(big);
    }
    atomic_store(&c.stop, true);
    pthread_join(t, NULL);
    assert_int_equal(c.bad, 0);
    close_engine(&s);
}

static void test_more_lanes_than_slots(void **state) {
    (void)state;
    stub_env s;
    open_engine(&s, lanes_edges, NULL, 0);
    og_request *a = submit(&s, 30, STUB_OK, 1),
               *r = submit(&s, 5, STUB_OK, STUB_SLOTS + 1);
    og_request *b = submit(&s, 5, STUB_OK, 1);
    og_err err = OG_ERR_INIT;
    assert_int_equal(read_all(r, &err), OG_EVENT_ERROR);
    assert_int_equal(err.code, OG_ELIMIT);
    assert_non_null(strstr(err.msg, "5 lanes"));
    og_request_free(r);
    finish(a);
    finish(b);
    close_engine(&s);
}

/* The replica fails in a step while others wait for its answer: these have lost nothing. */
static void test_a_fault_spares_who_is_not_in(void **state) {
    (void)state;
    stub_env s;
    open_engine(&s, stub_plain, NULL, 0);
    stub_gate_set(&stub_source_gate, true);
    og_request *lost = submit(&s, 30, STUB_LOSE, 1), *r[3];
    step_until_told(1);
    stub_gate_let(&stub_source_gate, 2); /* four tokens: the next step fails */
    for (int i = 0; i < 3; i++) r[i] = submit(&s, 5, STUB_OK, 1);
    WAIT_FOR(jobs_asked(&s) == 8);
    stub_gate_set(&stub_source_gate, false);
    assert_int_equal(read_all(lost, NULL), OG_EVENT_ERROR);
    og_request_free(lost);
    for (int i = 0; i < 3; i++) finish(r[i]);
    og_engine_stats st;
    og_engine_get_stats(s.engine, &st);
    assert_int_equal(st.rebuilt, 1);
    close_engine(&s);
}

/* The replica had reserved for one whose other stage has not answered: it is asked anew. */
static void test_a_fault_between_two_answers(void **state) {
    (void)state;
    stub_env s;
    open_engine(&s, stub_plain, apart, 2);
    stub_gate_set(&stub_source_gate, true);
    og_request *lost = submit(&s, 30, STUB_LOSE, 1);
    step_until_told(1);
    stub_gate_set(&stub_voc_gate, true);
    for (int x = 0; x < 2; x++) og__executor_kick(s.engine->executors[x]);
    stub_gate_let(&stub_voc_gate, 0);
    stub_gate_let(&stub_source_gate, 1);
    og_request *r = submit(&s, 5, STUB_OK, 1);
    WAIT_FOR(jobs_asked(&s) == 4);
    stub_gate_let(&stub_source_gate, 1); /* four tokens, and r's source has a slot */
    assert_int_equal(atomic_load(&stub_admits), 3);
    stub_gate_set(&stub_source_gate, false);
    assert_int_equal(read_all(lost, NULL), OG_EVENT_ERROR);
    stub_gate_set(&stub_voc_gate, false);
    og_request_free(lost);
    finish(r);
    assert_int_equal(told(), 2);
    og_engine_stats st;
    og_engine_get_stats(s.engine, &st);
    assert_int_equal(st.rebuilt, 1);
    close_engine(&s);
}

/* Requests of all kinds, faults and leaving clients at once: every counter returns. */
static void test_admissions_in_a_storm(void **state) {
    (void)state;
    stub_env s;
    const char *sets[] = {"source.num_replicas=2", "voc.num_replicas=2",
                          "source.max_num_seqs=3", "voc.max_num_seqs=2"};
    open_engine(&s, lanes_edges, sets, 4);
    int source = og_plan_find_stage(s.plan, "source");
    for (int round = 0; round < 30; round++) {
        og_request *r[24];
        for (int i = 0; i < 24; i++) r[i] = submit(&s, 1 + i % 7, STUB_OK, 1 + i % 4);
        for (int i = round % 5; i < 24; i += 5) og_request_cancel(r[i]);
        assert_int_equal(og_engine_inject_fault(s.engine, source, round % 2), 0);
        for (int i = 0; i < 24; i++) {
            og_event_kind kind = read_all(r[i], NULL);
            assert_true(kind == OG_EVENT_DONE || kind == OG_EVENT_ERROR);
        }
        for (int i = 0; i < 24; i++) og_request_free(r[i]);
    }
    close_engine(&s);
}

/* A test that fails leaves its engine behind; the others must not stand at its gates. */
static int open_gates(void **state) {
    (void)state;
    stub_gate_set(&stub_source_gate, false);
    stub_gate_set(&stub_voc_gate, false);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_all_that_fit_enter_in_one_step, open_gates),
        cmocka_unit_test_teardown(test_an_idle_engine_needs_two_steps, open_gates),
        cmocka_unit_test_teardown(test_cancelled_before_the_answer, open_gates),
        cmocka_unit_test_teardown(test_cancelled_between_two_answers, open_gates),
        cmocka_unit_test_teardown(test_refused_by_one_let_go_by_all, open_gates),
        cmocka_unit_test_teardown(test_nobody_passes_one_that_does_not_fit, open_gates),
        cmocka_unit_test_teardown(test_a_large_one_does_not_starve, open_gates),
        cmocka_unit_test_teardown(test_more_lanes_than_slots, open_gates),
        cmocka_unit_test_teardown(test_a_fault_spares_who_is_not_in, open_gates),
        cmocka_unit_test_teardown(test_a_fault_between_two_answers, open_gates),
        cmocka_unit_test_teardown(test_admissions_in_a_storm, open_gates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
