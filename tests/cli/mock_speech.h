/* A speech server for tests of the bench client: threads and plain sockets, and answers that
 * go wrong in every way on demand.
 *
 * The "voice" of a request says what happens to it:
 *   (any other)  four chunks of 1920 samples     frames    max_new_tokens - 1 of 1920
 *   bytewise     the whole answer byte by byte   gap       a pause longer than the audio
 *   quiet        2400 samples of silence first   short     7000 samples, no whole frames
 *   odd          an odd number of bytes          empty     200 without a body
 *   bad, full    status 400, 429                 json      200 with JSON
 *   reset, close, hang, garbage                  what they say
 *   fickle       closes after every answer, without saying so before
 *   sse-error, sse-cut, sse-split                within events
 * The answer is raw chunks, events or a whole WAV file as the request asks. Include after
 * cmocka.h. */
#ifndef OG_TESTS_MOCK_SPEECH_H
#define OG_TESTS_MOCK_SPEECH_H

typedef struct mock {
    int port;
    char url[64];
    int posts, connections; /* so far */
    char last_body[4096], last_head[2048];
} mock;

/* Starts it; ends with the process. One a process. */
mock *mock_start(void);

#endif
