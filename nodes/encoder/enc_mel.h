/* Log-mel spectra of a clip, as the public vocoders and speaker encoders take them: mirrored
 * padding of (fft - hop) / 2, a periodic Hann window, sqrt(|X|^2 + 1e-9), mel bands with
 * Slaney's scale and areas, ln(max(x, 1e-5)). The transform is a matrix product with the
 * windowed basis, so that it is one more op with fixed bits.
 *
 *     og__enc_mel mel = {.rate = 24000, .fft = 1024, .hop = 256, .bands = 128, .top = 12000};
 *     rc = og__enc_mel_load(&mel, &mem, err);
 *     og_tensor y = og__enc_mat(ex, og__enc_mel_frames(&mel, n), mel.bands);
 *     rc = og__enc_mel_run(&mel, ex, &y, &samples);
 */
#ifndef OG_ENC_MEL_H
#define OG_ENC_MEL_H

#include "nodes/encoder/enc_net.h"

typedef struct og__enc_mel {
    int rate, fft, hop, bands;
    double top;      /* Hz of the upper edge of the last band; the first begins at 0 */
    og_tensor basis; /* f32 [2 * (fft / 2 + 1), fft, 1]: cosines, then sines */
    og_tensor bank;  /* f32 [bands, fft / 2 + 1] */
} og__enc_mel;

OG_MUST_CHECK int og__enc_mel_load(og__enc_mel *m, og__enc_mem *mem, og_err *err);
/* Frames of n samples; the padding needs n > (fft - hop) / 2. */
int64_t og__enc_mel_frames(const og__enc_mel *m, int64_t n);
/* y f32 [frames, bands] from x f32 [n]. */
OG_MUST_CHECK int og__enc_mel_run(const og__enc_mel *m, og_exec *ex, og_tensor *y,
                                  const og_tensor *x);

#endif
