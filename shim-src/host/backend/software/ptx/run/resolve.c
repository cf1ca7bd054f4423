/* Device memory by regions, shared and local memory by windows. */
#include <stdio.h>

#include "host/backend/software/ptx/run/check.h"
#include "host/backend/software/ptx/run/warp.h"

void ptx_addresses(const struct place *at, uint64_t *to) {
  const struct ptx_instruction *in = at->in;
  const unsigned char *base = ptx_operand(at, in->a);
  uint64_t offset = in->u.offset;
  if ((in->m & ML_NARROW) != 0) {
    const uint32_t *a = (const uint32_t *)(const void *)base;
    /* 32-bit windows wrap around */
    if ((offset >> 32) == 0 || (offset >> 32) == 0xffffffff) {
      for (int i = 0; i < PTX_LANES; i++) to[i] = (uint32_t)(a[i] + (uint32_t)offset);
    } else {
      for (int i = 0; i < PTX_LANES; i++) to[i] = a[i] + offset;
    }
  } else {
    const uint64_t *a = (const uint64_t *)(const void *)base;
    for (int i = 0; i < PTX_LANES; i++) to[i] = a[i] + offset;
  }
}

bool ptx_refuse_access(const struct place *at, enum ptx_status status, uint32_t lane, uint64_t address,
                       uint32_t bytes, const char *where) {
  char text[120];
  snprintf(text, sizeof text, "%s of %u bytes at 0x%llx %s",
           at->in->kind == K_STORE ? "a write" : "an access", bytes, (unsigned long long)address, where);
  ptx_raise(at, status, lane, address, text);
  return false;
}

static unsigned char *in_local(const struct place *at, uint32_t lane, uint64_t offset, uint32_t bytes,
                               uint64_t address) {
  struct launch_state *l = at->worker->launch;
  if (offset > l->local_bytes || bytes > l->local_bytes - offset) {
    ptx_refuse_access(at, PTX_ILLEGAL_ADDRESS, lane, address, bytes, "is outside of local memory");
    return NULL;
  }
  uint64_t thread = (uint64_t)at->warp->number * PTX_LANES + lane;
  if (at->warp->block->check != NULL) ptx_check_local(at, lane, thread * l->local_bytes + offset, bytes);
  return at->warp->block->local + thread * l->local_bytes + offset;
}

unsigned char *ptx_in_global(const struct place *at, uint32_t lane, uint64_t address, uint32_t bytes) {
  struct ptx_region *region = &at->worker->regions[at->pc % PTX_REGION_CACHE];
  uint64_t offset = address - region->address;
  if (offset >= region->size || bytes > region->size - offset) {
    const struct ptx_launch *launch = at->worker->launch->launch;
    struct ptx_region found = {0};
    if (launch->find == NULL || !launch->find(launch->user, address, &found) || address < found.address ||
        address - found.address >= found.size || bytes > found.size - (address - found.address)) {
      ptx_refuse_access(at, PTX_ILLEGAL_ADDRESS, lane, address, bytes, "is outside of device memory");
      return NULL;
    }
    *region = found;
    offset = address - found.address;
  }
  if (at->warp->block->check != NULL)
    ptx_check_global(at, lane, address, bytes, region->written == NULL ? NULL : region->written + offset);
  return region->bytes + offset;
}

unsigned char *ptx_resolve(const struct place *at, enum ptx_space space, uint32_t lane, uint64_t address,
                           uint32_t bytes) {
  if ((address & (bytes - 1)) != 0) {
    ptx_refuse_access(at, PTX_MISALIGNED_ADDRESS, lane, address, bytes, "is not aligned");
    return NULL;
  }
  uint64_t base = 0;
  if (space == S_GENERIC) space = ptx_space_of(address, &base);
  uint64_t offset = address - base;
  struct launch_state *l = at->worker->launch;
  switch (space) {
    case S_SHARED: {
      struct block *block = ptx_shared_block(at, &offset);
      if (block == NULL || offset > l->shared_bytes || bytes > l->shared_bytes - offset) {
        ptx_refuse_access(at, PTX_ILLEGAL_ADDRESS, lane, address, bytes,
                          "is outside of the block's shared memory");
        return NULL;
      }
      if (block->check != NULL) ptx_check_shared(at, block, lane, offset, bytes);
      return block->shared + offset;
    }
    case S_LOCAL:
      return in_local(at, lane, offset, bytes, address);
    case S_PARAM:
      if (offset > l->info->parameter_bytes || bytes > l->info->parameter_bytes - offset ||
          at->in->kind != K_LOAD) {
        ptx_refuse_access(at, PTX_ILLEGAL_ADDRESS, lane, address, bytes, "is outside of the parameters");
        return NULL;
      }
      return (unsigned char *)(uintptr_t)l->launch->parameters + offset;
    default:
      return ptx_in_global(at, lane, address, bytes);
  }
}
