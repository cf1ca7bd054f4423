#ifndef VGPU_PTX_SPECIAL_H
#define VGPU_PTX_SPECIAL_H

/*
 * Bytes of a block's shared memory that a device of 8.0 and newer keeps for CUDA itself. Here they lie behind
 * the program's memory, and only if a kernel asks for their place.
 */
#define PTX_RESERVED_SHARED 1024u

enum ptx_special {
  SR_NONE,
  SR_TID_X,
  SR_TID_Y,
  SR_TID_Z,
  SR_NTID_X,
  SR_NTID_Y,
  SR_NTID_Z,
  SR_CTAID_X,
  SR_CTAID_Y,
  SR_CTAID_Z,
  SR_NCTAID_X,
  SR_NCTAID_Y,
  SR_NCTAID_Z,
  SR_LANEID,
  SR_WARPID,
  SR_NWARPID,
  SR_SMID,
  SR_NSMID,
  SR_GRIDID,
  SR_LANEMASK_EQ,
  SR_LANEMASK_LE,
  SR_LANEMASK_LT,
  SR_LANEMASK_GE,
  SR_LANEMASK_GT,
  SR_CLOCK,
  SR_CLOCK_HI,
  SR_CLOCK64,
  SR_GLOBALTIMER,
  SR_GLOBALTIMER_LO,
  SR_GLOBALTIMER_HI,
  SR_DYNAMIC_SMEM_SIZE,
  SR_TOTAL_SMEM_SIZE,
  SR_AGGREGATE_SMEM_SIZE,
  SR_RESERVED_BEGIN, /* of the region that cooperative groups keep their own data in */
  SR_RESERVED_END,
  SR_RESERVED_SIZE,
  SR_RESERVED_OFFSET_1, /* their tiles of several warps: 288 bytes */
  SR_CLUSTERID_X,
  SR_CLUSTERID_Y,
  SR_CLUSTERID_Z,
  SR_NCLUSTERID_X,
  SR_NCLUSTERID_Y,
  SR_NCLUSTERID_Z,
  SR_CLUSTER_CTAID_X,
  SR_CLUSTER_CTAID_Y,
  SR_CLUSTER_CTAID_Z,
  SR_CLUSTER_NCTAID_X,
  SR_CLUSTER_NCTAID_Y,
  SR_CLUSTER_NCTAID_Z,
  SR_CLUSTER_CTARANK,
  SR_CLUSTER_NCTARANK,
  SR_IS_EXPLICIT_CLUSTER,
  SR_ENVREG1,
  SR_ENVREG2,
  SR_ENVREG, /* the other ones are zero */
  SR_PM,     /* performance counters, which nobody started */
  SR_PM_64,
  SR_ZERO, /* the fourth element of %tid and others */
  SR_CURRENT_GRAPH_EXEC,
  SR_DYNAMIC_SHARED, /* our own: where the launch's dynamic shared memory begins */
  SR_COUNT
};

#endif
