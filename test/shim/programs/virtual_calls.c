/* Virtual memory: reserve, create, map, access, unmap, release; aliases; and every mistake. */
#include "check.h"

#define MIB (1ull << 20)
#define GRAIN (2 * MIB)

struct properties {
  int type, handle_types, location_type, location;
  void *win32;
  unsigned char flags[8];
};
struct access {
  int location_type, location;
  unsigned flags;
};
static const struct properties pinned = {.type = 1, .location_type = 1};
static const struct access both = {1, 0, 3}, none = {1, 0, 0};

static int reserve(devptr *address, size_t size) {
  return CALL(cuMemAddressReserve, (devptr *, size_t, size_t, devptr, uint64_t), address, size, 0, 0, 0);
}
static int create(uint64_t *handle, size_t size) {
  return CALL(cuMemCreate, (uint64_t *, size_t, const void *, uint64_t), handle, size, &pinned, 0);
}
static int map(devptr address, size_t size, uint64_t handle) {
  return CALL(cuMemMap, (devptr, size_t, size_t, uint64_t, uint64_t), address, size, 0, handle, 0);
}
static int unmap(devptr address, size_t size) {
  return CALL(cuMemUnmap, (devptr, size_t), address, size);
}
static int set_access(devptr address, size_t size, const struct access *access) {
  return CALL(cuMemSetAccess, (devptr, size_t, const void *, size_t), address, size, access, 1);
}
static int release(uint64_t handle) {
  return CALL(cuMemRelease, (uint64_t), handle);
}
static int address_free(devptr address, size_t size) {
  return CALL(cuMemAddressFree, (devptr, size_t), address, size);
}

/* One reservation is mapped part by part and used as one range, like the pool of llama.cpp. */
static void grows(void) {
  int supported = 0;
  OK(CALL(cuDeviceGetAttribute, (int *, int, int), &supported, 102, 0));
  IS(1, supported);
  size_t grain = 0, before = check_free_memory();
  OK(CALL(cuMemGetAllocationGranularity, (size_t *, const void *, int), &grain, &pinned, 0));
  IS(GRAIN, grain);
  devptr base = 0;
  OK(reserve(&base, 32768 * MIB));
  IS(0, base % GRAIN);
  IS(before, check_free_memory());
  size_t sizes[] = {GRAIN, 6 * MIB, 10 * MIB}, used = 0;
  for (int i = 0; i < 3; i++) {
    uint64_t handle = 0;
    OK(create(&handle, sizes[i]));
    OK(map(base + used, sizes[i], handle));
    OK(release(handle));
    IS(INVALID_VALUE, release(handle));
    OK(set_access(base + used, sizes[i], &both));
    used += sizes[i];
  }
  IS(before - used, check_free_memory());
  unsigned char *out = check_bytes(used), *in = check_bytes(used);
  check_pattern(out, used, 4);
  OK(CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), base, out, used));
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), in, base, used));
  OK(memcmp(in, out, used));
  OK(CALL(cuMemsetD8_v2, (devptr, unsigned char, size_t), base + MIB, 0, 4 * MIB));
  memset(out + MIB, 0, 4 * MIB);
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), in, base, used));
  OK(memcmp(in, out, used));
  IS(INVALID_VALUE, CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), base, out, used + 1));
  OK(unmap(base, used));
  OK(CALL(cuCtxSynchronize, (void), ));
  IS(before, check_free_memory());
  IS(INVALID_VALUE, CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), in, base, 1));
  OK(address_free(base, 32768 * MIB));
  OK(CALL(cuCtxSynchronize, (void), ));
}

/* One memory at two addresses. New memory is zero and does not contain old bytes. */
static void aliases(void) {
  devptr one = 0, two = 0;
  uint64_t handle = 0, again = 0;
  unsigned value = 0;
  OK(reserve(&one, 2 * GRAIN));
  OK(reserve(&two, GRAIN));
  OK(create(&handle, GRAIN));
  OK(map(one + GRAIN, GRAIN, handle));
  OK(map(two, GRAIN, handle));
  OK(set_access(one + GRAIN, GRAIN, &both));
  OK(set_access(two, GRAIN, &both));
  OK(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), one + GRAIN, 0xfeed, GRAIN / 4));
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), &value, two + GRAIN - 4, 4));
  IS(0xfeed, value);
  OK(unmap(two, GRAIN));
  OK(release(handle));
  OK(CALL(cuMemRetainAllocationHandle, (uint64_t *, void *), &again, (void *)(uintptr_t)(one + GRAIN + 5)));
  struct properties got = {0};
  OK(CALL(cuMemGetAllocationPropertiesFromHandle, (void *, uint64_t), &got, again));
  IS(1, got.type);
  OK(unmap(one + GRAIN, GRAIN));
  OK(map(two, GRAIN, again));
  OK(set_access(two, GRAIN, &both));
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), &value, two, 4));
  IS(0xfeed, value);
  OK(unmap(two, GRAIN));
  OK(release(again));
  OK(create(&handle, GRAIN));
  OK(map(two, GRAIN, handle));
  OK(set_access(two, GRAIN, &both));
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), &value, two, 4));
  IS(0, value);
  OK(unmap(two, GRAIN));
  OK(release(handle));
  OK(address_free(two, GRAIN));
  OK(address_free(one, 2 * GRAIN));
  OK(CALL(cuCtxSynchronize, (void), ));
}

static void access_rules(void) {
  devptr base = 0;
  uint64_t handle = 0, flags = 9;
  int location[2] = {1, 0};
  unsigned value = 0, kind = 0;
  OK(reserve(&base, 2 * GRAIN));
  OK(create(&handle, GRAIN));
  OK(map(base, GRAIN, handle));
  IS(INVALID_VALUE, CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), &value, base, 4));
  OK(CALL(cuMemGetAccess, (uint64_t *, const void *, devptr), &flags, location, base));
  IS(0, flags);
  OK(set_access(base, GRAIN, &both));
  OK(CALL(cuMemGetAccess, (uint64_t *, const void *, devptr), &flags, location, base + 77));
  IS(3, flags);
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), &value, base, 4));
  OK(set_access(base, GRAIN, &none));
  IS(INVALID_VALUE, CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), &value, base, 4));
  OK(CALL(cuPointerGetAttribute, (void *, int, devptr), &kind, 2, base));
  IS(2, kind);
  devptr start = 0;
  size_t size = 0;
  OK(CALL(cuMemGetAddressRange_v2, (devptr *, size_t *, devptr), &start, &size, base + 100));
  TRUE(start == base && size == GRAIN);
  IS(INVALID_VALUE, CALL(cuMemFree_v2, (devptr), base));
  struct access bad = {1, 5, 3}, odd = {1, 0, 2}, where = {2, 0, 3};
  IS(INVALID_DEVICE, set_access(base, GRAIN, &bad));
  IS(INVALID_VALUE, set_access(base, GRAIN, &odd));
  IS(INVALID_VALUE, set_access(base, GRAIN, &where));
  IS(INVALID_VALUE, set_access(base, 2 * GRAIN, &both));
  IS(INVALID_VALUE, set_access(base, GRAIN / 2, &both));
  IS(INVALID_VALUE, CALL(cuMemGetAccess, (uint64_t *, const void *, devptr), &flags, location, base + GRAIN));
  IS(INVALID_VALUE, map(base, GRAIN, handle)); /* twice */
  IS(INVALID_VALUE, map(base + GRAIN, 2 * GRAIN, handle));
  IS(INVALID_VALUE, map(base + GRAIN + 4096, GRAIN, handle));
  IS(INVALID_VALUE, map(base + GRAIN, GRAIN, handle + 1000));
  IS(INVALID_VALUE, map(0x1000 * GRAIN, GRAIN, handle));
  IS(INVALID_VALUE, unmap(base + GRAIN, GRAIN));
  IS(INVALID_VALUE, unmap(base, 2 * GRAIN));
  IS(INVALID_VALUE, address_free(base, 2 * GRAIN)); /* something is mapped */
  IS(INVALID_VALUE, address_free(base, GRAIN));
  OK(unmap(base, GRAIN));
  OK(address_free(base, 2 * GRAIN));
  IS(INVALID_VALUE, address_free(base, 2 * GRAIN));
  OK(release(handle));
  OK(CALL(cuCtxSynchronize, (void), ));
}

static void bad_requests(void) {
  devptr base = 0;
  uint64_t handle = 0;
  IS(INVALID_VALUE, reserve(&base, 4096));
  IS(INVALID_VALUE, reserve(&base, 0));
  IS(INVALID_VALUE, reserve(NULL, GRAIN));
  IS(OUT_OF_MEMORY, reserve(&base, (size_t)-1 & ~(GRAIN - 1)));
  IS(INVALID_VALUE,
     CALL(cuMemAddressReserve, (devptr *, size_t, size_t, devptr, uint64_t), &base, GRAIN, 3, 0, 0));
  IS(INVALID_VALUE,
     CALL(cuMemAddressReserve, (devptr *, size_t, size_t, devptr, uint64_t), &base, GRAIN, 0, 0, 1));
  IS(INVALID_VALUE, create(&handle, 4096));
  IS(INVALID_VALUE, create(NULL, GRAIN));
  IS(OUT_OF_MEMORY, create(&handle, (size_t)1 << 40));
  struct properties other = pinned;
  other.location = 7;
  IS(INVALID_DEVICE,
     CALL(cuMemCreate, (uint64_t *, size_t, const void *, uint64_t), &handle, GRAIN, &other, 0));
  other = pinned;
  other.handle_types = 8; /* a fabric */
  IS(800, CALL(cuMemCreate, (uint64_t *, size_t, const void *, uint64_t), &handle, GRAIN, &other, 0));
  other = pinned;
  other.type = 7;
  IS(INVALID_VALUE,
     CALL(cuMemCreate, (uint64_t *, size_t, const void *, uint64_t), &handle, GRAIN, &other, 0));
  IS(INVALID_VALUE, CALL(cuMemCreate, (uint64_t *, size_t, const void *, uint64_t), &handle, GRAIN, NULL, 0));
  IS(INVALID_VALUE, release(12345));
  IS(INVALID_VALUE,
     CALL(cuMemExportToShareableHandle, (void *, uint64_t, int, uint64_t), &base, handle, 1, 0));
  /* A hint is used if there is room. */
  devptr hinted = 0;
  OK(reserve(&base, 8 * GRAIN));
  OK(address_free(base, 8 * GRAIN));
  OK(CALL(cuMemAddressReserve, (devptr *, size_t, size_t, devptr, uint64_t), &hinted, GRAIN, 16 * GRAIN, base,
          0));
  IS(0, hinted % (16 * GRAIN));
  OK(address_free(hinted, GRAIN));
  size_t before = check_free_memory();
  OK(create(&handle, GRAIN)); /* never mapped */
  IS(before - GRAIN, check_free_memory());
  OK(release(handle));
  OK(CALL(cuCtxSynchronize, (void), ));
  IS(before, check_free_memory());
}

static const struct check_case cases[] = {
    {"grows", grows}, {"aliases", aliases}, {"access_rules", access_rules}, {"bad_requests", bad_requests}};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
