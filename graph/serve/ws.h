/* WebSocket /v1/audio/speech/stream: text streams in, audio streams out.
 *
 *   ws.c          the loop's side: the upgrade, messages in and out
 *   ws_session.c  what the messages say, on a worker
 *   ws_split.c    where a sentence ends
 *
 * A session is one og__call for as long as the connection lives. Messages wait in its inbox
 * under `mu`; those that go out are records in its outbox: a kind, a length, the bytes. The
 * session is freed by the step that finds the client gone, which the loop tells it last.
 */
#ifndef OG_SERVE_WS_H
#define OG_SERVE_WS_H

#include "graph/serve/http.h"

#define OG__WS_PATH "/v1/audio/speech/stream"

typedef enum og__ws_kind { OG__WS_TEXT, OG__WS_BINARY, OG__WS_CLOSE } og__ws_kind;

/* In front of every record of the outbox. */
typedef struct og__ws_head {
    og__ws_kind kind;
    size_t n;
} og__ws_head;

typedef struct og__ws {
    pthread_mutex_t mu;
    og_str inbox; /* under mu: messages, each with its length as a size_t before it */
    /* the loop's own */
    og_str part; /* of a message */
    og__ws_head out;
    size_t left; /* of the record that is being written */
    bool writing;
    void *session; /* the step's own */
} og__ws;

/* What libwebsockets has to say about a WebSocket, and about one that is asked for. */
int og__ws_event(struct lws *wsi, enum lws_callback_reasons reason, og__session *ses,
                 const void *in, size_t len);
void og__ws_send(og__call *c, og__ws_kind kind, const void *bytes, size_t n);
/* First step of a session. */
void og__ws_step(og__call *c);
/* GET without an upgrade. */
void og__get_stream(og__call *c);

typedef enum og__split { OG__SPLIT_NONE, OG__SPLIT_SENTENCE, OG__SPLIT_CLAUSE } og__split;
/* Length of the first finished piece of a text that goes on, 0: none is. The first `from`
 * bytes are known to end none. UTF-8. */
size_t og__split_at(const char *text, size_t n, size_t from, og__split how);

#endif
