/*
 * The interface of the stand-in's libggml-cuda.so. Like the real one it has DT_NEEDED libcuda.so.1 and
 * binds some of its symbols at load time; the rest it asks for through cuGetProcAddress, as
 * NVIDIA's runtime does.
 */
#ifndef BACKEND_H
#define BACKEND_H

#include "standin.h"

/*
 * Fills `devices` (at most `most`); gives their number. When there are none, `why` says why: a CUDA
 * error's text, or "" for a driver without devices. With `deep`, the devices are initialised in
 * depth (GGML_CUDA_INIT=1) and those that fail are left out.
 */
typedef int backend_devices_fn(struct device *devices, int most, bool deep, char *why, size_t size);
#define BACKEND_DEVICES "standin_backend_devices"

/* Asks for device memory in the context that is current and keeps it, as a model's weights. 0, or a CUDA
 * error. */
typedef int backend_hold_fn(size_t bytes);
#define BACKEND_HOLD "standin_backend_hold"

/* The same of the backend in `file`, which is loaded already; says what ggml says when there is no memory. */
void hold_memory(const char *file, size_t bytes);

/*
 * Loads the backend of a library directory, or the file GGML_BACKEND_PATH names, and asks it.
 * Prints to stderr what ggml prints. Gives the number of devices, -1 when the backend could not be
 * loaded. `keep` leaves it loaded.
 */
int ask_backend(const char *file, struct device *devices, int most, bool print);

#endif
