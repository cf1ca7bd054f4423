/*
 * nvrtc_compile LIBRARY SOURCE ARCHITECTURE OUTPUT [INCLUDE]: PTX of a .cu file by NVRTC. Used by
 * test/shim/kernels/make only; no test runs it.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef void *program;

static char *read_file(const char *path) {
  FILE *f = fopen(path, "rb");
  if (f == NULL) return NULL;
  fseek(f, 0, SEEK_END);
  long size = ftell(f);
  rewind(f);
  char *text = calloc(1, (size_t)size + 1);
  if (text != NULL && fread(text, 1, (size_t)size, f) != (size_t)size) text[0] = 0;
  fclose(f);
  return text;
}

/* NVRTC has no host headers; these contain only the declarations that the kernels need. */
static const char *const names[] = {"cstdio", "cassert"};
static const char *const texts[] = {
    "extern \"C\" __device__ int printf(const char *, ...);\n",
    "extern \"C\" __device__ void __assertfail(const char *, const char *, unsigned, const char *, unsigned "
    "long);\n"
    "#define assert(c) ((c) ? (void)0 : __assertfail(#c, __FILE__, __LINE__, __func__, 1))\n"};

#define FIND(type, name) __typeof__(type) name = (__typeof__(type))dlsym(library, #name)
int main(int count, char **words) {
  if (count < 5) return 2;
  void *library = dlopen(words[1], RTLD_NOW);
  char *source = read_file(words[2]);
  if (library == NULL || source == NULL) {
    fprintf(stderr, "%s\n", library == NULL ? dlerror() : "cannot read the source");
    return 1;
  }
  FIND(int (*)(program *, const char *, const char *, int, const char *const *, const char *const *),
       nvrtcCreateProgram);
  FIND(int (*)(program, int, const char *const *), nvrtcCompileProgram);
  FIND(int (*)(program, size_t *), nvrtcGetProgramLogSize);
  FIND(int (*)(program, char *), nvrtcGetProgramLog);
  FIND(int (*)(program, size_t *), nvrtcGetPTXSize);
  FIND(int (*)(program, char *), nvrtcGetPTX);
  char architecture[64], include[4096];
  snprintf(architecture, sizeof architecture, "--gpu-architecture=compute_%s", words[3]);
  snprintf(include, sizeof include, "--include-path=%s", count > 5 ? words[5] : ".");
  const char *options[] = {architecture, include, "--std=c++17", "--device-int128"};
  program p;
  size_t size = 0;
  if (nvrtcCreateProgram(&p, source, words[2], 2, texts, names) != 0) return 1;
  if (nvrtcCompileProgram(p, 4, options) != 0) {
    nvrtcGetProgramLogSize(p, &size);
    char *log = calloc(1, size + 1);
    if (log != NULL && nvrtcGetProgramLog(p, log) == 0) fputs(log, stderr);
    return 1;
  }
  nvrtcGetPTXSize(p, &size);
  char *ptx = calloc(1, size + 1);
  if (ptx == NULL || nvrtcGetPTX(p, ptx) != 0) return 1;
  FILE *f = fopen(words[4], "wb");
  if (f == NULL || fputs(ptx, f) < 0 || fclose(f) != 0) return 1;
  return 0;
}
