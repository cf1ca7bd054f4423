#include "guest/session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest/config.h"
#include "guest/log.h"
#include "guest/session_internal.h"
#include "guest/transport.h"
#include "wire/clock.h"
#include "wire/greeting.h"
#include "wire/shared.h"
#include "wire/stream.h"

/*
 * Opens the memory again and locks it. The lock lasts as long as this process maps the memory, and shows the
 * host that the process lives and still runs the same program. Returns -1 if that is not possible.
 */
static int open_locked(int memory) {
  char path[40];
  snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
  int again = open(path, O_RDWR | O_CLOEXEC);
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  if (again < 0 || fcntl(again, F_OFD_SETLK, &whole) == 0) return again;
  close(again);
  return -1;
}

/* Maps the rings from the memory that came with the WELCOME, and closes `memory` in any case. */
static bool enter_rings(struct vgpu_session *session, int memory) {
  uint32_t size = session->welcome.ring_size;
  bool sound = memory >= 0 && vgpu_ring_size_sound(size) && vgpu_shared_sound(memory, vgpu_rings_bytes(size));
  int locked = sound && (session->welcome.features & VGPU_FEATURE_RESUME) != 0 ? open_locked(memory) : -1;
  session->line.mapped = locked >= 0;
  sound = sound && vgpu_rings_map(&session->rings, locked >= 0 ? locked : memory, 0, size);
  if (sound && !session->welcome.simulated) vgpu_spin_for_device(&session->rings.replies.spin);
  if (locked >= 0) close(locked);
  if (memory >= 0) close(memory);
  return sound;
}

static void fail_for_version(struct vgpu_welcome *host, int32_t status) {
  host->host[sizeof host->host - 1] = '\0';
  vgpu_transport_met(host);
  char text[128];
  vgpu_version_text(host, text, sizeof text);
  vgpu_transport_failed(VGPU_TRANSPORT_VERSION, 0, status, "%s", text);
}

enum sharing {
  SHARE_NOTHING,
  SHARE_SOCKET, /* memory that is passed over the unix socket */
  SHARE_VM,     /* memory that the host gave to this VM */
};

static uint32_t features_of(enum sharing sharing) {
  switch (sharing) {
    case SHARE_SOCKET:
      return VGPU_FEATURE_RING | VGPU_FEATURE_SHARED_REGION | VGPU_FEATURE_MAP;
    case SHARE_VM:
      return VGPU_FEATURE_VM_MEMORY | VGPU_FEATURE_MAP;
    default:
      return 0;
  }
}

static uint32_t resumes_of(const struct vgpu_session *session, enum sharing sharing) {
  if (session->line.limit_ms == 0) return 0;
  return VGPU_FEATURE_RESUME | (sharing != SHARE_NOTHING ? VGPU_FEATURE_RESUME_RINGS : 0);
}

struct ring_source {
  int memory; /* a descriptor, for the caller to close; -1: none */
  struct vgpu_vm_mark mark;
};

/* A newer host's WELCOME is longer; the rest is skipped. */
static enum vgpu_stream_result read_welcome(struct vgpu_session *session, const struct vgpu_frame *reply,
                                            struct vgpu_vm_mark *mark, int64_t deadline) {
  const int descriptor = session->own.descriptor;
  size_t rest = reply->length - sizeof *reply - sizeof session->welcome;
  enum vgpu_stream_result result =
      vgpu_stream_read(descriptor, &session->welcome, sizeof session->welcome, deadline);
  if (result == VGPU_STREAM_OK && (session->welcome.features & VGPU_FEATURE_VM_MEMORY) != 0) {
    if (reply->body < sizeof session->welcome + sizeof *mark) return VGPU_STREAM_UNSOUND;
    result = vgpu_stream_read(descriptor, mark, sizeof *mark, deadline);
    rest -= sizeof *mark;
  }
  return result == VGPU_STREAM_OK ? vgpu_stream_skip(descriptor, rest, deadline) : result;
}

static bool shake_hands(struct vgpu_session *session, enum vgpu_library library, enum sharing sharing,
                        struct ring_source *from_host, int64_t deadline) {
  struct {
    struct vgpu_hello hello;
    struct vgpu_resume resume;
  } greeting = {.hello = {
                    .major = VGPU_WIRE_MAJOR,
                    .minor = VGPU_WIRE_MINOR,
                    .features = VGPU_FEATURE_PRINT | VGPU_FEATURE_ALIVE | VGPU_FEATURE_EXCHANGE |
                                VGPU_FEATURE_IPC | VGPU_FEATURE_SHARES | VGPU_FEATURE_PARK |
                                VGPU_FEATURE_READ_ONLY | VGPU_FEATURE_GRAPHS | VGPU_FEATURE_MIRROR |
                                VGPU_FEATURE_LOADS | VGPU_FEATURE_GATES | features_of(sharing) |
                                resumes_of(session, sharing),
                    .frame_max = VGPU_FRAME_MAX,
                    .library = (uint32_t)library,
                }};
  const struct vgpu_hello *hello = &greeting.hello;
  const bool survives = (hello->features & VGPU_FEATURE_RESUME) != 0;
  vgpu_hello_introduce(&greeting.hello);
  if (survives) greeting.resume.machine = vgpu_machine();

  struct vgpu_frame frame = {.opcode = VGPU_OP_HELLO, .sequence = 0};
  /* A host that refuses may have closed without reading the HELLO. Its answer can still be read. */
  (void)vgpu_stream_write_frame(session->own.descriptor, &frame, &greeting,
                                survives ? sizeof greeting : sizeof *hello, NULL, 0, deadline);
  struct vgpu_frame reply;
  enum vgpu_stream_result result =
      vgpu_stream_read_passed(session->own.descriptor, &reply, sizeof reply,
                              sharing == SHARE_SOCKET ? &from_host->memory : NULL, deadline);
  if (result == VGPU_STREAM_OK && !vgpu_frame_sound(&reply)) result = VGPU_STREAM_UNSOUND;
  if (result == VGPU_STREAM_OK && reply.status == VGPU_STATUS_VERSION &&
      reply.body >= sizeof session->welcome &&
      vgpu_stream_read(session->own.descriptor, &session->welcome, sizeof session->welcome, deadline) ==
          VGPU_STREAM_OK) {
    fail_for_version(&session->welcome, reply.status);
    return false;
  }
  if (result == VGPU_STREAM_OK && reply.status != 0) {
    bool version = reply.status == VGPU_STATUS_VERSION;
    vgpu_transport_failed(version ? VGPU_TRANSPORT_VERSION : VGPU_TRANSPORT_REFUSED, 0, reply.status,
                          "it refused the session: %s (status %d)", vgpu_status_text(reply.status),
                          (int)reply.status);
    return false;
  }
  bool expected = result == VGPU_STREAM_OK && reply.opcode == VGPU_OP_HELLO && reply.sequence == 0 &&
                  reply.flags == VGPU_FLAG_REPLY && reply.body >= sizeof session->welcome;
  if (expected) result = read_welcome(session, &reply, &from_host->mark, deadline);
  if (!expected || result != VGPU_STREAM_OK) {
    enum vgpu_transport code = result == VGPU_STREAM_TIMEOUT  ? VGPU_TRANSPORT_TIMEOUT
                               : result == VGPU_STREAM_CLOSED ? VGPU_TRANSPORT_CLOSED
                                                              : VGPU_TRANSPORT_FOREIGN;
    vgpu_transport_failed(code, 0, 0, "%s", vgpu_transport_text(code));
    return false;
  }
  struct vgpu_welcome *welcome = &session->welcome;
  welcome->nvml_version[sizeof welcome->nvml_version - 1] = '\0';
  welcome->host[sizeof welcome->host - 1] = '\0';
  bool ours = memcmp(welcome->magic, VGPU_WIRE_MAGIC, sizeof welcome->magic) == 0;
  if (ours && welcome->major != VGPU_WIRE_MAJOR) {
    fail_for_version(welcome, 0);
    return false;
  }
  if (!ours || welcome->device_count > VGPU_DEVICES_MAX || (welcome->features & ~hello->features) != 0) {
    vgpu_transport_failed(VGPU_TRANSPORT_FOREIGN, 0, 0, "%s", vgpu_transport_text(VGPU_TRANSPORT_FOREIGN));
    return false;
  }
  vgpu_transport_met(welcome);
  return true;
}

enum greeting { GREETED, NOBODY, NO_RINGS };

/*
 * Connects and greets. NO_RINGS: the host's rings cannot be used here, and the caller has to greet again
 * without them.
 */
static enum greeting greet(struct vgpu_session *session, const struct vgpu_address *address, const char *text,
                           enum vgpu_library library, enum sharing sharing, int64_t deadline) {
  session->own.descriptor = vgpu_stream_connect(address, deadline);
  if (session->own.descriptor < 0) {
    int error = errno;
    vgpu_transport_failed(VGPU_TRANSPORT_UNREACHABLE, error, 0, "cannot connect to %s: %s", text,
                          strerror(error));
    return NOBODY;
  }
  struct ring_source from_host = {.memory = -1};
  bool greeted = shake_hands(session, library, sharing, &from_host, deadline);
  if (greeted && (session->welcome.features & VGPU_FEATURE_VM_MEMORY) != 0) {
    if (vgpu_session_enter_vm(session, &from_host.mark, deadline)) return GREETED;
    close(session->own.descriptor);
    vgpu_rings_unmap(&session->rings);
    return NO_RINGS;
  }
  bool taken = greeted && (session->welcome.features & VGPU_FEATURE_RING) != 0;
  if (taken && enter_rings(session, from_host.memory)) return GREETED;
  if (from_host.memory >= 0 && !taken) close(from_host.memory);
  if (greeted && !taken) return GREETED;
  close(session->own.descriptor);
  return taken ? NO_RINGS : NOBODY;
}

/* libnvidia-ml makes few and short calls: rings would waste memory. */
static enum sharing what_to_share(const struct vgpu_address *address, enum vgpu_library library) {
  if (library != VGPU_LIBRARY_CUDA || !vgpu_config_ring()) return SHARE_NOTHING;
  bool named = secure_getenv("VGPU_VM_MEMORY") != NULL;
  if ((address->kind != VGPU_ADDRESS_UNIX || named) && vgpu_vm_memory_there()) return SHARE_VM;
  return address->kind == VGPU_ADDRESS_UNIX ? SHARE_SOCKET : SHARE_NOTHING;
}

static enum vgpu_carrier carrier_of(const struct vgpu_session *session, const struct vgpu_address *address) {
  if (session->rings.base != NULL) return session->vm.bytes > 0 ? VGPU_CARRIER_VM_MEMORY : VGPU_CARRIER_RINGS;
  switch (address->kind) {
    case VGPU_ADDRESS_VSOCK:
      return VGPU_CARRIER_VSOCK;
    case VGPU_ADDRESS_TCP:
      return VGPU_CARRIER_TCP;
    default:
      return VGPU_CARRIER_UNIX;
  }
}

/* Makes a session with the host at `text`. *session is empty before. False: the reason is recorded. */
static bool reach(struct vgpu_session *session, const char *text, struct vgpu_address *address,
                  enum vgpu_library library, int64_t deadline) {
  if (!vgpu_address_parse(text, address)) {
    vgpu_transport_failed(VGPU_TRANSPORT_BAD_ADDRESS, 0, 0,
                          "\"%s\" is not unix:PATH, vsock:CID:PORT or tcp:ADDRESS:PORT", text);
    return false;
  }
  session->line.limit_ms = (int64_t)vgpu_line_wanted() * 1000;
  enum sharing sharing = what_to_share(address, library);
  enum greeting greeting = greet(session, address, text, library, sharing, deadline);
  if (greeting == NO_RINGS) {
    vgpu_log("the host's shared memory cannot be used: the socket carries the frames");
    greeting = greet(session, address, text, library, SHARE_NOTHING, deadline);
  }
  return greeting == GREETED;
}

/*
 * Tries the hosts in their order. Each has an equal share of the time that is left, so that a silent host
 * leaves time for the next ones. NULL: none has made a session.
 */
static const char *reach_first(struct vgpu_session *session, const struct vgpu_hosts *hosts,
                               struct vgpu_address *address, enum vgpu_library library) {
  const int64_t end = vgpu_now_ms() + VGPU_CONNECT_LIMIT_MS;
  if (hosts->count > 1) vgpu_transport_several();
  for (uint32_t i = 0; i < hosts->count; i++) {
    const char *text = hosts->addresses[i];
    int64_t now = vgpu_now_ms();
    memset(session, 0, sizeof *session);
    if (reach(session, text, address, library, now + (end - now) / (hosts->count - i))) return text;
    if (hosts->count > 1) vgpu_transport_tried(text, i + 1 == hosts->count);
  }
  return NULL;
}

enum vgpu_outcome vgpu_session_open(struct vgpu_session **out, enum vgpu_library library,
                                    vgpu_begins_work begins_work) {
  *out = NULL;
  struct vgpu_hosts hosts;
  vgpu_transport_begin();
  if (!vgpu_config_hosts(&hosts)) return VGPU_NO_HOST;
  struct vgpu_session *session = malloc(sizeof *session);
  if (session == NULL) {
    vgpu_transport_failed(VGPU_TRANSPORT_NO_MEMORY, 0, 0, "%s",
                          vgpu_transport_text(VGPU_TRANSPORT_NO_MEMORY));
    return VGPU_NO_HOST;
  }
  struct vgpu_address address;
  const char *text = reach_first(session, &hosts, &address, library);
  if (text == NULL) {
    free(session);
    return VGPU_NO_HOST;
  }
  pthread_mutex_init(&session->shared_region, NULL);
  pthread_mutex_init(&session->sending, NULL);
  pthread_mutex_init(&session->state, NULL);
  pthread_mutex_init(&session->pieces, NULL);
  vgpu_owned_socket_take(&session->own, session->own.descriptor);
  vgpu_doorbell_init(&session->doorbell, session->own.descriptor);
  session->doorbell.own = &session->own;
  vgpu_outbox_init(&session->outbox, &session->own, &session->sending);
  vgpu_read_ahead_init(&session->ahead, session->own.descriptor);
  session->ahead.own = &session->own;
  session->begins_work = begins_work;
  session->next_sequence = 1;
  vgpu_line_begin(session, &address, library);
  vgpu_transport_carried(carrier_of(session, &address), text);
  vgpu_log("session %llu with %s at %s: %u device(s), %s", (unsigned long long)session->welcome.session,
           session->welcome.host, text, session->welcome.device_count,
           session->rings.base == NULL ? "over the socket"
           : session->vm.bytes > 0     ? "through the VM's shared memory"
                                       : "through shared memory");
  *out = session;
  return VGPU_ANSWERED;
}

void vgpu_session_close(struct vgpu_session *session) {
  if (session == NULL) return;
  vgpu_line_goodbye(session);
  vgpu_line_end(session);
  vgpu_outbox_destroy(&session->outbox, vgpu_now_ms() + VGPU_CALL_LIMIT_MS);
  vgpu_read_ahead_destroy(&session->ahead);
  vgpu_owned_socket_close(&session->own);
  vgpu_rings_unmap(&session->rings);
  vgpu_doorbell_destroy(&session->doorbell);
  pthread_mutex_destroy(&session->shared_region);
  pthread_mutex_destroy(&session->pieces);
  pthread_mutex_destroy(&session->sending);
  pthread_mutex_destroy(&session->state);
  free(session);
}

void vgpu_session_abandon(struct vgpu_session *session) {
  /* Threads that this child does not have may hold the session's locks, so only the descriptor is closed. */
  if (session == NULL) return;
  vgpu_owned_socket_close(&session->own);
  int candidate = __atomic_load_n(&session->line.candidate, __ATOMIC_ACQUIRE);
  if (candidate >= 0) close(candidate);
  vgpu_owned_socket_close(&session->line.sleeper);
  vgpu_owned_socket_close(&session->line.waker);
}

void vgpu_session_goodbye(struct vgpu_session *session) {
  if (session != NULL) vgpu_line_goodbye(session);
}

void vgpu_session_dismiss(struct vgpu_session *session) {
  vgpu_line_goodbye(session);
  vgpu_line_give_up(session, "the program ended its use while the session had no connection");
}

bool vgpu_session_keeps(const struct vgpu_session *session) {
  return session->line.kept.bytes != NULL;
}

const struct vgpu_welcome *vgpu_session_welcome(const struct vgpu_session *session) {
  return &session->welcome;
}

bool vgpu_session_is_lost(struct vgpu_session *session) {
  return __atomic_load_n(&session->lost, __ATOMIC_ACQUIRE);
}

int32_t vgpu_session_take_deferred(struct vgpu_session *session) {
  pthread_mutex_lock(&session->state);
  int32_t deferred = session->deferred;
  session->deferred = 0;
  pthread_mutex_unlock(&session->state);
  return deferred;
}

void vgpu_session_keep_deferred(struct vgpu_session *session, int32_t failure) {
  pthread_mutex_lock(&session->state);
  if (session->deferred == 0) session->deferred = failure;
  pthread_mutex_unlock(&session->state);
}
