#include "host/daemon/worker_logs.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/log.h"

#define SOCKETS_A_TURN 64
#define MESSAGES_A_TURN 32 /* of one worker */
#define LEFT_OUT_MS 1000

bool vgpu_worker_logs_begin(struct vgpu_worker_logs *logs) {
  logs->poll = epoll_create1(EPOLL_CLOEXEC);
  for (uint32_t i = 0; i < VGPU_SESSIONS_MAX; i++) logs->sockets[i] = -1;
  return logs->poll >= 0;
}

int vgpu_worker_logs_join(struct vgpu_worker_logs *logs, uint32_t slot) {
  int ends[2];
  if (logs->sockets[slot] >= 0) close(logs->sockets[slot]);
  logs->sockets[slot] = -1;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return -1;
  struct epoll_event event = {.events = EPOLLIN, .data.u32 = slot};
  if (epoll_ctl(logs->poll, EPOLL_CTL_ADD, ends[0], &event) != 0) {
    close(ends[0]);
    close(ends[1]);
    return -1;
  }
  logs->sockets[slot] = ends[0];
  return ends[1];
}

/* Checks the members of a worker's JSON object and drops those that the daemon writes itself. */
static char *sound_members(const char *members) {
  static const char *const own[] = {"event", "session", "message", "count"};
  char *whole = NULL, *text = NULL;
  if (*members == '\0' || asprintf(&whole, "{%s}", members) < 0) return NULL;
  json_t *object = json_loads(whole, JSON_REJECT_DUPLICATES, NULL);
  free(whole);
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) json_object_del(object, own[i]);
  if (json_object_size(object) > 0) text = json_dumps(object, JSON_COMPACT | JSON_ENSURE_ASCII);
  json_decref(object);
  if (text == NULL) return NULL;
  size_t length = strlen(text);
  memmove(text, text + 1, length - 2); /* without the braces */
  text[length - 2] = '\0';
  return text;
}

static bool is_word(const char *text) {
  for (const char *at = text; *at != '\0'; at++) {
    if (!islower((unsigned char)*at) && *at != '-' && *at != ' ') return false;
  }
  return *text != '\0' && strlen(text) <= 24;
}

/* Writes a message in the form of log.c: after the header, parts that each end with a zero byte. */
static void write_message(const struct vgpu_session_entry *entry, char *text, size_t size) {
  struct vgpu_log_budget *budget = &entry->record->log;
  struct vgpu_log_header header;
  if (size <= sizeof header) return;
  memcpy(&header, text, sizeof header);
  const char *event = text + sizeof header, *end = text + size;
  const char *members = event + strnlen(event, (size_t)(end - event)) + 1;
  const char *message = members < end ? members + strnlen(members, (size_t)(end - members)) + 1 : end;
  budget->session = entry->session;
  if (header.left_out > 0) vgpu_host_log_leave_out(budget, header.left_out);
  if (message >= end || !is_word(event) || !vgpu_host_log_spend(budget)) return;
  char *sound = sound_members(members);
  vgpu_host_log_members(event, entry->session, sound == NULL ? "" : sound, "%s", message);
  free(sound);
}

/* Writes what the C library, a driver or a sanitizer printed to the worker's standard error. */
static void write_lines(const struct vgpu_session_entry *entry, char *text) {
  struct vgpu_log_budget *budget = &entry->record->log;
  for (char *line = strsep(&text, "\n"); line != NULL; line = strsep(&text, "\n")) {
    budget->session = entry->session;
    if (*line != '\0' && vgpu_host_log_spend(budget))
      vgpu_host_log("worker", entry->session, "the worker wrote to stderr: %s", line);
  }
}

/* False: the socket is empty or closed. */
static bool read_message(int socket, const struct vgpu_session_entry *entry) {
  static char text[VGPU_LOG_MESSAGE_MOST + 1];
  ssize_t size = recv(socket, text, sizeof text - 1, MSG_DONTWAIT);
  if (size <= 0) return false;
  text[size] = '\0';
  if (text[0] == VGPU_LOG_MESSAGE) write_message(entry, text, (size_t)size);
  else write_lines(entry, text);
  return true;
}

void vgpu_worker_logs_serve(struct vgpu_worker_logs *logs, struct vgpu_sessions *sessions) {
  struct epoll_event events[SOCKETS_A_TURN];
  int count = epoll_wait(logs->poll, events, SOCKETS_A_TURN, 0);
  for (int i = 0; i < count; i++) {
    uint32_t slot = events[i].data.u32;
    int left = MESSAGES_A_TURN;
    while (left > 0 && read_message(logs->sockets[slot], &sessions->entries[slot])) left--;
    if (left > 0 && (events[i].events & EPOLLHUP) != 0)
      epoll_ctl(logs->poll, EPOLL_CTL_DEL, logs->sockets[slot], NULL);
  }
}

void vgpu_worker_logs_leave(struct vgpu_worker_logs *logs, uint32_t slot, struct vgpu_session_entry *entry) {
  if (logs->sockets[slot] < 0) return;
  while (read_message(logs->sockets[slot], entry)) continue;
  close(logs->sockets[slot]);
  logs->sockets[slot] = -1;
}

int vgpu_worker_logs_left_out(struct vgpu_peers *peers) {
  int wait = -1;
  for (uint32_t i = 0; i < VGPU_PEERS_MAX; i++) {
    struct vgpu_log_budget *budget = &peers->records[i].log;
    if (budget->left_out > 0 && !vgpu_host_log_tell_left_out(budget)) wait = LEFT_OUT_MS;
  }
  return wait;
}
