#include "host/backend/cuda/filter.h"

#include "host/session/filter.h"

#define CALL(name) VGPU_CALL(name)

/*
 * Calls that are denied with the host's own driver. It is not known which calls that driver needs. So the
 * list has only calls that no driver of a GPU needs, and each fails with an error, because the driver may try
 * one and work without it.
 */
static const int never[] = {
    CALL(execve), CALL(execveat), CALL(ptrace), CALL(process_vm_readv), CALL(process_vm_writev), CALL(kcmp),
    CALL(pidfd_getfd), CALL(init_module), CALL(finit_module), CALL(delete_module), CALL(kexec_load),
    CALL(kexec_file_load), CALL(reboot), CALL(mount), CALL(umount2), CALL(pivot_root), CALL(chroot),
    CALL(move_mount), CALL(open_tree), CALL(fsopen), CALL(fsmount), CALL(fsconfig), CALL(fspick),
    CALL(mount_setattr), CALL(swapon), CALL(swapoff), CALL(setns), CALL(unshare), CALL(bpf),
    CALL(perf_event_open), CALL(userfaultfd), CALL(add_key), CALL(request_key), CALL(keyctl),
    CALL(open_by_handle_at), CALL(acct), CALL(quotactl), CALL(syslog), CALL(settimeofday),
    CALL(clock_settime), CALL(clock_adjtime), CALL(adjtimex), CALL(sethostname), CALL(setdomainname),
    CALL(personality), CALL(fanotify_init), CALL(io_uring_setup), CALL(io_uring_enter),
    CALL(io_uring_register), CALL(iopl), CALL(ioperm), CALL(modify_ldt), CALL(lookup_dcookie), CALL(vhangup),
    CALL(nfsservctl),
    /*
     * listen is allowed: NVIDIA's libcuda listens on the abstract socket @cuda-uvmfd-... when it initializes,
     * and fails if it may not (snapd's rules and the notes of Venus say so). No connection is ever accepted
     * there.
     */
    CALL(accept), CALL(accept4)};

static void *make(uint32_t denied) {
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
  if (filter == NULL) return NULL;
  int result = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
  result |= vgpu_filter_add(filter, denied, never, sizeof never / sizeof *never);
  if (result == 0) return filter;
  seccomp_release(filter);
  return NULL;
}

void *vgpu_cuda_filter(void) {
  return make(SCMP_ACT_ERRNO(EPERM));
}

void *vgpu_cuda_filter_that_tells(void) {
  return make(SCMP_ACT_TRAP);
}
