#include "watch/host.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/un.h>
#include <unistd.h>

#include "wire/clock.h"
#include "wire/greeting.h"
#include "wire/stream.h"

#define SHORT_RETRIES 6 /* bind() makes the socket's file slightly before listen() */
#define SHORT_RETRY_MS 30
#define LONGEST_PAUSE 3 /* ticks */

static long long now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/*
 * Writes one line to the program that started this one, unless it repeats the last state. Reasons have no
 * line breaks.
 */
__attribute__((format(printf, 3, 4))) static void tell(struct vgpu_host_watch *watch, bool up,
                                                       const char *format, ...) {
  if (watch->told && !up && !watch->up) return;
  watch->told = true;
  watch->up = up;
  va_list values;
  va_start(values, format);
  if (watch->number == 0) printf("host %s ", up ? "up" : "down");
  else printf("host %u %s ", watch->number, up ? "up" : "down");
  vprintf(format, values);
  putchar('\n');
  va_end(values);
  fflush(stdout);
}

static void hang_up(struct vgpu_host_watch *watch) {
  if (watch->descriptor >= 0) close(watch->descriptor);
  watch->descriptor = -1;
}

static const char *why(enum vgpu_stream_result result) {
  switch (result) {
    case VGPU_STREAM_TIMEOUT:
      return "no answer within the limit";
    case VGPU_STREAM_CLOSED:
      return "it closed the connection";
    default:
      return "the answer does not come from vgpu-hostd";
  }
}

/*
 * Sends `opcode` and reads `size` bytes of the answer's body and bulk; the rest is skipped. Of a refusal it
 * reads the bytes that fit, because a host that refuses a version sends its own version.
 */
static enum vgpu_stream_result ask(struct vgpu_host_watch *watch, uint32_t opcode, const void *body,
                                   uint32_t body_size, void *answer, size_t size, int32_t *status,
                                   int64_t deadline) {
  struct vgpu_frame frame = {.opcode = opcode, .sequence = watch->sequence};
  enum vgpu_stream_result result =
      vgpu_stream_write_frame(watch->descriptor, &frame, body, body_size, NULL, 0, deadline);
  if (result != VGPU_STREAM_OK) return result;
  struct vgpu_frame reply;
  result = vgpu_stream_read_header(watch->descriptor, &reply, deadline);
  if (result != VGPU_STREAM_OK) return result;
  if (reply.opcode != opcode || reply.sequence != watch->sequence || (reply.flags & VGPU_FLAG_REPLY) == 0) {
    return VGPU_STREAM_UNSOUND;
  }
  watch->sequence++;
  *status = reply.status;
  size_t rest = reply.length - sizeof reply, there = (size_t)reply.body + reply.bulk;
  if (reply.status == 0 && there < size) return VGPU_STREAM_UNSOUND;
  if (there > size) there = size;
  result = vgpu_stream_read(watch->descriptor, answer, there, deadline);
  if (result != VGPU_STREAM_OK) return result;
  rest -= there;
  return vgpu_stream_skip(watch->descriptor, rest, deadline);
}

static void plain(char *text) {
  for (; *text != '\0'; text++) {
    if ((unsigned char)*text < ' ' || *text == 0x7f) *text = '?';
  }
}

/*
 * Greets the host, asks for the first device and reports `up`. False: there is none, and `down` was reported.
 */
static bool greet(struct vgpu_host_watch *watch, int64_t deadline) {
  struct vgpu_hello hello = {.major = VGPU_WIRE_MAJOR,
                             .minor = VGPU_WIRE_MINOR,
                             .frame_max = VGPU_FRAME_MAX,
                             .library = VGPU_LIBRARY_NVML,
                             .pid = (uint32_t)getpid(),
                             .program = "vgpu-watch"};
  memcpy(hello.magic, VGPU_WIRE_MAGIC, sizeof hello.magic);
  struct vgpu_welcome welcome = {.major = 0};
  int32_t status = 0;
  watch->sequence = 0;
  enum vgpu_stream_result result =
      ask(watch, VGPU_OP_HELLO, &hello, sizeof hello, &welcome, sizeof welcome, &status, deadline);
  bool magic = memcmp(welcome.magic, VGPU_WIRE_MAGIC, sizeof welcome.magic) == 0;
  if (result == VGPU_STREAM_OK && magic && welcome.major != VGPU_WIRE_MAJOR) {
    char text[128];
    vgpu_version_text(&welcome, text, sizeof text);
    tell(watch, false, "%s", text);
    return false;
  }
  if (result == VGPU_STREAM_OK && status != 0) {
    tell(watch, false, "it refused the session: %s (status %d)", vgpu_status_text(status), (int)status);
    return false;
  }
  if (result == VGPU_STREAM_OK && !magic) {
    tell(watch, false, "%s", why(VGPU_STREAM_UNSOUND));
    return false;
  }
  if (result == VGPU_STREAM_OK && welcome.device_count == 0) {
    tell(watch, false, "it has no device");
    return false;
  }
  struct vgpu_facts_request request = {.first = 0, .count = 1};
  struct {
    struct vgpu_facts_reply reply;
    struct vgpu_device_facts facts;
  } device;
  memset(&device, 0, sizeof device);
  if (result == VGPU_STREAM_OK) {
    result =
        ask(watch, VGPU_OP_DEVICE_FACTS, &request, sizeof request, &device, sizeof device, &status, deadline);
  }
  if (result != VGPU_STREAM_OK || status != 0) {
    tell(watch, false, "%s", result != VGPU_STREAM_OK ? why(result) : "it does not report its devices");
    return false;
  }
  device.facts.name[sizeof device.facts.name - 1] = '\0';
  plain(device.facts.name);
  tell(watch, true, "%d %s", welcome.simulated != 0 || device.facts.simulated != 0, device.facts.name);
  return true;
}

/* Watches for the socket of a unix address, from the nearest directory that exists. */
static void listen_for_socket(struct vgpu_host_watch *watch) {
  const char *path = ((const struct sockaddr_un *)&watch->address.storage)->sun_path;
  if (watch->address.kind != VGPU_ADDRESS_UNIX || path[0] == '\0') return;
  if (watch->notifier >= 0) close(watch->notifier);
  watch->notifier = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (watch->notifier < 0) return; /* without it the ticks try again */
  char directory[sizeof(((struct sockaddr_un *)0)->sun_path) + 1];
  snprintf(directory, sizeof directory, "%s", path);
  for (;;) {
    char *slash = strrchr(directory, '/');
    if (slash == NULL) return;
    slash[slash == directory ? 1 : 0] = '\0';
    if (inotify_add_watch(watch->notifier, directory,
                          IN_CREATE | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR) >= 0 ||
        strcmp(directory, "/") == 0) {
      return;
    }
  }
}

static void forget_socket(struct vgpu_host_watch *watch) {
  if (watch->notifier >= 0) close(watch->notifier);
  watch->notifier = -1;
}

static void attempt(struct vgpu_host_watch *watch) {
  watch->retry_at = 0;
  int64_t deadline = vgpu_now_ms() + watch->limit_ms;
  /* Before the attempt, so that a socket that appears meanwhile is not missed. */
  listen_for_socket(watch);
  watch->descriptor = vgpu_stream_connect(&watch->address, deadline);
  if (watch->descriptor < 0) {
    int error = errno;
    if (watch->retries > 0) {
      watch->retries--;
      watch->retry_at = vgpu_now_ms() + SHORT_RETRY_MS;
    }
    tell(watch, false, "cannot connect: %s", strerror(error));
  } else if (greet(watch, deadline)) {
    forget_socket(watch);
    watch->failures = watch->pause = watch->retries = 0;
    return;
  }
  hang_up(watch);
  if (watch->failures < LONGEST_PAUSE) watch->failures++;
  watch->pause = watch->failures - 1;
}

void vgpu_host_watch_end(struct vgpu_host_watch *watch) {
  hang_up(watch);
  forget_socket(watch);
  *watch = (struct vgpu_host_watch)VGPU_NO_HOST_WATCH;
}

void vgpu_host_watch_begin(struct vgpu_host_watch *watch, const char *text, unsigned number, unsigned count) {
  vgpu_host_watch_end(watch);
  watch->number = count == 1 ? 0 : number;
  /* A round takes no longer than one host may take: the ticks also feed systemd's watchdog. */
  watch->limit_ms = VGPU_CONNECT_LIMIT_MS / (int)count;
  watch->good_address = vgpu_address_parse(text, &watch->address);
  if (watch->good_address) attempt(watch);
  else tell(watch, false, "the address is not unix:PATH, vsock:CID:PORT or tcp:ADDRESS:PORT");
}

void vgpu_host_watch_tick(struct vgpu_host_watch *watch) {
  if (!watch->good_address) return;
  if (watch->descriptor < 0) {
    if (watch->pause > 0) watch->pause--;
    else attempt(watch);
    return;
  }
  int32_t status = 0;
  long long before = now_us();
  enum vgpu_stream_result result =
      ask(watch, VGPU_OP_PING, NULL, 0, NULL, 0, &status, vgpu_now_ms() + watch->limit_ms);
  if (result == VGPU_STREAM_OK) {
    watch->microseconds = now_us() - before;
    return;
  }
  hang_up(watch);
  tell(watch, false, "%s", why(result));
  listen_for_socket(watch);
}

void vgpu_host_watch_ended(struct vgpu_host_watch *watch) {
  hang_up(watch);
  tell(watch, false, "it closed the connection");
  /* The host may be up again already, because a restart of vgpu-hostd is quick. */
  watch->retries = SHORT_RETRIES;
  attempt(watch);
}

void vgpu_host_watch_stirred(struct vgpu_host_watch *watch) {
  /* All events are read, because poll would return at once otherwise. */
  char events[4096];
  while (read(watch->notifier, events, sizeof events) > 0) continue;
  if (watch->descriptor >= 0) return;
  watch->retries = SHORT_RETRIES;
  watch->pause = watch->failures = 0;
  attempt(watch);
}

void vgpu_host_watch_due(struct vgpu_host_watch *watch) {
  watch->retry_at = 0;
  if (watch->descriptor < 0) attempt(watch);
}
