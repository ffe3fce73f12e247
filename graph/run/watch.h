/* A watch on files that people edit: tells when what they name is another text.
 *
 * Files may be absent, be replaced by rename, be reached through symbolic links whose targets
 * are swapped: every folder that a path leads through by a link is watched. Where the system
 * has no news to give (network file systems), a look every half second finds the change. A
 * burst of events is told once, when it has been quiet for OG_WATCH_QUIET_MS; what leaves the
 * texts as they were is not told.
 *
 *     og_watch *w;
 *     og_watch_create(changed, arg, &w, &err);
 *     og_watch_start(w, &err);     // changed(arg) comes on the watch's own thread
 *     og_watch_renew(w);           // in changed, or before:
 *     og_watch_add(w, path);       //   each file, before it is read
 *     og_watch_prune(w);           //   and those that were not named again are let go
 *     og_watch_destroy(w);
 *
 * Any thread may add, one at a time from renew to prune.
 */
#ifndef OG_RUN_WATCH_H
#define OG_RUN_WATCH_H

#include "kernels/base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OG_WATCH_MAX_FILES 64 /* further ones are not watched */
#define OG_WATCH_MAX_LINKS 256 /* folders and names that their paths lead through */
#define OG_WATCH_QUIET_MS 100
#define OG_WATCH_LONGEST_MS 1000 /* of a burst: then it is told though it goes on */
#define OG_WATCH_LOOK_MS 500
#define OG_WATCH_MAX_BYTES (4u << 20) /* of a file that are compared */

typedef struct og_watch og_watch;

/* Errors: OG_EIO (the system gives no more watches), OG_ENOMEM. */
OG_MUST_CHECK int og_watch_create(void (*changed)(void *arg), void *arg, og_watch **out,
                                  og_err *err);
OG_MUST_CHECK int og_watch_start(og_watch *w, og_err *err);
/* Waits for a call of changed that runs. NULL is fine. */
void og_watch_destroy(og_watch *w);

/* A file that was not watched yet is compared with what it is now. */
void og_watch_add(og_watch *w, const char *path);
void og_watch_renew(og_watch *w);
void og_watch_prune(og_watch *w);

#ifdef __cplusplus
}
#endif
#endif
