/* Where a sentence ends, in a text that is still being written. A dot ends one when a blank
 * follows: until then it may be that of a number or of a name. Marks of languages without
 * blanks end one by themselves. */
#include <ctype.h>
#include <string.h>

#include "graph/serve/ws.h"

typedef struct mark {
    const char *text;
    bool clause, alone; /* alone: no blank has to follow */
} mark;

static const mark marks[] = {
    {".", false, false},  {"!", false, false},  {"?", false, false}, {"…", false, false},
    {"。", false, true},  {"！", false, true},  {"？", false, true}, {"\n", false, true},
    {"।", false, false},  {"؟", false, false},  {",", true, false},  {";", true, false},
    {":", true, false},   {"，", true, true},   {"；", true, true},  {"：", true, true},
    {"、", true, true},
};

static const char *const closers[] = {"\"", "'", ")", "]", "”", "’", "»", "」", "』", "）"};

static const mark *mark_at(const char *text, size_t n) {
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        size_t k = strlen(marks[i].text);
        if (k <= n && !memcmp(text, marks[i].text, k)) return &marks[i];
    }
    return NULL;
}

/* Behind marks and closers that follow. */
static size_t skip_marks(const char *text, size_t n, size_t at) {
    for (bool more = true; more;) {
        const mark *m = mark_at(text + at, n - at);
        more = m && *m->text != '\n';
        if (more) at += strlen(m->text);
        for (size_t i = 0; i < sizeof closers / sizeof *closers && !more; i++) {
            size_t k = strlen(closers[i]);
            more = k <= n - at && !memcmp(text + at, closers[i], k);
            if (more) at += k;
        }
    }
    return at;
}

/* "Dr." and "J." go on. */
static bool is_short_form(const char *text, size_t dot) {
    static const char *const words[] = {"Mr", "Mrs", "Ms", "Dr", "Prof", "St", "Jr", "Sr", "vs",
                                        "No", "e.g", "i.e"};
    size_t from = dot;
    while (from > 0 && !isspace((unsigned char)text[from - 1])) from--;
    while (from < dot && strchr("\"'(", text[from])) from++;
    size_t n = dot - from;
    if (n == 1 && isalpha((unsigned char)text[from])) return true;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == n && !memcmp(words[i], text + from, n)) return true;
    return false;
}

size_t og__split_at(const char *text, size_t n, size_t from, og__split how) {
    for (size_t at = from; at < n && how != OG__SPLIT_NONE; at++) {
        const mark *m = mark_at(text + at, n - at);
        if (!m || (m->clause && how != OG__SPLIT_CLAUSE)) continue;
        size_t end = skip_marks(text, n, at + strlen(m->text));
        if (*m->text == '.' && end == at + 1 && is_short_form(text, at)) continue;
        if (m->alone || (end < n && isspace((unsigned char)text[end]))) return end;
        at = end - 1;
    }
    return 0;
}
