/* Something to link libggml-cuda.so against, so that it gets its DT_NEEDED; never installed, never
 * loaded. */
#define STUB(name)                                                                                           \
  __attribute__((visibility("default"))) int name(void);                                                     \
  int name(void) {                                                                                           \
    return 0;                                                                                                \
  }
STUB(cuDeviceGet)
STUB(cuDeviceGetAttribute)
STUB(cuGetErrorString)
STUB(cuMemAddressFree)
STUB(cuMemAddressReserve)
STUB(cuMemCreate)
STUB(cuMemGetAllocationGranularity)
STUB(cuMemMap)
STUB(cuMemRelease)
STUB(cuMemSetAccess)
STUB(cuMemUnmap)
