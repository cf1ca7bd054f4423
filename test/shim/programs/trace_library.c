/* A library that looks symbols up itself, for trace.test.ts: opened with or without RTLD_DEEPBIND. */
#include <dlfcn.h>
#include <stdio.h>

void *look(const char *library, const char *symbol);
int cuInit(unsigned flags);

void *look(const char *library, const char *symbol) {
  void *handle = dlopen(library, RTLD_NOW);
  return handle == NULL ? NULL : dlsym(handle, symbol);
}

/* An interposer: is found before libcuda and calls the next function. */
int cuInit(unsigned flags) {
  int (*next)(unsigned) = (int (*)(unsigned))dlsym(RTLD_NEXT, "cuInit");
  Dl_info found;
  if (next == NULL || dladdr((void *)next, &found) == 0) {
    puts("next nothing");
    return 999;
  }
  printf("next %s\n", found.dli_fname);
  return next(flags);
}
