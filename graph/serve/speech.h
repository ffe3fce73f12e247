/* Speech: what a body asks for, and the job that answers it. Shared by the routes that speak.
 *
 *   og__ask     a request's fields as the pipeline has them, and how its audio is wanted
 *   og__speech  an og__ask on its way through the engine; its audio goes to a receiver
 */
#ifndef OG_SERVE_SPEECH_H
#define OG_SERVE_SPEECH_H

#include "graph/serve/server.h"
#include "nodes/media/audio.h"

typedef enum og__delivery {
    OG__WHOLE, /* one body with its length */
    OG__RAW,   /* bytes as they come */
    OG__SSE    /* events with base64 */
} og__delivery;

typedef struct og__ask {
    og__model *model;
    const og_plan *plan; /* owned reference */
    json_t *fields;      /* owned: of the pipeline */
    og_audio_format format;
    og__delivery delivery;
    int response, rate; /* of the pipeline; rate is the stage's own */
    int out_rate;
    double speed, timeout; /* timeout 0: the server's */
    bool has_seed;
    uint64_t seed;
    int max_tokens;
    int clip; /* descriptor of a clip that came in the body, -1 */
} og__ask;

/* Read a body's fields; where one is wrong it is answered and -1 returned. */
int og__ask_read(og__body *b, og__ask *a);
void og__ask_clear(og__ask *a);
/* How the API calls a field of the pipeline ("text" is "input"). */
const char *og__api_name(const char *field);


/* The text tokens of a request's words, as the pipeline's own tokenizer counts them. */
int64_t og__text_tokens(const og_plan *p, const json_t *fields);
/* A whole answer: samples at the stage's rate, with the speed and the rate asked for, as a
 * file in memory appended to out. */
OG_MUST_CHECK int og__speech_encode(const og__ask *a, const float *samples, int64_t n, og_str *out,
                                    og_err *err);

#endif
