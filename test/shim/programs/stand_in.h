/* Shared by the parts of the stand-in driver. */
#ifndef STAND_IN_H
#define STAND_IN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

/* Returns a function of the library that has all other functions. */
void *behind(const char *symbol);
#define NEXT(type, symbol) ((type)(uintptr_t)behind(symbol))

/* Returns what follows `name` in STAND_IN. NULL: the name is not in it. */
const char *word(const char *name);

/* Says with `calls` on stderr that a call was made. */
void say(const char *call);

/* Waits until no stream waits for a word. */
void await_device(void);

/* Allocates host memory for words of `hardware`. False: this is no such memory, or not `hardware`. */
bool maps_itself(void **memory, size_t bytes, unsigned flags);
/* Frees such memory. False: it is none. */
bool unmaps_itself(const void *memory);

#endif
