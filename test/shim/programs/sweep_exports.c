/*
 * sweep_exports LIBRARY < NAMES: calls every function named on stdin with meaningless arguments and prints
 * "NAME RESULT". If it ends with SIGSEGV the test fails, because a function that is not implemented must not
 * read its arguments.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **words) {
  void *library = count == 2 ? dlopen(words[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (library == NULL) {
    fprintf(stderr, "%s\n", count == 2 ? dlerror() : "usage: sweep_exports LIBRARY");
    return 3;
  }
  char name[256];
  while (fgets(name, sizeof name, stdin) != NULL) {
    name[strcspn(name, "\n")] = '\0';
    /* Invalid pointers in every register: a refused call reads none. */
    int (*function)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);
    void *symbol = dlsym(library, name);
    memcpy(&function, &symbol, sizeof function);
    printf("%s %d\n", name, symbol == NULL ? -1 : function(16, 16, 16, 16, 16, 16));
  }
  return 0;
}
