/* A real worker of the software device in this process, for one session of a fuzzer's input; it begins with
 * the fuzzer. */
#ifndef VGPU_FUZZ_SERVE_H
#define VGPU_FUZZ_SERVE_H

#include <stdbool.h>

#include "wire/frame.h"

/*
 * Serves the guest that the wrapped functions of wire/ are, as the daemon would after this greeting, until it
 * is gone; then gives everything back. Nothing for a greeting that begins no session.
 */
void fuzz_serve(bool rings, const unsigned char *greeting, size_t size);

#endif
