#include "fuzz/grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/sha256.h"

static struct image {
  unsigned char *bytes;
  uint32_t size;
  uint64_t hash[4];
} images[FUZZ_KEPT];
static uint32_t image_count;

static void load(const char *name) {
  FILE *file = fopen(name, "rb");
  if (file == NULL || image_count == FUZZ_KEPT) {
    fprintf(stderr, "no image %s\n", name);
    exit(2);
  }
  struct image *image = &images[image_count++];
  image->bytes = malloc(VGPU_BULK_MAX);
  image->size = image->bytes == NULL ? 0 : (uint32_t)fread(image->bytes, 1, VGPU_BULK_MAX, file);
  fclose(file);
  struct vgpu_hash hash;
  vgpu_sha256(image->bytes, image->size, &hash);
  memcpy(image->hash, &hash, sizeof image->hash);
}

void fuzz_images_load(void) {
  const char *names = getenv("VGPU_FUZZ_IMAGES");
  while (names != NULL && *names != '\0') {
    char name[4096];
    size_t length = strcspn(names, ":");
    snprintf(name, sizeof name, "%.*s", (int)length, names);
    load(name);
    names += length + (names[length] == ':');
  }
}

uint8_t fuzz_byte(struct fuzz_source *source) {
  if (source->left == 0) return 0;
  source->left--;
  return *source->at++;
}

void fuzz_bytes(struct fuzz_source *source, void *to, size_t size) {
  memset(to, 0, size);
  size_t step = size < source->left ? size : source->left;
  if (step > 0) memcpy(to, source->at, step);
  source->at += step;
  source->left -= step;
}

void fuzz_guest_begin(struct fuzz_guest *guest, struct fuzz_source source) {
  *guest = (struct fuzz_guest){.source = source};
  static const uint8_t hashes[] = {FUZZ_KIND_hash_0, FUZZ_KIND_hash_1, FUZZ_KIND_hash_2, FUZZ_KIND_hash_3};
  for (uint32_t i = 0; i < image_count; i++) {
    for (uint32_t word = 0; word < 4; word++) guest->known[hashes[word]][i] = images[i].hash[word];
    guest->known[FUZZ_KIND_image_bytes][i] = images[i].size;
  }
}

static uint64_t value(struct fuzz_guest *guest, uint32_t kind) {
  uint8_t how = fuzz_byte(&guest->source);
  uint64_t bits;
  if (how < 0x80) return how;
  if (how < 0x90) return 1ull << 4 * (how & 15);
  if (how < 0xa0) return guest->known[kind][how & 15];
  if (how == 0xa0) return UINT64_MAX;
  if (how == 0xa1) return 0;
  fuzz_bytes(&guest->source, &bits, sizeof bits);
  return bits;
}

static const struct fuzz_call *find(uint32_t which) {
  for (uint32_t i = 0; i < fuzz_call_count; i++) {
    if (fuzz_calls[i].opcode == (VGPU_OP_CUDA | which)) return &fuzz_calls[i];
  }
  return &fuzz_calls[which % fuzz_call_count];
}

static void put_fields(struct fuzz_guest *guest, const struct fuzz_call *call, unsigned char *to) {
  memset(to, 0, call->send_size);
  for (uint32_t i = 0; i < call->send_count; i++) {
    const struct fuzz_field *field = &call->send[i];
    uint64_t bits = value(guest, field->kind);
    memcpy(to + field->offset, &bits, field->bytes);
  }
}

static uint32_t put_words(struct fuzz_guest *guest, uint32_t words, unsigned char *to) {
  for (uint32_t i = 0; i < words; i++) {
    uint64_t bits = value(guest, FUZZ_KIND_context);
    memcpy(to + (size_t)i * 8, &bits, 8);
  }
  return words * 8;
}

static uint32_t put_plain(struct fuzz_guest *guest, uint32_t size, unsigned char *to) {
  if (size > guest->source.left) size = (uint32_t)guest->source.left;
  fuzz_bytes(&guest->source, to, size);
  return size;
}

/* Writes calls one after the other, as the nodes of a graph are sent. */
static uint32_t put_nodes(struct fuzz_guest *guest, uint32_t count, unsigned char *to) {
  uint32_t size = 0;
  for (uint32_t i = 0; i < count && guest->source.left > 0; i++) {
    uint32_t which = fuzz_byte(&guest->source);
    which |= (uint32_t)fuzz_byte(&guest->source) << 8;
    const struct fuzz_call *call = find(which & 0x1fff);
    uint32_t head[4] = {call->opcode, call->send_size, 0, 0};
    unsigned char *body = to + size + sizeof head;
    put_fields(guest, call, body);
    head[2] = put_plain(guest, (fuzz_byte(&guest->source) & 0x3fu) * 4, body + call->send_size);
    if ((which & 0x4000) != 0) head[fuzz_byte(&guest->source) & 3] = fuzz_byte(&guest->source);
    memcpy(to + size, head, sizeof head);
    size += (uint32_t)sizeof head + ((call->send_size + head[2] + 7u) & ~7u);
  }
  return size;
}

static uint32_t put_bulk(struct fuzz_guest *guest, unsigned char *to) {
  uint8_t how = fuzz_byte(&guest->source);
  if (how < 0xe0) return put_plain(guest, how * 4u, to);
  if (how >= 0xf0) return put_nodes(guest, (how & 15u) + 1, to);
  const struct image *image = &images[how & 15];
  if (image->size > 0) memcpy(to, image->bytes, image->size);
  return image->size;
}

uint32_t fuzz_frame(struct fuzz_guest *guest, unsigned char *to) {
  if (guest->source.left == 0) return 0;
  uint32_t which = fuzz_byte(&guest->source);
  which |= (uint32_t)fuzz_byte(&guest->source) << 8;
  bool control = (which & 0x8000) != 0 || guest->nvml;
  const struct fuzz_call *call = control ? NULL : find(which & 0x1fff);
  struct vgpu_frame frame = {.sequence = guest->sequence++};
  const uint32_t plain = (which & 8) != 0 ? (uint32_t)VGPU_OP_DEVICE_QUERY : which & 7;
  frame.opcode = call == NULL ? plain : call->opcode;
  frame.flags = call != NULL && call->oneway ? VGPU_FLAG_ONEWAY : 0;
  if ((which & 0x4000) != 0) frame.flags = fuzz_byte(&guest->source);
  unsigned char *body = to + sizeof frame;
  if ((which & 0x2000) != 0) {
    frame.body = put_words(guest, fuzz_byte(&guest->source) % 64, body);
  } else if (call == NULL) {
    const uint32_t words = frame.opcode == VGPU_OP_PING ? 0 : frame.opcode == VGPU_OP_DEVICE_QUERY ? 7 : 1;
    frame.body = put_words(guest, words, body);
  } else {
    frame.body = call->send_size;
    put_fields(guest, call, body);
  }
  /* Only a frame that is odd in other ways has bulk for a call without bulk. */
  bool bulk = call == NULL || call->bulk_in || call->raw_in || (which & 0x6000) != 0;
  frame.bulk = bulk ? put_bulk(guest, body + frame.body) : 0;
  frame.length = vgpu_frame_length(frame.body, frame.bulk);
  memset(body + frame.body + frame.bulk, 0, frame.length - sizeof frame - frame.body - frame.bulk);
  memcpy(to, &frame, sizeof frame);
  return frame.length;
}

uint32_t fuzz_greeting(const struct fuzz_guest *guest, uint32_t features, unsigned char *to) {
  struct vgpu_hello hello = {.magic = VGPU_WIRE_MAGIC,
                             .major = VGPU_WIRE_MAJOR,
                             .frame_max = VGPU_FRAME_MAX,
                             .features = features,
                             .library = guest->nvml ? VGPU_LIBRARY_NVML : VGPU_LIBRARY_CUDA,
                             .pid = 1};
  struct vgpu_frame frame = {
      .length = vgpu_frame_length(sizeof hello, 0), .opcode = VGPU_OP_HELLO, .body = sizeof hello};
  memcpy(to, &frame, sizeof frame);
  memcpy(to + sizeof frame, &hello, sizeof hello);
  return frame.length;
}

void fuzz_answer(struct fuzz_guest *guest, uint32_t opcode, const unsigned char *body, uint32_t size) {
  if ((opcode & VGPU_OP_RANGE_MASK) != VGPU_OP_CUDA) return;
  const struct fuzz_call *call = find(opcode & 0xffff);
  for (uint32_t i = 0; i < call->reply_count; i++) {
    const struct fuzz_field *field = &call->reply[i];
    if (call->opcode != opcode || field->offset + field->bytes > size) return;
    uint64_t bits = 0;
    memcpy(&bits, body + field->offset, field->bytes);
    guest->known[field->kind][guest->counts[field->kind]++ % FUZZ_KEPT] = bits;
  }
}
