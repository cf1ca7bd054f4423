/* User objects that graphs hold. */
#include <time.h>

#include "graph_check.h"

static int destroyed, call_result;

static void destroy(void *data) {
  unsigned free_bytes[4];
  call_result = CALL(cuMemGetInfo_v2, (void *, void *), free_bytes, free_bytes + 2);
  __atomic_add_fetch(&destroyed, *(int *)data, __ATOMIC_SEQ_CST);
}

static void pause_a_little(void) {
  nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Destructors run on another thread: waits for at most 20 s. */
static bool becomes(int wanted) {
  for (int i = 0; i < 20000 && __atomic_load_n(&destroyed, __ATOMIC_SEQ_CST) != wanted; i++) pause_a_little();
  return __atomic_load_n(&destroyed, __ATOMIC_SEQ_CST) == wanted;
}

static int create(void **object, int *data, unsigned count) {
  return CALL(cuUserObjectCreate, (void **, void *, void (*)(void *), unsigned, unsigned), object, data,
              destroy, count, 1);
}

static int retain(void *object, unsigned count) {
  return CALL(cuUserObjectRetain, (void *, unsigned), object, count);
}

static int release(void *object, unsigned count) {
  return CALL(cuUserObjectRelease, (void *, unsigned), object, count);
}

static int give(void *graph, void *object, unsigned count, unsigned flags) {
  return CALL(cuGraphRetainUserObject, (void *, void *, unsigned, unsigned), graph, object, count, flags);
}

static int take(void *graph, void *object, unsigned count) {
  return CALL(cuGraphReleaseUserObject, (void *, void *, unsigned), graph, object, count);
}

static void user_objects(void) {
  static int one = 1, ten = 10, hundred = 100;
  void *object = NULL, *graph = new_graph(), *clone = NULL;
  OK(create(&object, &one, 2));
  OK(retain(object, 1));
  OK(release(object, 2));
  IS(0, destroyed);
  OK(release(object, 1));
  TRUE(becomes(1));
  IS(NOT_PERMITTED, call_result); /* CUDA calls are not permitted there */
  IS(INVALID_VALUE, release(object, 1));

  OK(create(&object, &ten, 1));
  OK(give(graph, object, 2, 0));
  OK(release(object, 1));
  OK(take(graph, object, 1));
  OK(CALL(cuGraphClone, (void **, void *), &clone, graph));
  drop(graph, NULL);
  IS(1, destroyed);
  IS(INVALID_VALUE, take(clone, object, 2)); /* it has one */
  drop(clone, NULL);
  TRUE(becomes(11));

  graph = new_graph();
  OK(create(&object, &hundred, 1));
  OK(give(graph, object, 1, 1)); /* moved: the program has no reference any more */
  OK(take(graph, object, 1));
  TRUE(becomes(111));

  OK(create(&object, &one, 1));
  IS(INVALID_VALUE, create(NULL, &one, 1));
  IS(INVALID_VALUE, create(&object, &one, 0));
  IS(INVALID_VALUE, create(&object, &one, 0x80000000u));
  IS(INVALID_VALUE, CALL(cuUserObjectCreate, (void **, void *, void (*)(void *), unsigned, unsigned), &object,
                         &one, destroy, 1, 0));
  IS(INVALID_VALUE, CALL(cuUserObjectCreate, (void **, void *, void (*)(void *), unsigned, unsigned), &object,
                         &one, NULL, 1, 1));
  IS(INVALID_VALUE, retain(object, 0));
  IS(INVALID_VALUE, retain(NULL, 1));
  IS(INVALID_VALUE, retain(graph, 1));
  IS(INVALID_VALUE, release(object, 2));
  IS(INVALID_VALUE, give(graph, object, 0, 0));
  IS(INVALID_VALUE, give(graph, object, 1, 2));
  IS(INVALID_VALUE, give(graph, object, 2, 1)); /* more than the program has */
  IS(INVALID_VALUE, give(NULL, object, 1, 0));
  IS(INVALID_VALUE, give(graph, graph, 1, 0));
  IS(INVALID_VALUE, take(graph, object, 1));
  OK(release(object, 1));
  TRUE(becomes(112));
  drop(graph, NULL);
}

static void user_objects_of_executables(void) {
  static int one = 1, ten = 10;
  void *object = NULL, *other = NULL, *graph = new_graph(), *child = new_graph(), *changed = new_graph();
  void *stream = new_stream(), *node = NULL;
  devptr memory = check_alloc(4096);
  clear(memory, 4);
  struct operation wait = {.type = 1, .address = memory, .value = 1};
  struct node_params ops = {.type = MEMORY_OPS, .of.operations = {.count = 1, .list = &wait}};
  struct node_params nested = {.type = GRAPH, .of.child = {child, 0}};
  OK(create(&object, &one, 1));
  OK(give(child, object, 1, 1));
  OK(add_node(&node, child, NULL, 0, &ops));
  OK(add_node(&node, graph, NULL, 0, &nested));
  void *exec = new_exec(graph);
  drop(graph, NULL);
  drop(child, NULL);
  IS(0, destroyed); /* the executable has a reference */
  OK(CALL(cuGraphLaunch, (void *, void *), exec, stream));
  drop(NULL, exec);
  for (int i = 0; i < 20; i++) pause_a_little();
  IS(0, __atomic_load_n(&destroyed, __ATOMIC_SEQ_CST)); /* its work waits for a value */
  OK(CALL(cuStreamWriteValue32_v2, (void *, devptr, unsigned, unsigned), new_stream(), memory, 1, 0));
  TRUE(becomes(1));

  /* An update takes references to the new graph's objects, and drops those of the old one. */
  graph = new_graph();
  struct node_params fill = fill_node(memory, 1, 1);
  OK(create(&object, &one, 1));
  OK(create(&other, &ten, 1));
  OK(give(graph, object, 1, 1));
  OK(give(changed, other, 1, 1));
  OK(add_node(&node, graph, NULL, 0, &fill));
  OK(add_node(&node, changed, NULL, 0, &fill));
  exec = new_exec(graph);
  drop(graph, NULL);
  struct update_info info;
  OK(CALL(cuGraphExecUpdate_v2, (void *, void *, void *), exec, changed, &info));
  TRUE(becomes(2));
  drop(changed, NULL);
  OK(launch(exec, stream));
  IS(2, destroyed);
  drop(NULL, exec);
  TRUE(becomes(12));
}

/* A context that ends takes what its executables have at the host with it. */
static void executables_of_ended_contexts(void) {
  static int one = 1, ten = 10;
  void *first = NULL, *second = NULL;
  OK(CALL(cuCtxGetCurrent, (void **), &first));
  for (int launched = 0; launched < 2; launched++) {
    void *object = NULL, *graph = new_graph(), *node = NULL;
    OK(CALL(cuCtxCreate_v2, (void **, unsigned, int), &second, 0, 0));
    devptr memory = check_alloc(4096);
    struct node_params fill = fill_node(memory, 7, 16);
    OK(create(&object, launched ? &ten : &one, 1));
    OK(give(graph, object, 1, 1));
    OK(add_node(&node, graph, NULL, 0, &fill));
    void *exec = new_exec(graph), *stream = new_stream();
    if (launched) {
      OK(launch(exec, stream));
      IS(7, word_at(memory));
    }
    OK(CALL(cuCtxDestroy_v2, (void *), second));
    OK(CALL(cuCtxSetCurrent, (void *), first));
    IS(INVALID_HANDLE, CALL(cuGraphLaunch, (void *, void *), exec, NULL));
    IS(INVALID_HANDLE, CALL(cuGraphNodeSetEnabled, (void *, void *, unsigned), exec, node, 0));
    OK(CALL(cuCtxSynchronize, (void), ));
    drop(graph, exec);
    TRUE(becomes(launched ? 11 : 1));
    OK(CALL(cuCtxSynchronize, (void), ));
  }
}

static const struct check_case cases[] = {{"user_objects", user_objects},
                                          {"user_objects_of_executables", user_objects_of_executables},
                                          {"executables_of_ended_contexts", executables_of_ended_contexts}};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
