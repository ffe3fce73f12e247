/* The teacher: flite speaks the lines of a text.
 * synth rms|slt TEXT WORKER WORKERS OUT: of the lines whose number is WORKER modulo WORKERS,
 * OUT.raw gets the samples (16 kHz, s16) and OUT.idx "line offset samples" for each. */
#include <flite/flite.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

cst_voice *register_cmu_us_rms(const char *dir);
cst_voice *register_cmu_us_slt(const char *dir);

static FILE *create(const char *stem, const char *ext) {
    char path[1024];
    snprintf(path, sizeof path, "%s.%s", stem, ext);
    return fopen(path, "wb");
}

int main(int argc, char **argv) {
    if (argc != 6) return 2;
    flite_init();
    cst_voice *voice = !strcmp(argv[1], "slt") ? register_cmu_us_slt(NULL)
                                               : register_cmu_us_rms(NULL);
    FILE *text = fopen(argv[2], "r"), *raw = create(argv[5], "raw"),
         *index = create(argv[5], "idx");
    long worker = atol(argv[3]), workers = atol(argv[4]), offset = 0;
    char line[4096];
    if (!text || !raw || !index || workers < 1) return 1;
    for (long i = 0; fgets(line, sizeof line, text); i++) {
        if (i % workers != worker) continue;
        line[strcspn(line, "\n")] = 0;
        cst_wave *w = flite_text_to_wave(line, voice);
        if (!w) continue;
        fwrite(w->samples, 2, (size_t)w->num_samples, raw);
        fflush(raw); /* the index never names samples that are not there yet */
        fprintf(index, "%ld %ld %d\n", i, offset, w->num_samples);
        fflush(index);
        offset += w->num_samples;
        delete_wave(w);
    }
    fclose(text);
    return fclose(raw) || fclose(index);
}
