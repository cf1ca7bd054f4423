#include "host/session/exchange.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cuda_results.h"
#include "host/session/setup.h"
#include "wire/shared.h"

#define ANSWER_LIMIT_MS 5000 /* the daemon never does anything that takes long */

bool vgpu_exchange_send(int socket, const struct vgpu_exchange_message *message, int descriptor) {
  struct iovec part = {.iov_base = (void *)(uintptr_t)message, .iov_len = sizeof *message};
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control;
  struct msghdr whole = {.msg_iov = &part, .msg_iovlen = 1};
  if (descriptor >= 0) {
    memset(&control, 0, sizeof control);
    whole.msg_control = &control;
    whole.msg_controllen = sizeof control;
    struct cmsghdr *header = CMSG_FIRSTHDR(&whole);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  return sendmsg(socket, &whole, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof *message;
}

bool vgpu_exchange_receive(int socket, struct vgpu_exchange_message *message, int *descriptor) {
  struct iovec part = {.iov_base = message, .iov_len = sizeof *message};
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))]; /* one descriptor; the kernel closes any others */
  } control;
  struct msghdr whole = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  *descriptor = -1;
  ssize_t size = recvmsg(socket, &whole, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  struct cmsghdr *header = size < 0 ? NULL : CMSG_FIRSTHDR(&whole);
  if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len == CMSG_LEN(sizeof *descriptor)) {
    memcpy(descriptor, CMSG_DATA(header), sizeof *descriptor);
  }
  if (size == (ssize_t)sizeof *message && (whole.msg_flags & MSG_TRUNC) == 0) return true;
  if (*descriptor >= 0) close(*descriptor);
  *descriptor = -1;
  return false;
}

/* Sends a wish; `message` becomes the answer. */
static int32_t ask(struct vgpu_worker *worker, struct vgpu_exchange_message *message, int given, int *got) {
  *got = -1;
  if (!worker->exchanges) return CUDA_ERROR_NOT_SUPPORTED;
  struct pollfd poller = {.fd = VGPU_WORKER_EXCHANGE, .events = POLLIN};
  uint32_t wish = message->wish;
  if (!vgpu_exchange_send(VGPU_WORKER_EXCHANGE, message, given) || poll(&poller, 1, ANSWER_LIMIT_MS) != 1 ||
      !vgpu_exchange_receive(VGPU_WORKER_EXCHANGE, message, got) || message->wish != wish) {
    worker->exchanges = false; /* a late answer would be read as the answer to the next wish */
    if (*got >= 0) close(*got);
    *got = -1;
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return message->result;
}

int32_t vgpu_exchange_publish(struct vgpu_worker *worker, enum vgpu_exchange_kind kind, int descriptor,
                              uint64_t bytes, struct vgpu_token *token) {
  struct vgpu_exchange_message message = {.wish = VGPU_EXCHANGE_PUBLISH, .kind = kind, .bytes = bytes};
  int got;
  int32_t result = ask(worker, &message, descriptor, &got);
  if (got >= 0) close(got);
  *token = message.token;
  return result;
}

int32_t vgpu_exchange_fetch(struct vgpu_worker *worker, enum vgpu_exchange_kind kind,
                            const struct vgpu_token *token, bool own, int *descriptor, uint64_t *bytes) {
  struct vgpu_exchange_message message = {.wish = VGPU_EXCHANGE_FETCH, .kind = kind, .token = *token};
  int32_t result = ask(worker, &message, -1, descriptor);
  if (result == CUDA_SUCCESS && !own && message.session == worker->session)
    result = CUDA_ERROR_INVALID_CONTEXT;
  bool sealed = kind != VGPU_EXCHANGE_DRIVER;
  if (result == CUDA_SUCCESS &&
      (*descriptor < 0 || (sealed && !vgpu_shared_sound(*descriptor, message.bytes))))
    result = CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS && *descriptor >= 0) close(*descriptor);
  *bytes = message.bytes;
  return result;
}

void vgpu_exchange_withdraw(struct vgpu_worker *worker, const struct vgpu_token *token) {
  struct vgpu_exchange_message message = {.wish = VGPU_EXCHANGE_WITHDRAW, .token = *token};
  int got;
  if ((token->words[0] | token->words[1]) == 0) return;
  ask(worker, &message, -1, &got);
  if (got >= 0) close(got);
}
