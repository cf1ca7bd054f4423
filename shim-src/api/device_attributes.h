/*
 * Names and numbers of CUdevice_attribute, as device profiles have them: the driver API's name without
 * CU_DEVICE_ATTRIBUTE_. Attributes that are marked DERIVED come from the fields compute, pci and memory of a
 * profile.
 */
#ifndef VGPU_API_DEVICE_ATTRIBUTES_H
#define VGPU_API_DEVICE_ATTRIBUTES_H

#define VGPU_ATTRIBUTES(KNOWN, DERIVED)                                                                      \
  KNOWN(1, MAX_THREADS_PER_BLOCK)                                                                            \
  KNOWN(2, MAX_BLOCK_DIM_X)                                                                                  \
  KNOWN(3, MAX_BLOCK_DIM_Y)                                                                                  \
  KNOWN(4, MAX_BLOCK_DIM_Z)                                                                                  \
  KNOWN(5, MAX_GRID_DIM_X)                                                                                   \
  KNOWN(6, MAX_GRID_DIM_Y)                                                                                   \
  KNOWN(7, MAX_GRID_DIM_Z)                                                                                   \
  KNOWN(8, MAX_SHARED_MEMORY_PER_BLOCK)                                                                      \
  KNOWN(9, TOTAL_CONSTANT_MEMORY)                                                                            \
  KNOWN(10, WARP_SIZE)                                                                                       \
  KNOWN(11, MAX_PITCH)                                                                                       \
  KNOWN(12, MAX_REGISTERS_PER_BLOCK)                                                                         \
  KNOWN(13, CLOCK_RATE)                                                                                      \
  KNOWN(14, TEXTURE_ALIGNMENT)                                                                               \
  KNOWN(15, GPU_OVERLAP)                                                                                     \
  KNOWN(16, MULTIPROCESSOR_COUNT)                                                                            \
  KNOWN(17, KERNEL_EXEC_TIMEOUT)                                                                             \
  KNOWN(18, INTEGRATED)                                                                                      \
  KNOWN(19, CAN_MAP_HOST_MEMORY)                                                                             \
  KNOWN(20, COMPUTE_MODE)                                                                                    \
  KNOWN(21, MAXIMUM_TEXTURE1D_WIDTH)                                                                         \
  KNOWN(22, MAXIMUM_TEXTURE2D_WIDTH)                                                                         \
  KNOWN(23, MAXIMUM_TEXTURE2D_HEIGHT)                                                                        \
  KNOWN(24, MAXIMUM_TEXTURE3D_WIDTH)                                                                         \
  KNOWN(25, MAXIMUM_TEXTURE3D_HEIGHT)                                                                        \
  KNOWN(26, MAXIMUM_TEXTURE3D_DEPTH)                                                                         \
  KNOWN(27, MAXIMUM_TEXTURE2D_LAYERED_WIDTH)                                                                 \
  KNOWN(28, MAXIMUM_TEXTURE2D_LAYERED_HEIGHT)                                                                \
  KNOWN(29, MAXIMUM_TEXTURE2D_LAYERED_LAYERS)                                                                \
  KNOWN(30, SURFACE_ALIGNMENT)                                                                               \
  KNOWN(31, CONCURRENT_KERNELS)                                                                              \
  KNOWN(32, ECC_ENABLED)                                                                                     \
  DERIVED(33, PCI_BUS_ID)                                                                                    \
  DERIVED(34, PCI_DEVICE_ID)                                                                                 \
  KNOWN(35, TCC_DRIVER)                                                                                      \
  KNOWN(36, MEMORY_CLOCK_RATE)                                                                               \
  KNOWN(37, GLOBAL_MEMORY_BUS_WIDTH)                                                                         \
  KNOWN(38, L2_CACHE_SIZE)                                                                                   \
  KNOWN(39, MAX_THREADS_PER_MULTIPROCESSOR)                                                                  \
  KNOWN(40, ASYNC_ENGINE_COUNT)                                                                              \
  KNOWN(41, UNIFIED_ADDRESSING)                                                                              \
  KNOWN(42, MAXIMUM_TEXTURE1D_LAYERED_WIDTH)                                                                 \
  KNOWN(43, MAXIMUM_TEXTURE1D_LAYERED_LAYERS)                                                                \
  KNOWN(44, CAN_TEX2D_GATHER)                                                                                \
  KNOWN(45, MAXIMUM_TEXTURE2D_GATHER_WIDTH)                                                                  \
  KNOWN(46, MAXIMUM_TEXTURE2D_GATHER_HEIGHT)                                                                 \
  KNOWN(47, MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE)                                                               \
  KNOWN(48, MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE)                                                              \
  KNOWN(49, MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE)                                                               \
  DERIVED(50, PCI_DOMAIN_ID)                                                                                 \
  KNOWN(51, TEXTURE_PITCH_ALIGNMENT)                                                                         \
  KNOWN(52, MAXIMUM_TEXTURECUBEMAP_WIDTH)                                                                    \
  KNOWN(53, MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH)                                                            \
  KNOWN(54, MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS)                                                           \
  KNOWN(55, MAXIMUM_SURFACE1D_WIDTH)                                                                         \
  KNOWN(56, MAXIMUM_SURFACE2D_WIDTH)                                                                         \
  KNOWN(57, MAXIMUM_SURFACE2D_HEIGHT)                                                                        \
  KNOWN(58, MAXIMUM_SURFACE3D_WIDTH)                                                                         \
  KNOWN(59, MAXIMUM_SURFACE3D_HEIGHT)                                                                        \
  KNOWN(60, MAXIMUM_SURFACE3D_DEPTH)                                                                         \
  KNOWN(61, MAXIMUM_SURFACE1D_LAYERED_WIDTH)                                                                 \
  KNOWN(62, MAXIMUM_SURFACE1D_LAYERED_LAYERS)                                                                \
  KNOWN(63, MAXIMUM_SURFACE2D_LAYERED_WIDTH)                                                                 \
  KNOWN(64, MAXIMUM_SURFACE2D_LAYERED_HEIGHT)                                                                \
  KNOWN(65, MAXIMUM_SURFACE2D_LAYERED_LAYERS)                                                                \
  KNOWN(66, MAXIMUM_SURFACECUBEMAP_WIDTH)                                                                    \
  KNOWN(67, MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH)                                                            \
  KNOWN(68, MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS)                                                           \
  KNOWN(69, MAXIMUM_TEXTURE1D_LINEAR_WIDTH)                                                                  \
  KNOWN(70, MAXIMUM_TEXTURE2D_LINEAR_WIDTH)                                                                  \
  KNOWN(71, MAXIMUM_TEXTURE2D_LINEAR_HEIGHT)                                                                 \
  KNOWN(72, MAXIMUM_TEXTURE2D_LINEAR_PITCH)                                                                  \
  KNOWN(73, MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH)                                                               \
  KNOWN(74, MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT)                                                              \
  DERIVED(75, COMPUTE_CAPABILITY_MAJOR)                                                                      \
  DERIVED(76, COMPUTE_CAPABILITY_MINOR)                                                                      \
  KNOWN(77, MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH)                                                               \
  KNOWN(78, STREAM_PRIORITIES_SUPPORTED)                                                                     \
  KNOWN(79, GLOBAL_L1_CACHE_SUPPORTED)                                                                       \
  KNOWN(80, LOCAL_L1_CACHE_SUPPORTED)                                                                        \
  KNOWN(81, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)                                                            \
  KNOWN(82, MAX_REGISTERS_PER_MULTIPROCESSOR)                                                                \
  KNOWN(83, MANAGED_MEMORY)                                                                                  \
  KNOWN(84, MULTI_GPU_BOARD)                                                                                 \
  KNOWN(85, MULTI_GPU_BOARD_GROUP_ID)                                                                        \
  KNOWN(86, HOST_NATIVE_ATOMIC_SUPPORTED)                                                                    \
  KNOWN(87, SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO)                                                           \
  KNOWN(88, PAGEABLE_MEMORY_ACCESS)                                                                          \
  KNOWN(89, CONCURRENT_MANAGED_ACCESS)                                                                       \
  KNOWN(90, COMPUTE_PREEMPTION_SUPPORTED)                                                                    \
  KNOWN(91, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM)                                                         \
  KNOWN(92, CAN_USE_STREAM_MEM_OPS_V1)                                                                       \
  KNOWN(93, CAN_USE_64_BIT_STREAM_MEM_OPS_V1)                                                                \
  KNOWN(94, CAN_USE_STREAM_WAIT_VALUE_NOR_V1)                                                                \
  KNOWN(95, COOPERATIVE_LAUNCH)                                                                              \
  KNOWN(96, COOPERATIVE_MULTI_DEVICE_LAUNCH)                                                                 \
  KNOWN(97, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)                                                               \
  KNOWN(98, CAN_FLUSH_REMOTE_WRITES)                                                                         \
  KNOWN(99, HOST_REGISTER_SUPPORTED)                                                                         \
  KNOWN(100, PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES)                                                   \
  KNOWN(101, DIRECT_MANAGED_MEM_ACCESS_FROM_HOST)                                                            \
  KNOWN(102, VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)                                                            \
  KNOWN(103, HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)                                                    \
  KNOWN(104, HANDLE_TYPE_WIN32_HANDLE_SUPPORTED)                                                             \
  KNOWN(105, HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED)                                                         \
  KNOWN(106, MAX_BLOCKS_PER_MULTIPROCESSOR)                                                                  \
  KNOWN(107, GENERIC_COMPRESSION_SUPPORTED)                                                                  \
  KNOWN(108, MAX_PERSISTING_L2_CACHE_SIZE)                                                                   \
  KNOWN(109, MAX_ACCESS_POLICY_WINDOW_SIZE)                                                                  \
  KNOWN(110, GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)                                                        \
  KNOWN(111, RESERVED_SHARED_MEMORY_PER_BLOCK)                                                               \
  KNOWN(112, SPARSE_CUDA_ARRAY_SUPPORTED)                                                                    \
  KNOWN(113, READ_ONLY_HOST_REGISTER_SUPPORTED)                                                              \
  KNOWN(114, TIMELINE_SEMAPHORE_INTEROP_SUPPORTED)                                                           \
  KNOWN(115, MEMORY_POOLS_SUPPORTED)                                                                         \
  KNOWN(116, GPU_DIRECT_RDMA_SUPPORTED)                                                                      \
  KNOWN(117, GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS)                                                           \
  KNOWN(118, GPU_DIRECT_RDMA_WRITES_ORDERING)                                                                \
  KNOWN(119, MEMPOOL_SUPPORTED_HANDLE_TYPES)                                                                 \
  KNOWN(120, CLUSTER_LAUNCH)                                                                                 \
  KNOWN(121, DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED)                                                          \
  KNOWN(122, CAN_USE_64_BIT_STREAM_MEM_OPS)                                                                  \
  KNOWN(123, CAN_USE_STREAM_WAIT_VALUE_NOR)                                                                  \
  KNOWN(124, DMA_BUF_SUPPORTED)                                                                              \
  KNOWN(125, IPC_EVENT_SUPPORTED)                                                                            \
  KNOWN(126, MEM_SYNC_DOMAIN_COUNT)                                                                          \
  KNOWN(127, TENSOR_MAP_ACCESS_SUPPORTED)                                                                    \
  KNOWN(128, HANDLE_TYPE_FABRIC_SUPPORTED)                                                                   \
  KNOWN(129, UNIFIED_FUNCTION_POINTERS)                                                                      \
  KNOWN(130, NUMA_CONFIG)                                                                                    \
  KNOWN(131, NUMA_ID)                                                                                        \
  KNOWN(132, MULTICAST_SUPPORTED)                                                                            \
  KNOWN(133, MPS_ENABLED)                                                                                    \
  KNOWN(134, HOST_NUMA_ID)                                                                                   \
  KNOWN(135, D3D12_CIG_SUPPORTED)                                                                            \
  KNOWN(136, MEM_DECOMPRESS_ALGORITHM_MASK)                                                                  \
  KNOWN(137, MEM_DECOMPRESS_MAXIMUM_LENGTH)                                                                  \
  KNOWN(138, VULKAN_CIG_SUPPORTED)                                                                           \
  DERIVED(139, GPU_PCI_DEVICE_ID)                                                                            \
  DERIVED(140, GPU_PCI_SUBSYSTEM_ID)                                                                         \
  KNOWN(141, HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)                                                  \
  KNOWN(142, HOST_NUMA_MEMORY_POOLS_SUPPORTED)                                                               \
  KNOWN(143, HOST_NUMA_MULTINODE_IPC_SUPPORTED)                                                              \
  KNOWN(144, HOST_MEMORY_POOLS_SUPPORTED)                                                                    \
  KNOWN(145, HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)                                                       \
  KNOWN(146, HOST_ALLOC_DMA_BUF_SUPPORTED)                                                                   \
  KNOWN(147, ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED)

#define VGPU_ATTRIBUTE(number, name) VGPU_ATTRIBUTE_##name = number,
enum vgpu_device_attribute { VGPU_ATTRIBUTES(VGPU_ATTRIBUTE, VGPU_ATTRIBUTE) VGPU_ATTRIBUTE_END };
#undef VGPU_ATTRIBUTE

#endif
