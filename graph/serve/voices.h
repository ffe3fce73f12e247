/* Uploaded voices: files NAME.voice (graph/run/voice.h) in the server's folder of voices.
 *
 * There is no list beside the folder: what is there is what there is, for every replica and
 * after a restart, and a file of `omni-graph voice save` that is put there is a voice too. A
 * file appears whole, by rename, or not at all. Names are those of files, so they are words of
 * letters, digits, '_', '-' and '.', without regard to case. */
#ifndef OG_SERVE_VOICES_H
#define OG_SERVE_VOICES_H

#include "graph/serve/server.h"

#define OG__VOICE_NAME_MAX 64

/* Whether the pipeline, with its checkpoint, makes a voice of a clip; *field: of the clip. */
bool og__voice_clones(const og_plan *p, int *field);
/* Whether the checkpoint has voices of its own; name: whether that is one of them. */
bool og__voice_own(const og_plan *p, const char *name);
/* Path of an uploaded voice; false when there is none of that name. */
bool og__voice_path(const og_server *s, const char *name, char *path, size_t size);
/* Path that a voice of that name has or would have; false for what cannot be a name. */
bool og__voice_file(const og_server *s, const char *name, char *path, size_t size);
bool og__voice_name_ok(const char *name);
/* What is told of a file, as in the list; NULL when it is no voice. */
json_t *og__voice_describe(const char *path, const char *name);
int og__voice_count(const og_server *s);

/* Field of a voice's own that holds what is told of it; no field of a pipeline is called so. */
#define OG__VOICE_ABOUT "$upload"

#endif
