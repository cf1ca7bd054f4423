/*
 * The state of this library's connection to its host, as codes. vgpu-probe reads it through a private table
 * of cuGetExportTable (docs/reference/private-tables.md). VGPU_LOG has the same in words.
 */
#ifndef VGPU_GUEST_TRANSPORT_H
#define VGPU_GUEST_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/frame.h"

/* Id of the table: slot 0 is its size in bytes, slot 1 a vgpu_transport_tell. */
#define VGPU_TRANSPORT_TABLE                                                                                 \
  { 0x5e, 0x0c, 0x1b, 0x7a, 0x92, 0x4d, 0x4f, 0x36, 0xa1, 0x08, 0x3d, 0xe6, 0x77, 0x20, 0xc9, 0x4b }
#define VGPU_TRANSPORT_TABLE_BYTES (2 * sizeof(uintptr_t))

/* The answer of the table. Later versions append members; `size` is the number of valid bytes. */
struct vgpu_transport_word {
  uint32_t size;
  uint32_t code;      /* enum vgpu_transport */
  int32_t error;      /* errno, where the code is that of a failed connect() or open(); else 0 */
  int32_t status;     /* the host's answer: enum vgpu_status; else 0 */
  int32_t guest_wire; /* the major version that this library speaks */
  int32_t host_wire;  /* the major version of the host; -1: not known */
  char host[64];      /* the name that the host reports, "vgpu-hostd 0.1.0 software"; empty: none */
  char message[256];  /* the same as a sentence, for people */
  uint32_t carrier;   /* enum vgpu_carrier; valid while there is a session */
  char address[160];  /* of the host with the session; empty: none */
  char tried[1024];   /* of a list without a session: each address, and why; else empty */
};
_Static_assert(sizeof(struct vgpu_transport_word) == 1532, "transport word");

/* Fills at most `size` bytes of *word. Returns a CUresult. */
typedef int vgpu_transport_tell(struct vgpu_transport_word *word, size_t size);

/*
 * These functions record the events while a session is made. The caller holds the process's lock. A failure
 * also goes to VGPU_LOG, as "no host: " and the sentence. The failures of a list of hosts go there in one
 * line, when its last host has failed or another one is used.
 */
void vgpu_transport_begin(void);
void vgpu_transport_several(void);
void vgpu_transport_met(const struct vgpu_welcome *welcome);
void vgpu_transport_carried(enum vgpu_carrier carrier, const char *address);
__attribute__((format(printf, 4, 5))) void vgpu_transport_failed(enum vgpu_transport code, int error,
                                                                 int32_t status, const char *format, ...);

/*
 * Call this after the failure of the host at `address` of a list was recorded. With `none_left` the state
 * becomes that of the host that got furthest, and the sentence names each host.
 */
void vgpu_transport_tried(const char *address, bool none_left);

/* Returns the last recorded state. The caller holds the process's lock. */
const struct vgpu_transport_word *vgpu_transport_last(void);

#endif
