/* The one table of keys: pipeline language and overlay.
 *
 * Validation, "did you mean", the reference pages and the JSON Schemas all come from it.
 * Constant data; any thread.
 *
 *     const og_key *k = og_key_find(OG_SECTION_OVERLAY_STAGE, "devices");
 *     og_keys_check(map, OG_SECTION_OVERLAY_STAGE, diags);
 */
#ifndef OG_SPEC_SCHEMA_H
#define OG_SPEC_SCHEMA_H

#include "graph/spec/tree.h"
#include "graph/spec/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where a key may stand. name, path shown in messages and pages, schema */
#define OG_SECTIONS(X)                                                                   \
    X(OG_SECTION_PIPELINE, "pipeline", OG_SCHEMA_PIPELINE)                               \
    X(OG_SECTION_FIELD, "request.*", OG_SCHEMA_PIPELINE)                                 \
    X(OG_SECTION_AREA, "request.*.default", OG_SCHEMA_PIPELINE)                          \
    X(OG_SECTION_STAGE, "stages[]", OG_SCHEMA_PIPELINE)                                  \
    X(OG_SECTION_CONSTRAINTS, "stages[].constraints", OG_SCHEMA_PIPELINE)                \
    X(OG_SECTION_EDGE, "edges[]", OG_SCHEMA_PIPELINE)                                    \
    X(OG_SECTION_VIA, "edges[].via", OG_SCHEMA_PIPELINE)                                 \
    X(OG_SECTION_RESIZE, "edges[].via.resize", OG_SCHEMA_PIPELINE)                       \
    X(OG_SECTION_JOIN, "edges[].join", OG_SCHEMA_PIPELINE)                               \
    X(OG_SECTION_ROUTE, "routes.*", OG_SCHEMA_PIPELINE)                                  \
    X(OG_SECTION_OVERLAY, "overlay", OG_SCHEMA_OVERLAY)                                  \
    X(OG_SECTION_OVERLAY_STAGE, "stages[]", OG_SCHEMA_OVERLAY)                           \
    X(OG_SECTION_SAMPLING, "stages[].default_sampling_params", OG_SCHEMA_OVERLAY)        \
    X(OG_SECTION_PARALLEL, "stages[].parallel_config", OG_SCHEMA_OVERLAY)                \
    X(OG_SECTION_RUNTIME, "stages[].runtime", OG_SCHEMA_OVERLAY)                         \
    X(OG_SECTION_CONNECTOR, "connectors.*", OG_SCHEMA_OVERLAY)                           \
    X(OG_SECTION_EXTRA, "connectors.*.extra", OG_SCHEMA_OVERLAY)                         \
    X(OG_SECTION_OVERLAY_EDGE, "edges[]", OG_SCHEMA_OVERLAY)                             \
    X(OG_SECTION_PLATFORM, "platforms.*", OG_SCHEMA_OVERLAY)                             \
    X(OG_SECTION_ROUTING, "stages[].routing", OG_SCHEMA_OVERLAY)                         \
    X(OG_SECTION_DUPLEX, "duplex_session", OG_SCHEMA_OVERLAY)

typedef enum og_schema { OG_SCHEMA_PIPELINE, OG_SCHEMA_OVERLAY } og_schema;
#define OG_SECTION_ENUM(name, path, schema) name,
typedef enum og_section {
    OG_SECTION_NONE, /* keys are not known: anything goes */
    OG_SECTIONS(OG_SECTION_ENUM) OG_SECTION_COUNT
} og_section;
#undef OG_SECTION_ENUM

/* What a value may be; several may be allowed. */
enum {
    OG_VALUE_BOOL = 1,
    OG_VALUE_INT = 2,
    OG_VALUE_FLOAT = 4,
    OG_VALUE_STRING = 8,
    OG_VALUE_LIST = 16, /* items as in og_key.items */
    OG_VALUE_MAP = 32,
    OG_VALUE_REF = 64, /* `$stage.key` in place of the value */
    OG_VALUE_ANY = 63,
};

/* Node kinds that own an overlay key. */
enum {
    OG_OWNER_AR = 1,
    OG_OWNER_ENCODER = 2,
    OG_OWNER_DIT = 4,
    OG_OWNER_VAE = 8,
    OG_OWNER_VOCODER = 16,
    OG_OWNER_ALL = 31,
};

/* What a changed overlay key needs while serving. */
typedef enum og_reload {
    OG_RELOAD_NONE,    /* fixed once the replicas are loaded: a restart */
    OG_RELOAD_LIVE,    /* requests that come after it have it */
    OG_RELOAD_LOADED,  /* live up to what the replicas were loaded for, rolling beyond */
    OG_RELOAD_ROLLING, /* replicas are started with it, the others are drained */
} og_reload;

enum {
    OG_KEY_REQUIRED = 1,
    OG_KEY_UNSUPPORTED = 2, /* known in the public schema, does nothing here: warned of */
    OG_KEY_IGNORED = 4,     /* accepted and silently of no use here */
    OG_KEY_OURS = 8,        /* not in the public schema */
    OG_KEY_STAGES = 16,     /* root key whose value is the default of every stage */
    OG_KEY_NAMED = 64,      /* a map from free names to values as in items and inner */
    OG_KEY_REMOVED = 32,    /* from an older schema: refused, doc says what to write */
};

typedef struct og_key {
    og_section section;
    const char *name;
    int values;       /* OG_VALUE_* bits */
    int items;        /* OG_VALUE_* bits of list items or named values, 0: anything */
    og_section inner; /* keys of the map, or of the maps inside the list or named map */
    const char *def;  /* default, as text; NULL: none, or the arch says it */
    bool has_min, has_max;
    double min, max;
    const char *words; /* "a|b|c": the only strings allowed; NULL: any */
    int owners;        /* overlay keys of stages */
    og_reload reload;
    int flags;
    const char *doc;
} og_key;

/* All keys of a schema, section by section. */
const og_key *og_keys(og_schema schema, int *n);
/* The key of a section, NULL when it has none of that name. */
const og_key *og_key_find(og_section section, const char *name);
const char *og_section_path(og_section section);
/* Nearest key of a section within a third of the name's length; NULL when none is. */
const char *og_key_near(og_section section, const char *name);
/* Nearest of n names; NULL when none is near. */
const char *og_near(const char *name, const char *const *names, int n);
/* OG_OWNER_* bit of a node kind's name; OG_OWNER_ALL for NULL or an unknown one. */
int og_owner_of(const char *kind);

/* Check a map of a section, everything below it that has keys of its own included: keys,
 * value types, ranges, words. For pipelines an unknown key is an error, for overlays a
 * warning. Missing required keys are errors. */
void og_keys_check(const og_yaml_node *map, og_section section, og_diags *diags);
/* Check one value against its key. */
void og_key_check(const og_key *key, const og_yaml_node *value, og_diags *diags);
/* Whether a scalar converts to one of the types in values. */
bool og_value_fits(const og_yaml_node *scalar, int values);

/* Append the JSON Schema (draft 2020-12) of a file, or its reference page in Markdown. */
void og_schema_json(og_schema schema, og_str *out);
void og_schema_markdown(og_schema schema, og_str *out);

#ifdef __cplusplus
}
#endif
#endif
