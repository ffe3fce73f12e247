/* POST /start_profile and /stop_profile. The engine writes no traces: both say so, so that a
 * client that knows them from elsewhere learns what to use instead. */
#ifndef OG_SERVE_PROFILE_H
#define OG_SERVE_PROFILE_H

#include "graph/serve/server.h"

void og__post_profile(og__call *c);

#endif
