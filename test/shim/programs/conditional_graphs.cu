// Conditional nodes of graphs by the runtime's calls: kernels decide. Prints what is wrong.
#include <cstdio>
#include <cstdlib>

#define OK(call)                                                                                             \
  do {                                                                                                       \
    cudaError_t error_ = (call);                                                                             \
    if (error_ != cudaSuccess) {                                                                             \
      printf("line %d: %s\n", __LINE__, cudaGetErrorString(error_));                                         \
      exit(1);                                                                                               \
    }                                                                                                        \
  } while (0)

// The number of steps that n takes to 1: what a loop of unknown length is for.
__global__ void collatz(cudaGraphConditionalHandle handle, unsigned *n, unsigned *steps) {
  if (*n == 1) {
    cudaGraphSetConditional(handle, 0);
    return;
  }
  *n = *n % 2 == 0 ? *n / 2 : 3 * *n + 1;
  ++*steps;
  cudaGraphSetConditional(handle, *n != 1);
}

__global__ void choose(cudaGraphConditionalHandle handle, const unsigned *steps, unsigned kinds) {
  cudaGraphSetConditional(handle, *steps % kinds);
}

__global__ void write(unsigned *to, unsigned value) { *to = value; }

static cudaGraphNode_t condition(cudaGraph_t graph, cudaGraphNode_t after, cudaGraphConditionalHandle handle,
                                 cudaGraphConditionalNodeType type, unsigned size, cudaGraph_t *bodies) {
  cudaGraphNodeParams params = {cudaGraphNodeTypeConditional};
  params.conditional.handle = handle;
  params.conditional.type = type;
  params.conditional.size = size;
  cudaGraphNode_t node;
  OK(cudaGraphAddNode(&node, graph, &after, nullptr, after == nullptr ? 0 : 1, &params));
  for (unsigned i = 0; i < size; i++) bodies[i] = params.conditional.phGraph_out[i];
  return node;
}

static void capture(cudaStream_t stream, cudaGraph_t graph) {
  OK(cudaStreamBeginCaptureToGraph(stream, graph, nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed));
}

int main() {
  unsigned *memory; // n, steps, which body
  OK(cudaMalloc(&memory, 3 * sizeof *memory));
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  cudaGraph_t graph, loop, bodies[3], same;
  OK(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle again, kind;
  OK(cudaGraphConditionalHandleCreate(&again, graph, 1, cudaGraphCondAssignDefault));
  OK(cudaGraphConditionalHandleCreate(&kind, graph, 0, 0));
  cudaGraphNode_t looped = condition(graph, nullptr, again, cudaGraphCondTypeWhile, 1, &loop);
  capture(stream, loop);
  collatz<<<1, 1, 0, stream>>>(again, memory, memory + 1);
  OK(cudaStreamEndCapture(stream, &same));
  cudaGraphNode_t chosen;
  unsigned kinds = 4, *steps = memory + 1;
  void *arguments[] = {&kind, &steps, &kinds};
  cudaGraphNodeParams kernel = {cudaGraphNodeTypeKernel};
  kernel.kernel.func = (void *)choose;
  kernel.kernel.gridDim = kernel.kernel.blockDim = dim3(1);
  kernel.kernel.kernelParams = arguments;
  OK(cudaGraphAddNode(&chosen, graph, &looped, nullptr, 1, &kernel));
  condition(graph, chosen, kind, cudaGraphCondTypeSwitch, 3, bodies);
  for (unsigned i = 0; i < 3; i++) {
    capture(stream, bodies[i]);
    write<<<1, 1, 0, stream>>>(memory + 2, 100 + i);
    OK(cudaStreamEndCapture(stream, &same));
  }
  cudaGraphExec_t exec;
  OK(cudaGraphInstantiate(&exec, graph, 0));
  int wrong = 0;
  for (unsigned n = 1; n < 30; n++) {
    unsigned values[3] = {n, 0, 9}, wanted = 0;
    for (unsigned at = n; at != 1; wanted++) at = at % 2 == 0 ? at / 2 : 3 * at + 1;
    OK(cudaMemcpyAsync(memory, values, sizeof values, cudaMemcpyHostToDevice, stream));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaMemcpyAsync(values, memory, sizeof values, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    unsigned body = wanted % 4 == 3 ? 9 : 100 + wanted % 4;
    if (values[0] == 1 && values[1] == wanted && values[2] == body) continue;
    printf("%u: %u, %u steps, not %u, body %u, not %u\n", n, values[0], values[1], wanted, values[2], body);
    wrong = 1;
  }
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
  puts(wrong ? "wrong" : "right");
  return wrong;
}
