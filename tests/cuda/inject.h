/* Failures on the device, for a program that is linked with its own device.c (built with
 * OG_CUDA_INJECT). Armed from any thread; the launch that fails is the executor's. */
#ifndef OG_TESTS_INJECT_H
#define OG_TESTS_INJECT_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum inject_kind {
    INJECT_NONE,
    INJECT_LAUNCH, /* a kernel with more threads than a block may have */
    INJECT_MEMORY, /* an allocation of more than any device has */
    INJECT_TRAP    /* a kernel that traps: the device is lost to the process */
} inject_kind;

/* After `launches` more launches one fails; INJECT_NONE disarms. */
void inject_arm(inject_kind kind, int launches);
/* 1 once it has failed. */
int inject_done(void);

#ifdef __cplusplus
}
#endif
#endif
