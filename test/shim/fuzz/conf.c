/* Fuzzes /etc/vgpu/hostd.conf. */
#include <stdlib.h>
#include <string.h>

#include "host/policy/policy.h"
#include "wire/address.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static struct vgpu_policy policy;
  char error[512] = "";
  char *copy = malloc(size == 0 ? 1 : size);
  if (copy == NULL) return 0;
  memcpy(copy, data, size);
  bool good = vgpu_policy_parse(&policy, "fuzz", copy, size, error, sizeof error);
  free(copy);
  /* A mistake is always reported, and a valid file never admits a peer that no line names. */
  if (!good && strncmp(error, "fuzz: ", 6) != 0) abort();
  struct vgpu_identity who = {
      .peer = {.kind = VGPU_ADDRESS_UNIX, .id = 1000}, .uid = 1000, .gid = 5, .pid = 7};
  const struct vgpu_rule *rule = vgpu_policy_match(&policy, &who);
  if (good && rule != NULL && rule->kind != 0 && rule->kind != VGPU_ADDRESS_UNIX) abort();
  who.peer = (struct vgpu_peer){.kind = VGPU_ADDRESS_VSOCK, .id = 3};
  vgpu_policy_match(&policy, &who);
  return 0;
}
