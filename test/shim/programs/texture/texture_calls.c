/* Arrays, textures, surfaces and references through the driver API, compared with the same in plain C. */
#include "../check.h"

enum { HOST = 1, DEVICE = 2, ARRAY = 3 };
enum { LAYERED = 1, SURFACE = 2, CUBEMAP = 4, GATHER = 8, SPARSE = 64 };
enum { U8 = 1, U32 = 3, S8 = 8, HALF = 16, FLOAT = 32, BC1 = 0x91 };
enum { READ_AS_INTEGER = 1, NORMALIZED_COORDINATES = 2 };
enum { ILLEGAL_ADDRESS = 700 };

struct flat {
  size_t width, height;
  int format;
  unsigned channels;
};
struct deep {
  size_t width, height, depth;
  int format;
  unsigned channels, flags;
};
struct side {
  size_t x, y, z, level;
  unsigned type;
  void *host;
  devptr device;
  void *array, *reserved;
  size_t pitch, height;
};
struct box {
  struct side from, to;
  size_t width, height, depth;
};
struct resource {
  int type;
  union {
    void *array;
    struct {
      devptr address;
      int format;
      unsigned channels;
      size_t width, height, pitch;
    } memory;
    int reserved[32];
  } of;
  unsigned flags;
};
struct sampler {
  int address_mode[3], filter;
  unsigned flags, anisotropy;
  int mip_filter;
  float bias, min_level, max_level, border[4];
  int reserved[12];
};
struct view {
  int format;
  size_t width, height, depth;
  unsigned first_level, last_level, first_layer, last_layer, reserved[16];
};

static void *make(const struct deep *as) {
  void *array = NULL;
  MUST(CALL(cuArray3DCreate_v2, (void **, const void *), &array, as));
  return array;
}

static int destroy(void *array) {
  return CALL(cuArrayDestroy, (void *), array);
}

static int copy(const struct box *box) {
  return CALL(cuMemcpy3D_v2, (const void *), box);
}

/* ---- arrays -------------------------------------------------------------- */

static void describes(void) {
  struct deep as = {13, 7, 5, FLOAT, 4, SURFACE}, told = {0};
  struct flat flat = {100, 0, U8, 1}, flat_told = {0};
  void *array = make(&as), *one = NULL;
  OK(CALL(cuArray3DGetDescriptor_v2, (void *, void *), &told, array));
  OK(memcmp(&told, &as, sizeof as));
  OK(CALL(cuArrayCreate_v2, (void **, const void *), &one, &flat));
  OK(CALL(cuArrayGetDescriptor_v2, (void *, void *), &flat_told, one));
  OK(memcmp(&flat_told, &flat, sizeof flat));
  OK(destroy(array));
  OK(destroy(one));
  IS(INVALID_HANDLE, destroy(one));
  IS(INVALID_HANDLE, CALL(cuArrayGetDescriptor_v2, (void *, void *), &flat_told, (void *)0x1234));
  size_t width = 0;
  OK(CALL(cuDeviceGetTexture1DLinearMaxWidth, (size_t *, int, unsigned, int), &width, FLOAT, 4, 0));
  TRUE(width >= 1u << 27);
}

static int try(size_t width, size_t height, size_t depth, int format, unsigned channels, unsigned flags) {
  const struct deep as = {width, height, depth, format, channels, flags};
  void *array = NULL;
  int result = CALL(cuArray3DCreate_v2, (void **, const void *), &array, &as);
  if (result == 0) OK(destroy(array));
  return result;
}

static void bad_requests(void) {
  OK(try(16, 16, 6, U8, 4, CUBEMAP));
  OK(try(16, 16, 18, U8, 4, CUBEMAP | LAYERED));
  OK(try(16, 0, 3, U8, 4, LAYERED));
  IS(INVALID_VALUE, try(0, 1, 1, U8, 1, 0));
  IS(INVALID_VALUE, try(16, 16, 0, U8, 3, 0));
  IS(INVALID_VALUE, try(16, 8, 6, U8, 4, CUBEMAP));
  IS(INVALID_VALUE, try(16, 16, 5, U8, 4, CUBEMAP));
  IS(INVALID_VALUE, try(1u << 20, 16, 0, U8, 1, 0));
  IS(INVALID_VALUE, try(16, 16, 4096, U8, 1, LAYERED));
  IS(INVALID_VALUE, try(16, 0, 4, U8, 1, 0));
  IS(NOT_SUPPORTED, try(16, 16, 0, BC1, 4, 0));
  IS(NOT_SUPPORTED, try(16, 16, 0, U8, 1, SPARSE));
  IS(OUT_OF_MEMORY, try(16384, 16384, 16384, FLOAT, 4, 0));
  void *array = NULL;
  IS(INVALID_VALUE, CALL(cuArray3DCreate_v2, (void **, const void *), &array, NULL));
}

static void counts_memory(void) {
  const struct deep as = {1024, 1024, 0, FLOAT, 4, 0};
  size_t before = check_free_memory();
  void *array = make(&as);
  size_t with = check_free_memory();
  TRUE(before - with >= 16u << 20 && before - with < 17u << 20);
  OK(destroy(array));
  IS(before, check_free_memory());
}

/* Random boxes of a volume of texels with two bytes, each side in turn the array, memory and this process. */
static void copies(void) {
  enum { W = 24, H = 10, D = 6, TEXEL = 2, ROW = W * TEXEL, ALL = ROW * H * D };
  const struct deep as = {W, H, D, U8, TEXEL, 0};
  void *one = make(&as), *two = make(&as);
  unsigned char *model = check_bytes(ALL), *bytes = check_bytes(ALL), *noise = check_bytes(4096);
  devptr device = check_alloc(ALL);
  uint64_t state = 5;
  check_pattern(model, ALL, 1);
  struct box whole = {.from = {.type = HOST, .host = model, .pitch = ROW, .height = H},
                      .to = {.type = ARRAY, .array = one},
                      .width = ROW,
                      .height = H,
                      .depth = D};
  OK(copy(&whole));
  check_pattern(noise, 4096, 2);
  for (int turn = 0; turn < 60; turn++) {
    unsigned random[9];
    for (int i = 0; i < 9; i++) random[i] = (unsigned)((state = state * 6364136223846793005ull + 1) >> 40);
    size_t x = random[0] % W, y = random[1] % H, z = random[2] % D;
    size_t w = 1 + random[3] % (W - x), h = 1 + random[4] % (H - y), d = 1 + random[5] % (D - z);
    struct side array = {.x = x * TEXEL, .y = y, .z = z, .type = ARRAY, .array = one};
    struct box in = {.from = {.type = HOST, .host = noise + random[6] % 64, .pitch = w * TEXEL, .height = h},
                     .to = array,
                     .width = w * TEXEL,
                     .height = h,
                     .depth = d};
    const unsigned char *source = in.from.host;
    if (w * TEXEL * h * d > 4000) continue;
    for (size_t k = 0; k < d; k++) {
      for (size_t j = 0; j < h; j++)
        memcpy(model + ((z + k) * H + y + j) * ROW + x * TEXEL, source + (k * h + j) * w * TEXEL, w * TEXEL);
    }
    if (turn % 3 == 1) {
      /* by way of device memory */
      MUST(CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), device, source, w * TEXEL * h * d));
      in.from = (struct side){.type = DEVICE, .device = device, .pitch = w * TEXEL, .height = h};
    } else if (turn % 3 == 2) {
      /* by way of another array */
      struct box first = in;
      first.to = (struct side){.type = ARRAY, .array = two};
      OK(copy(&first));
      in.from = first.to;
    }
    OK(copy(&in));
  }
  struct box out = {.from = whole.to, .to = whole.from, .width = ROW, .height = H, .depth = D};
  out.to.host = bytes;
  OK(copy(&out));
  OK(memcmp(bytes, model, ALL));
  memset(bytes, 0, ALL);
  out.to = (struct side){.type = DEVICE, .device = device, .pitch = ROW, .height = H};
  OK(copy(&out));
  MUST(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), bytes, device, ALL));
  OK(memcmp(bytes, model, ALL));
  out.from.x = 2;
  IS(INVALID_VALUE, copy(&out));
  out.from = (struct side){.type = ARRAY, .array = (void *)0x77};
  IS(INVALID_HANDLE, copy(&out));
}

static void lines(void) {
  enum { BYTES = 3 << 20 };
  const struct flat as = {BYTES / 32 / 4, 0, FLOAT, 4};
  size_t row = as.width * 16;
  void *array = NULL, *other = NULL;
  unsigned char *in = check_bytes(row), *out = check_bytes(row);
  devptr device = check_alloc(row);
  check_pattern(in, row, 3);
  MUST(CALL(cuArrayCreate_v2, (void **, const void *), &array, &as));
  MUST(CALL(cuArrayCreate_v2, (void **, const void *), &other, &as));
  OK(CALL(cuMemcpyHtoA_v2, (void *, size_t, const void *, size_t), array, 16, in + 16, row - 16));
  OK(CALL(cuMemcpyHtoAAsync_v2, (void *, size_t, const void *, size_t, void *), array, 0, in, 16, NULL));
  OK(CALL(cuMemcpyAtoA_v2, (void *, size_t, void *, size_t, size_t), other, 0, array, 0, row));
  OK(CALL(cuMemcpyAtoD_v2, (devptr, void *, size_t, size_t), device, other, 0, row));
  OK(CALL(cuMemcpyDtoA_v2, (void *, size_t, devptr, size_t), array, 0, device + 32, 64));
  OK(CALL(cuMemcpyAtoH_v2, (void *, void *, size_t, size_t), out, array, 0, row));
  OK(memcmp(out, in + 32, 64));
  OK(memcmp(out + 64, in + 64, row - 64));
  OK(CALL(cuMemcpyAtoHAsync_v2, (void *, void *, size_t, size_t, void *), out, other, 0, row, NULL));
  OK(CALL(cuStreamSynchronize, (void *), NULL));
  OK(memcmp(out, in, row));
  IS(INVALID_VALUE, CALL(cuMemcpyAtoH_v2, (void *, void *, size_t, size_t), out, array, 16, row));
}

static void mipmaps(void) {
  const struct deep as = {16, 8, 0, U32, 1, 0};
  struct deep told;
  void *mipmap = NULL, *level = NULL, *again = NULL;
  MUST(CALL(cuMipmappedArrayCreate, (void **, const void *, unsigned), &mipmap, &as, 9));
  OK(CALL(cuMipmappedArrayGetLevel, (void **, void *, unsigned), &level, mipmap, 2));
  OK(CALL(cuMipmappedArrayGetLevel, (void **, void *, unsigned), &again, mipmap, 2));
  TRUE(level == again);
  OK(CALL(cuArray3DGetDescriptor_v2, (void *, void *), &told, level));
  TRUE(told.width == 4 && told.height == 2 && told.depth == 0);
  /* 16 texels have five levels, even if more were requested. */
  OK(CALL(cuMipmappedArrayGetLevel, (void **, void *, unsigned), &again, mipmap, 4));
  IS(INVALID_VALUE, CALL(cuMipmappedArrayGetLevel, (void **, void *, unsigned), &again, mipmap, 5));
  uint32_t in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8] = {0};
  struct box box = {.from = {.type = HOST, .host = in, .pitch = 16, .height = 2},
                    .to = {.type = ARRAY, .array = level},
                    .width = 16,
                    .height = 2,
                    .depth = 1};
  OK(copy(&box));
  struct box back = {.from = box.to, .to = box.from, .width = 16, .height = 2, .depth = 1};
  back.to.host = out;
  OK(copy(&back));
  OK(memcmp(in, out, sizeof in));
  /* A surface can be made of a level whatever the flags of the mipmap are. */
  struct resource drawn = {.of.array = level};
  uint64_t surface = 0;
  OK(CALL(cuSurfObjectCreate, (uint64_t *, const void *), &surface, &drawn));
  OK(CALL(cuSurfObjectDestroy, (uint64_t), surface));
  IS(INVALID_HANDLE, destroy(level));
  OK(CALL(cuMipmappedArrayDestroy, (void *), mipmap));
  IS(INVALID_HANDLE, CALL(cuArray3DGetDescriptor_v2, (void *, void *), &told, level));
}

/* ---- objects ------------------------------------------------------------- */

static const char ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".global .texref picture;\n.global .surfref canvas;\n"
    /* out[i] = tex(i + 0.5, row) */
    ".visible .entry row_of(.param .u64 out, .param .u64 texture, .param .f32 row) {\n"
    ".reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .f32 %f<8>;\n"
    "ld.param.u64 %rd0, [out]; ld.param.u64 %rd1, [texture]; ld.param.f32 %f5, [row];\n"
    "mov.u32 %r0, %tid.x; cvt.rn.f32.u32 %f4, %r0; add.f32 %f4, %f4, 0f3F000000;\n"
    "tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd1, {%f4, %f5}];\n"
    "mul.wide.u32 %rd2, %r0, 4; add.u64 %rd0, %rd0, %rd2; st.global.f32 [%rd0], %f0; ret; }\n"
    /* out[i] = tex(i + first) */
    ".visible .entry elements(.param .u64 out, .param .u64 texture, .param .u32 first) {\n"
    ".reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .f32 %f<4>;\n"
    "ld.param.u64 %rd0, [out]; ld.param.u64 %rd1, [texture]; ld.param.u32 %r1, [first];\n"
    "mov.u32 %r0, %tid.x; add.s32 %r1, %r1, %r0;\n"
    "tex.1d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [%rd1, {%r1}];\n"
    "mul.wide.u32 %rd2, %r0, 4; add.u64 %rd0, %rd0, %rd2; st.global.f32 [%rd0], %f0; ret; }\n"
    ".visible .entry by_name(.param .u64 out) {\n"
    ".reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .f32 %f<8>;\n"
    "ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; cvt.rn.f32.u32 %f4, %r0;\n"
    "add.f32 %f4, %f4, 0f3F000000; mov.f32 %f5, 0f3F000000;\n"
    "tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [picture, {%f4, %f5}];\n"
    "shl.b32 %r1, %r0, 2; mov.b32 %r2, %f0; mov.u32 %r3, 0;\n"
    "sust.b.2d.b32.trap [canvas, {%r1, %r3}], %r2;\n"
    "mul.wide.u32 %rd2, %r0, 4; add.u64 %rd0, %rd0, %rd2; st.global.f32 [%rd0], %f0; ret; }\n"
    ".visible .entry fill(.param .u64 surface, .param .u32 value) {\n"
    ".reg .b64 %rd<4>; .reg .b32 %r<6>;\n"
    "ld.param.u64 %rd0, [surface]; ld.param.u32 %r1, [value];\n"
    "mov.u32 %r0, %tid.x; mov.u32 %r2, %ctaid.x; shl.b32 %r3, %r0, 2; add.u32 %r1, %r1, %r0;\n"
    "sust.b.2d.b32.trap [%rd0, {%r3, %r2}], %r1; ret; }\n"
    /* out[i] = tex(i + 0.75, 0.5), as an integer */
    ".visible .entry integers(.param .u64 out, .param .u64 texture) {\n"
    ".reg .b64 %rd<4>; .reg .b32 %r<6>; .reg .f32 %f<3>;\n"
    "ld.param.u64 %rd0, [out]; ld.param.u64 %rd1, [texture]; mov.f32 %f1, 0f3F000000;\n"
    "mov.u32 %r0, %tid.x; cvt.rn.f32.u32 %f0, %r0; add.f32 %f0, %f0, 0f3F400000;\n"
    "tex.2d.v4.u32.f32 {%r1, %r2, %r3, %r4}, [%rd1, {%f0, %f1}];\n"
    "mul.wide.u32 %rd2, %r0, 4; add.u64 %rd0, %rd0, %rd2; st.global.u32 [%rd0], %r1; ret; }\n";

static void *load(void) {
  void *module = NULL;
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, ptx));
  return module;
}

static int launch(void *module, const char *name, unsigned blocks, unsigned threads, void **parameters) {
  void *function = NULL;
  MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, name));
  return CALL(cuLaunchKernel,
              (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
               void **),
              function, blocks, 1, 1, threads, 1, 1, 0, NULL, parameters, NULL);
}

static const struct sampler clamped = {.address_mode = {1, 1, 1}};

/* Reads a row of the texture as the kernel sees it. */
static void see(void *module, uint64_t texture, float row, const float *expected, unsigned count) {
  float out[64];
  devptr device = check_alloc(sizeof out);
  void *parameters[] = {&device, &texture, &row};
  OK(launch(module, "row_of", 1, count, parameters));
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), out, device, count * sizeof *out));
  for (unsigned i = 0; i < count; i++) IS(expected[i] * 1000, out[i] * 1000);
  OK(CALL(cuMemFree_v2, (devptr), device));
}

static void *array_of(const float *texels, size_t width, size_t height, unsigned flags) {
  const struct deep as = {width, height, 0, FLOAT, 1, flags};
  void *array = make(&as);
  struct box box = {
      .from = {.type = HOST, .host = (void *)(uintptr_t)texels, .pitch = width * 4, .height = height},
      .to = {.type = ARRAY, .array = array},
      .width = width * 4,
      .height = height,
      .depth = 1};
  MUST(copy(&box));
  return array;
}

static void textures(void) {
  void *module = load();
  float texels[32];
  for (int i = 0; i < 32; i++) texels[i] = (float)(i * i);
  void *array = array_of(texels, 8, 4, 0);
  struct resource resource = {.type = 0, .of.array = array}, told;
  struct sampler sampler_told;
  uint64_t texture = 0;
  OK(CALL(cuTexObjectCreate, (uint64_t *, const void *, const void *, const void *), &texture, &resource,
          &clamped, NULL));
  see(module, texture, 2.5f, texels + 16, 8);
  OK(CALL(cuTexObjectGetResourceDesc, (void *, uint64_t), &told, texture));
  OK(memcmp(&told, &resource, sizeof told));
  OK(CALL(cuTexObjectGetTextureDesc, (void *, uint64_t), &sampler_told, texture));
  OK(memcmp(&sampler_told, &clamped, sizeof clamped));
  IS(INVALID_VALUE, CALL(cuTexObjectGetResourceViewDesc, (void *, uint64_t), &told, texture));
  /* The object outlives its array. */
  OK(destroy(array));
  OK(CALL(cuTexObjectDestroy, (uint64_t), texture));
  IS(INVALID_VALUE, CALL(cuTexObjectDestroy, (uint64_t), texture));
  IS(INVALID_VALUE, CALL(cuTexObjectGetResourceDesc, (void *, uint64_t), &told, texture));

  /* Memory with rows, and without. */
  devptr device = check_alloc(4096);
  for (int y = 0; y < 4; y++)
    MUST(CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), device + (devptr)y * 512, texels + y * 8, 32));
  resource = (struct resource){
      .type = 3,
      .of.memory = {
          .address = device, .format = FLOAT, .channels = 1, .width = 8, .height = 4, .pitch = 512}};
  OK(CALL(cuTexObjectCreate, (uint64_t *, const void *, const void *, const void *), &texture, &resource,
          &clamped, NULL));
  see(module, texture, 3.5f, texels + 24, 8);
  OK(CALL(cuTexObjectDestroy, (uint64_t), texture));
  resource.of.memory.address += 4;
  IS(INVALID_VALUE, CALL(cuTexObjectCreate, (uint64_t *, const void *, const void *, const void *), &texture,
                         &resource, &clamped, NULL));
  resource.of.memory.address = device + 2048;
  resource.of.memory.height = 40;
  IS(INVALID_VALUE, CALL(cuTexObjectCreate, (uint64_t *, const void *, const void *, const void *), &texture,
                         &resource, &clamped, NULL));
  resource.type = 9;
  IS(INVALID_VALUE, CALL(cuTexObjectCreate, (uint64_t *, const void *, const void *, const void *), &texture,
                         &resource, &clamped, NULL));
}

/* Video scalers make such textures. Integers are not filtered: each read gives the nearest texel. */
static void linear_integers(void) {
  void *module = load();
  unsigned char texels[64];
  uint32_t out[64] = {0};
  uint64_t texture = 0;
  for (unsigned i = 0; i < 64; i++) texels[i] = (unsigned char)(i * 37);
  devptr device = check_alloc(512), to = check_alloc(sizeof out);
  MUST(CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), device, texels, sizeof texels));
  const struct resource resource = {
      .type = 3,
      .of.memory = {.address = device, .format = U8, .channels = 1, .width = 64, .height = 1, .pitch = 512}};
  const struct sampler linear = {.address_mode = {1, 1, 1}, .filter = 1, .flags = READ_AS_INTEGER};
  MUST(CALL(cuTexObjectCreate, (uint64_t *, const void *, const void *, const void *), &texture, &resource,
            &linear, NULL));
  void *parameters[] = {&to, &texture};
  OK(launch(module, "integers", 1, 64, parameters));
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), out, to, sizeof out));
  for (unsigned i = 0; i < 64; i++) IS(texels[i], out[i]);
  OK(CALL(cuTexObjectDestroy, (uint64_t), texture));
}

/* A texture without rows whose description is longer than its allocation: 512 bytes, as accounted. */
static void longer(void) {
  enum { COUNT = 128, FIRST = COUNT - 4, THREADS = 8 };
  void *module = load();
  float texels[COUNT], out[THREADS];
  uint64_t texture = 0;
  unsigned first = FIRST;
  for (int i = 0; i < COUNT; i++) texels[i] = (float)(i + 1);
  devptr device = check_alloc(sizeof texels), to = check_alloc(sizeof out);
  MUST(CALL(cuMemcpyHtoD_v2, (devptr, const void *, size_t), device, texels, sizeof texels));
  struct resource resource = {
      .type = 2, .of.memory = {.address = device, .format = FLOAT, .channels = 1, .width = 4096}};
  OK(CALL(cuTexObjectCreate, (uint64_t *, const void *, const void *, const void *), &texture, &resource,
          &clamped, NULL));
  void *parameters[] = {&to, &texture, &first};
  OK(launch(module, "elements", 1, THREADS, parameters));
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), out, to, sizeof out));
  for (int i = 0; i < THREADS; i++) IS(i < 4 ? FIRST + i + 1 : 0, (int)out[i]);
  OK(CALL(cuTexObjectDestroy, (uint64_t), texture));
  OK(CALL(cuMemFree_v2, (devptr), device));
  IS(INVALID_VALUE, CALL(cuTexObjectCreate, (uint64_t *, const void *, const void *, const void *), &texture,
                         &resource, &clamped, NULL));
}

static void views(void) {
  /* Only the second level, through a view. */
  void *module = load(), *mipmap = NULL, *level = NULL;
  const struct deep as = {8, 8, 0, FLOAT, 1, 0};
  float texels[16];
  for (int i = 0; i < 16; i++) texels[i] = (float)(100 - i);
  MUST(CALL(cuMipmappedArrayCreate, (void **, const void *, unsigned), &mipmap, &as, 4));
  MUST(CALL(cuMipmappedArrayGetLevel, (void **, void *, unsigned), &level, mipmap, 1));
  struct box box = {.from = {.type = HOST, .host = texels, .pitch = 16, .height = 4},
                    .to = {.type = ARRAY, .array = level},
                    .width = 16,
                    .height = 4,
                    .depth = 1};
  MUST(copy(&box));
  struct resource resource = {.type = 1, .of.array = mipmap};
  struct view view = {.format = 0x16, .width = 4, .height = 4, .first_level = 1, .last_level = 1}, told;
  uint64_t texture = 0;
  OK(CALL(cuTexObjectCreate, (uint64_t *, const void *, const void *, const void *), &texture, &resource,
          &clamped, &view));
  see(module, texture, 1.5f, texels + 4, 4);
  OK(CALL(cuTexObjectGetResourceViewDesc, (void *, uint64_t), &told, texture));
  OK(memcmp(&told, &view, sizeof view));
  OK(CALL(cuTexObjectDestroy, (uint64_t), texture));
  resource = (struct resource){.type = 0, .of.array = level};
  OK(CALL(cuTexObjectCreate, (uint64_t *, const void *, const void *, const void *), &texture, &resource,
          &clamped, NULL));
  see(module, texture, 3.5f, texels + 12, 4);
}

static void surfaces(void) {
  void *module = load();
  float zeros[32] = {0};
  void *array = array_of(zeros, 8, 4, SURFACE), *plain = array_of(zeros, 8, 4, 0);
  struct resource resource = {.of.array = array}, told;
  uint64_t surface = 0;
  uint32_t value = 50, out[32];
  OK(CALL(cuSurfObjectCreate, (uint64_t *, const void *), &surface, &resource));
  void *parameters[] = {&surface, &value};
  OK(launch(module, "fill", 4, 8, parameters));
  struct box box = {.from = {.type = ARRAY, .array = array},
                    .to = {.type = HOST, .host = out, .pitch = 32, .height = 4},
                    .width = 32,
                    .height = 4,
                    .depth = 1};
  OK(copy(&box));
  for (unsigned i = 0; i < 32; i++) IS(50 + i % 8, out[i]);
  OK(CALL(cuSurfObjectGetResourceDesc, (void *, uint64_t), &told, surface));
  TRUE(told.of.array == array);
  OK(CALL(cuSurfObjectDestroy, (uint64_t), surface));
  resource.of.array = plain;
  IS(INVALID_VALUE, CALL(cuSurfObjectCreate, (uint64_t *, const void *), &surface, &resource));
}

/* An invented object number ends the kernel with an error, and the context keeps the error. */
static void made_up(void) {
  void *module = load();
  devptr device = check_alloc(64);
  uint64_t texture = 0x123456789abcull;
  float row = 0;
  void *parameters[] = {&device, &texture, &row};
  int result = launch(module, "row_of", 1, 1, parameters);
  if (result == 0) result = CALL(cuCtxSynchronize, (void), );
  IS(ILLEGAL_ADDRESS, result);
  IS(ILLEGAL_ADDRESS, CALL(cuCtxSynchronize, (void), ));
}

/* A destroyed object has the same effect. */
static void destroyed(void) {
  void *module = load();
  float texels[32] = {0};
  devptr device = check_alloc(64);
  struct resource resource = {.of.array = array_of(texels, 8, 4, 0)};
  uint64_t texture = 0;
  float row = 0;
  OK(CALL(cuTexObjectCreate, (uint64_t *, const void *, const void *, const void *), &texture, &resource,
          &clamped, NULL));
  OK(CALL(cuTexObjectDestroy, (uint64_t), texture));
  void *parameters[] = {&device, &texture, &row};
  int result = launch(module, "row_of", 1, 1, parameters);
  if (result == 0) result = CALL(cuCtxSynchronize, (void), );
  IS(ILLEGAL_ADDRESS, result);
}

static void references(void) {
  void *module = load(), *picture = NULL, *again = NULL, *canvas = NULL, *array = NULL;
  float texels[8] = {3, 1, 4, 1, 5, 9, 2, 6}, zeros[8] = {0}, out[8];
  void *source = array_of(texels, 8, 1, 0), *target = array_of(zeros, 8, 1, SURFACE);
  devptr device = check_alloc(64);
  OK(CALL(cuModuleGetTexRef, (void **, void *, const char *), &picture, module, "picture"));
  OK(CALL(cuModuleGetTexRef, (void **, void *, const char *), &again, module, "picture"));
  TRUE(picture == again);
  OK(CALL(cuModuleGetSurfRef, (void **, void *, const char *), &canvas, module, "canvas"));
  IS(NOT_FOUND, CALL(cuModuleGetTexRef, (void **, void *, const char *), &again, module, "nothing"));
  size_t bytes = 0;
  devptr variable = 0;
  IS(NOT_FOUND, CALL(cuModuleGetGlobal_v2, (devptr *, size_t *, void *, const char *), &variable, &bytes,
                     module, "picture"));
  OK(CALL(cuTexRefSetArray, (void *, void *, unsigned), picture, source, 1));
  OK(CALL(cuTexRefSetAddressMode, (void *, int, int), picture, 0, 1));
  OK(CALL(cuTexRefSetFilterMode, (void *, int), picture, 0));
  OK(CALL(cuSurfRefSetArray, (void *, void *, unsigned), canvas, target, 0));
  OK(CALL(cuTexRefGetArray, (void **, void *), &array, picture));
  TRUE(array == source);
  void *parameters[] = {&device};
  OK(launch(module, "by_name", 1, 8, parameters));
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), out, device, sizeof out));
  OK(memcmp(out, texels, sizeof out));
  OK(CALL(cuMemcpyAtoH_v2, (void *, void *, size_t, size_t), out, target, 0, sizeof out));
  OK(memcmp(out, texels, sizeof out));
  /*
   * Bound again to the bytes that the surface wrote, with a filter: a sample between two texels is between
   * their values.
   */
  int mode = -1;
  OK(CALL(cuTexRefSetAddress2D_v3, (void *, const void *, devptr, size_t), picture,
          &(struct flat){8, 1, FLOAT, 1}, device, 512));
  OK(CALL(cuTexRefSetFilterMode, (void *, int), picture, 1));
  OK(CALL(cuTexRefGetFilterMode, (int *, void *), &mode, picture));
  IS(1, mode);
  IS(INVALID_VALUE, CALL(cuTexRefGetArray, (void **, void *), &array, picture));
  OK(CALL(cuModuleUnload, (void *), module));
  IS(INVALID_HANDLE, CALL(cuTexRefSetFilterMode, (void *, int), picture, 0));
  void *own = NULL;
  unsigned flags = 9;
  OK(CALL(cuTexRefCreate, (void **), &own));
  OK(CALL(cuTexRefSetFlags, (void *, unsigned), own, NORMALIZED_COORDINATES));
  OK(CALL(cuTexRefGetFlags, (unsigned *, void *), &flags, own));
  IS(NORMALIZED_COORDINATES, flags);
  OK(CALL(cuTexRefDestroy, (void *), own));
}

/* A capture and a node copy the bytes that are there when the graph is launched. */
static void graphs(void) {
  float texels[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8] = {0};
  void *array = array_of(texels, 8, 1, 0), *stream = NULL, *graph = NULL, *exec = NULL;
  struct box in = {.from = {.type = HOST, .host = texels, .pitch = 32, .height = 1},
                   .to = {.type = ARRAY, .array = array},
                   .width = 32,
                   .height = 1,
                   .depth = 1};
  struct box back = {.from = in.to, .to = in.from, .width = 32, .height = 1, .depth = 1};
  back.to.host = out;
  MUST(CALL(cuStreamCreate, (void **, unsigned), &stream, 1));
  MUST(CALL(cuStreamBeginCapture_v2, (void *, int), stream, 0));
  OK(CALL(cuMemcpy3DAsync_v2, (const void *, void *), &in, stream));
  OK(CALL(cuMemcpy3DAsync_v2, (const void *, void *), &back, stream));
  MUST(CALL(cuStreamEndCapture, (void *, void **), stream, &graph));
  MUST(CALL(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long), &exec, graph, 0));
  for (int turn = 0; turn < 3; turn++) {
    for (int i = 0; i < 8; i++) texels[i] = (float)(turn * 10 + i);
    OK(CALL(cuGraphLaunch, (void *, void *), exec, stream));
    OK(CALL(cuStreamSynchronize, (void *), stream));
    OK(memcmp(out, texels, sizeof out));
  }
  void *node = NULL, *context = NULL, *made = NULL;
  MUST(CALL(cuCtxGetCurrent, (void **), &context));
  MUST(CALL(cuGraphCreate, (void **, unsigned), &made, 0));
  OK(CALL(cuGraphAddMemcpyNode, (void **, void *, void **, size_t, const void *, void *), &node, made, NULL,
          0, &back, context));
  MUST(CALL(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long), &exec, made, 0));
  memset(out, 0, sizeof out);
  OK(CALL(cuGraphLaunch, (void *, void *), exec, stream));
  OK(CALL(cuStreamSynchronize, (void *), stream));
  OK(memcmp(out, texels, sizeof out));
}

int main(int argc, char **argv) {
  static const struct check_case cases[] = {{"describes", describes},
                                            {"bad_requests", bad_requests},
                                            {"counts_memory", counts_memory},
                                            {"copies", copies},
                                            {"lines", lines},
                                            {"mipmaps", mipmaps},
                                            {"textures", textures},
                                            {"linear_integers", linear_integers},
                                            {"longer", longer},
                                            {"views", views},
                                            {"surfaces", surfaces},
                                            {"made_up", made_up},
                                            {"destroyed", destroyed},
                                            {"references", references},
                                            {"graphs", graphs}};
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
