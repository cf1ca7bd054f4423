/*
 * tensor_copy: makes descriptors of two tensors, gives them to a kernel as parameters and checks what it
 * copied; for tensor_map.test.ts. Rows are 40 floats of which the tensor has 37, tiles 32 by 8.
 */
#include "check.h"

enum { PITCH = 40, WIDE = 37, HIGH = 20, SPARE = 3 };

static const char text[] =
    ".version 8.4\n.target sm_90a\n.address_size 64\n"
    ".visible .entry twice(.param .align 64 .b8 from[128], .param .align 64 .b8 to[128])\n{\n"
    "  .shared .align 1024 .b8 tile[1024];\n"
    "  .shared .align 8 .b64 barrier;\n"
    "  .reg .b32 %r<12>; .reg .b64 %rd<6>; .reg .f32 %f<3>; .reg .pred %p<3>;\n"
    "  mov.b64 %rd1, from;\n  cvta.param.u64 %rd1, %rd1;\n"
    "  mov.b64 %rd2, to;\n  cvta.param.u64 %rd2, %rd2;\n"
    "  mov.u32 %r1, %ctaid.x;\n  shl.b32 %r1, %r1, 5;\n"
    "  mov.u32 %r2, %ctaid.y;\n  shl.b32 %r2, %r2, 3;\n"
    "  mov.u32 %r3, tile;\n  mov.u32 %r4, barrier;\n  mov.u32 %r5, %tid.x;\n"
    "  setp.eq.u32 %p1, %r5, 0;\n"
    "  @%p1 prefetch.tensormap [%rd1];\n"
    "  @%p1 mbarrier.init.shared::cta.b64 [%r4], 1;\n"
    "  fence.mbarrier_init.release.cluster;\n"
    "  bar.sync 0;\n"
    "  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 1024;\n"
    "  @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
    " [%r3], [%rd1, {%r1, %r2}], [%r4];\n"
    "again:\n"
    "  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r4], 0;\n  @!%p2 bra again;\n"
    "  shl.b32 %r6, %r5, 2;\n  add.u32 %r6, %r3, %r6;\n  mov.u32 %r7, 0;\n"
    "next:\n"
    "  ld.shared.f32 %f1, [%r6];\n  add.f32 %f1, %f1, %f1;\n  st.shared.f32 [%r6], %f1;\n"
    "  add.u32 %r6, %r6, 128;\n  add.u32 %r7, %r7, 1;\n  setp.lt.u32 %p2, %r7, 8;\n  @%p2 bra next;\n"
    "  fence.proxy.async.shared::cta;\n  bar.sync 0;\n"
    "  @%p1 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd2, {%r1, %r2}], [%r3];\n"
    "  cp.async.bulk.commit_group;\n  cp.async.bulk.wait_group 0;\n  ret;\n}\n";

struct map {
  _Alignas(64) unsigned char bytes[128];
};

typedef uint64_t address;

static void encode(struct map *map, address at, int swizzle) {
  static const uint64_t dim[2] = {WIDE, HIGH}, strides[1] = {PITCH * 4};
  static const uint32_t box[2] = {32, 8}, steps[2] = {1, 1};
  MUST(CALL(cuTensorMapEncodeTiled,
            (void *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *,
             const uint32_t *, int, int, int, int),
            map, 7, 2, (void *)(uintptr_t)at, dim, strides, box, steps, 0, swizzle, 0, 0));
}

static int launch(void *function, struct map *from, struct map *to, unsigned rows) {
  void *parameters[] = {from, to};
  MUST(CALL(cuLaunchKernel,
            (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
             void **),
            function, 2, rows, 1, 32, 1, 1, 0, NULL, parameters, NULL));
  return CALL(cuCtxSynchronize, (void));
}

static int wrong(const float *in, address out) {
  static float have[(HIGH + SPARE) * PITCH];
  MUST(CALL(cuMemcpyDtoH_v2, (void *, address, size_t), have, out, sizeof have));
  int count = 0;
  for (int i = 0; i < (HIGH + SPARE) * PITCH; i++) {
    bool within = i % PITCH < WIDE && i / PITCH < HIGH;
    count += have[i] != (within ? 2 * in[i] : -1);
  }
  return count;
}

int main(void) {
  check_library = dlopen("libcuda.so.1", RTLD_NOW);
  if (check_library == NULL) return 3;
  void *context, *module, *function;
  MUST(CALL(cuInit, (unsigned), 0));
  MUST(CALL(cuCtxCreate_v2, (void **, unsigned, int), &context, 0, 0));
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, text));
  MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "twice"));
  static float in[(HIGH + SPARE) * PITCH], empty[(HIGH + SPARE) * PITCH];
  for (int i = 0; i < (HIGH + SPARE) * PITCH; i++) {
    in[i] = (float)i / 4;
    empty[i] = -1;
  }
  address from, to, other;
  MUST(CALL(cuMemAlloc_v2, (address *, size_t), &from, sizeof in));
  MUST(CALL(cuMemAlloc_v2, (address *, size_t), &to, sizeof in));
  MUST(CALL(cuMemAlloc_v2, (address *, size_t), &other, sizeof in));
  MUST(CALL(cuMemcpyHtoD_v2, (address, const void *, size_t), from, in, sizeof in));
  MUST(CALL(cuMemcpyHtoD_v2, (address, const void *, size_t), to, empty, sizeof in));
  MUST(CALL(cuMemcpyHtoD_v2, (address, const void *, size_t), other, empty, sizeof in));
  struct map source, target;
  encode(&source, from, 3);
  encode(&target, to, 3);
  int result = launch(function, &source, &target, 3);
  printf("copied %d wrong %d\n", result, wrong(in, to));
  MUST(CALL(cuTensorMapReplaceAddress, (void *, void *), &target, (void *)(uintptr_t)other));
  result = launch(function, &source, &target, 3);
  printf("moved %d wrong %d\n", result, wrong(in, other));
  memset(&source, 0, sizeof source); /* not a descriptor */
  printf("outside %d\n", launch(function, &source, &target, 1));
  return 0;
}
