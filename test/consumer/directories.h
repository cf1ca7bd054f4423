/* Designs 2 and 3: the library directories below lib/ollama, and what happens to the devices found
 * through each. */
#ifndef DIRECTORIES_H
#define DIRECTORIES_H

#include "standin.h"

struct directory {
  char path[128];         /* /usr/local/lib/ollama/cuda_v12; "" for the plain lib/ollama */
  char base[64];          /* cuda_v12 */
  char library_path[640]; /* LD_LIBRARY_PATH=... for children */
  char ollama_path[320];  /* OLLAMA_LIBRARY_PATH=... */
  char shown[320];        /* as in log lines: [/usr/local/lib/ollama
                             /usr/local/lib/ollama/cuda_v12] */
};

/*
 * One pass over one directory: fills `devices`, gives their number. `filter` is NULL in the first
 * pass; in the second it is the device to look at again, in depth.
 */
typedef int pass_fn(const struct directory *directory, const struct device *filter, double deadline,
                    struct device *devices, int most);

/*
 * Both passes over every directory with a ggml library (or the one OLLAMA_LLM_LIBRARY asks for),
 * the newest directory that works kept; logs what Ollama logs on the way.
 */
int discover_directories(const char *const sources[3], pass_fn *pass,
                         int (*drop)(struct device *devices, int count), struct device *devices);

/* Writes /proc/self/exe's target. */
const char *own_path(char *buffer, size_t size);

#endif
