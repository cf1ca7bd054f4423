"""JAX: the same functions compiled by XLA for the GPU and for the CPU, in one process, and their results compared.

usage: jax_steps.py STEP...   prints "STEP ok" or "STEP: the error" for each
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

random = np.random.default_rng(29)
CPU, GPU = jax.devices("cpu")[0], jax.devices("gpu")[0]


def draw(*shape, dtype=np.float32):
    return random.standard_normal(shape).astype(dtype)


def same(function, *arguments, tolerance=1e-5):
    """What `function` returns on the GPU is what it returns on the CPU."""
    wanted, got = (
        jax.tree.map(np.asarray, jax.jit(function)(*jax.device_put(arguments, device))) for device in (CPU, GPU)
    )
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one.astype(np.float64), other.astype(np.float64), rtol=tolerance, atol=tolerance)
    on_gpu = jax.jit(function)(*jax.device_put(arguments, GPU))
    assert all(leaf.devices() == {GPU} for leaf in jax.tree.leaves(on_gpu))


def elementwise():
    a, b = draw(37, 53), draw(53)
    same(lambda x, y: jnp.sin(x) * y + jnp.tanh(x) - jnp.exp(-(y**2)), a, b)
    same(lambda x: (jnp.log1p(x * x), jax.nn.gelu(x), lax.erf(x), jnp.cbrt(x), x > 0), a)
    same(lambda x, y: x / y - jnp.floor(x), a.astype(np.float16), b.astype(np.float16), tolerance=4e-3)
    same(lambda x: jnp.sqrt(jnp.abs(x.astype(jnp.bfloat16))), a, tolerance=1e-2)
    words = random.integers(-(2**31), 2**31, (41, 29), dtype=np.int64).astype(np.int32)
    same(lambda x: (x * 7 // 3, x % 13, x >> 3, x ^ (x << 5), lax.population_count(x), lax.clz(x)), words)
    same(lambda x: jnp.abs(x * (2 - 3j)) + jnp.angle(x), draw(40) + 1j * draw(40))


def reductions():
    a = draw(45, 70)
    same(lambda x: (x.sum(), x.sum(0), x.mean(1), x.max(1), x.argmin(0), x.std(), jnp.prod(x[:3], 0)), a, tolerance=1e-4)
    same(lambda x: (jax.nn.softmax(x), jax.nn.logsumexp(x, 1)), a)
    # A longer row takes more than one block, and their parts meet in memory.
    same(lambda x: (x.sum(1), x.min(1)), draw(3, 20000), tolerance=1e-3)


def indexing():
    a, at = draw(30, 17), random.integers(0, 30, 55)
    same(lambda x, i: (x[i], x.at[i].add(1.0), x.at[i[:5]].set(0.0), jnp.roll(x, 3, 0), x.T[::-1]), a, at)
    same(lambda x: (jnp.cumsum(x, 0), lax.cummax(x, 1), jnp.pad(x, ((1, 2), (3, 0)))), a)
    same(lambda x: lax.dynamic_update_slice(x, x[3:5, 2:9] * 2, (7, 4)), a)
    same(lambda x, i: jax.ops.segment_sum(x, i, 6), draw(55, 4), at % 6)


def sorts():
    a = draw(6, 100)
    same(lambda x: (jnp.sort(x, 1), jnp.argsort(x, 0), lax.top_k(x, 5), jnp.median(x)), a)


def gradients():
    def net(parameters, x):
        for weight, bias in parameters:
            # A sum of products, because a product of matrices is cuBLAS's, which is machine code only.
            x = jnp.tanh((x[:, :, None] * weight).sum(1) + bias)
        return (x**2).mean()

    parameters = [(draw(11, 16) / 4, draw(16)), (draw(16, 3) / 4, draw(3))]
    same(jax.value_and_grad(net), parameters, draw(24, 11))
    same(lambda x: jax.vmap(jax.grad(lambda y: jnp.sin(y) * jnp.exp(-y * y)))(x), draw(300))
    same(lambda x: jax.jvp(lambda y: jax.nn.softmax(y) ** 2, (x,), (x * 0 + 1,)), draw(9, 8))
    same(jax.hessian(lambda x: (x**3).sum() + jnp.prod(x)), draw(5))


def scans():
    def cell(carry, x):
        state = jnp.tanh(carry * 0.5 + x)
        return state, state.sum()

    same(lambda start, xs: lax.scan(cell, start, xs), draw(8), draw(20, 8))
    same(jax.grad(lambda start, xs: lax.scan(cell, start, xs)[1].sum()), draw(8), draw(12, 8))
    same(lambda x: lax.while_loop(lambda v: jnp.abs(v).max() > 0.01, lambda v: v * 0.7, x), draw(13))
    same(lambda x: lax.fori_loop(0, 9, lambda i, v: v + lax.cond(i % 2 == 0, jnp.sin, jnp.cos, v), x), draw(13))
    same(lambda x: lax.associative_scan(jnp.multiply, x), draw(64) * 0.1 + 1)


def draws():
    # Threefry counts in integers: the same bits on every device.
    key = jax.random.key(5)
    same(lambda k: (jax.random.bits(k, (77,)), jax.random.uniform(k, (1001,)), jax.random.permutation(k, 50)), key)
    same(lambda k: jax.random.normal(k, (33, 9)), key)


def training():
    """Adam fits a curve: many small kernels, and the state of one step is what the next one reads."""

    def loss(p, x, y):
        hidden = jnp.sin(x[:, None] * p["w"] + p["b"])
        return (((hidden * p["v"]).sum(1) - y) ** 2).mean()

    def step(state, _):
        p, m, v, n = state
        value, grad = jax.value_and_grad(loss)(p, X, Y)
        m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, m, grad)
        v = jax.tree.map(lambda a, g: 0.99 * a + 0.01 * g * g, v, grad)
        n = n + 1
        new = jax.tree.map(lambda a, b, c: a - 0.03 * (b / (1 - 0.9**n)) / (jnp.sqrt(c / (1 - 0.99**n)) + 1e-8), p, m, v)
        return (new, m, v, n), value

    X = np.linspace(-2, 2, 64, dtype=np.float32)
    Y = np.cos(2 * X).astype(np.float32)
    p = {"w": draw(12), "b": draw(12), "v": draw(12) * 0.3}
    zero = jax.tree.map(np.zeros_like, p)
    start = (p, zero, zero, np.float32(0))
    same(lambda s: lax.scan(step, s, None, 30), start, tolerance=2e-3)
    losses = np.asarray(jax.jit(lambda s: lax.scan(step, s, None, 30)[1])(jax.device_put(start, GPU)))
    assert losses[-1] < losses[0] / 2


STEPS = {
    "elementwise": elementwise,
    "reductions": reductions,
    "indexing": indexing,
    "sorts": sorts,
    "gradients": gradients,
    "scans": scans,
    "random": draws,
    "training": training,
}

for name in sys.argv[1:]:
    try:
        STEPS[name]()
        print(f"{name} ok", flush=True)
    except Exception as error:  # noqa: BLE001
        print(f"{name}: {type(error).__name__}: {error}".replace("\n", " ")[:1500], flush=True)
