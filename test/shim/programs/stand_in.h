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

/* With `calls`, prints on stderr that a call was made. */
void say(const char *call);

/* Waits until no stream waits for a word. */
void await_device(void);

/* Waits likewise before a copy of this many bytes to the device, if the driver would wait. */
void await_copy(const void *from, size_t bytes);

/* Takes a place in the queue of the channel. Waits likewise when the queue is full. */
void take_command(void);

/* True while a stream waits for a word. */
bool device_waits(void);

/* Copies to the device when no stream waits any more. */
void copy_after_waits(uint64_t to, const void *from, size_t bytes);

/* Queues a copy of pinned memory as above, and blocks its stream until it is done. False: no stream waits. */
bool copies_behind(uint64_t device, const void *host, size_t bytes, bool to_device, void *stream);

/* With `pools` releases the memory that pools keep beyond their release thresholds. */
void release_pools(void);

/* Allocates host memory for words of `hardware`. False: this is no such memory, or not `hardware`. */
bool maps_itself(void **memory, size_t bytes, unsigned flags);
/* Frees such memory. False: it is none. */
bool unmaps_itself(const void *memory);

#endif
