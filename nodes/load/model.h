/* A checkpoint folder: its configs, weights and tokenizers, each opened once.
 *
 * A folder "" is the checkpoint itself, any other is a subfolder (speech_tokenizer,
 * text_encoder). Everything is opened on first use and kept until the model closes; any
 * thread may call. Results are borrowed from the model unless it says otherwise.
 *
 *     og_model *m = NULL;
 *     if (og_model_open(dir, &m, err) < 0) return err->code;
 *     const json_t *cfg = og_model_config(m, "", NULL, err);
 *     int layers;
 *     rc = og_cfg_int(cfg, "talker_config.num_hidden_layers", &layers, 1, 512, err);
 *     og_weights *w = NULL;
 *     rc = og_model_weights(m, "speech_tokenizer", &w, err);
 *     og_model_close(m);
 */
#ifndef OG_LOAD_MODEL_H
#define OG_LOAD_MODEL_H

#include <jansson.h>
#include <stdint.h>

#include "kernels/base/err.h"
#include "kernels/tensor.h"
#include "nodes/load/safetensors.h"
#include "nodes/load/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OG_MODEL_MAX_FOLDERS 64
#define OG_MODEL_MAX_CONFIG (64u << 20) /* bytes of one JSON file */

typedef struct og_model og_model;

/* Open a folder that holds config.json, model_index.json or both (OG_ENOENT otherwise).
 * Weights are not touched yet. */
int og_model_open(const char *dir, og_model **out, og_err *err) OG_MUST_CHECK;
/* The same with made-up weights of dtype from a seed (og_weights_dummy): no weight file
 * is looked for. Configs and tokenizers are the folder's own. */
int og_model_open_dummy(const char *dir, uint64_t seed, og_dtype dtype, og_model **out,
                        og_err *err) OG_MUST_CHECK;
og_model *og_model_ref(og_model *m);
void og_model_close(og_model *m); /* one owner less; NULL is fine */

const char *og_model_dir(const og_model *m);
int og_model_is_dummy(const og_model *m);

/* config.json of a folder (of a subfolder also scheduler_config.json or
 * preprocessor_config.json, where it has no other), or the object at a dotted path inside ("talker_config.code_predictor_config").
 * NULL with the reason in err when absent or malformed; err may be NULL. */
const json_t *og_model_config(og_model *m, const char *folder, const char *section,
                              og_err *err);
/* generation_config.json of the root; NULL when there is none. A malformed one fails
 * og_model_open. */
const json_t *og_model_generation_config(const og_model *m);
/* model_index.json of the root (diffusers layout), NULL when there is none. */
const json_t *og_model_index(const og_model *m);
/* Whether the folder has a file of that name. */
int og_model_has(const og_model *m, const char *folder, const char *file);

int og_model_weights(og_model *m, const char *folder, og_weights **out,
                     og_err *err) OG_MUST_CHECK;
int og_model_tokenizer(og_model *m, const char *folder, const og_tokenizer **out,
                       og_err *err) OG_MUST_CHECK;

/* Identity of the checkpoint for cache keys: hash over the configs' text and over the
 * headers of the weights that were opened (or the dummy seed). Opens the root's weights
 * where there are any. */
int og_model_fingerprint(og_model *m, uint64_t *out, og_err *err) OG_MUST_CHECK;

/* Typed reads of a config. key may be a dotted path; give it from the root of the file,
 * so that messages name it fully. A missing (or null) key and a wrong type are OG_EFORMAT,
 * a value outside min..max is OG_ELIMIT; err->field is the key. cfg NULL counts as
 * missing. The _or forms take a default for a missing or null key. */
const json_t *og_cfg_find(const json_t *cfg, const char *key); /* NULL if absent, null */
int og_cfg_int(const json_t *cfg, const char *key, int *v, int64_t min, int64_t max,
               og_err *err) OG_MUST_CHECK;
int og_cfg_int_or(const json_t *cfg, const char *key, int *v, int def, int64_t min,
                  int64_t max, og_err *err) OG_MUST_CHECK;
int og_cfg_i64(const json_t *cfg, const char *key, int64_t *v, int64_t min, int64_t max,
               og_err *err) OG_MUST_CHECK;
/* Integers are accepted where a float is asked for; the value must be finite. */
int og_cfg_float(const json_t *cfg, const char *key, float *v, double min, double max,
                 og_err *err) OG_MUST_CHECK;
int og_cfg_float_or(const json_t *cfg, const char *key, float *v, float def, double min,
                    double max, og_err *err) OG_MUST_CHECK;
int og_cfg_bool(const json_t *cfg, const char *key, int *v, og_err *err) OG_MUST_CHECK;
int og_cfg_bool_or(const json_t *cfg, const char *key, int *v, int def,
                   og_err *err) OG_MUST_CHECK;
/* *v is borrowed from the config (or is def). */
int og_cfg_str(const json_t *cfg, const char *key, const char **v,
               og_err *err) OG_MUST_CHECK;
int og_cfg_str_or(const json_t *cfg, const char *key, const char **v, const char *def,
                  og_err *err) OG_MUST_CHECK;
/* An array of 1..max_n integers, each in min..max, into v; *n is how many. */
int og_cfg_int_array(const json_t *cfg, const char *key, int *v, int max_n, int *n,
                     int64_t min, int64_t max, og_err *err) OG_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
