/*
 * The data that the daemon passes to a worker. The daemon executes this program again for each worker, so
 * that a guest that learns the addresses of its worker knows nothing about those of another one. A worker
 * inherits descriptors by number. Two of them are memory with these structures: one is the same for all
 * workers, one is for the session.
 */
#ifndef VGPU_HOST_SETUP_H
#define VGPU_HOST_SETUP_H

#include "host/backend/backend.h"
#include "host/session/confine.h"
#include "host/session/answer.h"

#define VGPU_WORKER_WORD "--worker" /* the first word of a worker's command line */

enum vgpu_worker_descriptor {
  VGPU_WORKER_LOG = 2, /* to the daemon (worker_logs.h) */
  VGPU_WORKER_CONNECTION = 3,
  VGPU_WORKER_SESSION = 4,
  VGPU_WORKER_HOST = 5,
  VGPU_WORKER_ACCOUNTS_WRITE = 6,
  VGPU_WORKER_ACCOUNTS_READ = 7,
  VGPU_WORKER_IMAGES = 8,     /* with an image cache */
  VGPU_WORKER_LAUNCH_LOG = 9, /* with a launch log */
  VGPU_WORKER_VM_MEMORY = 10, /* with memory of the guest's VM */
  VGPU_WORKER_VM_MEMORY_AGAIN = 11,
  VGPU_WORKER_EXCHANGE = 12, /* unless the daemon could make none */
  VGPU_WORKER_LINE = 13,     /* likewise */
  VGPU_WORKER_PEER = 14,     /* the process of the guest, or the one that connected, if known */
  VGPU_WORKER_DESCRIPTORS = 15,
};

#define VGPU_WORKER_GROUPS 8u

struct vgpu_worker_user {
  bool changes; /* false: a worker runs as the daemon's user */
  uint32_t uid, gid;
  uint32_t groups[VGPU_WORKER_GROUPS];
  uint32_t group_count;
};

struct vgpu_host_setup {
  char backend[16];
  bool filter; /* filter system calls */
  struct vgpu_worker_user user;
  struct vgpu_inventory inventory; /* its pointers are not valid here */
  struct vgpu_code_options code;   /* its pointers are not valid here */
  uint64_t image_cache;
  char cuda_library[4096], nvml_library[4096];
  struct vgpu_filter_program program;
  _Alignas(16) unsigned char profiles[]; /* inventory.profiles_bytes */
};

struct vgpu_session_setup {
  int32_t daemon; /* its pid */
  uint32_t slot;
  uint64_t session;
  uint64_t secret; /* 0: the session ends with its connection */
  bool peer_is_guest;
  bool direct; /* the guest's own unix socket on this kernel: the connection ends with the guest */
  struct vgpu_peer peer;
  struct vgpu_chosen_devices devices;
  struct vgpu_limits limits;
  uint64_t vm_memory; /* bytes; 0: the guest's VM has none */
  struct vgpu_hello hello;
};

/* Changes to that user permanently. False with errno. */
bool vgpu_worker_become(const struct vgpu_worker_user *user);

/* Runs a worker from beginning to end. Returns its exit status. */
int vgpu_worker_main(void);

#endif
