/*
 * A real worker of the software device in this process, which serves one session for each input of a fuzzer.
 */
#ifndef VGPU_FUZZ_SERVE_H
#define VGPU_FUZZ_SERVE_H

#include <stdbool.h>

#include "wire/frame.h"

/*
 * Serves the guest, which is played by the wrapped functions of wire/, as the daemon would after this
 * greeting, until the guest is gone. Then frees everything. Does nothing for a greeting that begins no
 * session.
 */
void fuzz_serve(bool rings, const unsigned char *greeting, size_t size);

#endif
