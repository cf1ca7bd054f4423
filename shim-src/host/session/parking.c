#include "host/session/parking.h"

#include <stdlib.h>
#include <string.h>

#include "cuda_results.h"
#include "host/session/answer.h"
#include "wire/clock.h"

#define MOST 4096u
#define LEAST_PAUSE_NS 20000u
#define MOST_PAUSE_NS 2000000u
#define PAUSES 256u           /* the next pause is this part of the time that the call has waited */
#define COST_PAUSE 8u         /* the next pause is at least so many times as long as the call took */
#define TELL_NS 1000000000ull /* to a guest without VGPU_FEATURE_PARK */

struct vgpu_parked {
  struct vgpu_parked *next;
  struct vgpu_request request; /* its bytes follow this structure */
  uint64_t note;
  uint64_t since; /* nanoseconds */
  uint64_t asked; /* when it was last carried out */
  uint64_t cost;  /* nanoseconds that this took */
  bool told;      /* answered with NOT_READY: the guest repeats the call */
  _Alignas(8) unsigned char bytes[];
};

static uint64_t bytes_of(const struct vgpu_request *request) {
  return (uint64_t)request->frame.body + request->frame.bulk;
}

/* For the watching thread (lifeline.h). */
static void count_waiting(struct vgpu_worker *worker, int change) {
  __atomic_store_n(&worker->link.parked, worker->link.parked + (uint32_t)change, __ATOMIC_RELAXED);
}

static void unlink_parked(struct vgpu_worker *worker, struct vgpu_parked **link, struct vgpu_parked *before) {
  struct vgpu_parking *parking = &worker->parking;
  struct vgpu_parked *parked = *link;
  *link = parked->next;
  if (parking->last == parked) parking->last = before;
  parking->count--;
  parking->bytes -= bytes_of(&parked->request);
  if (!parked->told) count_waiting(worker, -1);
}

static void end_call(struct vgpu_worker *worker, uint64_t note) {
  if (note != 0 && worker->backend->call_over != NULL) worker->backend->call_over(worker, note);
}

/* False in the common case: only old guests and calls of minutes are answered with NOT_READY. */
static bool has_told(const struct vgpu_worker *worker) {
  return worker->parking.count != __atomic_load_n(&worker->link.parked, __ATOMIC_RELAXED);
}

static bool same_thread(const struct vgpu_parked *parked, const struct vgpu_request *request) {
  return parked->told && parked->request.frame.lane == request->frame.lane;
}

static bool same_call(const struct vgpu_parked *parked, const struct vgpu_request *request) {
  const struct vgpu_frame *frame = &parked->request.frame;
  return same_thread(parked, request) && frame->opcode == request->frame.opcode &&
         frame->flags == request->frame.flags && frame->bulk == request->frame.bulk &&
         frame->body == request->frame.body && memcmp(parked->request.body, request->body, frame->body) == 0;
}

/* Drops calls that their thread has abandoned: it now makes another call that waits. */
static void drop_abandoned(struct vgpu_worker *worker, const struct vgpu_request *request) {
  struct vgpu_parked *before = NULL;
  if (!has_told(worker)) return;
  for (struct vgpu_parked **link = &worker->parking.first; *link != NULL;) {
    struct vgpu_parked *parked = *link;
    if (!same_thread(parked, request)) {
      before = parked;
      link = &parked->next;
      continue;
    }
    unlink_parked(worker, link, before);
    end_call(worker, parked->note);
    free(parked);
  }
}

bool vgpu_park(struct vgpu_worker *worker, const struct vgpu_request *request) {
  struct vgpu_parking *parking = &worker->parking;
  const struct vgpu_frame *frame = &request->frame;
  const uint64_t bytes = bytes_of(request);
  drop_abandoned(worker, request);
  if (parking->count >= MOST || parking->bytes + bytes > worker->limits->outstanding) return false;
  struct vgpu_parked *parked = malloc(sizeof *parked + bytes);
  if (parked == NULL) return false;
  *parked = (struct vgpu_parked){.request = *request, .note = worker->note, .since = vgpu_now_ns()};
  parked->asked = parked->since;
  if (frame->body > 0) memcpy(parked->bytes, request->body, frame->body);
  if (frame->bulk > 0) memcpy(parked->bytes + frame->body, request->bulk, frame->bulk);
  parked->request.body = parked->bytes;
  parked->request.bulk = parked->bytes + frame->body;
  if (parking->last == NULL) parking->crowded = false;
  if (parking->last == NULL) parking->first = parked;
  else parking->last->next = parked;
  parking->last = parked;
  parking->count++;
  parking->bytes += bytes;
  count_waiting(worker, 1);
  return true;
}

void vgpu_parking_find(struct vgpu_worker *worker, const struct vgpu_request *request) {
  struct vgpu_parked *before = NULL;
  worker->note = 0;
  if (!has_told(worker)) return;
  for (struct vgpu_parked **link = &worker->parking.first; *link != NULL; link = &(*link)->next) {
    struct vgpu_parked *parked = *link;
    if (same_call(parked, request)) {
      unlink_parked(worker, link, before);
      worker->note = parked->note;
      free(parked);
      return;
    }
    before = parked;
  }
}

void vgpu_parking_drop(struct vgpu_worker *worker) {
  while (worker->parking.first != NULL) {
    struct vgpu_parked *parked = worker->parking.first;
    unlink_parked(worker, &worker->parking.first, NULL);
    end_call(worker, parked->note);
    free(parked);
  }
}

void vgpu_parking_end(struct vgpu_worker *worker) {
  end_call(worker, worker->note);
  worker->note = 0;
}

/* The time at which a call is carried out again. */
static uint64_t due_of(const struct vgpu_worker *worker, const struct vgpu_parked *parked, bool hurried) {
  const uint64_t waited = parked->asked - parked->since;
  if (hurried || waited < worker->backend->awake_ns) return 0;
  uint64_t pause = waited / PAUSES;
  if (pause > MOST_PAUSE_NS) pause = MOST_PAUSE_NS;
  if (pause < LEAST_PAUSE_NS) pause = LEAST_PAUSE_NS;
  /* The other threads' calls keep most of the time, also where asking is slow. */
  if (worker->parking.crowded && pause < COST_PAUSE * parked->cost) pause = COST_PAUSE * parked->cost;
  return parked->asked + pause;
}

static uint64_t earliest(const struct vgpu_worker *worker) {
  const bool hurried = worker->parking.hurried;
  uint64_t earliest = UINT64_MAX;
  for (const struct vgpu_parked *parked = worker->parking.first; parked != NULL; parked = parked->next) {
    const uint64_t due = parked->told ? UINT64_MAX : due_of(worker, parked, hurried);
    if (due < earliest) earliest = due;
  }
  return earliest;
}

/* Answers a call and removes it. After NOT_READY the call stays, because the guest repeats it. */
static bool answer_parked(struct vgpu_worker *worker, struct vgpu_parked **link, struct vgpu_parked *before,
                          struct vgpu_answer *answer) {
  struct vgpu_parked *parked = *link;
  const bool waits = answer->status == VGPU_WAITS;
  if (waits) answer->status = CUDA_ERROR_NOT_READY;
  const bool there = vgpu_worker_send(worker, &parked->request, answer);
  if (waits && parked->request.frame.lane != 0) {
    parked->told = true;
    count_waiting(worker, -1);
    return there;
  }
  unlink_parked(worker, link, before);
  end_call(worker, parked->note);
  free(parked);
  return there;
}

static uint64_t limit_ns(const struct vgpu_worker *worker) {
  return worker->parking.out_of_order ? VGPU_PARK_LIMIT_MS * 1000000ull : TELL_NS;
}

static void carry_out(struct vgpu_worker *worker, struct vgpu_parked *parked, struct vgpu_answer *answer) {
  const uint64_t begun = vgpu_now_ns();
  worker->request = &parked->request;
  worker->note = parked->note;
  /* The next answer overwrites the bytes of the previous one. */
  vgpu_link_settle(&worker->link);
  vgpu_carry_out(worker, &parked->request, worker->out, VGPU_BULK_MAX, answer);
  parked->note = worker->note;
  worker->note = 0;
  parked->asked = vgpu_now_ns();
  parked->cost = parked->asked - begun;
}

bool vgpu_parking_ask(struct vgpu_worker *worker, vgpu_request_filter *accepts) {
  struct vgpu_parking *parking = &worker->parking;
  const uint64_t now = vgpu_now_ns();
  struct vgpu_parked *before = NULL;
  const bool hurried = parking->hurried;
  bool there = true;
  parking->hurried = false;
  for (struct vgpu_parked **link = &parking->first; there && *link != NULL;) {
    struct vgpu_parked *parked = *link;
    struct vgpu_answer answer;
    bool asks = !parked->told && due_of(worker, parked, hurried) <= now;
    if (asks && accepts != NULL) {
      worker->request = &parked->request;
      asks = accepts(worker, &parked->request);
    }
    if (asks) {
      carry_out(worker, parked, &answer);
      if (answer.status != VGPU_WAITS || parked->asked - parked->since >= limit_ns(worker))
        there = answer_parked(worker, link, before, &answer);
    }
    if (*link != parked) continue;
    before = parked;
    link = &parked->next;
  }
  return there;
}

bool vgpu_parking_tell(struct vgpu_worker *worker) {
  struct vgpu_answer answer;
  bool there = true;
  if (worker->parking.out_of_order) return true;
  struct vgpu_parked *before = NULL;
  for (struct vgpu_parked **link = &worker->parking.first; there && *link != NULL;) {
    struct vgpu_parked *parked = *link;
    if (!parked->told) {
      answer = (struct vgpu_answer){.status = VGPU_WAITS};
      there = answer_parked(worker, link, before, &answer);
    }
    if (*link != parked) continue;
    before = parked;
    link = &parked->next;
  }
  return there;
}

bool vgpu_parking_serve(struct vgpu_worker *worker) {
  struct vgpu_link *link = &worker->link;
  struct vgpu_spinning spinning = {0};
  bool waited = false, slept = false;
  while (link->parked > 0) {
    if (!vgpu_parking_ask(worker, NULL)) return false;
    if (link->parked == 0) break;
    const uint64_t due = earliest(worker);
    bool came;
    while (!(came = vgpu_link_has_come(link))) {
      waited = true;
      if (vgpu_now_ns() >= due) break;
      if (!slept && vgpu_link_spins(link, &spinning)) continue;
      slept = true;
      if (!vgpu_link_sleep(link, due)) return false;
    }
    if (!came) continue;
    worker->parking.crowded = true;
    if (waited) vgpu_link_learn(link, &spinning, slept);
    return vgpu_parking_tell(worker);
  }
  return true;
}
