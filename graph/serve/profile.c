#include "graph/serve/profile.h"

void og__post_profile(og__call *c) {
    og__reply_error(c, 501, NULL, "unsupported",
                    "this engine writes no traces; /metrics has the steps, their time and their "
                    "batch by stage and replica");
}
