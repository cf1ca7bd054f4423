/*
 * How long each end of a ring waits awake. Prints a line for each end: the longest time in microseconds, and
 * whether it takes a turn of 100 us for a sign that another thread ran on its processor.
 */
#include <stdio.h>

#include "wire/ring.h"
#include "wire/shared.h"

enum { TURN_NS = 100000, ATTEMPTS = 200 };

/* False if one turn of 100 us is none. This thread may be preempted, too, but not in each attempt. */
static bool is_crowded(const struct vgpu_spin *spin) {
  for (int i = 0; i < ATTEMPTS; i++) {
    int64_t now = (int64_t)vgpu_now_ns();
    struct vgpu_spinning spinning = {.begun = now - TURN_NS, .last = now - TURN_NS};
    (void)vgpu_spin_clock(spin, &spinning);
    if (!spinning.crowded) return false;
  }
  return true;
}

static void print(const char *end, const struct vgpu_ring *ring) {
  struct vgpu_spin spin = ring->spin;
  const struct vgpu_spinning calm = {0};
  int64_t first = spin.limit;
  for (int i = 0; i < 4; i++) vgpu_spin_learn(&spin, &calm, true);
  int64_t shorter = spin.limit;
  for (int i = 0; i < 20; i++) vgpu_spin_learn(&spin, &calm, false);
  printf("%s: %lld us at first, %lld after waits that slept, %lld at most; 100 us %s\n", end,
         (long long)first / 1000, (long long)shorter / 1000, (long long)spin.limit / 1000,
         is_crowded(&spin) ? "are another thread" : "are nothing");
}

int main(void) {
  int memory = vgpu_shared_make("ring_patience", vgpu_rings_bytes(VGPU_RING_BYTES));
  struct vgpu_rings beside, host, guest;
  if (memory < 0 || !vgpu_rings_map(&beside, memory, 0, VGPU_RING_BYTES) ||
      !vgpu_rings_map(&host, memory, 0, VGPU_RING_BYTES) ||
      !vgpu_rings_map(&guest, memory, 0, VGPU_RING_BYTES)) {
    perror("rings");
    return 1;
  }
  vgpu_rings_across_vm(&host, false);
  vgpu_rings_across_vm(&guest, true);
  print("beside each other", &beside.requests);
  print("host of a VM", &host.requests);
  print("in a VM", &guest.replies);
  return 0;
}
