"""cuda.core and cuda.bindings of CUDA 13.5 through the shim, each result compared with numpy's.

usage: core_steps.py STEP...   prints "STEP ok" or "STEP: the error" for each
"""

import sys
import tempfile

import numpy as np
from cuda.bindings import driver
from cuda.core import (
    Device,
    DeviceMemoryResource,
    EventOptions,
    LaunchConfig,
    Linker,
    LinkerOptions,
    ManagedMemoryResource,
    ObjectCode,
    Program,
    ProgramOptions,
    launch,
)
from cuda.core.graph import GraphDefinition

CODE = """
template <typename T> __global__ void scale(T *values, T factor, unsigned n) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) values[i] *= factor;
}
extern "C" __device__ float outside(float x);
extern "C" __global__ void apply(float *values, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] = outside(values[i]);
}"""
OUTSIDE = 'extern "C" __device__ float outside(float x) { return x * x - 1; }'
WHOLE = CODE.replace('extern "C" __device__ float outside(float x);', OUTSIDE)
COUNT = 1000
CONFIG = LaunchConfig(grid=4, block=256)

device = Device()
device.set_current()
stream = device.create_stream()
numbers = np.random.default_rng(3).standard_normal(COUNT).astype(np.float32)


def done(answer):
    error, *values = answer
    assert error == 0, error
    return values[0] if len(values) == 1 else values


def kernels(*names):
    options = ProgramOptions(std="c++17", arch="compute_90")
    code = Program(WHOLE, "c++", options).compile("ptx", name_expressions=names)
    return [code.get_kernel(name) for name in names]


def put(values):
    buffer = device.allocate(values.nbytes, stream=stream)
    done(driver.cuMemcpyHtoDAsync(buffer.handle, values.ctypes.data, values.nbytes, stream.handle))
    return buffer


def got(buffer, dtype=np.float32):
    values = np.zeros(buffer.size // np.dtype(dtype).itemsize, dtype)
    stream.sync()
    done(driver.cuMemcpyDtoH(values.ctypes.data, buffer.handle, buffer.size))
    return values


def programs():
    float_kernel, int_kernel = kernels("scale<float>", "scale<int>")
    floats, ints = put(numbers), put(np.arange(COUNT, dtype=np.int32))
    launch(stream, CONFIG, float_kernel, floats, np.float32(1.5), np.uint32(COUNT))
    launch(stream, CONFIG, int_kernel, ints, np.int32(-3), np.uint32(COUNT))
    np.testing.assert_array_equal(got(floats), numbers * np.float32(1.5))
    np.testing.assert_array_equal(got(ints, np.int32), np.arange(COUNT) * -3)
    assert float_kernel.attributes.max_threads_per_block >= 256


def linked():
    options = ProgramOptions(std="c++17", arch="compute_90", relocatable_device_code=True, link_time_optimization=True)
    parts = [Program(text, "c++", options).compile("ltoir") for text in (CODE, OUTSIDE)]
    linker = Linker(*parts, options=LinkerOptions(arch="compute_90", link_time_optimization=True, ptx=True))
    values = put(numbers)
    launch(stream, CONFIG, linker.link("ptx").get_kernel("apply"), values, np.uint32(COUNT))
    np.testing.assert_allclose(got(values), numbers * numbers - 1, atol=1e-6)


def memory():
    resource = DeviceMemoryResource(device)
    one, other = (resource.allocate(4096, stream=stream) for _ in range(2))
    one.fill(np.uint32(0x01020304), stream=stream)
    other.copy_from(one, stream=stream)
    assert set(got(other, np.uint32)) == {0x01020304}
    other.close(stream)
    managed = ManagedMemoryResource().allocate(4 * COUNT, stream=stream)
    stream.sync()
    seen = np.from_dlpack(managed).view(np.float32) if managed.is_host_accessible else None
    assert seen is not None, "managed memory is not the program's"
    seen[:] = numbers
    (kernel,) = kernels("scale<float>")
    launch(stream, CONFIG, kernel, managed, np.float32(2), np.uint32(COUNT))
    stream.sync()
    np.testing.assert_array_equal(seen, numbers * 2)


def events():
    other = device.create_stream()
    (kernel,) = kernels("scale<float>")
    values = put(numbers)
    begin = stream.record(options=EventOptions(timing_enabled=True))
    for _ in range(3):
        launch(stream, CONFIG, kernel, values, np.float32(2), np.uint32(COUNT))
    end = stream.record(options=EventOptions(timing_enabled=True))
    other.wait(end)
    launch(other, CONFIG, kernel, values, np.float32(0.5), np.uint32(COUNT))
    other.sync()
    assert end.is_done and 0 <= end - begin < 60_000
    np.testing.assert_array_equal(got(values), numbers * 4)


def captured():
    (kernel,) = kernels("scale<float>")
    values = put(numbers)
    builder = device.create_graph_builder().begin_building()
    launch(builder, CONFIG, kernel, values, np.float32(2), np.uint32(COUNT))
    left, right = builder.split(2)
    half = COUNT // 2
    launch(left, CONFIG, kernel, values.handle, np.float32(3), np.uint32(half))
    launch(right, CONFIG, kernel, values.handle + 4 * half, np.float32(5), np.uint32(half))
    graph = left.join(left, right).end_building().complete()
    graph.launch(stream)
    graph.launch(stream)
    factors = np.repeat(np.array([36, 100], np.float32), half)
    np.testing.assert_allclose(got(values), numbers * factors, rtol=1e-6)


def defined():
    (kernel,) = kernels("scale<int>")
    values, copies = put(np.zeros(COUNT, np.int32)), put(np.zeros(COUNT, np.int32))
    calls = []
    graph = GraphDefinition()
    fill = graph.memset(values, np.uint32(7), COUNT)
    first = fill.launch(CONFIG, kernel, values, np.int32(6), np.uint32(COUNT))
    copy = first.memcpy(copies, values, 4 * COUNT)
    copy.callback(lambda: calls.append(1))
    made = graph.instantiate()
    made.launch(stream)
    assert set(got(copies, np.int32)) == {42} and calls == [1]
    # cuda.core sets kernel nodes by the calls of 13.2 and 13.4 where the driver has them.
    first.update(args=(values, np.int32(5), np.uint32(COUNT)))
    made.update(graph)
    made.launch(stream)
    assert set(got(copies, np.int32)) == {35} and calls == [1, 1]
    assert first.grid == (4, 1, 1) and first.block == (256, 1, 1) and len(graph.nodes()) == 4


def names():
    """The calls of CUDA 13.1 to 13.4 about graphs, by cuda.bindings."""
    graph = done(driver.cuGraphCreate(0))
    nodes = [done(driver.cuGraphAddEmptyNode(graph, [], 0)) for _ in range(2)]
    number = done(driver.cuGraphGetId(graph))
    assert [done(driver.cuGraphNodeGetLocalId(node)) for node in nodes] == [0, 1]
    assert int(done(driver.cuGraphNodeGetContainingGraph(nodes[1]))) == int(graph)
    assert done(driver.cuGraphNodeGetParams(nodes[0])).type == driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_EMPTY
    with tempfile.NamedTemporaryFile() as file:
        done(driver.cuGraphDebugDotPrint(graph, file.name.encode(), 0))
        assert f'"graph_{number}_node_1"' in file.read().decode()
    assert done(driver.cuDriverGetVersion()) >= 13000
    (error, _) = driver.cuDeviceGetCliqueCount(0)
    assert error == driver.CUresult.CUDA_ERROR_NOT_SUPPORTED, error


def main():
    steps = {step.__name__: step for step in (programs, linked, memory, events, captured, defined, names)}
    for name in sys.argv[1:]:
        try:
            steps[name]()
            print(name, "ok", flush=True)
        except BaseException as error:
            print(f"{name}: {type(error).__name__} {error}".splitlines()[0], flush=True)


main()
