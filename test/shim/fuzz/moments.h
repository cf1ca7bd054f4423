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

/* Carries out one step of the input. False: the other end hangs up. */
typedef bool fuzz_act(uint8_t what);

void fuzz_moments_begin(struct fuzz_source *source, fuzz_act *act);

/* From now on reads of this memory are counted, until the next fuzz_moments_begin. */
void fuzz_moments_watch(const void *base, size_t bytes);

/* The next ring of the doorbell passes this descriptor instead of bytes; -1: none. The receiver closes it. */
void fuzz_moments_pass(int descriptor);

/* The rings as the code under test mapped them last. The rings of the other end are mapped with this. */
bool __real_vgpu_rings_map(struct vgpu_rings *rings, int descriptor, uint64_t offset, uint32_t size);

/*
 * Returns how much of an incomplete frame is published: a number of lines, or up to a place where no line
 * begins.
 */
uint32_t fuzz_part(struct fuzz_source *source);

/* Steps that both ends have: change one of the words of the two controls, or bytes near `frame`. */
void fuzz_poke_control(struct fuzz_source *source, const struct vgpu_rings *rings);
void fuzz_poke_bytes(struct fuzz_source *source, unsigned char *ring, uint32_t size, uint64_t position);

#endif
