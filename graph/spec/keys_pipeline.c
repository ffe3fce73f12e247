#include "graph/spec/keys.h"

const og_key og__pipeline_keys[] = {
#define IN .section = OG_SECTION_PIPELINE
    {IN, .name = "schema", .values = STR, .words = "omni-graph/1",
     .flags = OG_KEY_REQUIRED, .doc = "Version of the language."},
    {IN, .name = "pipeline", .values = STR, .flags = OG_KEY_REQUIRED,
     .doc = "Name of the pipeline."},
    {IN, .name = "base", .values = STR,
     .doc = "Pipeline to start from: maps merge, null removes, stages merge by name, an "
            "edge "
            "replaces the base's edge to the same port."},
    {IN, .name = "match", .values = MAP,
     .doc = "Which checkpoints are this pipeline's; all entries must hold. `model_type` "
            "is of "
            "config.json, `class` is `_class_name` of model_index.json, any other key a "
            "component or config key. The value is a text or `present`."},
    {IN, .name = "request", .values = MAP, .items = STR | MAP, .inner = OG_SECTION_FIELD,
     .flags = OG_KEY_NAMED,
     .doc = "Fields of a request: a type, or a map. They are the flags of `run` and the "
            "body "
            "of the API."},
    {IN, .name = "stages", .values = LIST, .items = MAP, .inner = OG_SECTION_STAGE,
     .doc = "The vertices of the graph."},
    {IN, .name = "edges", .values = LIST, .items = MAP, .inner = OG_SECTION_EDGE,
     .doc = "The whole graph, where there is one phase."},
    {IN, .name = "phases", .values = MAP, .items = LIST, .inner = OG_SECTION_EDGE,
     .flags = OG_KEY_NAMED, .doc = "Named graphs over the stages, for `routes`."},
    {IN, .name = "routes", .values = MAP, .items = MAP, .inner = OG_SECTION_ROUTE,
     .flags = OG_KEY_NAMED,
     .doc = "Which phases a request walks. The first route whose `when` holds is taken."},
#undef IN
#define IN .section = OG_SECTION_FIELD
    {IN, .name = "type", .values = STR, .flags = OG_KEY_REQUIRED,
     .doc = "text, bool, int, float, size, audio, image, video, messages or list(T); `?` "
            "behind it: may be absent."},
    {IN, .name = "default", .values = OG_VALUE_ANY, .inner = OG_SECTION_AREA,
     .doc =
         "Value of an absent field; for a size also a map that takes it from a picture."},
    {IN, .name = "one_of", .values = LIST | STR | REF, .items = STR | INT | FLOAT | BOOL,
     .doc =
         "Values allowed, compared without case: a list, or `$map` for the keys of that "
         "map (missing or empty: no limit)."},
    {IN, .name = "min", .values = INT | FLOAT, .doc = "Least value."},
    {IN, .name = "max", .values = INT | FLOAT, .doc = "Greatest value."},
    {IN, .name = "step", .values = INT | FLOAT,
     .doc = "Values count from `min` in these steps; one between is rounded down and "
            "reported."},
#undef IN
#define IN .section = OG_SECTION_AREA
    {IN, .name = "area", .values = INT, AT_LEAST(1), .flags = OG_KEY_REQUIRED,
     .doc = "Pixels that the size should have."},
    {IN, .name = "of", .values = STR, .flags = OG_KEY_REQUIRED,
     .doc = "Picture field whose shape is kept."},
    {IN, .name = "step", .values = INT, AT_LEAST(1), .def = "1",
     .doc = "Both sides are multiples of it."},
#undef IN
#define IN .section = OG_SECTION_STAGE
    {IN, .name = "name", .values = STR, .flags = OG_KEY_REQUIRED, .doc = "Unique name."},
    {IN, .name = "id", .values = INT, BETWEEN(0, 9999),
     .doc =
         "`stage_id` in the deploy schema. Several stages may share one: a deploy key "
         "goes to each whose kind owns it. Without it a stage is reached by name only."},
    {IN, .name = "node", .values = STR, .flags = OG_KEY_REQUIRED,
     .words = "ar_decoder|encoder|dit|vae|vocoder",
     .doc = "Node kind: how the work is batched and stepped."},
    {IN, .name = "arch", .values = STR, .flags = OG_KEY_REQUIRED,
     .doc = "Network. It declares ports, types, tables, spans, options and lanes."},
    {IN, .name = "weights", .values = STR | MAP, .items = STR, .flags = OG_KEY_NAMED,
     .doc = "Folder in the checkpoint, or a folder for each role. Default: the root."},
    {IN, .name = "tokenizer", .values = STR, .doc = "Folder. Default: the root."},
    {IN, .name = "scheduler", .values = STR, .doc = "Folder. Default: the root."},
    {IN, .name = "with", .values = STR,
     .doc = "Stage whose weights, KV pool and replica this one shares."},
    {IN, .name = "options", .values = MAP,
     .doc = "Values of the arch's options; the overlay may change those marked tunable."},
    {IN, .name = "constraints", .values = MAP, .inner = OG_SECTION_CONSTRAINTS,
     .doc = "Limits of sampling that the overlay cannot relax."},
    {IN, .name = "when", .values = STR,
     .doc = "Condition. A stage that is off costs nothing and its ports are absent."},
    {IN, .name = "in", .values = MAP, .items = STR, .flags = OG_KEY_NAMED,
     .doc = "Types of input ports, to assert what the arch declares."},
    {IN, .name = "out", .values = MAP, .items = STR, .flags = OG_KEY_NAMED,
     .doc = "Types of output ports, to assert what the arch declares."},
#undef IN
#define IN .section = OG_SECTION_CONSTRAINTS
    {IN, .name = "stop_token_ids", .values = LIST, .items = INT | REF,
     .doc = "Ids that end the decoding, besides those of the overlay."},
    {IN, .name = "stop_tokens", .values = LIST, .items = STR,
     .doc = "The same by the text of a special token."},
    {IN, .name = "min_tokens", .values = INT | REF, AT_LEAST(0),
     .doc = "Tokens that must come before the decoding may end."},
#undef IN
#define IN .section = OG_SECTION_EDGE
    {IN, .name = "from", .values = STR | MAP, .items = STR,
     .flags = OG_KEY_REQUIRED | OG_KEY_NAMED,
     .doc = "`stage.port` or `request.field`; with a hook a map of named sources. `?` "
            "behind "
            "it: may be absent."},
    {IN, .name = "to", .values = STR | MAP, .items = STR,
     .flags = OG_KEY_REQUIRED | OG_KEY_NAMED,
     .doc = "`stage.port` or `response.text`, `.audio`, `.image`, `.images`, `.video`; "
            "with a "
            "hook a map, all of one stage."},
    {IN, .name = "hook", .values = STR, .doc = "`file.function` of scripts/lua."},
    {IN, .name = "lanes", .values = LIST | STR, .items = STR,
     .doc =
         "On the hook edge that makes them: names (the first is the default, `?` may be "
         "missing), or `numbered`."},
    {IN, .name = "via", .values = STR | MAP, .inner = OG_SECTION_VIA,
     .doc =
         "Built-in converter: `resample`, `detokenize`, or a map. Nothing is converted "
         "without it."},
    {IN, .name = "chunk", .values = INT | LIST, .items = INT, AT_LEAST(1),
     .doc = "Sizes in items of the producer, the last repeats. Results do not depend on "
            "it."},
    {IN, .name = "async_chunk", .values = BOOL, .def = "true",
     .doc = "false: one chunk, when the producer has ended."},
    {IN, .name = "join", .values = MAP, .inner = OG_SECTION_JOIN,
     .doc = "Lanes one after another into one output."},
    {IN, .name = "when", .values = STR, .doc = "Condition."},
    {IN, .name = "per", .values = STR, .words = "chunk",
     .doc = "Call the hook for every chunk of its one streaming source."},
#undef IN
#define IN .section = OG_SECTION_VIA
    {IN, .name = "resize", .values = MAP, .inner = OG_SECTION_RESIZE,
     .doc = "Resize pictures."},
    {IN, .name = "split", .values = STR, .words = "sentence|clause",
     .doc = "Cut a text into pieces, each a chunk."},
#undef IN
#define IN .section = OG_SECTION_RESIZE
    {IN, .name = "area", .values = INT, AT_LEAST(1), .doc = "Pixels after resizing."},
    {IN, .name = "min", .values = INT, AT_LEAST(1), .doc = "Least length of a side."},
    {IN, .name = "max", .values = INT, AT_LEAST(1), .doc = "Greatest length of a side."},
    {IN, .name = "step", .values = INT, AT_LEAST(1), .def = "1",
     .doc = "Both sides become multiples of it."},
    {IN, .name = "to", .values = STR, .doc = "`request.field` of type size."},
#undef IN
#define IN .section = OG_SECTION_JOIN
    {IN, .name = "gap", .values = FLOAT, BETWEEN(0, 60), .def = "0",
     .doc = "Seconds of silence between lanes."},
#undef IN
#define IN .section = OG_SECTION_ROUTE
    {IN, .name = "when", .values = STR, .doc = "Condition. Default: always."},
    {IN, .name = "phases", .values = LIST, .items = STR, .flags = OG_KEY_REQUIRED,
     .doc = "Phases, in order."},
    {IN, .name = "next", .values = STR,
     .doc = "Hook `file.function`, asked for the next phase when one ends."},
#undef IN
};

const int og__n_pipeline_keys = sizeof og__pipeline_keys / sizeof *og__pipeline_keys;
