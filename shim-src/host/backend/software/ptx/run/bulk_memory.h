#ifndef VGPU_PTX_BULK_MEMORY_H
#define VGPU_PTX_BULK_MEMORY_H

#include "host/backend/software/ptx/run/check.h"
#include "host/backend/software/ptx/run/warp.h"

/* Returns a lane's operand (`index`: enum ptx_bulk_operand); 0 if the instruction lacks it. */
uint64_t ptx_bulk_operand(const struct place *at, uint32_t index, uint32_t lane, uint32_t bytes);
bool ptx_bulk_has(const struct place *at, uint32_t index);
/* Returns `bytes` at a generic address; NULL: a fault was raised. */
unsigned char *ptx_bulk_memory(const struct place *at, uint32_t lane, uint64_t address, uint64_t bytes,
                               bool writes);
/* Raises a fault if `value` is not a multiple. */
bool ptx_bulk_aligned(const struct place *at, uint32_t lane, uint64_t value, uint32_t alignment,
                      const char *what);
/*
 * Tells the mbarrier at the generic address `barrier` that this many bytes have arrived. False: a fault was
 * raised.
 */
bool ptx_bulk_complete(const struct place *at, uint32_t lane, uint64_t barrier, uint64_t bytes);
/* Combines each element of `to` with that of `from`, by size, type and m of `as`. */
void ptx_bulk_reduce(const struct ptx_instruction *as, unsigned char *to, const unsigned char *from,
                     uint64_t bytes);
/* tensor.c: copies by tensor maps. */
bool ptx_tensor(const struct place *at, uint32_t lane);
/* tensor_fields.c: changes of maps. */
bool ptx_map_replace(const struct place *at, uint32_t lane);
bool ptx_map_copy(const struct place *at, uint32_t lane);

#endif
