#ifndef VGPU_PTX_BULK_H
#define VGPU_PTX_BULK_H

/* K_BULK: m is the operation | an enum ptx_atomic << 4 (of reductions) | an enum ptx_bulk_mode << 8. */
enum ptx_bulk {
  BULK_COPY,
  BULK_REDUCE,
  BULK_LOAD_TILE,
  BULK_STORE_TILE,
  BULK_REDUCE_TILE,
  BULK_MAP_REPLACE, /* target: field | ordinal << 8 */
  BULK_MAP_COPY,
  BULK_STORE_ASYNC, /* st.async: x_count - BULK_MORE values */
  BULK_REDUCE_ASYNC,
};
#define BULK_OPERATION(m) ((m)&15u)
#define BULK_ATOMIC(m) ((m) >> 4 & 15u)
#define BULK_MODE(m) ((m) >> 8 & 3u)

enum ptx_bulk_mode {
  MODE_TILE,
  MODE_IM2COL, /* the offsets of W, H and D follow the coordinates, 16 bits each */
  MODE_ROWS,   /* gather4, scatter4: the first column and four rows */
};

/*
 * The operands of a bulk copy in the list. Addresses are generic and have 64 bits. An operand that the
 * instruction lacks is PTX_NONE.
 */
enum ptx_bulk_operand {
  BULK_TO,
  BULK_FROM,    /* or the tensor map */
  BULK_BARRIER, /* the mbarrier that counts the bytes */
  BULK_SIZE,    /* bytes, 32 bits */
  BULK_BLOCKS,  /* a mask of the cluster's blocks, 16 bits */
  BULK_BYTES,   /* a mask of bytes within 16, 16 bits */
  BULK_MORE     /* coordinates (32 bits), values */
};

enum ptx_map_field {
  MAP_ADDRESS,
  MAP_RANK,
  MAP_BOX,
  MAP_DIM,
  MAP_STRIDE,
  MAP_STEP,
  MAP_TYPE,
  MAP_INTERLEAVE,
  MAP_SWIZZLE,
  MAP_FILL,
  MAP_ATOMICITY,
  MAP_FIELDS
};

#endif
