/* What a server counts, and GET /metrics.
 *
 * og__metrics lives as long as its server. The functions that count may be called from any
 * thread; they take no lock but og__metrics_call, which takes one of its own. */
#ifndef OG_SERVE_METRICS_H
#define OG_SERVE_METRICS_H

#include "graph/serve/server.h"

og__metrics *og__metrics_create(void); /* NULL: no memory */
void og__metrics_free(og__metrics *m);

/* An exchange is over: its status, and when its first byte left. On the loop's thread. */
void og__metrics_call(og__call *c);
/* An utterance has been answered in full, or has failed; streamed: piece by piece. */
void og__metrics_speech(og__call *c, const og__model *m, bool ok);
/* A piece of a stream is about to go out, behind `played` seconds of audio. A listener who
 * began with the first piece has run dry when more time than that has gone by and nothing
 * waited for him. */
void og__metrics_piece(og__call *c, const og__model *m, double played);

typedef struct og__speech_totals {
    int64_t ok, failed, underruns;
    double audio_s;
} og__speech_totals;
void og__metrics_totals(og_server *s, const og__model *m, og__speech_totals *out);

void og__get_metrics(og__call *c);

#endif
