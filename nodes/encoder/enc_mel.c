#include "nodes/encoder/enc_mel.h"

#include <math.h>

#define TRY OG__ENC_TRY
#define PI 3.14159265358979323846

/* Slaney's scale: linear up to 1 kHz, then 27 steps for each factor of 6.4. */
static double hz_to_mel(double hz) {
    return hz < 1000 ? hz * 3 / 200 : 15 + log(hz / 1000) * 27 / log(6.4);
}

static double mel_to_hz(double mel) {
    return mel < 15 ? mel * 200 / 3 : 1000 * exp((mel - 15) * log(6.4) / 27);
}

static void fill_basis(const og__enc_mel *m) {
    int bins = m->fft / 2 + 1, n = m->fft;
    float *re = m->basis.data, *im = re + (int64_t)bins * n;
    for (int k = 0; k < bins; k++)
        for (int i = 0; i < n; i++) {
            double window = 0.5 - 0.5 * cos(2 * PI * i / n);
            double angle = 2 * PI * ((int64_t)k * i % n) / n;
            re[(int64_t)k * n + i] = (float)(window * cos(angle));
            im[(int64_t)k * n + i] = (float)(window * sin(angle));
        }
}

/* Triangles between neighbouring band edges, each of the same area. */
static void fill_bank(const og__enc_mel *m) {
    int bins = m->fft / 2 + 1;
    double step = hz_to_mel(m->top) / (m->bands + 1);
    float *y = m->bank.data;
    for (int b = 0; b < m->bands; b++) {
        double lo = mel_to_hz(b * step), mid = mel_to_hz((b + 1) * step);
        double hi = mel_to_hz((b + 2) * step);
        for (int k = 0; k < bins; k++) {
            double hz = (double)k * m->rate / m->fft;
            double up = (hz - lo) / (mid - lo), down = (hi - hz) / (hi - mid);
            double v = up < down ? up : down;
            *y++ = v > 0 ? (float)(v * 2 / (hi - lo)) : 0.0f;
        }
    }
}

int og__enc_mel_load(og__enc_mel *m, og__enc_mem *mem, og_err *err) {
    int bins = m->fft / 2 + 1;
    m->basis = og_tensor_3d(OG_F32, 2 * bins, m->fft, 1, NULL);
    m->bank = og_tensor_2d(OG_F32, m->bands, bins, NULL);
    TRY(og__enc_weight(mem, &m->basis, err));
    TRY(og__enc_weight(mem, &m->bank, err));
    fill_basis(m);
    fill_bank(m);
    TRY(og__enc_place(mem, &m->basis, err));
    return og__enc_place(mem, &m->bank, err);
}

int64_t og__enc_mel_frames(const og__enc_mel *m, int64_t n) {
    int64_t pad = (m->fft - m->hop) / 2;
    return (n + 2 * pad - m->fft) / m->hop + 1;
}

int og__enc_mel_run(const og__enc_mel *m, og_exec *ex, og_tensor *y, const og_tensor *x) {
    int64_t n = x->ne[0], pad = (m->fft - m->hop) / 2, frames = y->ne[0];
    int bins = m->fft / 2 + 1;
    size_t mark = og_exec_mark(ex);
    og_tensor wave = og_tensor_view(x, 2, (int64_t[]){n, 1}), none = {0};
    og_tensor padded = og__enc_mat(ex, n + 2 * pad, 1);
    og_tensor spectrum = og__enc_mat(ex, frames, 2 * bins);
    og_tensor size = og__enc_mat(ex, frames, bins);
    TRY(og_op_pad_time(ex, &padded, &wave, pad, OG_PAD_REFLECT));
    TRY(og_op_conv1d_valid(ex, &spectrum, &padded, &m->basis, &none, m->hop, 1, NULL));
    TRY(og_op_magnitude(ex, &size, &spectrum, 1e-9f));
    TRY(og_op_linear(ex, 1, y, &size, &m->bank, NULL, NULL));
    TRY(og_op_log_floor(ex, y, y, 1e-5f));
    og_exec_release(ex, mark);
    return 0;
}
