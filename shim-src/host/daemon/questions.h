/*
 * Guests' questions for their sessions that a predecessor is to answer (tell_sessions.h). A predecessor may
 * be frozen, so this daemon keeps each connection for a moment and, after a time limit, answers that one of
 * its predecessors does not.
 *
 * Only one of the two may answer. A question has a claim, which both daemons have: the one that takes it
 * answers.
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
 * Adds a question that was passed to a predecessor, and takes both descriptors over. When there are too many,
 * the limit of the oldest one has passed.
 */
void vgpu_questions_add(struct vgpu_questions *questions, struct vgpu_admission *admission, int descriptor,
                        int claim);

/* Milliseconds until the next limit; -1: no question is left. */
int vgpu_questions_wait(const struct vgpu_questions *questions);

/* Answers the questions whose limit has passed and which no predecessor has answered. */
void vgpu_questions_end(struct vgpu_questions *questions, struct vgpu_admission *admission);

#endif
