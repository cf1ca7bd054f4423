#include "host/daemon/questions.h"

#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "host/log.h"
#include "wire/clock.h"

int vgpu_claim_make(void) {
  return eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
}

bool vgpu_claim_take(int claim) {
  uint64_t taken;
  bool first = read(claim, &taken, sizeof taken) == (ssize_t)sizeof taken;
  close(claim);
  return first;
}

static void end_first(struct vgpu_questions *questions, struct vgpu_admission *admission) {
  struct vgpu_question first = questions->array[0];
  questions->count--;
  memmove(questions->array, questions->array + 1, questions->count * sizeof *questions->array);
  if (!vgpu_claim_take(first.claim)) {
    close(first.descriptor); /* a predecessor has already answered */
    return;
  }
  vgpu_host_log_limited(
      "error", 0,
      "an earlier daemon (before a hand-over) did not answer a guest that asked for its sessions");
  vgpu_refuse_return(admission, first.descriptor, VGPU_STATUS_FORMER);
}

void vgpu_questions_add(struct vgpu_questions *questions, struct vgpu_admission *admission, int descriptor,
                        int claim) {
  if (questions->count == VGPU_QUESTIONS_MAX) end_first(questions, admission);
  questions->array[questions->count++] = (struct vgpu_question){
      .descriptor = descriptor, .claim = claim, .until = vgpu_now_ms() + VGPU_QUESTION_LIMIT_MS};
}

int vgpu_questions_wait(const struct vgpu_questions *questions) {
  return questions->count == 0 ? -1 : vgpu_left_ms(questions->array[0].until);
}

void vgpu_questions_end(struct vgpu_questions *questions, struct vgpu_admission *admission) {
  while (questions->count > 0 && vgpu_left_ms(questions->array[0].until) == 0)
    end_first(questions, admission);
}
