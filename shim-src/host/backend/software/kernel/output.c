#include <stdio.h>

#include "host/backend/software/kernel/internal.h"
#include "host/backend/software/software.h"
#include "host/log.h"

void vgpu_run_print(void *user, const char *text, size_t length) {
  struct vgpu_worker *worker = user;
  if (worker->printed.agreed) {
    vgpu_printed_add(&worker->printed, text, length);
    return;
  }
  while (length > 0 && text[length - 1] == '\n') length--;
  vgpu_host_log("printed", worker->session, "a kernel prints: %.*s", (int)(length < 500 ? length : 500),
                text);
}

void vgpu_run_report(void *user, const struct ptx_finding *f) {
  const struct vgpu_worker *worker = user;
  char members[640];
  if (f->check == 0) {
    snprintf(members, sizeof members, "\"kernel\":\"%.200s\",\"more\":%llu", f->kernel,
             (unsigned long long)f->rest);
    vgpu_host_log_members("check", worker->session, members,
                          "kernel %.200s: %llu more findings are not reported", f->kernel,
                          (unsigned long long)f->rest);
    return;
  }
  bool race = f->check == PTX_CHECK_RACE;
  int length = snprintf(
      members, sizeof members,
      "\"check\":\"%s\",\"kernel\":\"%.200s\",\"instruction\":\"%s\",\"space\":\"%s\",\"line\":%u,"
      "\"block\":[%u,%u,%u],\"thread\":[%u,%u,%u],\"address\":%llu,\"bytes\":%u",
      race ? "race" : "init", f->kernel, f->instruction, f->space, f->line, f->block[0], f->block[1],
      f->block[2], f->thread[0], f->thread[1], f->thread[2], (unsigned long long)f->address, f->bytes);
  if (race) {
    snprintf(members + length, sizeof members - (size_t)length,
             ",\"access\":\"%s\",\"before\":{\"access\":\"%s\",\"line\":%u,\"thread\":[%u,%u,%u]}",
             f->writes ? "write" : "read", f->other_writes ? "write" : "read", f->other_line,
             f->other_thread[0], f->other_thread[1], f->other_thread[2]);
    vgpu_host_log_members("check", worker->session, members,
                          "race: kernel %.200s, line %u of its PTX (%s): block %u,%u,%u thread %u,%u,%u %s "
                          "%u bytes at 0x%llx of "
                          "shared memory that thread %u,%u,%u %s at line %u, with no barrier between",
                          f->kernel, f->line, f->instruction, f->block[0], f->block[1], f->block[2],
                          f->thread[0], f->thread[1], f->thread[2], f->writes ? "writes" : "reads", f->bytes,
                          (unsigned long long)f->address, f->other_thread[0], f->other_thread[1],
                          f->other_thread[2], f->other_writes ? "wrote" : "read", f->other_line);
    return;
  }
  vgpu_host_log_members(
      "check", worker->session, members,
      "init: kernel %.200s, line %u of its PTX (%s): block %u,%u,%u thread %u,%u,%u reads %u "
      "bytes at 0x%llx of %s memory that was never written",
      f->kernel, f->line, f->instruction, f->block[0], f->block[1], f->block[2], f->thread[0], f->thread[1],
      f->thread[2], f->bytes, (unsigned long long)f->address, f->space);
}
