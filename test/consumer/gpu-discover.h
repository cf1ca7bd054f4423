/* "ollama gpu-discover --lib-dir DIR...": one JSON document about the devices, reasons on stderr.
 */
#ifndef GPU_DISCOVER_H
#define GPU_DISCOVER_H

#include "standin.h"

/* The command itself; gives its exit status. */
int gpu_discover(int argc, char **argv);

/* Fills in, for devices known by index, what gpu-discover's JSON says. */
void parse_discovered(const char *json, struct device *devices, int count);

#endif
