/* Copies of one dimension: each is a box of one row. */
#include "cuda_api.h"
#include "guest/cuda/memory/box.h"
#include "guest/cuda/texture/array.h"

static struct vgpu_box_side array_side(void *array, size_t offset) {
  return (struct vgpu_box_side){.type = VGPU_MEMORY_ARRAY, .array = array, .x = offset};
}

static struct vgpu_box_side device_side(uint64_t address, size_t bytes) {
  return (struct vgpu_box_side){.type = VGPU_MEMORY_DEVICE, .device = address, .pitch = bytes, .height = 1};
}

static struct vgpu_box_side host_side(const void *memory, size_t bytes) {
  return (struct vgpu_box_side){
      .type = VGPU_MEMORY_HOST, .host = (void *)(uintptr_t)memory, .pitch = bytes, .height = 1};
}

static int copy(struct vgpu_box_side destination, struct vgpu_box_side source, size_t bytes,
                struct vgpu_stream *stream, bool async) {
  const struct vgpu_box box = {
      .source = source, .destination = destination, .width = bytes, .height = 1, .depth = 1};
  return vgpu_copy_box(&box, stream, async);
}

int cuMemcpyAtoA_v2(void *dstArray, size_t dstOffset, void *srcArray, size_t srcOffset, size_t ByteCount) {
  return copy(array_side(dstArray, dstOffset), array_side(srcArray, srcOffset), ByteCount, NULL, false);
}

int cuMemcpyAtoD_v2(uint64_t dstDevice, void *srcArray, size_t srcOffset, size_t ByteCount) {
  return copy(device_side(dstDevice, ByteCount), array_side(srcArray, srcOffset), ByteCount, NULL, false);
}

int cuMemcpyDtoA_v2(void *dstArray, size_t dstOffset, uint64_t srcDevice, size_t ByteCount) {
  return copy(array_side(dstArray, dstOffset), device_side(srcDevice, ByteCount), ByteCount, NULL, false);
}

int cuMemcpyAtoH_v2(void *dstHost, void *srcArray, size_t srcOffset, size_t ByteCount) {
  return copy(host_side(dstHost, ByteCount), array_side(srcArray, srcOffset), ByteCount, NULL, false);
}

int cuMemcpyHtoA_v2(void *dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount) {
  return copy(array_side(dstArray, dstOffset), host_side(srcHost, ByteCount), ByteCount, NULL, false);
}

int cuMemcpyAtoHAsync_v2(void *dstHost, void *srcArray, size_t srcOffset, size_t ByteCount,
                         struct vgpu_stream *hStream) {
  return copy(host_side(dstHost, ByteCount), array_side(srcArray, srcOffset), ByteCount, hStream, true);
}

int cuMemcpyHtoAAsync_v2(void *dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount,
                         struct vgpu_stream *hStream) {
  return copy(array_side(dstArray, dstOffset), host_side(srcHost, ByteCount), ByteCount, hStream, true);
}
