/*
 * libcuda.so.1 for programs that are driven by lines. Each function is looked up when it is called. The
 * declarations are written by hand from the public API, because the generated ones are under test, too.
 */
#ifndef VGPU_TEST_LIBRARY_H
#define VGPU_TEST_LIBRARY_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *library;

static inline void *need(const char *name) {
  void *symbol = dlsym(library, name);
  if (symbol == NULL) {
    fprintf(stderr, "no %s\n", name);
    exit(3);
  }
  return symbol;
}

/* CALL((int, void *), cuFoo, 1, NULL) */
#define CALL(types, name, ...) ((int(*) types)need(#name))(__VA_ARGS__)

#endif
