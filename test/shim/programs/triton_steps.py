"""Kernels of Triton, each result compared with numpy's. Triton's ptxas is ours (vgpu-ptxas), PyTorch is not needed.

usage: triton_steps.py STEP...   prints "STEP ok" or "STEP: the error" for each
"""

import sys
import warnings

import numpy as np
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

warnings.filterwarnings("ignore")
# Makes the primary context current, which memory needs.
triton.runtime.driver.active.get_current_target()

from driver_arrays import OnDevice, empty_like  # noqa: E402

random = np.random.default_rng(5)


def equal(is_, wanted, tolerance=1e-5):
    np.testing.assert_allclose(np.asarray(is_, np.float64), wanted, rtol=tolerance, atol=tolerance)


@triton.jit
def add_kernel(a, b, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(a + at, mask=inside) + tl.load(b + at, mask=inside), mask=inside)


def add():
    for dtype in (np.float32, np.float16, np.int64):
        a, b = (random.integers(-100, 100, 2500).astype(dtype) for _ in range(2))
        out = empty_like(a)
        add_kernel[(3,)](OnDevice(a), OnDevice(b), out, 2500, 1024)
        np.testing.assert_array_equal(out.numpy(), a + b)


@triton.jit
def softmax_kernel(rows, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(rows + row * columns + at, mask=at < columns, other=-float("inf"))
    powers = tl.exp(x - tl.max(x, axis=0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, axis=0), mask=at < columns)


def softmax():
    x = random.standard_normal((37, 781), dtype=np.float32) * 5
    out = empty_like(x)
    softmax_kernel[(37,)](OnDevice(x), out, 781, 1024)
    powers = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    equal(out.numpy(), powers / powers.sum(axis=1, keepdims=True))


@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(a + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * N + columns[None, :], mask=(k[:, None] < K) & (columns[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * N + columns[None, :], total, mask=(rows[:, None] < M) & (columns[None, :] < N))


def matmul():
    for dtype, tolerance in ((np.float16, 1e-2), (np.float32, 1e-2)):
        a = random.standard_normal((150, 96)).astype(dtype)
        b = random.standard_normal((96, 130)).astype(dtype)
        c = empty_like(np.zeros((150, 130), np.float32))
        matmul_kernel[(3, 3)](OnDevice(a), OnDevice(b), c, 150, 130, 96, 64, 64, 32)
        equal(c.numpy(), a.astype(np.float64) @ b.astype(np.float64), tolerance)


@triton.jit
def matmul_tma_kernel(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(a.load([row, k]), b.load([k, column]), total)
    c.store([row, column], total.to(tl.float16))


def tensor_maps():
    a, b = (random.standard_normal((128, 128)).astype(np.float16) for _ in range(2))
    left, right, out = OnDevice(a), OnDevice(b), empty_like(a)
    maps = [TensorDescriptor(x, [128, 128], [128, 1], [64, 64]) for x in (left, right, out)]
    matmul_tma_kernel[(2, 2)](*maps, 128, 64, 64, 64)
    equal(out.numpy(), a.astype(np.float64) @ b.astype(np.float64), 2e-2)


@triton.jit
def norm_kernel(x, weight, bias, out, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < n
    values = tl.load(x + row * n + at, mask=inside, other=0.0)
    centred = tl.where(inside, values - tl.sum(values, axis=0) / n, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / n + eps)
    scaled = centred * scale * tl.load(weight + at, mask=inside) + tl.load(bias + at, mask=inside)
    tl.store(out + row * n + at, scaled, mask=inside)


@triton.jit
def norm_back_kernel(x, weight, dy, dx, dweight, dbias, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < n
    values = tl.load(x + row * n + at, mask=inside, other=0.0)
    centred = tl.where(inside, values - tl.sum(values, axis=0) / n, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / n + eps)
    normal = centred * scale
    down = tl.load(dy + row * n + at, mask=inside, other=0.0)
    weighted = down * tl.load(weight + at, mask=inside, other=0.0)
    left = tl.sum(normal * weighted, axis=0) / n
    tl.store(dx + row * n + at, (weighted - normal * left - tl.sum(weighted, axis=0) / n) * scale, mask=inside)
    tl.atomic_add(dweight + at, down * normal, mask=inside)
    tl.atomic_add(dbias + at, down, mask=inside)


def layer_norm():
    n = 300
    x, dy = (random.standard_normal((20, n), dtype=np.float32) for _ in range(2))
    weight, bias = (random.standard_normal(n, dtype=np.float32) for _ in range(2))
    out, dx = empty_like(x), empty_like(x)
    dweight, dbias = OnDevice(np.zeros(n, np.float32)), OnDevice(np.zeros(n, np.float32))
    norm_kernel[(20,)](OnDevice(x), OnDevice(weight), OnDevice(bias), out, n, 1e-5, 512)
    norm_back_kernel[(20,)](OnDevice(x), OnDevice(weight), OnDevice(dy), dx, dweight, dbias, n, 1e-5, 512)
    centred = x - x.mean(axis=1, keepdims=True, dtype=np.float64)
    scale = 1 / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    normal = centred * scale
    equal(out.numpy(), normal * weight + bias, 1e-4)
    weighted = dy.astype(np.float64) * weight
    mean = lambda values: values.mean(axis=1, keepdims=True)  # noqa: E731
    equal(dx.numpy(), (weighted - normal * mean(normal * weighted) - mean(weighted)) * scale, 1e-4)
    equal(dweight.numpy(), (dy * normal).sum(axis=0), 1e-4)
    equal(dbias.numpy(), dy.sum(axis=0, dtype=np.float64), 1e-4)


@triton.jit
def attention_kernel(q, k, v, out, scale, S: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    head = tl.program_id(1) * S * D
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    query = tl.load(q + head + rows[:, None] * D + d[None, :])
    most = tl.full((BM,), -float("inf"), dtype=tl.float32)
    weight = tl.zeros((BM,), dtype=tl.float32)
    total = tl.zeros((BM, D), dtype=tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * BM, BN):
        columns = start + tl.arange(0, BN)
        keys = tl.load(k + head + columns[None, :] * D + d[:, None])
        scores = tl.where(rows[:, None] >= columns[None, :], tl.dot(query, keys) * scale, -float("inf"))
        higher = tl.maximum(most, tl.max(scores, axis=1))
        part = tl.exp2(scores - higher[:, None])
        old = tl.exp2(most - higher)
        values = tl.load(v + head + columns[:, None] * D + d[None, :])
        total = tl.dot(part.to(tl.float16), values, total * old[:, None])
        weight = weight * old + tl.sum(part, axis=1)
        most = higher
    tl.store(out + head + rows[:, None] * D + d[None, :], (total / weight[:, None]).to(tl.float16))


def attention():
    heads, length, d = 2, 128, 64
    q, k, v = (random.standard_normal((heads, length, d)).astype(np.float16) for _ in range(3))
    out = empty_like(q)
    scale = 1.4426950408889634 / d**0.5
    attention_kernel[(length // 64, heads)](OnDevice(q), OnDevice(k), OnDevice(v), out, scale, length, d, 64, 32)
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(1, 2) / d**0.5
    scores[:, ~np.tri(length, dtype=bool)] = -np.inf
    powers = np.exp(scores - scores.max(axis=2, keepdims=True))
    equal(out.numpy(), powers / powers.sum(axis=2, keepdims=True) @ v.astype(np.float64), 1e-2)


STEPS = {
    "add": add,
    "softmax": softmax,
    "matmul": matmul,
    "tensor-maps": tensor_maps,
    "layer-norm": layer_norm,
    "attention": attention,
}

for name in sys.argv[1:]:
    try:
        STEPS[name]()
        print(name, "ok", flush=True)
    except BaseException as error:
        print(f"{name}: {type(error).__name__} {error}".splitlines()[0], flush=True)
