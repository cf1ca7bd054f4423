/* A real worker of the software device in this process, for one session of a fuzzer's input; it begins with
 * the fuzzer. */
#ifndef VGPU_FUZZ_SERVE_H
#define VGPU_FUZZ_SERVE_H

#include <stdbool.h>

/* Serves the guest that the wrapped functions of wire/ are, until it is gone; then gives everything back. */
void fuzz_serve(bool rings);

#endif
