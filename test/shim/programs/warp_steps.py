"""Warp: each kernel on the GPU, from the PTX that Warp's compiler makes, and on the CPU; the results compared.

usage: warp_steps.py STEP...   prints "STEP ok" or "STEP: the error" for each
"""

import sys

import numpy as np
import warp as wp

wp.config.log_level = wp.LOG_WARNING
wp.config.cuda_output = "ptx"
wp.init()
random = np.random.default_rng(31)
DEVICES = ("cpu", "cuda:0")


def draw(*shape):
    return random.standard_normal(shape).astype(np.float32)


def same(run, tolerance=1e-5):
    """What `run` returns for the GPU is what it returns for the CPU."""
    wanted, got = (run(device) for device in DEVICES)
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
        assert np.isfinite(one).all() and np.any(one)


@wp.func
def wave(x: float, y: float):
    return wp.sin(x) * y + wp.exp(-x * x) - wp.abs(y) ** 0.5


@wp.kernel
def waves(a: wp.array2d(dtype=float), b: wp.array(dtype=float), out: wp.array2d(dtype=float), n: wp.array(dtype=int)):
    i, j = wp.tid()
    out[i, j] = wave(a[i, j], b[j])
    if out[i, j] > 0.0:
        wp.atomic_add(n, i, 1)


def arrays():
    a, b = draw(37, 53), draw(53)

    def run(device):
        out, n = wp.zeros(a.shape, dtype=float, device=device), wp.zeros(37, dtype=int, device=device)
        wp.launch(waves, a.shape, [wp.array(a, device=device), wp.array(b, device=device), out, n], device=device)
        return out.numpy(), n.numpy()

    same(run)


@wp.kernel
def bodies(x: wp.array(dtype=wp.vec3), q: wp.array(dtype=wp.quat), m: wp.array(dtype=wp.mat33), out: wp.array(dtype=wp.vec3), d: wp.array(dtype=float)):
    i = wp.tid()
    turn = wp.normalize(q[i])
    v = wp.quat_rotate(turn, x[i]) + wp.transform_point(wp.transform(x[i], turn), wp.vec3(1.0, 2.0, 3.0))
    u, s, w = wp.svd3(m[i])
    out[i] = m[i] * v + u * wp.diag(s) * wp.transpose(w) * v + wp.quat_rotate_inv(turn, wp.cross(v, x[i]))
    d[i] = wp.determinant(m[i]) + wp.trace(wp.inverse(m[i] + wp.identity(3, dtype=float) * 9.0)) + wp.noise(wp.rand_init(7, i), v)


def geometry():
    x, q, m = draw(200, 3), draw(200, 4), draw(200, 3, 3)

    def run(device):
        out, d = wp.zeros(200, dtype=wp.vec3, device=device), wp.zeros(200, dtype=float, device=device)
        kinds = ((x, wp.vec3), (q, wp.quat), (m, wp.mat33))
        wp.launch(bodies, 200, [*(wp.array(a, dtype=t, device=device) for a, t in kinds), out, d], device=device)
        return out.numpy(), d.numpy()

    same(run, 1e-3)


@wp.kernel
def springs(x: wp.array(dtype=wp.vec3), pairs: wp.array2d(dtype=int), energy: wp.array(dtype=float)):
    i = wp.tid()
    stretch = wp.length(x[pairs[i, 0]] - x[pairs[i, 1]]) - 1.0
    wp.atomic_add(energy, 0, 0.5 * stretch * stretch)


def gradients():
    x, pairs = draw(60, 3), random.integers(0, 60, (150, 2)).astype(np.int32)
    pairs[:, 1] = (pairs[:, 0] + 1 + pairs[:, 1] % 59) % 60

    def run(device):
        points = wp.array(x, dtype=wp.vec3, device=device, requires_grad=True)
        energy = wp.zeros(1, dtype=float, device=device, requires_grad=True)
        with wp.Tape() as tape:
            wp.launch(springs, 150, [points, wp.array(pairs, device=device), energy], device=device)
        tape.backward(energy)
        return energy.numpy(), points.grad.numpy()

    same(run, 1e-4)


@wp.kernel
def draws(seed: int, words: wp.array(dtype=wp.uint32), values: wp.array2d(dtype=float)):
    i = wp.tid()
    state = wp.rand_init(seed, i)
    words[i] = wp.randu(state)
    values[i, 0] = wp.randf(state)
    values[i, 1] = wp.randn(state)


def numbers():
    def run(device):
        words, values = wp.zeros(500, dtype=wp.uint32, device=device), wp.zeros((500, 2), dtype=float, device=device)
        wp.launch(draws, 500, [42, words, values], device=device)
        return words.numpy(), values.numpy()

    same(run)


@wp.kernel
def rays(mesh: wp.uint64, start: wp.array(dtype=wp.vec3), out: wp.array(dtype=float)):
    i = wp.tid()
    hit = wp.mesh_query_ray(mesh, start[i], wp.vec3(0.0, 0.0, -1.0), 100.0)
    near = wp.mesh_query_point(mesh, start[i], 100.0)
    out[i] = wp.where(hit.result, hit.t, -1.0) + wp.length(wp.mesh_eval_position(mesh, near.face, near.u, near.v) - start[i])


def meshes():
    side = np.linspace(-2, 2, 12)
    grid = np.array([(x, y, 0.3 * np.sin(x * y)) for x in side for y in side], dtype=np.float32)
    corners = [i * 12 + j for i in range(11) for j in range(11)]
    faces = np.array([t for c in corners for t in (c, c + 12, c + 1, c + 1, c + 12, c + 13)], dtype=np.int32)
    start = (draw(90, 3) + (0, 0, 3)).astype(np.float32)

    def run(device):
        mesh = wp.Mesh(wp.array(grid, dtype=wp.vec3, device=device), wp.array(faces, device=device))
        out = wp.zeros(90, dtype=float, device=device)
        wp.launch(rays, 90, [mesh.id, wp.array(start, dtype=wp.vec3, device=device), out], device=device)
        return (out.numpy(),)

    same(run, 1e-4)


@wp.kernel
def near(grid: wp.uint64, x: wp.array(dtype=wp.vec3), count: wp.array(dtype=int), nearest: wp.array(dtype=float)):
    i = wp.tid()
    least = float(100.0)
    for j in wp.hash_grid_query(grid, x[i], 0.7):
        distance = wp.length(x[i] - x[j])
        if distance < 0.7 and i != j:
            count[i] += 1
            least = wp.min(least, distance)
    nearest[i] = least


def grids():
    x = draw(150, 3)

    def run(device):
        points = wp.array(x, dtype=wp.vec3, device=device)
        grid = wp.HashGrid(16, 16, 16, device=device)
        grid.build(points, 0.7)
        count, nearest = wp.zeros(150, dtype=int, device=device), wp.zeros(150, dtype=float, device=device)
        wp.launch(near, 150, [grid.id, points, count, nearest], device=device)
        return count.numpy(), nearest.numpy()

    same(run)


def sorts():
    """Kernels of Warp's library, which has them as PTX, too. (On the CPU Warp 1.14 sorts negative keys last.)"""
    keys = random.integers(0, 1000, 700).astype(np.int32)

    def run(device):
        # A sort needs twice the room.
        two = lambda a: wp.array(np.concatenate((a, a)), device=device)  # noqa: E731
        by, order = two(keys), two(np.arange(700, dtype=np.int32))
        wp.utils.radix_sort_pairs(by, order, 700)
        sums, values = wp.zeros(700, dtype=int, device=device), wp.array(keys, device=device)
        wp.utils.array_scan(values, sums)
        runs, lengths = wp.zeros(700, dtype=int, device=device), wp.zeros(700, dtype=int, device=device)
        n = wp.utils.runlength_encode(by[:700], runs, lengths)
        total = wp.utils.array_sum(wp.array(keys.astype(np.float32), device=device))
        return by.numpy()[:700], order.numpy()[:700], sums.numpy(), lengths.numpy()[:n], np.array([total])

    same(run)
    assert (run("cuda:0")[0] == np.sort(keys)).all()


@wp.kernel
def rows(a: wp.array2d(dtype=float), total: wp.array(dtype=float), most: wp.array(dtype=float)):
    i = wp.tid()
    row = wp.tile_load(a[i], shape=128)
    wp.tile_store(total, wp.tile_sum(row), offset=i)
    wp.tile_store(most, wp.tile_max(wp.tile_map(wp.sin, row)), offset=i)


def tiles():
    a = draw(20, 128)

    def run(device):
        total, most = wp.zeros(20, dtype=float, device=device), wp.zeros(20, dtype=float, device=device)
        wp.launch_tiled(rows, dim=[20], inputs=[wp.array(a, device=device), total, most], block_dim=64, device=device)
        return total.numpy(), most.numpy()

    same(run, 1e-4)


@wp.kernel
def step(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = 0.25 * x[wp.max(i - 1, 0)] + 0.5 * x[i] + 0.25 * x[wp.min(i + 1, x.shape[0] - 1)]


def graphs():
    a = draw(300)

    def run(device):
        x, y = wp.array(a, device=device), wp.zeros(300, dtype=float, device=device)
        if device == "cpu":
            for _ in range(10):
                wp.launch(step, 300, [x, y], device=device)
                wp.launch(step, 300, [y, x], device=device)
        else:
            wp.load_module(device=device)
            with wp.ScopedCapture(device=device) as capture:
                wp.launch(step, 300, [x, y], device=device)
                wp.launch(step, 300, [y, x], device=device)
            for _ in range(10):
                wp.capture_launch(capture.graph)
        return (x.numpy(),)

    same(run)


STEPS = {
    "arrays": arrays,
    "geometry": geometry,
    "gradients": gradients,
    "numbers": numbers,
    "sorts": sorts,
    "meshes": meshes,
    "grids": grids,
    "tiles": tiles,
    "graphs": graphs,
}

for name in sys.argv[1:]:
    try:
        STEPS[name]()
        print(f"{name} ok", flush=True)
    except Exception as error:  # noqa: BLE001
        print(f"{name}: {type(error).__name__}: {error}".replace("\n", " ")[:1500], flush=True)
