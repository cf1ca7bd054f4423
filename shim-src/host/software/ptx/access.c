/* Loads, stores and atomics: device memory by regions, shared and local memory by windows. */
#include <stdio.h>
#include <string.h>

#include "host/software/ptx/half.h"
#include "host/software/ptx/warp.h"

/* The addresses of all lanes. */
void ptx_addresses(const struct place *at, uint64_t *to) {
  const struct ptx_instruction *in = at->in;
  const unsigned char *base = ptx_operand(at, in->a);
  uint64_t offset = in->u.offset;
  if ((in->m & ML_NARROW) != 0) {
    const uint32_t *a = (const uint32_t *)(const void *)base;
    /* 32-bit windows wrap around within themselves */
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

static bool fault(const struct place *at, enum ptx_status status, uint32_t lane, uint64_t address,
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
    fault(at, PTX_ILLEGAL_ADDRESS, lane, address, bytes, "is outside of local memory");
    return NULL;
  }
  uint64_t thread = (uint64_t)at->warp->number * PTX_LANES + lane;
  return at->warp->block->local + thread * l->local_bytes + offset;
}

static unsigned char *in_global(const struct place *at, uint32_t lane, uint64_t address, uint32_t bytes) {
  struct ptx_region *region = &at->worker->regions[at->pc % REGION_CACHE];
  uint64_t offset = address - region->address;
  if (offset < region->size && bytes <= region->size - offset) return region->bytes + offset;
  const struct ptx_launch *launch = at->worker->launch->launch;
  struct ptx_region found;
  if (launch->find == NULL || !launch->find(launch->user, address, &found) || address < found.address ||
      address - found.address >= found.size || bytes > found.size - (address - found.address)) {
    fault(at, PTX_ILLEGAL_ADDRESS, lane, address, bytes, "is outside of device memory");
    return NULL;
  }
  *region = found;
  return found.bytes + (address - found.address);
}

unsigned char *ptx_resolve(const struct place *at, enum ptx_space space, uint32_t lane, uint64_t address,
                           uint32_t bytes) {
  if ((address & (bytes - 1)) != 0) {
    fault(at, PTX_MISALIGNED_ADDRESS, lane, address, bytes, "is not aligned");
    return NULL;
  }
  uint64_t offset = address;
  if (space == S_GENERIC) {
    if (address - PTX_SHARED_WINDOW < PTX_WINDOW_SIZE) {
      space = S_SHARED;
      offset = address - PTX_SHARED_WINDOW;
    } else if (address - PTX_LOCAL_WINDOW < PTX_WINDOW_SIZE) {
      space = S_LOCAL;
      offset = address - PTX_LOCAL_WINDOW;
    } else if (address - PTX_PARAM_WINDOW < PTX_WINDOW_SIZE) {
      space = S_PARAM;
      offset = address - PTX_PARAM_WINDOW;
    } else {
      space = S_GLOBAL;
    }
  }
  struct launch_state *l = at->worker->launch;
  switch (space) {
    case S_SHARED:
      if (offset > l->shared_bytes || bytes > l->shared_bytes - offset) {
        fault(at, PTX_ILLEGAL_ADDRESS, lane, address, bytes, "is outside of the block's shared memory");
        return NULL;
      }
      return at->warp->block->shared + offset;
    case S_LOCAL:
      return in_local(at, lane, offset, bytes, address);
    case S_PARAM:
      if (offset > l->info->parameter_bytes || bytes > l->info->parameter_bytes - offset ||
          at->in->kind != K_LOAD) {
        fault(at, PTX_ILLEGAL_ADDRESS, lane, address, bytes, "is outside of the parameters");
        return NULL;
      }
      return (unsigned char *)(uintptr_t)l->launch->parameters + offset;
    default:
      return in_global(at, lane, address, bytes);
  }
}

/* Bytes of all lanes' memory when one piece of memory holds them all, aligned; NULL: look at them one by one.
 */
static unsigned char *all_in_one(const struct place *at, enum ptx_space space, const uint64_t *address,
                                 uint32_t mask, uint32_t bytes, uint64_t *start) {
  if (space == S_LOCAL || space == S_PARAM) return NULL;
  uint64_t base, size;
  unsigned char *memory;
  uint32_t first = (uint32_t)__builtin_ctz(mask);
  if (space == S_SHARED) {
    base = 0;
    size = at->worker->launch->shared_bytes;
    memory = at->warp->block->shared;
  } else {
    if (space == S_GENERIC && address[first] - PTX_SHARED_WINDOW < PTX_WINDOW_SIZE) {
      base = PTX_SHARED_WINDOW;
      size = at->worker->launch->shared_bytes;
      memory = at->warp->block->shared;
    } else if (space == S_GENERIC && address[first] - PTX_LOCAL_WINDOW < 2 * PTX_WINDOW_SIZE) {
      return NULL;
    } else {
      struct ptx_region *region = &at->worker->regions[at->pc % REGION_CACHE];
      if (address[first] - region->address >= region->size) {
        const struct ptx_launch *launch = at->worker->launch->launch;
        struct ptx_region found;
        if (launch->find == NULL || !launch->find(launch->user, address[first], &found)) return NULL;
        *region = found;
      }
      base = region->address;
      size = region->size;
      memory = region->bytes;
    }
  }
  if (size < bytes) return NULL;
  uint64_t limit = size - bytes;
  *start = base;
  if (mask == FULL) {
    uint64_t bad = 0, odd = 0;
    for (int i = 0; i < PTX_LANES; i++) {
      bad |= (uint64_t)(address[i] - base > limit);
      odd |= address[i];
    }
    return bad != 0 || (odd & (bytes - 1)) != 0 ? NULL : memory;
  }
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    uint64_t a = address[__builtin_ctz(left)];
    if (a - base > limit || (a & (bytes - 1)) != 0) return NULL;
  }
  return memory;
}

static uint64_t extended(const unsigned char *from, uint32_t bytes, bool is_signed) {
  uint64_t value = 0;
  memcpy(&value, from, bytes);
  if (is_signed && bytes < 8) {
    uint32_t shift = 64 - bytes * 8;
    value = (uint64_t)((int64_t)(value << shift) >> shift);
  }
  return value;
}

static void load_element(const struct place *at, unsigned char *d, uint32_t lane, const unsigned char *from) {
  const struct ptx_instruction *in = at->in;
  uint32_t held = ML_REGISTER(in->m);
  uint64_t value = extended(from, in->size, (in->m & ML_SIGNED) != 0);
  memcpy(d + lane * held, &value, held);
}

/* Whether lane i is at a + i * step. */
static inline bool strided(const uint64_t *address, uint64_t step) {
  uint64_t wrong = 0;
  for (int i = 0; i < PTX_LANES; i++) wrong |= address[i] - address[0] - (uint64_t)i * step;
  return wrong == 0;
}

/* The frequent cases: all lanes in one piece of memory, elements as wide as the registers. */
static void load_words(const struct place *at, const uint64_t *address, uint64_t base,
                       const unsigned char *memory) {
  const struct ptx_instruction *in = at->in;
  const uint32_t *x = at->split->frame->function->x + in->x;
  uint32_t count = in->x_count;
  if (count == 1 && strided(address, in->size)) {
    memcpy(at->registers + (x[0] & ~3u), memory + (address[0] - base), in->size * PTX_LANES);
    return;
  }
  for (uint32_t k = 0; k < count; k++) {
    unsigned char *to = at->registers + (x[k] & ~3u);
    const unsigned char *from = memory + k * in->size;
    if (in->size == 4) {
      uint32_t *d = (uint32_t *)(void *)to;
      for (int i = 0; i < PTX_LANES; i++) memcpy(&d[i], from + (address[i] - base), 4);
    } else if (in->size == 8) {
      uint64_t *d = (uint64_t *)(void *)to;
      for (int i = 0; i < PTX_LANES; i++) memcpy(&d[i], from + (address[i] - base), 8);
    } else {
      uint16_t *d = (uint16_t *)(void *)to;
      for (int i = 0; i < PTX_LANES; i++) memcpy(&d[i], from + (address[i] - base), 2);
    }
  }
}

bool ptx_load(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  const uint32_t *x = at->split->frame->function->x + in->x;
  uint32_t count = in->x_count, bytes = in->size * count, held = ML_REGISTER(in->m);
  uint64_t address[PTX_LANES], base = 0;
  ptx_addresses(at, address);
  const unsigned char *memory = all_in_one(at, in->space, address, mask, bytes, &base);
  if (memory != NULL) {
    if (mask == FULL && held == in->size) {
      load_words(at, address, base, memory);
      return true;
    }
    for (uint32_t k = 0; k < count; k++) {
      unsigned char *d = at->registers + (x[k] & ~3u);
      for (uint32_t left = mask; left != 0; left &= left - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(left);
        load_element(at, d, lane, memory + (address[lane] - base) + k * in->size);
      }
    }
    return true;
  }
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left);
    const unsigned char *from = ptx_resolve(at, in->space, lane, address[lane], bytes);
    if (from == NULL) return false;
    for (uint32_t k = 0; k < count; k++)
      load_element(at, at->registers + (x[k] & ~3u), lane, from + k * in->size);
  }
  return true;
}

bool ptx_store(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  const uint32_t *x = at->split->frame->function->x + in->x;
  uint32_t count = in->x_count, bytes = in->size * count, held = ML_REGISTER(in->m);
  uint64_t address[PTX_LANES], base = 0;
  ptx_addresses(at, address);
  unsigned char *memory = all_in_one(at, in->space, address, mask, bytes, &base);
  if (memory != NULL) {
    if (mask == FULL && count == 1 && held == in->size && strided(address, in->size)) {
      memcpy(memory + (address[0] - base), ptx_operand(at, x[0]), in->size * PTX_LANES);
      return true;
    }
    for (uint32_t left = mask; left != 0; left &= left - 1) {
      uint32_t lane = (uint32_t)__builtin_ctz(left);
      unsigned char *to = memory + (address[lane] - base);
      for (uint32_t k = 0; k < count; k++) {
        const unsigned char *from = ptx_operand(at, x[k]) + lane * held;
        switch (in->size) {
          case 1:
            to[k] = *from;
            break;
          case 2:
            memcpy(to + k * 2, from, 2);
            break;
          case 4:
            memcpy(to + k * 4, from, 4);
            break;
          default:
            memcpy(to + k * 8, from, 8);
            break;
        }
      }
    }
    return true;
  }
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left);
    unsigned char *to = ptx_resolve(at, in->space, lane, address[lane], bytes);
    if (to == NULL) return false;
    for (uint32_t k = 0; k < count; k++)
      memcpy(to + k * in->size, ptx_operand(at, x[k]) + lane * held, in->size);
  }
  return true;
}

bool ptx_copy_async(const struct place *at, uint32_t mask) {
  const struct ptx_instruction *in = at->in;
  uint64_t to[PTX_LANES];
  ptx_addresses(at, to);
  const unsigned char *from = ptx_operand(at, in->b), *have = ptx_operand(at, in->c);
  uint32_t ignored = 0;
  if (in->x_count > 0) memcpy(&ignored, ptx_operand(at, at->split->frame->function->x[in->x]), 4);
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left);
    unsigned char *d = ptx_resolve(at, S_SHARED, lane, to[lane], in->size);
    if (d == NULL) return false;
    uint32_t bytes = in->size;
    if (in->c != PTX_NONE) {
      memcpy(&bytes, have + lane * 4, 4);
      if (bytes > in->size) bytes = in->size;
    }
    if ((ignored >> lane & 1) != 0) bytes = 0;
    uint64_t address;
    memcpy(&address, from + lane * 8, 8);
    address += (uint64_t)(int64_t)(int32_t)in->target;
    memset(d, 0, in->size);
    if (bytes == 0) continue;
    if ((address & (in->size - 1u)) != 0) {
      fault(at, PTX_MISALIGNED_ADDRESS, lane, address, in->size, "is not aligned");
      return false;
    }
    const unsigned char *s = in_global(at, lane, address, bytes);
    if (s == NULL) return false;
    memcpy(d, s, bytes);
  }
  return true;
}

void ptx_blend(void *d, const void *from, uint32_t mask, uint32_t bytes) {
  switch (bytes) {
    case 2: {
      uint16_t *to = d;
      const uint16_t *s = from;
      for (int i = 0; i < PTX_LANES; i++) to[i] = (mask >> i & 1) != 0 ? s[i] : to[i];
      break;
    }
    case 4: {
      uint32_t *to = d;
      const uint32_t *s = from;
      for (int i = 0; i < PTX_LANES; i++) to[i] = (mask >> i & 1) != 0 ? s[i] : to[i];
      break;
    }
    default: {
      uint64_t *to = d;
      const uint64_t *s = from;
      for (int i = 0; i < PTX_LANES; i++) to[i] = (mask >> i & 1) != 0 ? s[i] : to[i];
      break;
    }
  }
}
