/*
 * Included before everything in what comes into guests (meson.build), so that it runs with older C libraries
 * than the one it is built with: the libraries with glibc 2.31, since they are loaded into containers, too;
 * vgpu-probe and vgpu-watch with 2.34, since the start of a program, __libc_start_main, has that version. The
 * host daemon runs on the machine that it was built for. test/shim/guest/glibc_floor.test.ts checks what was
 * built.
 */
#ifndef VGPU_GLIBC_FLOOR_H
#define VGPU_GLIBC_FLOOR_H
#ifndef __ASSEMBLER__

#include <features.h>

/* glibc 2.38 gives strtoul() and sscanf() other names because _GNU_SOURCE asks for C23, which reads "0b1" as
 * binary. */
#ifdef __GLIBC_USE_C2X_STRTOL
#undef __GLIBC_USE_C2X_STRTOL
#define __GLIBC_USE_C2X_STRTOL 0
#endif
#ifdef __GLIBC_USE_C23_STRTOL
#undef __GLIBC_USE_C23_STRTOL
#define __GLIBC_USE_C23_STRTOL 0
#endif

/*
 * glibc 2.34 moved libpthread and libdl into libc and gave what moved a new version besides its first one. We
 * take the first one. Older systems find it in libpthread.so.0 and libdl.so.2, which the libraries therefore
 * name as needed.
 */
#if defined(VGPU_FIRST_VERSIONS) && (defined(__x86_64__) || defined(__aarch64__))
#ifdef __x86_64__
#define VGPU_FIRST(name, version) __asm__(".symver " #name ", " #name "@GLIBC_" #version)
#else
/* arm64 came with glibc 2.17: that is the first version of all that is older. */
#define VGPU_FIRST(name, version) __asm__(".symver " #name ", " #name "@GLIBC_2.17")
#endif
VGPU_FIRST(pthread_create, 2.2.5);
VGPU_FIRST(pthread_join, 2.2.5);
VGPU_FIRST(pthread_detach, 2.2.5);
VGPU_FIRST(pthread_once, 2.2.5);
VGPU_FIRST(pthread_sigmask, 2.2.5);
VGPU_FIRST(pthread_key_create, 2.2.5);
VGPU_FIRST(pthread_key_delete, 2.2.5);
VGPU_FIRST(pthread_getspecific, 2.2.5);
VGPU_FIRST(pthread_setspecific, 2.2.5);
VGPU_FIRST(pthread_mutex_trylock, 2.2.5);
VGPU_FIRST(pthread_rwlock_init, 2.2.5);
VGPU_FIRST(pthread_rwlock_destroy, 2.2.5);
VGPU_FIRST(pthread_rwlock_rdlock, 2.2.5);
VGPU_FIRST(pthread_rwlock_wrlock, 2.2.5);
VGPU_FIRST(pthread_rwlock_unlock, 2.2.5);
VGPU_FIRST(pthread_condattr_setclock, 2.3.3);
VGPU_FIRST(pthread_setname_np, 2.12);
VGPU_FIRST(pthread_getattr_np, 2.2.5);
VGPU_FIRST(pthread_attr_getstack, 2.2.5);
VGPU_FIRST(sem_init, 2.2.5);
VGPU_FIRST(sem_post, 2.2.5);
VGPU_FIRST(sem_wait, 2.2.5);
/* A library that interposes these two has no version of its own for them. */
#ifndef VGPU_OWN_LOOKUPS
VGPU_FIRST(dlopen, 2.2.5);
VGPU_FIRST(dlsym, 2.2.5);
#endif
VGPU_FIRST(dlclose, 2.2.5);
VGPU_FIRST(dlerror, 2.2.5);
VGPU_FIRST(dladdr, 2.2.5);
VGPU_FIRST(dlvsym, 2.2.5);
VGPU_FIRST(dlinfo, 2.3.3);
#undef VGPU_FIRST
#endif

#endif
#endif
