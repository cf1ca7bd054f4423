/*
 * Random programs of streams, events, copies, host functions and graphs. Every order that such a program
 * needs is demanded by one of the means that the API has for it, and by none where nothing depends on it. The
 * content of all memory must be what the same steps give one after the other (order_model.h).
 *
 * `random_order CASE` runs as many programs as fit into a second, VGPU_TEST_LONG=1 for longer, and
 * VGPU_TEST_SEED=N the one program of that number.
 */
#include <pthread.h>
#include <time.h>

#include "check.h"
#include "order_model.h"
#include "order_steps.h"

enum { STEPS = 80, GRAPHS = 3, PIECES = 12, THREADS = 4 };
enum { SHORT_PROGRAMS = 5, LONG_PROGRAMS = 1000, LONG_SECONDS = 15 };

/* A part of a capture: a step in one of its two streams, or one stream that waits for the other. */
struct piece {
  bool waits;
  int branch;
  struct step step;
};

struct recorded {
  void *exec;
  struct piece pieces[2 * PIECES];
  int count;
  bool allocates, launched;
  struct clock last;
};

struct program {
  struct machine machine;
  struct order order;
  struct recorded graphs[GRAPHS];
};

static uint32_t pick(struct program *program, uint32_t below) {
  return next_random(&program->machine) % below;
}

/* ---- order --------------------------------------------------------------- */

static void see(struct program *program, enum actor actor) {
  merge(&program->order.clocks[HOST], &program->order.clocks[actor]);
}

/* The thread waits for a stream, by one of the calls that do. */
static void wait_in_thread(struct program *program, enum actor before) {
  struct machine *machine = &program->machine;
  switch (pick(program, 5)) {
    case 0:
      MUST(CALL(cuStreamSynchronize, (void *), machine->streams[before]));
      break;
    case 1: {
      int result;
      while ((result = CALL(cuStreamQuery, (void *), machine->streams[before])) == NOT_READY)
        ;
      MUST(result);
      break;
    }
    case 2:
      MUST(CALL(cuCtxSynchronize, (void), ));
      for (int i = 0; i < HOST; i++) see(program, i);
      break;
    default: {
      void *event = any_event(machine);
      begin_step(&program->order, before);
      MUST(CALL(cuEventRecord, (void *, void *), event, machine->streams[before]));
      int result = NOT_READY;
      if (pick(program, 2) == 0) MUST(CALL(cuEventSynchronize, (void *), event));
      while (result == NOT_READY) result = CALL(cuEventQuery, (void *), event);
      MUST(result);
    }
  }
  see(program, before);
}

static void replace_event(struct machine *machine, const void *event) {
  for (int i = 0; i < EVENTS; i++) {
    if (machine->events[i] != event) continue;
    MUST(CALL(cuEventDestroy_v2, (void *), machine->events[i]));
    MUST(CALL(cuEventCreate, (void **, unsigned), &machine->events[i], 2));
  }
}

/* A stream waits for all work that another stream was given so far. */
static void wait_in_stream(struct program *program, enum actor before, enum actor after) {
  struct machine *machine = &program->machine;
  if (before == after || pick(program, 4) == 0) {
    wait_in_thread(program, before);
    return;
  }
  begin_step(&program->order, before);
  const struct clock then = program->order.clocks[before];
  if (pick(program, 4) == 0) {
    devptr flag = machine->flags + 4 * (unsigned)before;
    unsigned value = ++machine->flag_values[before];
    MUST(CALL(cuStreamWriteValue32_v2, (void *, devptr, unsigned, unsigned), machine->streams[before], flag,
              value, 0));
    begin_step(&program->order, after);
    MUST(CALL(cuStreamWaitValue32_v2, (void *, devptr, unsigned, unsigned), machine->streams[after], flag,
              value, 0));
  } else {
    void *event = any_event(machine);
    MUST(CALL(cuEventRecord, (void *, void *), event, machine->streams[before]));
    begin_step(&program->order, after);
    MUST(CALL(cuStreamWaitEvent, (void *, void *, unsigned), machine->streams[after], event, 0));
    if (machine->step % 4 == 0) replace_event(machine, event); /* the wait outlives the event */
  }
  merge(&program->order.clocks[after], &then);
}

/* Adds the waits after which this actor may access the place, by the order in `clock_of`. */
static void clear_by(struct program *program, enum actor actor, int place, bool writes,
                     const struct clock *more, struct clock (*clock_of)(const struct order *, enum actor)) {
  if (place < 0) return;
  for (;;) {
    struct clock clock = actor == HOST ? program->order.clocks[HOST] : clock_of(&program->order, actor);
    if (more != NULL) merge(&clock, more);
    enum actor before = in_the_way(&clock, &program->machine.places[place], writes);
    if (before == ACTORS) return;
    if (actor == HOST) wait_in_thread(program, before);
    else wait_in_stream(program, before, actor);
  }
}

static void clear_the_way(struct program *program, enum actor actor, int place, bool writes,
                          const struct clock *more) {
  clear_by(program, actor, place, writes, more, prospect);
}

static void note(struct program *program, enum actor actor, int place, bool writes) {
  if (place < 0) return;
  note_access(&program->machine.places[place], actor, program->order.clocks[actor].seen[actor], writes);
}

/* ---- single steps -------------------------------------------------------- */

/* A copy from ordinary memory reads it before the call returns, so it is the thread that reads. */
static bool thread_reads(const struct program *program, const struct step *step) {
  return step->kind == COPY && program->machine.places[step->from].kind == PAGEABLE;
}

static void do_step(struct program *program, const struct step *step, enum actor actor) {
  struct machine *machine = &program->machine;
  enum actor reader = thread_reads(program, step) ? HOST : actor;
  /*
   * A driver reads copies of up to 4 KiB from pinned memory early: the order between the legacy stream and
   * the others does not hold for them (docs/reports/2026-11-27-gpu-h200.md).
   */
  bool early = machine->reads_early && step->kind == COPY && machine->places[step->from].kind == PINNED;
  /* Later waits may only add to what is known, so each place stays clear. */
  clear_by(program, reader, step->from, false, NULL, early ? without_legacy : prospect);
  clear_the_way(program, actor, step->second, false, NULL);
  clear_the_way(program, actor, step->to, true, NULL);
  begin_step(&program->order, actor);
  if (reader == HOST) program->order.clocks[HOST].seen[HOST]++;
  issue(machine, step, machine->streams[actor]);
  apply(step, machine->places);
  note(program, reader, step->from, false);
  note(program, actor, step->second, false);
  note(program, actor, step->to, true);
  if (step->kind != COPY) return;
  int from = machine->places[step->from].kind, to = machine->places[step->to].kind;
  if (to == PAGEABLE || (step->waits && (to == PINNED || from == PINNED))) see(program, actor);
}

/* The thread itself writes memory of the host, or compares it. */
static void thread_step(struct program *program) {
  struct machine *machine = &program->machine;
  int number = host_place(machine);
  struct place *place = &machine->places[number];
  bool writes = pick(program, 2) == 0;
  clear_the_way(program, HOST, number, writes, NULL);
  program->order.clocks[HOST].seen[HOST]++;
  if (writes) {
    for (int i = 0; i < WORDS; i++) place->words[i] = place->host[i] = next_random(machine);
  } else {
    compare(machine, number, place->host);
  }
  note(program, HOST, number, writes);
}

/* ---- graphs -------------------------------------------------------------- */

/* Chooses the parts of a capture, and only the waits that these parts need. */
static void compose(struct program *program, struct recorded *graph) {
  struct machine *machine = &program->machine;
  static const enum actor branches[2] = {BLOCKING, FREE};
  struct order order = {0};
  struct place *places = machine->scratch;
  int count = 2 + (int)pick(program, PIECES - 2);
  bool forked = false;
  graph->count = 0;
  graph->allocates = false;
  memset(places, 0, PLACES * sizeof *places);
  for (int i = 0; i < count; i++) {
    struct step step = random_step(machine, true);
    int branch = (int)pick(program, 2), used[3] = {step.from, step.second, step.to};
    bool waits = branch == 1 && !forked;
    forked |= branch == 1;
    if (step.kind == TEMPORARY) graph->allocates = true;
    for (int j = 0; j < 3; j++)
      if (used[j] >= 0 && in_the_way(&order.clocks[branches[branch]], &places[used[j]], j == 2) != ACTORS)
        waits = true;
    if (waits) {
      graph->pieces[graph->count++] = (struct piece){.waits = true, .branch = branch};
      merge(&order.clocks[branches[branch]], &order.clocks[branches[1 - branch]]);
    }
    graph->pieces[graph->count++] = (struct piece){.branch = branch, .step = step};
    enum actor actor = branches[branch];
    uint32_t at = ++order.clocks[actor].seen[actor];
    for (int j = 0; j < 3; j++)
      if (used[j] >= 0) note_access(&places[used[j]], actor, at, j == 2);
  }
}

static void *capture(struct program *program, const struct recorded *graph) {
  struct machine *machine = &program->machine;
  void *streams[2] = {machine->captured[0], machine->captured[1]}, *made = NULL;
  bool forked = false;
  MUST(CALL(cuStreamBeginCapture_v2, (void *, int), streams[0], 1));
  for (int i = 0; i < graph->count; i++) {
    const struct piece *piece = &graph->pieces[i];
    if (!piece->waits) {
      issue(machine, &piece->step, streams[piece->branch]);
      continue;
    }
    void *event = any_event(machine);
    forked |= piece->branch == 1;
    MUST(CALL(cuEventRecord, (void *, void *), event, streams[1 - piece->branch]));
    MUST(CALL(cuStreamWaitEvent, (void *, void *, unsigned), streams[piece->branch], event, 0));
  }
  if (forked) {
    void *event = any_event(machine);
    MUST(CALL(cuEventRecord, (void *, void *), event, streams[1]));
    MUST(CALL(cuStreamWaitEvent, (void *, void *, unsigned), streams[0], event, 0));
  }
  MUST(CALL(cuStreamEndCapture, (void *, void **), streams[0], &made));
  return made;
}

static void record_graph(struct program *program, struct recorded *graph) {
  if (graph->exec != NULL) MUST(CALL(cuGraphExecDestroy, (void *), graph->exec));
  graph->launched = false;
  compose(program, graph);
  void *made = capture(program, graph);
  MUST(CALL(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long), &graph->exec, made, 0));
  MUST(CALL(cuGraphDestroy, (void *), made));
}

/*
 * Updates the executable with the same graph and other values. A driver refuses to change fills of two
 * dimensions (cuGraphExecUpdate: "Only 1D memsets can be changed").
 */
static void change_graph(struct program *program, struct recorded *graph) {
  if (graph->exec == NULL || graph->allocates) return;
  for (int i = 0; i < graph->count; i++) {
    struct step *step = &graph->pieces[i].step;
    uint32_t value = next_random(&program->machine);
    if (step->kind != FILL || step->height < 2) step->value = value;
  }
  void *made = capture(program, graph);
  struct {
    int result;
    void *node, *from;
  } info = {0};
  int result = CALL(cuGraphExecUpdate_v2, (void *, void *, void *), graph->exec, made, &info);
  if (result != 0) printf("cuGraphExecUpdate: CUgraphExecUpdateResult %d\n", info.result);
  MUST(result);
  MUST(CALL(cuGraphDestroy, (void *), made));
}

/* A launch is one step. It waits for the launch of the same executable before it. */
static void launch_graph(struct program *program, struct recorded *graph, enum actor actor) {
  struct machine *machine = &program->machine;
  if (graph->exec == NULL) return;
  const struct clock *more = graph->launched ? &graph->last : NULL;
  for (int i = 0; i < graph->count; i++) {
    const struct step *step = &graph->pieces[i].step;
    if (graph->pieces[i].waits) continue;
    clear_the_way(program, actor, step->from, false, more);
    clear_the_way(program, actor, step->second, false, more);
    clear_the_way(program, actor, step->to, true, more);
  }
  begin_step(&program->order, actor);
  if (more != NULL) merge(&program->order.clocks[actor], more);
  MUST(CALL(cuGraphLaunch, (void *, void *), graph->exec, machine->streams[actor]));
  for (int i = 0; i < graph->count; i++)
    if (!graph->pieces[i].waits) apply(&graph->pieces[i].step, machine->places);
  /* Reads first: a place that is also written has to be known as written. */
  for (int writes = 0; writes < 2; writes++) {
    for (int i = 0; i < graph->count; i++) {
      const struct step *step = &graph->pieces[i].step;
      if (graph->pieces[i].waits) continue;
      if (writes != 0) note(program, actor, step->to, true);
      if (writes == 0) note(program, actor, step->from, false);
      if (writes == 0) note(program, actor, step->second, false);
    }
  }
  graph->last = program->order.clocks[actor];
  graph->launched = true;
}

static void graph_step(struct program *program, enum actor actor) {
  struct recorded *graph = &program->graphs[pick(program, GRAPHS)];
  uint32_t what = pick(program, 8);
  if (graph->exec == NULL || what == 0) record_graph(program, graph);
  else if (what == 1) change_graph(program, graph);
  else launch_graph(program, graph, actor);
}

/* ---- programs ------------------------------------------------------------ */

enum with { NOTHING_ELSE = 0, WITH_GRAPHS = 1, WITH_BOXES = 2 };

static void run_program(uint64_t seed, int with) {
  struct program *program = calloc(1, sizeof *program);
  bool with_graphs = (with & WITH_GRAPHS) != 0;
  if (program == NULL) exit(3);
  program->machine.boxes = (with & WITH_BOXES) != 0;
  make_machine(&program->machine, seed);
  for (int i = 0; i < STEPS && program->machine.wrong == 0; i++) {
    enum actor actor = pick(program, HOST);
    program->machine.step = i;
    uint32_t what = pick(program, 10);
    if (what < 2) {
      thread_step(program);
    } else if (what < 5 && with_graphs) {
      graph_step(program, actor);
    } else {
      struct step step = random_step(&program->machine, false);
      do_step(program, &step, step.waits ? LEGACY : actor);
    }
  }
  program->machine.step = STEPS;
  for (int i = 0; i < GRAPHS; i++)
    if (program->graphs[i].exec != NULL) MUST(CALL(cuGraphExecDestroy, (void *), program->graphs[i].exec));
  end_machine(&program->machine);
  free(program);
}

static uint64_t seed_from_outside(void) {
  const char *seed = getenv("VGPU_TEST_SEED");
  return seed == NULL ? 0 : strtoull(seed, NULL, 10);
}

/* `known`: seeds of programs that once had wrong results, ended by 0. These programs run first. */
static void run_programs(const uint64_t *known, uint64_t first, int with) {
  uint64_t seed = seed_from_outside();
  if (seed != 0) {
    run_program(seed, with);
    return;
  }
  for (; *known != 0 && check_failures == 0; known++) run_program(*known, with);
  const bool is_long = getenv("VGPU_TEST_LONG") != NULL;
  const time_t end = time(NULL) + LONG_SECONDS;
  for (int i = 0; i < (is_long ? LONG_PROGRAMS : SHORT_PROGRAMS) && check_failures == 0; i++) {
    if (is_long && i >= SHORT_PROGRAMS && time(NULL) > end) return;
    run_program(first + (uint64_t)i, with);
  }
}

static void streams(void) {
  static const uint64_t known[] = {5, 44, 55, 62, 114, 1071, 0};
  run_programs(known, 1001, NOTHING_ELSE);
}

static void graphs(void) {
  static const uint64_t known[] = {1, 8, 9, 119, 1023, 1157, 0};
  run_programs(known, 1001, WITH_GRAPHS);
}

static void boxes(void) {
  static const uint64_t known[] = {0};
  run_programs(known, 1001, WITH_GRAPHS | WITH_BOXES);
}

static void *one_thread(void *data) {
  void *context = NULL;
  MUST(CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0));
  MUST(CALL(cuCtxSetCurrent, (void *), context));
  static const uint64_t none[] = {0};
  run_programs(none, 100000 * (1 + (uint64_t)(uintptr_t)data), WITH_GRAPHS);
  return NULL;
}

static void threads(void) {
  pthread_t made[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++)
    if (pthread_create(&made[i], NULL, one_thread, (void *)i) != 0) exit(3);
  for (int i = 0; i < THREADS; i++) pthread_join(made[i], NULL);
}

static const struct check_case cases[] = {
    {"streams", streams}, {"graphs", graphs}, {"boxes", boxes}, {"threads", threads}};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
