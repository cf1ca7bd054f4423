/* Random kernels as CUDA C. */
#define HELPER static __device__ __forceinline__
#define FUNCTION static __device__ __noinline__
#define KERNEL extern "C" __global__
#define SHARED __shared__
#include "both.h"
