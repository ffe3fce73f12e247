/* Test functions of hook files: `omni-graph hook test`.
 *
 * A file's functions test_NAME(t) are run one by one in the sandbox of hooks. t has
 *
 *     t:hook(name, fixture)     run a hook on a fixture; its printed rows, a list of lines
 *     t:rejects(name, fixture)  the same for one that must reject: field, text
 *     t:eq(got, want [, what])  deep equality; a list against the lines of a string, too
 *     t:ok(value [, what])
 *
 * What a fixture means is the caller's business: it comes as JSON and goes to a callback,
 * which builds an env, runs the hook in a VM of its own (og_hook_run) and prints the result
 * (og_hook_print). The Lua side is documented in docs/hooks.md.
 *
 *     og_hook_bench bench = {.run = run_fixture, .arg = &mine};
 *     og_hook_tests tests;
 *     rc = og_hook_tests_list(vm, dirs, n_dirs, "my", &tests, err);
 *     for (int i = 0; rc == 0 && i < tests.n; i++)
 *         passed += og_hook_test_run(vm, dirs, n_dirs, "my", tests.list[i].name, &bench,
 *                                    &why) == 0;
 *     og_hook_tests_free(&tests);
 */
#ifndef OG_HOOK_TEST_H
#define OG_HOOK_TEST_H

#include "graph/hook/hook.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OG_HOOK_MAX_TESTS 1024
#define OG_HOOK_MAX_FIXTURE 65536 /* values in one fixture */

typedef struct og_hook_test {
    char *name;
    int line;
} og_hook_test;

typedef struct og_hook_tests {
    og_hook_test *list; /* by line */
    int n, cap;
} og_hook_tests;

typedef struct og_hook_bench {
    /* Run hook `name` of `file` (NULL: the test's own) on a fixture, an object; append
     * the printed result to out. The errors are those of og_hook_run. Called on the
     * caller's thread, from within og_hook_test_run, which counts its time as its own. */
    int (*run)(void *arg, const char *file, const char *name, const json_t *fixture,
               og_str *out, og_err *err);
    void *arg;
} og_hook_bench;

/* Test functions of a file. Errors as of og_hook_run; *out is then empty. */
OG_MUST_CHECK int og_hook_tests_list(og_hook_vm *vm, const char *const *dirs, int n_dirs,
                                     const char *file, og_hook_tests *out, og_err *err);
void og_hook_tests_free(og_hook_tests *tests);
/* Run one. A check that failed is OG_EHOOK as any other error of Lua code: err says in
 * which line. Log lines of the hooks are dropped. */
OG_MUST_CHECK int og_hook_test_run(og_hook_vm *vm, const char *const *dirs, int n_dirs,
                                   const char *file, const char *name,
                                   const og_hook_bench *bench, og_err *err);

#ifdef __cplusplus
}
#endif
#endif
