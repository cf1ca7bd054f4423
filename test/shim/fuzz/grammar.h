/*
 * Frames of a guest, made from a fuzzer's input by the generated grammar (cuda_fuzz.h): sound frames of real
 * calls with odd contents, or nonsense where the input says so.
 *
 * The input is a row of records. A record begins with a u16: the call, by its place in the table, or by its
 * number in the description when it has one. Three bits of it change the record:
 *
 * - bit 15: a control call instead
 *
 * - bit 14: the next byte has the flags of the frame
 *
 * - bit 13: the next byte says how many words the body has, with one value each
 *
 * Without bit 13 there is one value for each field of the body. A value is one byte:
 *
 * - 00-7f: that number
 *
 * - 80-8f: a power of 16
 *
 * - 90-9f: an earlier answer for a field of this kind (for a name that begins with hash_: of an image)
 *
 * - a0: all bits are 1
 *
 * - a1: zero
 *
 * - else: the next 8 bytes are the value
 *
 * For a call with bulk one more byte follows:
 *
 * - 00-df: that many times 4 bytes, from the input
 *
 * - e0-ef: an image of the tree
 *
 * - f0-ff: one or more calls, one behind the other, as graphs have them
 */
#ifndef VGPU_FUZZ_GRAMMAR_H
#define VGPU_FUZZ_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_fuzz.h"
#include "wire/frame.h"

#define FUZZ_KEPT 16u

struct fuzz_source {
  const uint8_t *at;
  size_t left;
};

struct fuzz_guest {
  struct fuzz_source source;
  bool nvml;
  uint64_t sequence; /* number of the next frame */
  uint8_t counts[FUZZ_KINDS];
  uint64_t known[FUZZ_KINDS][FUZZ_KEPT]; /* answers for fields of a kind */
};

/* Reads the images that VGPU_FUZZ_IMAGES names, separated by colons. No images are fine, too. */
void fuzz_images_load(void);

uint8_t fuzz_byte(struct fuzz_source *source);
void fuzz_bytes(struct fuzz_source *source, void *to, size_t size); /* zeros after the end */

void fuzz_guest_begin(struct fuzz_guest *guest, struct fuzz_source source);

/* Makes a frame of the next record, of at most VGPU_FRAME_MAX bytes. Returns its length; 0: no more input. */
uint32_t fuzz_frame(struct fuzz_guest *guest, unsigned char *frame);

/* Makes a frame of the greeting. */
uint32_t fuzz_greeting(const struct fuzz_guest *guest, uint32_t features, unsigned char *frame);

/* Stores the values of a reply. */
void fuzz_answer(struct fuzz_guest *guest, uint32_t opcode, const unsigned char *body, uint32_t size);

#endif
