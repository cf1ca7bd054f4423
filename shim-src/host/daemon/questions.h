/*
 * Guests' questions for their sessions that a predecessor is to answer (tell_sessions.h). If the predecessor
 * is frozen, this daemon answers after a time limit. Both have the question's claim; the one that takes the
 * claim answers.
 */
#ifndef VGPU_HOST_QUESTIONS_H
#define VGPU_HOST_QUESTIONS_H

#include "host/policy/admission.h"

#define VGPU_QUESTIONS_MAX 32u
#define VGPU_QUESTION_LIMIT_MS 1000 /* the agent waits for 3 s */

struct vgpu_questions {
  uint32_t count;
  struct vgpu_question {
    int descriptor;
    int claim;
    int64_t until;
  } array[VGPU_QUESTIONS_MAX]; /* oldest first */
};

/* Makes the claim of a question. Returns its descriptor, or -1. */
int vgpu_claim_make(void);

/* True for the one daemon that answers. Closes the descriptor. */
bool vgpu_claim_take(int claim);

/*
 * Adds a question that was passed to a predecessor, and takes both descriptors over. If there are too many,
 * the oldest question is answered as if its time limit had passed.
 */
void vgpu_questions_add(struct vgpu_questions *questions, struct vgpu_admission *admission, int descriptor,
                        int claim);

/* Returns the milliseconds until the next time limit; -1: no question is left. */
int vgpu_questions_wait(const struct vgpu_questions *questions);

/* Answers the questions whose time limit has passed without an answer of a predecessor. */
void vgpu_questions_end(struct vgpu_questions *questions, struct vgpu_admission *admission);

#endif
