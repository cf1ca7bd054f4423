#include "host/daemon/exchange.h"

#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cuda_results.h"
#include "host/policy/fair.h"
#include "host/policy/peers.h"
#include "wire/shared.h"

#define AT_A_TURN 16

void vgpu_exchange_begin(struct vgpu_exchange *exchange) {
  exchange->poll = epoll_create1(EPOLL_CLOEXEC);
  for (uint32_t i = 0; i < VGPU_SESSIONS_MAX; i++) exchange->sockets[i] = -1;
  for (uint32_t i = 0; i < VGPU_EXCHANGE_MOST; i++) exchange->entries[i].descriptor = -1;
}

int vgpu_exchange_join(struct vgpu_exchange *exchange, uint32_t slot, uint64_t session,
                       const struct vgpu_peer *peer) {
  int ends[2];
  vgpu_exchange_leave(exchange, slot);
  if (exchange->poll < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return -1;
  struct epoll_event event = {.events = EPOLLIN, .data.u32 = slot};
  if (epoll_ctl(exchange->poll, EPOLL_CTL_ADD, ends[0], &event) != 0) {
    close(ends[0]);
    close(ends[1]);
    return -1;
  }
  exchange->sockets[slot] = ends[0];
  exchange->sessions[slot] = session;
  exchange->peers[slot] = *peer;
  return ends[1];
}

static void forget(struct vgpu_exchange_entry *entry) {
  close(entry->descriptor);
  entry->descriptor = -1;
}

static void hang_up(struct vgpu_exchange *exchange, uint32_t slot) {
  if (exchange->sockets[slot] >= 0) close(exchange->sockets[slot]); /* closing removes it from the epoll */
  exchange->sockets[slot] = -1;
}

void vgpu_exchange_leave(struct vgpu_exchange *exchange, uint32_t slot) {
  if (exchange->sockets[slot] < 0 && exchange->sessions[slot] == 0) return;
  hang_up(exchange, slot);
  exchange->sessions[slot] = 0;
  for (uint32_t i = 0; i < VGPU_EXCHANGE_MOST; i++) {
    struct vgpu_exchange_entry *entry = &exchange->entries[i];
    if (entry->descriptor >= 0 && entry->slot == slot) forget(entry);
  }
}

static int32_t publish(struct vgpu_exchange *exchange, uint32_t slot, struct vgpu_exchange_message *message,
                       int descriptor) {
  struct vgpu_exchange_entry *place = NULL;
  uint32_t own = 0, of_peer = 0, free = 0;
  for (uint32_t i = 0; i < VGPU_EXCHANGE_MOST; i++) {
    struct vgpu_exchange_entry *entry = &exchange->entries[i];
    if (entry->descriptor < 0) {
      place = entry;
      free++;
      continue;
    }
    if (entry->slot == slot) own++;
    if (vgpu_peer_same(&entry->peer, &exchange->peers[slot])) of_peer++;
  }
  if (place == NULL || own >= VGPU_EXCHANGE_SESSION || !vgpu_fair_place(VGPU_EXCHANGE_MOST, free, of_peer))
    return CUDA_ERROR_OUT_OF_MEMORY;
  bool sealed = message->kind != VGPU_EXCHANGE_DRIVER;
  if (descriptor < 0 || (sealed && !vgpu_shared_sound(descriptor, message->bytes)))
    return CUDA_ERROR_INVALID_VALUE;
  struct vgpu_token token;
  if (getrandom(&token, sizeof token, 0) != (ssize_t)sizeof token) return CUDA_ERROR_OUT_OF_MEMORY;
  int kept = dup(descriptor);
  if (kept < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *place = (struct vgpu_exchange_entry){.descriptor = kept,
                                        .slot = slot,
                                        .kind = message->kind,
                                        .session = exchange->sessions[slot],
                                        .bytes = message->bytes,
                                        .peer = exchange->peers[slot],
                                        .token = token};
  message->token = token;
  return CUDA_SUCCESS;
}

/* Returns the entry of a token. NULL: there is none that this session may use. */
static struct vgpu_exchange_entry *find(struct vgpu_exchange *exchange, uint32_t slot,
                                        const struct vgpu_token *token) {
  for (uint32_t i = 0; i < VGPU_EXCHANGE_MOST; i++) {
    struct vgpu_exchange_entry *entry = &exchange->entries[i];
    if (entry->descriptor >= 0 && entry->token.words[0] == token->words[0] &&
        entry->token.words[1] == token->words[1] && vgpu_peer_same(&entry->peer, &exchange->peers[slot]))
      return entry;
  }
  return NULL;
}

/* Returns the descriptor for the answer; -1: none. */
static int carry_out(struct vgpu_exchange *exchange, uint32_t slot, struct vgpu_exchange_message *message,
                     int descriptor) {
  struct vgpu_exchange_entry *entry = find(exchange, slot, &message->token);
  message->result = CUDA_ERROR_INVALID_VALUE;
  switch (message->wish) {
    case VGPU_EXCHANGE_PUBLISH:
      message->result = publish(exchange, slot, message, descriptor);
      return -1;
    case VGPU_EXCHANGE_FETCH:
      if (entry == NULL || entry->kind != message->kind) return -1;
      message->result = CUDA_SUCCESS;
      message->bytes = entry->bytes;
      message->session = entry->session;
      return entry->descriptor;
    case VGPU_EXCHANGE_WITHDRAW:
      if (entry == NULL || entry->slot != slot) return -1;
      forget(entry);
      message->result = CUDA_SUCCESS;
      return -1;
    default:
      return -1;
  }
}

void vgpu_exchange_serve(struct vgpu_exchange *exchange) {
  struct epoll_event events[AT_A_TURN];
  int count = epoll_wait(exchange->poll, events, AT_A_TURN, 0);
  for (int i = 0; i < count; i++) {
    uint32_t slot = events[i].data.u32;
    struct vgpu_exchange_message message;
    int descriptor;
    /* The worker has ended or sends invalid messages. */
    if (!vgpu_exchange_receive(exchange->sockets[slot], &message, &descriptor)) {
      hang_up(exchange, slot);
      continue;
    }
    int answer = carry_out(exchange, slot, &message, descriptor);
    if (descriptor >= 0) close(descriptor);
    if (!vgpu_exchange_send(exchange->sockets[slot], &message, answer)) hang_up(exchange, slot);
  }
}
