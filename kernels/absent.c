/* Why a GPU cannot be had, in words: apart from the backend, so that a build without it can
 * test them. */
#include "kernels/exec.h"

int og__no_driver(int driver, int runtime, og_err *err) {
    if (driver)
        og_err_set(err, OG_EDEVICE, "the NVIDIA driver supports CUDA %d.%d, this build needs "
                   "%d.%d", driver / 1000, driver % 1000 / 10, runtime / 1000,
                   runtime % 1000 / 10);
    else
        og_err_set(err, OG_EDEVICE, "there is no NVIDIA driver on this machine");
    og_err_hint(err, "install a %sdriver, or use backend: cpu", driver ? "newer " : "");
    return OG_EDEVICE;
}

int og__no_gpu(int index, int count, og_err *err) {
    if (count > 1)
        og_err_set(err, OG_ENOENT, "GPU %d is asked for, this machine has %d (0 to %d)", index,
                   count, count - 1);
    else
        og_err_set(err, OG_ENOENT, "GPU %d is asked for, this machine has %s", index,
                   count ? "one (0)" : "none");
    og_err_hint(err, "see `nvidia-smi -L`, and `devices` in the overlay");
    return OG_ENOENT;
}
