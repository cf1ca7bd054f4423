/*
 * A launch that is too large is refused by the launch call itself: programs try a size, check the result and
 * try a smaller size. The sizes that the occupancy calls return must run.
 */
#include "check.h"

enum { INVALID_CLUSTER_SIZE = 912, COOPERATIVE_TOO_LARGE = 720 };
enum { COOPERATIVE = 2, CLUSTER = 4, NON_PORTABLE_ALLOWED = 14, MULTIPROCESSORS = 16 };

/* CUlaunchAttribute and CUlaunchConfig. */
struct attribute {
  unsigned id, unused;
  unsigned value[16];
};
struct config {
  unsigned grid[3], block[3], shared;
  void *stream;
  struct attribute *attributes;
  unsigned count;
};

/* `all`: each block adds one and waits until all have. The others: each thread adds its block's rank. */
static const char text[] =
    ".version 7.8\n.target sm_90\n.address_size 64\n"
    ".visible .entry all(.param .u64 to, .param .u32 blocks) {\n"
    ".reg .b64 %p; .reg .b32 %n, %v; .reg .pred %q;\n"
    "ld.param.u64 %p, [to]; ld.param.u32 %n, [blocks]; mov.u32 %v, %tid.x; setp.ne.u32 %q, %v, 0;\n"
    "@%q bra done; atom.global.add.u32 %v, [%p], 1;\n"
    "again: ld.volatile.global.u32 %v, [%p]; setp.lt.u32 %q, %v, %n; @%q bra again;\n"
    "done: ret; }\n"
    ".visible .entry ranks(.param .u64 to) {\n"
    ".reg .b64 %p; .reg .b32 %v;\n"
    "ld.param.u64 %p, [to]; mov.u32 %v, %cluster_ctarank; red.global.add.u32 [%p], %v; ret; }\n"
    ".visible .entry fours(.param .u64 to) .reqnctapercluster 4 {\n"
    ".reg .b64 %p; .reg .b32 %v;\n"
    "ld.param.u64 %p, [to]; mov.u32 %v, %cluster_ctarank; red.global.add.u32 [%p], %v; ret; }\n";

static void *function_of(const char *name) {
  void *module = NULL, *function = NULL;
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, text));
  MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, name));
  return function;
}

static devptr zero(void) {
  static devptr word;
  if (word == 0) word = check_alloc(4);
  MUST(CALL(cuMemsetD32_v2, (devptr, unsigned, size_t), word, 0, 1));
  return word;
}

static unsigned sum(devptr word) {
  unsigned value = 77;
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), &value, word, 4));
  return value;
}

static int together(void *function, unsigned blocks, unsigned threads, unsigned dynamic, devptr to) {
  void *parameters[] = {&to, &blocks};
  return CALL(cuLaunchCooperativeKernel,
              (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **),
              function, blocks, 1, 1, threads, 1, 1, dynamic, NULL, parameters);
}

static void cooperative_size(void) {
  static const struct {
    int threads;
    unsigned dynamic;
  } blocks[] = {{32, 0}, {64, 0}, {256, 0}, {1024, 0}, {128, 40000}};
  void *function = function_of("all");
  int multiprocessors = 0;
  MUST(CALL(cuDeviceGetAttribute, (int *, int, int), &multiprocessors, MULTIPROCESSORS, 0));
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
    int each = 0;
    OK(CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *, void *, int, size_t), &each, function,
            blocks[i].threads, blocks[i].dynamic));
    TRUE(each > 0);
    unsigned most = (unsigned)(each * multiprocessors), threads = (unsigned)blocks[i].threads;
    devptr word = zero();
    IS(COOPERATIVE_TOO_LARGE, together(function, most + 1, threads, blocks[i].dynamic, word));
    OK(CALL(cuCtxSynchronize, (void), ));
    OK(together(function, most, threads, blocks[i].dynamic, word));
    IS(most, sum(word));
  }
}

static int in_clusters(void *function, unsigned blocks, const unsigned cluster[3], devptr to) {
  struct attribute size = {.id = CLUSTER};
  memcpy(size.value, cluster, 3 * sizeof *cluster);
  struct config config = {
      .grid = {blocks, 2, 1}, .block = {32, 1, 1}, .attributes = &size, .count = cluster[0] == 0 ? 0 : 1};
  void *parameters[] = {&to};
  return CALL(cuLaunchKernelEx, (const void *, void *, void **, void **), &config, function, parameters,
              NULL);
}

static void cluster_size(void) {
  static const unsigned four[3] = {4, 1, 1}, eight[3] = {4, 2, 1}, sixteen[3] = {8, 2, 1},
                        more[3] = {32, 1, 1}, none[3] = {0, 1, 1};
  void *function = function_of("ranks"), *fours = function_of("fours");
  devptr word = zero();
  IS(INVALID_CLUSTER_SIZE, in_clusters(function, 6, four, word));
  IS(INVALID_CLUSTER_SIZE, in_clusters(fours, 6, none, word)); /* the size that the kernel declares */
  IS(INVALID_CLUSTER_SIZE, in_clusters(function, 16, sixteen, word));
  IS(INVALID_CLUSTER_SIZE, in_clusters(function, 32, more, word));
  OK(CALL(cuCtxSynchronize, (void), ));
  IS(0, sum(word));
  OK(in_clusters(function, 16, eight, word));
  IS(4 * 28 * 32, sum(word));
  MUST(CALL(cuFuncSetAttribute, (void *, int, int), function, NON_PORTABLE_ALLOWED, 1));
  OK(in_clusters(function, 16, sixteen, zero()));
  IS(2 * 120 * 32, sum(word));
  OK(in_clusters(fours, 8, none, zero()));
  IS(4 * 6 * 32, sum(word));
}

static int active(void *function, unsigned x, unsigned threads, unsigned dynamic) {
  struct attribute size = {.id = CLUSTER, .value = {x, 1, 1}};
  struct config config = {
      .grid = {64, 1, 1}, .block = {threads, 1, 1}, .shared = dynamic, .attributes = &size, .count = 1};
  int clusters = -1;
  int result =
      CALL(cuOccupancyMaxActiveClusters, (int *, void *, const void *), &clusters, function, &config);
  return result == 0 ? clusters : -result;
}

/* An H100 has 132 multiprocessors of 2048 threads. A cluster runs within one group of 16 or 18 of them. */
static void active_clusters(void) {
  void *function = function_of("ranks");
  int multiprocessors = 0, each = 0;
  MUST(CALL(cuDeviceGetAttribute, (int *, int, int), &multiprocessors, MULTIPROCESSORS, 0));
  OK(CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *, void *, int, size_t), &each, function, 1024,
          0));
  IS(2, each);
  int ones = active(function, 1, 1024, 0);
  TRUE(ones > 0 && ones <= each * multiprocessors);
  for (unsigned x = 2; x <= 8; x *= 2) IS(ones / (int)x, active(function, x, 1024, 0));
  IS(ones / 2, active(function, 1, 1024, 150000)); /* room for one block's memory */
  IS(0, active(function, 2, 1024, 300000));
  IS(-INVALID_CLUSTER_SIZE, active(function, 17, 32, 0));
  struct config empty = {.grid = {1, 1, 1}};
  int clusters = 0;
  IS(INVALID_VALUE,
     CALL(cuOccupancyMaxActiveClusters, (int *, void *, const void *), &clusters, function, &empty));
  IS(INVALID_VALUE,
     CALL(cuOccupancyMaxActiveClusters, (int *, void *, const void *), NULL, function, &empty));
  struct config plain = {.grid = {64, 1, 1}, .block = {1024, 1, 1}};
  void *fours = function_of("fours"); /* the size that the kernel declares counts without an attribute */
  OK(CALL(cuOccupancyMaxActiveClusters, (int *, void *, const void *), &clusters, fours, &plain));
  IS(ones / 4, clusters);
}

/*
 * The text is so long that the simulated device decodes each kernel at its first launch. The device has no
 * instruction `frobnicate`.
 */
static void first_launch(void) {
  static char code[(80 << 10)];
  memset(code, ' ', sizeof code);
  static const char kernels[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                ".visible .entry strange()\n{\nfrobnicate.sync.aligned;\nret;\n}\n"
                                ".visible .entry plain(.param .u64 to)\n{\n.reg .b64 %p;\n"
                                "ld.param.u64 %p, [to]; st.global.u32 [%p], 5;\nret;\n}\n";
  memcpy(code, kernels, sizeof kernels - 1);
  code[sizeof code - 1] = '\0';
  void *library = NULL, *kernel = NULL, *strange = NULL;
  devptr word = zero();
  void *parameters[] = {&word};
  MUST(CALL(cuLibraryLoadData, (void **, const void *, void *, void *, unsigned, void *, void *, unsigned),
            &library, code, NULL, NULL, 0, NULL, NULL, 0));
  MUST(CALL(cuLibraryGetKernel, (void **, void *, const char *), &kernel, library, "plain"));
  MUST(CALL(cuLibraryGetKernel, (void **, void *, const char *), &strange, library, "strange"));
#define LAUNCH(which, with)                                                                                  \
  CALL(cuLaunchKernel,                                                                                       \
       (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,       \
        void **),                                                                                            \
       which, 1, 1, 1, 1, 1, 1, 0, NULL, with, NULL)
  /* Each launch returns the error; no later call does. */
  for (int i = 0; i < 2; i++) {
    IS(NOT_SUPPORTED, LAUNCH(strange, NULL));
    OK(CALL(cuCtxSynchronize, (void), ));
  }
  OK(LAUNCH(kernel, parameters));
  OK(CALL(cuCtxSynchronize, (void), ));
  IS(5, sum(word));
}

/* A kernel of a library, launched in two contexts in turn. For the count of frames: wire/round_trips. */
static void two_contexts(void) {
  static const char code[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                             ".visible .entry plain(.param .u64 to)\n{\n.reg .b64 %p;\n"
                             "ld.param.u64 %p, [to]; st.global.u32 [%p], 5;\nret;\n}\n";
  void *library = NULL, *kernel = NULL, *contexts[2];
  devptr words[2];
  for (int i = 0; i < 2; i++) {
    MUST(CALL(cuCtxCreate_v2, (void **, unsigned, int), &contexts[i], 0, 0));
    words[i] = zero();
  }
  MUST(CALL(cuLibraryLoadData, (void **, const void *, void *, void *, unsigned, void *, void *, unsigned),
            &library, code, NULL, NULL, 0, NULL, NULL, 0));
  MUST(CALL(cuLibraryGetKernel, (void **, void *, const char *), &kernel, library, "plain"));
  for (int i = 0; i < 20; i++) {
    void *parameters[] = {&words[i % 2]};
    OK(CALL(cuCtxSetCurrent, (void *), contexts[i % 2]));
    OK(LAUNCH(kernel, parameters));
  }
  for (int i = 0; i < 2; i++) {
    OK(CALL(cuCtxSetCurrent, (void *), contexts[i]));
    IS(5, sum(words[i]));
  }
}

int main(int argc, char **argv) {
  static const struct check_case cases[] = {
      {"cooperative_size", cooperative_size}, {"cluster_size", cluster_size},
      {"active_clusters", active_clusters},   {"first_launch", first_launch},
      {"two_contexts", two_contexts},
  };
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
