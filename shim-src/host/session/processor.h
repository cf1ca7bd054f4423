/*
 * A worker and the guest's thread that wait awake for each other must not share a processor. The kernel puts
 * a thread that is woken through a unix socket on the processor of the thread that woke it, because that one
 * often sleeps next. From then on neither sees the other's answer while it waits awake: it keeps the other
 * one from running. Both sleep for each call, which takes 9 us instead of 0.4 (two processors, Linux 6.18),
 * and nothing separates them while the second processor is idle.
 */
#ifndef VGPU_HOST_PROCESSOR_H
#define VGPU_HOST_PROCESSOR_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Moves the calling thread to another processor if it runs on the one that the guest says it slept on:
 * `processor` is its number plus 1, 0 if it is not known. A wrong guess costs one move. False if this thread
 * can never be moved: it may use one processor only, or may not choose.
 */
bool vgpu_leave_processor(uint32_t processor);

#endif
