#include "wire/greeting.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum vgpu_greeting_result vgpu_greeting_read(const void *bytes, size_t filled, size_t *wanted,
                                             struct vgpu_hello *hello) {
  struct vgpu_frame frame;
  *wanted = sizeof frame;
  if (filled < sizeof frame) return VGPU_GREETING_PART;
  memcpy(&frame, bytes, sizeof frame);
  /* A later guest may say more than we know, in the body. */
  if (!vgpu_frame_sound(&frame) || frame.opcode != VGPU_OP_HELLO || frame.flags != 0 || frame.sequence != 0 ||
      frame.body < sizeof *hello || frame.bulk != 0) {
    return VGPU_GREETING_UNSOUND;
  }
  *wanted = frame.length;
  if (filled < frame.length) return VGPU_GREETING_PART;
  memcpy(hello, (const unsigned char *)bytes + sizeof frame, sizeof *hello);
  hello->program[sizeof hello->program - 1] = '\0';
  return VGPU_GREETING_WHOLE;
}

int32_t vgpu_greeting_status(const struct vgpu_hello *hello) {
  if (memcmp(hello->magic, VGPU_WIRE_MAGIC, sizeof hello->magic) != 0 || hello->major != VGPU_WIRE_MAJOR) {
    return VGPU_STATUS_VERSION;
  }
  bool known = hello->library == VGPU_LIBRARY_CUDA || hello->library == VGPU_LIBRARY_NVML ||
               hello->library == VGPU_LIBRARY_SESSIONS;
  return hello->join == 0 && known ? VGPU_STATUS_OK : VGPU_STATUS_REFUSED;
}

void vgpu_version_text(const struct vgpu_welcome *host, char *text, size_t size) {
  snprintf(text, size, "it speaks wire version %u.%u, we speak %u.%u: the %s is older, upgrade it",
           host->major, host->minor, VGPU_WIRE_MAJOR, VGPU_WIRE_MINOR,
           host->major < VGPU_WIRE_MAJOR ? "host" : "guest");
}

void vgpu_hello_introduce(struct vgpu_hello *hello) {
  memcpy(hello->magic, VGPU_WIRE_MAGIC, sizeof hello->magic);
  hello->pid = (uint32_t)getpid();
  /* The numbers that the kernel gives to namespaces have 32 bits. Without /proc it is not told. */
  struct statx info;
  bool known = statx(AT_FDCWD, "/proc/self/ns/pid", 0, STATX_INO, &info) == 0;
  hello->pid_namespace = known ? (uint32_t)info.stx_ino : 0;
  const char *program = program_invocation_short_name;
  size_t length = strlen(program), most = sizeof hello->program - 1;
  memset(hello->program, 0, sizeof hello->program);
  memcpy(hello->program, program, length < most ? length : most);
}
