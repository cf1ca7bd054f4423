"""CuPy with CUPY_COMPILE_WITH_PTX=1, each result compared with numpy's. Sorts, scans, products and
transforms are left out: Thrust, CUB, cuBLAS and cuFFT are machine code only.

usage: cupy_steps.py STEP...   prints "STEP ok" or "STEP: the error" for each
"""

import sys
import warnings

import cupy as cp
import numpy as np

warnings.filterwarnings("ignore")
random = np.random.default_rng(11)


def equal(is_, wanted, tolerance=1e-5):
    np.testing.assert_allclose(cp.asnumpy(is_), wanted, rtol=tolerance, atol=tolerance)


@cp.fuse()
def fused(x):
    return cp.where(x > 0, x * 2, -x)


def elementwise():
    for dtype in (np.float32, np.float64, np.int32, np.complex64):
        a, b = (random.integers(1, 50, (30, 41)).astype(dtype) for _ in range(2))
        x, y = cp.asarray(a), cp.asarray(b)
        equal(x * y - x / y, a * b - a / b)
        equal(cp.sin(x) + cp.sqrt(y), np.sin(a) + np.sqrt(b), 1e-4)
    values = random.standard_normal(1000).astype(np.float16)
    equal(cp.exp(cp.asarray(values)), np.exp(values), 1e-2)
    square = cp.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = x * x - y", "square_less")
    a = random.standard_normal(777, dtype=np.float32)
    equal(square(cp.asarray(a), cp.asarray(a)), a * a - a)
    equal(fused(cp.asarray(a)), np.where(a > 0, a * 2, -a))


def reductions():
    a = random.standard_normal((50, 60, 7))
    x = cp.asarray(a)
    for axis in (None, 0, (0, 2), 1):
        equal(x.sum(axis), a.sum(axis), 1e-9)
        equal(x.max(axis), a.max(axis))
        equal(x.std(axis), a.std(axis), 1e-9)
    equal(x.argmax(1), a.argmax(1))
    equal(cp.cumsum(x, 1), np.cumsum(a, 1), 1e-9)
    norm = cp.ReductionKernel("float64 x", "float64 y", "x * x", "a + b", "y = sqrt(a)", "0", "root_of_squares")
    equal(norm(x, axis=1), np.sqrt((a * a).sum(1)), 1e-9)


def indexing():
    a = random.integers(0, 1000, (64, 33))
    x = cp.asarray(a)
    rows, mask = random.integers(0, 64, 20), a % 3 == 0
    equal(x[cp.asarray(rows)], a[rows])
    equal(x[cp.asarray(mask)], a[mask])
    x[cp.asarray(mask)] = -1
    a[mask] = -1
    equal(x, a)
    equal(x[::-2, 3:20:4].T.copy(), a[::-2, 3:20:4].T)
    equal(cp.concatenate([x, x * 2], 1), np.concatenate([a, a * 2], 1))
    equal(cp.bincount(cp.asarray(rows)), np.bincount(rows))


SOURCE = r"""
template <typename T> __device__ T twice(T x) { return x + x; }
extern "C" __global__ void transpose(const float *a, float *out, int n) {
  __shared__ float tile[16][17];
  int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
  if (x < n && y < n) tile[threadIdx.y][threadIdx.x] = a[y * n + x];
  __syncthreads();
  x = blockIdx.y * 16 + threadIdx.x, y = blockIdx.x * 16 + threadIdx.y;
  if (x < n && y < n) out[y * n + x] = twice(tile[threadIdx.x][threadIdx.y]);
}
"""


def raw():
    a = random.standard_normal((75, 75), dtype=np.float32)
    out = cp.zeros_like(cp.asarray(a))
    cp.RawKernel(SOURCE, "transpose")((5, 5), (16, 16), (cp.asarray(a), out, np.int32(75)))
    equal(out, 2 * a.T)
    equal(cp.RawModule(code=SOURCE, backend="nvrtc").get_function("transpose").max_threads_per_block >= 256, True)


def streams():
    a = random.standard_normal(4096, dtype=np.float32)
    with cp.cuda.Stream(non_blocking=True) as stream:
        x = cp.asarray(a)
        for _ in range(5):
            x = x * 2 + 1
    event = stream.record()
    event.synchronize()
    for _ in range(5):
        a = a * 2 + 1
    equal(x, a)
    stream = cp.cuda.Stream(non_blocking=True)
    y = cp.ones(256)
    with stream:
        stream.begin_capture()
        y += 3
        graph = stream.end_capture()
        for _ in range(4):
            graph.launch()
    stream.synchronize()
    equal(y, np.full(256, 13.0))


STEPS = {
    "elementwise": elementwise,
    "reductions": reductions,
    "indexing": indexing,
    "raw": raw,
    "streams": streams,
}

for name in sys.argv[1:]:
    try:
        STEPS[name]()
        print(name, "ok", flush=True)
    except BaseException as error:
        print(f"{name}: {type(error).__name__} {error}".replace("\n", "; "), flush=True)
