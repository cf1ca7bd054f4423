/*
 * Guests' queries for their sessions that a predecessor must answer (tell_sessions.h). If the predecessor
 * is frozen, this daemon answers after a time limit. Both have the query's claim; the one that takes the
 * claim answers.
 */
#ifndef VGPU_HOST_FORWARDED_QUERIES_H
#define VGPU_HOST_FORWARDED_QUERIES_H

#include "host/policy/admission.h"

#define VGPU_FORWARDED_QUERIES_MAX 32u
#define VGPU_FORWARDED_QUERY_LIMIT_MS 1000 /* the agent waits for 3 s */

struct vgpu_forwarded_queries {
  uint32_t count;
  struct vgpu_forwarded_query {
    int descriptor;
    int claim;
    int64_t until;
  } array[VGPU_FORWARDED_QUERIES_MAX]; /* oldest first */
};

/* Makes the claim of a query. Returns its descriptor, or -1. */
int vgpu_claim_make(void);

/* True for the one daemon that answers. Closes the descriptor. */
bool vgpu_claim_take(int claim);

/*
 * Adds a query that was passed to a predecessor, and takes both descriptors over. If there are too many,
 * the oldest query is answered as if its time limit had passed.
 */
void vgpu_forwarded_queries_add(struct vgpu_forwarded_queries *queries, struct vgpu_admission *admission,
                                int descriptor, int claim);

/* Returns the milliseconds until the next time limit; -1: no query is left. */
int vgpu_forwarded_queries_wait(const struct vgpu_forwarded_queries *queries);

/* Answers the queries whose time limit has passed without an answer of a predecessor. */
void vgpu_forwarded_queries_end(struct vgpu_forwarded_queries *queries, struct vgpu_admission *admission);

#endif
