"""What numba's CUDA target does through the shim, each result compared with numpy's.

usage: numba_steps.py STEP...   prints "STEP ok" or "STEP: the error" for each
"""

import math
import sys
import warnings

from cuda import pathfinder

find = pathfinder.load_nvidia_dynamic_lib


def without_nvjitlink(name):
    """nvJitLink makes machine code. Where it is missing, numba-cuda gives its PTX to the driver's linker (cuLink*)."""
    if name == "nvJitLink":
        raise pathfinder.DynamicLibNotFoundError(name)
    return find(name)


pathfinder.load_nvidia_dynamic_lib = without_nvjitlink

import numpy as np
from numba import cuda, float32, vectorize
from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_uniform_float32

warnings.filterwarnings("ignore")


def equal(is_, wanted):
    np.testing.assert_allclose(is_, wanted, rtol=1e-5)


@cuda.jit
def add(a, b, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a[i] + b[i]


@cuda.jit
def multiply(a, b, out):
    left = cuda.shared.array((8, 8), float32)
    right = cuda.shared.array((8, 8), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for part in range(a.shape[1] // 8):
        left[tx, ty] = a[x, part * 8 + ty]
        right[tx, ty] = b[part * 8 + tx, y]
        cuda.syncthreads()
        for k in range(8):
            total += left[tx, k] * right[k, ty]
        cuda.syncthreads()
    out[x, y] = total


@cuda.jit
def count(values, bins):
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(bins, values[i], 1)


@cuda.jit
def roots(a, out):
    i = cuda.grid(1)
    if i < a.size:
        out[i] = math.sqrt(a[i]) + math.sin(a[i]) * math.exp(-a[i])


@cuda.jit
def turn(out):
    i = cuda.grid(1)
    out[i] = cuda.shfl_xor_sync(0xFFFFFFFF, i, 5)


@cuda.jit
def all_threads(a):
    i = cuda.grid(1)
    grid = cuda.cg.this_grid()
    for row in range(1, a.shape[0]):
        a[row, i] = a[row - 1, a.shape[1] - 1 - i] + 1
        grid.sync()


@cuda.jit
def draw(states, out):
    i = cuda.grid(1)
    out[i] = xoroshiro128p_uniform_float32(states, i)


@vectorize(["float32(float32, float32)"], target="cuda")
def ratio(x, y):
    return x / (y + float32(1))


def kernels():
    a = np.arange(1000, dtype=np.float32)
    out = np.zeros_like(a)
    add[4, 256](a, a, out)
    equal(out, 2 * a)
    roots[4, 256](a, out)
    equal(out, np.sqrt(a) + np.sin(a) * np.exp(-a))


def matrices():
    random = np.random.default_rng(1)
    a, b = (random.random((64, 64), dtype=np.float32) for _ in range(2))
    out = cuda.device_array((64, 64), np.float32)
    multiply[(8, 8), (8, 8)](a, b, out)
    equal(out.copy_to_host(), a @ b)


def atomics():
    values = np.random.default_rng(2).integers(0, 10, 5000)
    bins = np.zeros(10, np.int64)
    count[20, 256](values, bins)
    equal(bins, np.bincount(values, minlength=10))


def warps():
    out = np.zeros(64, np.int64)
    turn[1, 64](out)
    equal(out, np.arange(64) ^ 5)


def grids():
    a = np.zeros((50, 128), np.int64)
    all_threads[4, 32](a)
    equal(a, np.repeat(np.arange(50)[:, None], 128, axis=1))


def streams():
    stream, begin, end = cuda.stream(), cuda.event(), cuda.event()
    a = cuda.pinned_array(4096, np.float32)
    a[:] = 3
    begin.record(stream)
    there = cuda.to_device(a, stream=stream)
    add[16, 256, stream](there, there, there)
    there.copy_to_host(a, stream=stream)
    end.record(stream)
    end.synchronize()
    equal(a, np.full(4096, 6))
    assert begin.elapsed_time(end) >= 0


def shared_memory():
    mapped, managed = cuda.mapped_array(256, np.float32), cuda.managed_array(256, np.float32)
    mapped[:], managed[:] = 1, 2
    add[1, 256](mapped, managed, managed)
    cuda.synchronize()
    equal(managed, np.full(256, 3))
    # numpy's own memory, registered
    own = np.arange(256, dtype=np.float32)
    pointer = cuda.current_context().mempin(own, own.ctypes.data, own.nbytes, mapped=True)
    view = cuda.cudadrv.devicearray.DeviceNDArray(own.shape, own.strides, own.dtype, gpu_data=pointer)
    add[1, 256](view, mapped, view)
    cuda.synchronize()
    equal(own, np.arange(256) + 1)


def functions():
    a = np.linspace(1, 2, 300, dtype=np.float32)
    equal(ratio(a, a), a / (a + 1))
    add_up = cuda.reduce(lambda x, y: x + y)
    assert add_up(np.arange(3000)) == 2999 * 1500
    states = create_xoroshiro128p_states(256, seed=1)
    out = np.zeros(256, np.float32)
    draw[1, 256](states, out)
    assert 0 <= out.min() < 0.1 and 0.9 < out.max() < 1 and abs(out.mean() - 0.5) < 0.1


STEPS = {
    "kernels": kernels,
    "matrices": matrices,
    "atomics": atomics,
    "warps": warps,
    "grids": grids,
    "streams": streams,
    "shared-memory": shared_memory,
    "functions": functions,
}

for name in sys.argv[1:]:
    try:
        STEPS[name]()
        print(name, "ok", flush=True)
    except BaseException as error:
        print(f"{name}: {type(error).__name__} {error}".splitlines()[0], flush=True)
