/* Saved voices: what the stages behind an audio field made of a clip, so that the clip is not
 * needed again.
 *
 * A voice is one safetensors file, NAME.voice. A tensor STAGE.PORT holds each whole output of
 * the stages that the field feeds (for Qwen3-TTS speaker.embedding and ref_codec.codes). Its
 * metadata:
 *
 *     format      omni-graph-voice/1
 *     name        what the user called it
 *     checkpoint  hash of the weights behind those stages: a voice fits no other checkpoint
 *     facts       JSON: rate, seconds and channels of the clip; hooks see them as the field
 *     fields      JSON: request fields that belong to the voice (ref_text); a request that
 *                 names the voice has them too, unless it says otherwise
 *
 * An audio field of a request takes the path of a voice as it takes that of a clip: its
 * stages then have their outputs from the start and are not run.
 *
 *     og_request_desc d = {.fields = body, .taps = taps, .n_taps = n, .taps_only = 1};
 *     n = og_voice_taps(plan, field, taps, OG_VOICE_MAX_PORTS);
 *     og_engine_submit(e, &d, &r, &err);
 *     while (og_request_next(r, -1, &ev) == OG_EVENT_ITEMS) continue;
 *     rc = og_voice_pack(r, field, "anna", keep, &text, &err);   // text: the file's bytes
 *
 * Stateless; any thread may call.
 */
#ifndef OG_RUN_VOICE_H
#define OG_RUN_VOICE_H

#include "graph/run/engine.h"
#include "kernels/base/alloc.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OG_VOICE_FORMAT "omni-graph-voice/1"
#define OG_VOICE_MAX_PORTS 16
#define OG_VOICE_MAX_JSON (1u << 20) /* bytes of facts or fields */

/* Whether a path names a voice: by its ending, .voice or .safetensors. */
int og_voice_is(const char *path);

/* Outputs of the stages that audio field `field` (index in the plan) feeds, as taps whose
 * strings are the plan's. Returns how many, at most max; 0: the field makes no voice. */
int og_voice_taps(const og_plan *p, int field, og_request_tap *taps, int max);

/* After DONE of a request with these taps: the bytes of the file, appended to out. keep: an
 * object of request fields that belong to the voice, may be NULL. */
OG_MUST_CHECK int og_voice_pack(og_request *r, int field, const char *name,
                                const json_t *keep, og_str *out, og_err *err);

/* The same of a speaker's vector that was made elsewhere, in place of a clip: n numbers. No
 * request is needed. OG_EREJECT when no stage behind the field makes vectors of that length. */
OG_MUST_CHECK int og_voice_pack_vector(const og_plan *p, int field, const char *name,
                                       const json_t *keep, const float *x, int n, og_str *out,
                                       og_err *err);

/* Add the fields that belong to the voices of a body to it, where it does not have them.
 * og_engine_submit does it too, but cannot tell a default that was filled in before from
 * what the user said. OG_EREJECT with the field's name for a file that is no voice. */
OG_MUST_CHECK int og_voice_defaults(const og_plan *p, json_t *body, og_err *err);

#ifdef __cplusplus
}
#endif
#endif
