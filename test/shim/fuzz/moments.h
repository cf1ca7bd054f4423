/*
 * Shared memory whose other end is the fuzzer's input. The code under test is compiled with a call before
 * each of its loads (-fsanitize-coverage=trace-loads) and its memcpy is ours: whenever it reads what the
 * other end can change, between any two reads and in the middle of each copy, the input may change it. No
 * threads, so that the same input always does the same.
 *
 * The input is a list of steps, u8 when, u8 what, and what belongs to it. `when` counts the reads until it is
 * done; 0, or fewer reads than that before the code under test goes to sleep: then.
 */
#ifndef VGPU_FUZZ_MOMENTS_H
#define VGPU_FUZZ_MOMENTS_H

#include <stdbool.h>
#include <stddef.h>

#include "fuzz/grammar.h"
#include "wire/ring.h"

/* One step of the fuzzer; false: the other end hangs up. */
typedef bool fuzz_act(uint8_t what);

void fuzz_moments_begin(struct fuzz_source *source, fuzz_act *act);

/* Reads from there are moments, until the next fuzz_moments_begin. */
void fuzz_moments_watch(const void *base, size_t bytes);

/* Passed on instead of bytes at the next ring of the doorbell; -1: none. The receiver's to close. */
void fuzz_moments_pass(int descriptor);

/* The rings as the code under test has mapped them last; those of the other end are mapped with this. */
bool __real_vgpu_rings_map(struct vgpu_rings *rings, int descriptor, uint64_t offset, uint32_t size);

/* How far a frame is published that is not all there: so many lines, or to a place where none begins. */
uint32_t fuzz_part(struct fuzz_source *source);

/* Steps that both ends have: one of the words of the two controls, or bytes near `frame`, is changed. */
void fuzz_poke_control(struct fuzz_source *source, const struct vgpu_rings *rings);
void fuzz_poke_bytes(struct fuzz_source *source, unsigned char *ring, uint32_t size, uint64_t position);

#endif
