/* Typed reads of a config, each with an error that says what was expected. */
#include <math.h>
#include <string.h>

#include "nodes/load/model.h"

const json_t *og_cfg_find(const json_t *cfg, const char *key) {
    char part[256];
    while (cfg) {
        const char *dot = strchr(key, '.');
        size_t n = dot ? (size_t)(dot - key) : strlen(key);
        if (n >= sizeof part) return NULL;
        memcpy(part, key, n);
        part[n] = 0;
        cfg = json_object_get(cfg, part);
        if (!dot) break;
        key = dot + 1;
    }
    return json_is_null(cfg) ? NULL : cfg;
}

static const char *type_name(const json_t *j) {
    switch (json_typeof(j)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number with a fraction";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    default: return "null";
    }
}

static int missing(const char *key, og_err *err) {
    og_err_set(err, OG_EFORMAT, "config key %s is missing", key);
    og_err_field(err, key);
    return OG_EFORMAT;
}

static int mistyped(const char *key, const json_t *j, const char *want, og_err *err) {
    og_err_set(err, OG_EFORMAT, "config key %s is %s, not %s", key, type_name(j), want);
    og_err_field(err, key);
    return OG_EFORMAT;
}

static int check_int(const json_t *j, const char *key, int64_t *v, int64_t min,
                     int64_t max, og_err *err) {
    if (!json_is_integer(j)) return mistyped(key, j, "an integer", err);
    int64_t x = json_integer_value(j);
    if (x < min || x > max) {
        og_err_set(err, OG_ELIMIT, "config key %s is %lld (allowed: %lld to %lld)", key,
                   (long long)x, (long long)min, (long long)max);
        og_err_field(err, key);
        return OG_ELIMIT;
    }
    *v = x;
    return 0;
}

int og_cfg_i64(const json_t *cfg, const char *key, int64_t *v, int64_t min, int64_t max,
               og_err *err) {
    const json_t *j = og_cfg_find(cfg, key);
    return j ? check_int(j, key, v, min, max, err) : missing(key, err);
}

/* The range of an int bounds what the caller allowed. */
static int narrow(const json_t *j, const char *key, int *v, int64_t min, int64_t max,
                  og_err *err) {
    int64_t x = 0;
    if (min < INT32_MIN) min = INT32_MIN;
    if (max > INT32_MAX) max = INT32_MAX;
    int rc = check_int(j, key, &x, min, max, err);
    if (rc == 0) *v = (int)x;
    return rc;
}

int og_cfg_int(const json_t *cfg, const char *key, int *v, int64_t min, int64_t max,
               og_err *err) {
    const json_t *j = og_cfg_find(cfg, key);
    return j ? narrow(j, key, v, min, max, err) : missing(key, err);
}

int og_cfg_int_or(const json_t *cfg, const char *key, int *v, int def, int64_t min,
                  int64_t max, og_err *err) {
    const json_t *j = og_cfg_find(cfg, key);
    if (j) return narrow(j, key, v, min, max, err);
    *v = def;
    return 0;
}

static int check_float(const json_t *j, const char *key, float *v, double min, double max,
                       og_err *err) {
    if (!json_is_number(j)) return mistyped(key, j, "a number", err);
    double x = json_number_value(j);
    if (!isfinite(x) || x < min || x > max) {
        og_err_set(err, OG_ELIMIT, "config key %s is %g (allowed: %g to %g)", key, x, min,
                   max);
        og_err_field(err, key);
        return OG_ELIMIT;
    }
    *v = (float)x;
    return 0;
}

int og_cfg_float(const json_t *cfg, const char *key, float *v, double min, double max,
                 og_err *err) {
    const json_t *j = og_cfg_find(cfg, key);
    return j ? check_float(j, key, v, min, max, err) : missing(key, err);
}

int og_cfg_float_or(const json_t *cfg, const char *key, float *v, float def, double min,
                    double max, og_err *err) {
    const json_t *j = og_cfg_find(cfg, key);
    if (j) return check_float(j, key, v, min, max, err);
    *v = def;
    return 0;
}

int og_cfg_bool(const json_t *cfg, const char *key, int *v, og_err *err) {
    const json_t *j = og_cfg_find(cfg, key);
    if (!j) return missing(key, err);
    if (!json_is_boolean(j)) return mistyped(key, j, "a boolean", err);
    *v = json_is_true(j);
    return 0;
}

int og_cfg_bool_or(const json_t *cfg, const char *key, int *v, int def, og_err *err) {
    if (og_cfg_find(cfg, key)) return og_cfg_bool(cfg, key, v, err);
    *v = def;
    return 0;
}

int og_cfg_str(const json_t *cfg, const char *key, const char **v, og_err *err) {
    const json_t *j = og_cfg_find(cfg, key);
    if (!j) return missing(key, err);
    if (!json_is_string(j)) return mistyped(key, j, "a string", err);
    *v = json_string_value(j);
    return 0;
}

int og_cfg_str_or(const json_t *cfg, const char *key, const char **v, const char *def,
                  og_err *err) {
    if (og_cfg_find(cfg, key)) return og_cfg_str(cfg, key, v, err);
    *v = def;
    return 0;
}

int og_cfg_int_array(const json_t *cfg, const char *key, int *v, int max_n, int *n,
                     int64_t min, int64_t max, og_err *err) {
    const json_t *j = og_cfg_find(cfg, key);
    *n = 0;
    if (!j) return missing(key, err);
    if (!json_is_array(j)) return mistyped(key, j, "an array of integers", err);
    size_t count = json_array_size(j);
    if (count == 0 || count > (size_t)max_n) {
        og_err_set(err, OG_ELIMIT, "config key %s has %zu items (allowed: 1 to %d)", key,
                   count, max_n);
        og_err_field(err, key);
        return OG_ELIMIT;
    }
    for (size_t i = 0; i < count; i++) {
        int rc = narrow(json_array_get(j, i), key, &v[i], min, max, err);
        if (rc < 0) return rc;
    }
    *n = (int)count;
    return 0;
}
