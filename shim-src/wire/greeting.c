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
  /* A newer guest may send a longer body. */
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

struct vgpu_resume vgpu_greeting_resume(const void *bytes) {
  struct vgpu_frame frame;
  struct vgpu_resume resume = {0};
  memcpy(&frame, bytes, sizeof frame);
  if (frame.body >= sizeof(struct vgpu_hello) + sizeof resume)
    memcpy(&resume, (const unsigned char *)bytes + sizeof frame + sizeof(struct vgpu_hello), sizeof resume);
  return resume;
}

int32_t vgpu_greeting_status(const struct vgpu_hello *hello) {
  if (memcmp(hello->magic, VGPU_WIRE_MAGIC, sizeof hello->magic) != 0 || hello->major != VGPU_WIRE_MAJOR) {
    return VGPU_STATUS_VERSION;
  }
  bool known = hello->library == VGPU_LIBRARY_CUDA || hello->library == VGPU_LIBRARY_NVML ||
               hello->library == VGPU_LIBRARY_SESSIONS;
  bool joins = (hello->features & VGPU_FEATURE_RESUME) != 0 && hello->library != VGPU_LIBRARY_SESSIONS;
  return (hello->join == 0 || joins) && known ? VGPU_STATUS_OK : VGPU_STATUS_REFUSED;
}

void vgpu_version_text(const struct vgpu_welcome *host, char *text, size_t size) {
  snprintf(text, size, "it speaks wire version %u.%u, this guest speaks %u.%u: the %s is older, upgrade it",
           host->major, host->minor, VGPU_WIRE_MAJOR, VGPU_WIRE_MINOR,
           host->major < VGPU_WIRE_MAJOR ? "host" : "guest");
}

uint32_t vgpu_pid_namespace(void) {
  /* Inode numbers of namespaces have 32 bits. Without /proc the result is 0. */
  struct statx info;
  bool known = statx(AT_FDCWD, "/proc/self/ns/pid", 0, STATX_INO, &info) == 0;
  return known ? (uint32_t)info.stx_ino : 0;
}

uint64_t vgpu_machine(void) {
  char text[40] = {0};
  int descriptor = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return 0;
  ssize_t got = read(descriptor, text, sizeof text - 1);
  close(descriptor);
  uint64_t number = 0;
  int digits = 0;
  for (ssize_t i = 0; i < got && digits < 16; i++) {
    const char c = text[i];
    if (c == '-') continue;
    int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return 0;
    number = number << 4 | (uint64_t)digit;
    digits++;
  }
  return digits == 16 ? number : 0;
}

void vgpu_hello_introduce(struct vgpu_hello *hello) {
  memcpy(hello->magic, VGPU_WIRE_MAGIC, sizeof hello->magic);
  hello->pid = (uint32_t)getpid();
  hello->pid_namespace = vgpu_pid_namespace();
  const char *program = program_invocation_short_name;
  size_t length = strlen(program), most = sizeof hello->program - 1;
  memset(hello->program, 0, sizeof hello->program);
  memcpy(hello->program, program, length < most ? length : most);
}
