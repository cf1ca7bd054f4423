#include "host/daemon/workers.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "host/daemon/resume.h"
#include "host/log.h"
#include "host/session/confine.h"
#include "host/session/images.h"

static void bury(struct vgpu_supervisor *supervisor, pid_t pid, int status) {
  for (uint32_t i = 0; i < VGPU_SESSIONS_MAX; i++) {
    struct vgpu_session_entry *entry = &supervisor->sessions.entries[i];
    if (entry->pid != pid) continue;
    uint64_t session = entry->session;
    const struct vgpu_account *account = &supervisor->accounts->slots[i];
    int32_t denied = account->denied;
    vgpu_sessions_add_refused(entry, account, &entry->record->refused);
    vgpu_sessions_add_refused_memory(entry, account, &entry->record->memory);
    vgpu_worker_logs_leave(&supervisor->worker_logs, i, entry);
    entry->record->seen = vgpu_now_ns();
    entry->record->sessions--;
    entry->pid = 0;
    vgpu_resume_end(entry);
    vgpu_exchange_leave(&supervisor->exchange, i);
    vgpu_worker_groups_leave(&supervisor->worker_groups, i);
    supervisor->sessions.ended++;
    vgpu_accounts_end(supervisor->accounts, i);
    vgpu_images_end(supervisor->code.images, i);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS && denied >= 0) {
      char *name = vgpu_confine_name(denied);
      vgpu_host_log("seccomp", session, "ended: worker killed by signal %d: seccomp, system call %d (%s)",
                    SIGSYS, denied, name == NULL ? "?" : name);
      free(name);
    } else if (WIFSIGNALED(status)) {
      vgpu_host_log("ended", session, "ended: worker killed by signal %d", WTERMSIG(status));
    } else if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
      vgpu_host_log("error", session, "ended: the worker could not be started");
    } else {
      vgpu_host_log("ended", session, "ended");
    }
    return;
  }
}

void vgpu_workers_bury(struct vgpu_supervisor *supervisor) {
  int status;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) bury(supervisor, pid, status);
}

/* A worker that was not reaped keeps its process number. */
void vgpu_workers_signal(const struct vgpu_supervisor *supervisor, int number) {
  for (uint32_t i = 0; i < VGPU_SESSIONS_MAX; i++) {
    pid_t pid = supervisor->sessions.entries[i].pid;
    if (pid != 0) kill(pid, number);
  }
}

bool vgpu_workers_end(struct vgpu_supervisor *supervisor, unsigned long long session) {
  for (uint32_t i = 0; i < VGPU_SESSIONS_MAX; i++) {
    const struct vgpu_session_entry *entry = &supervisor->sessions.entries[i];
    if (entry->pid == 0 || entry->session != session) continue;
    vgpu_host_log("ending", session, "the administrator ends the session");
    kill(entry->pid, SIGKILL);
    return true;
  }
  return false;
}
