/*
 * Binds to CUDA in the ways that programs use, for trace.test.ts: `trace_guest WAY FILE...`. Prints the
 * results, so that a run with libvgpu-trace.so can be compared with a run without it.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int cuDriverGetVersion(int *version); /* the one that is linked directly */

static void *open_or_end(const char *file, int flags) {
  void *library = dlopen(file, flags);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(3);
  }
  return library;
}

static void say_where(const char *what, void *function) {
  Dl_info found;
  printf("%s %s\n", what, function != NULL && dladdr(function, &found) != 0 ? found.dli_fname : "nothing");
}

typedef int lookup(const char *, void **, int, uint64_t, int *);

/* Prints the answer of a library's cuGetProcAddress_v2, and the library that the answer is from. */
static void ask(void *library, const char *symbol, int version) {
  lookup *get = (lookup *)dlsym(library, "cuGetProcAddress_v2");
  void *function = NULL;
  int status = -1;
  int result = get(symbol, &function, version, 0, &status);
  printf("%s result %d status %d\n", symbol, result, status);
  say_where(symbol, function);
}

/* As the CUDA runtime does it: asks for the lookup function itself, and uses that for the next lookup. */
static void ask_again(void *library) {
  lookup *get = (lookup *)dlsym(library, "cuGetProcAddress_v2"), *again = NULL;
  void *function = NULL;
  int result = get("cuGetProcAddress", (void **)&again, 12000, 0, NULL);
  result = result == 0 ? again("cuMemFree", &function, 12000, 0, NULL) : result;
  printf("again result %d\n", result);
  say_where("again", function);
}

static void *look_often(void *library) {
  for (int i = 0; i < 200; i++) {
    if (dlsym(library, i % 2 == 0 ? "cuInit" : "cuNoSuchThing") == NULL && i % 2 == 0) abort();
  }
  return NULL;
}

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  const char *way = argv[1];
  if (strcmp(way, "direct") == 0) {
    int version = 0;
    printf("version %d %d\n", cuDriverGetVersion(&version), version > 0);
  } else if (strcmp(way, "looks") == 0) {
    void *library = open_or_end("libcuda.so.1", RTLD_NOW);
    say_where("cuInit", dlsym(library, "cuInit"));
    say_where("cuNoSuchThing", dlsym(library, "cuNoSuchThing"));
    printf("error %s\n", dlerror() != NULL ? "told" : "lost");
    say_where("malloc", dlsym(RTLD_DEFAULT, "malloc"));
  } else if (strcmp(way, "asks") == 0) {
    for (int i = 2; i < argc; i++) {
      void *library = open_or_end(argv[i], RTLD_NOW | RTLD_LOCAL);
      ask(library, "cuMemAlloc", 12000);
      ask(library, "cuNoSuchThing", 12000);
      ask(library, "cuGraphAddNode", 8000);
      ask_again(library);
    }
  } else if (strcmp(way, "through") == 0 && argc >= 4) {
    void *library = open_or_end(argv[2], RTLD_NOW | (strcmp(argv[3], "deep") == 0 ? RTLD_DEEPBIND : 0));
    void *(*look)(const char *, const char *) = (void *(*)(const char *, const char *))dlsym(library, "look");
    say_where("cuInit", look("libcuda.so.1", "cuInit"));
  } else if (strcmp(way, "next") == 0) {
    int (*start)(unsigned) = (int (*)(unsigned))dlsym(RTLD_DEFAULT, "cuInit");
    say_where("default", (void *)start);
    printf("gave %d\n", start(0));
  } else if (strcmp(way, "threads") == 0) {
    void *library = open_or_end("libcuda.so.1", RTLD_NOW);
    pthread_t threads[16];
    for (int i = 0; i < 16; i++) pthread_create(&threads[i], NULL, look_often, library);
    for (int i = 0; i < 16; i++) pthread_join(threads[i], NULL);
    puts("done");
  } else {
    return 2;
  }
  return 0;
}
