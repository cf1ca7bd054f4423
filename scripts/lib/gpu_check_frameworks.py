"""gpu_check_frameworks.py PART [quick]: a part of scripts/gpu-check that needs PyTorch, Triton, CuPy, JAX or the runtime.

The last line on stdout is a JSON object: a hash of the result's bytes, its norm, the seconds of a round, and the libcuda
that this process has mapped. Without the framework: {"skipped": reason}.
"""
import ctypes
import hashlib
import importlib
import json
import os
import sys
import time


def libraries():
    with open("/proc/self/maps", encoding="utf8") as maps:
        return sorted({line.split()[-1] for line in maps if "libcuda.so" in line})


def sgemm(torch, size):
    torch.manual_seed(1)
    a, b = torch.randn(size, size).cuda(), torch.randn(size, size).cuda()
    return lambda: a @ b


def model_of(torch, size):
    torch.manual_seed(2)
    layers = [torch.nn.Linear(size, size), torch.nn.GELU(), torch.nn.LayerNorm(size), torch.nn.Linear(size, 10)]
    return torch.nn.Sequential(*layers).cuda(), torch.randn(64, size).cuda(), torch.randint(0, 10, (64,)).cuda()


def train(torch, size):
    model, data, wanted = model_of(torch, size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(data), wanted)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def decode(torch, size):
    """One token of a transformer of 8 layers, replayed as a CUDA graph; the token is read after each replay."""
    torch.manual_seed(3)
    layer = torch.nn.TransformerEncoderLayer(size, 8, 4 * size, batch_first=True, dropout=0.0)
    model = torch.nn.TransformerEncoder(layer, 8, enable_nested_tensor=False).cuda().eval()
    token = torch.randn(1, 1, size).cuda()
    stream = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(3):
            model(token)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        answer = model(token)

    def step():
        graph.replay()
        token.copy_(answer / answer.abs().max())
        token[0, 0, 0].item()
        return token.clone()

    return step


def compiled(torch, size):
    model, data, _ = model_of(torch, size)
    fast = torch.compile(model)

    def step():
        with torch.no_grad():
            return fast(data)

    return step


def triton_kernel(torch, size):
    import triton
    import triton.language as tl

    @triton.jit
    def add(a, b, c, n, block: tl.constexpr):
        at = tl.program_id(0) * block + tl.arange(0, block)
        tl.store(c + at, tl.load(a + at, at < n) + tl.load(b + at, at < n), at < n)

    torch.manual_seed(4)
    n = size * size
    a, b, c = torch.randn(n).cuda(), torch.randn(n).cuda(), torch.empty(n).cuda()

    def step():
        add[(triton.cdiv(n, 1024),)](a, b, c, n, 1024)
        return c

    return step


def with_torch(part, quick):
    import torch
    if not torch.cuda.is_available():
        return {"ok": False, "error": "torch.cuda.is_available() is False", "libcuda": libraries()}
    torch.use_deterministic_algorithms(True, warn_only=True)
    makers = {"sgemm": sgemm, "train": train, "decode": decode, "compile": compiled, "triton": triton_kernel}
    step = makers[part](torch, 256 if quick else 2048)
    return measure(step, torch.cuda.synchronize, lambda last: last.float().cpu().contiguous().numpy(), quick,
                   torch.__version__)


def with_cupy(_part, quick):
    import cupy
    size = 256 if quick else 2048
    generator = cupy.random.RandomState(5)
    a = generator.standard_normal((size, size), dtype=cupy.float32)
    kernel = cupy.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = x * y + 1", "gpu_check_fma")
    return measure(lambda: kernel(a, a @ a), cupy.cuda.Device().synchronize, cupy.asnumpy, quick, cupy.__version__)


def with_shared_memory(_part, quick):
    """Kernels and the processor use the same bytes: mapped pinned, registered and managed memory."""
    import ctypes
    import cupy
    import numpy
    runtime, count = cupy.cuda.runtime, 1 << 16 if quick else 1 << 22

    def array(address):
        return numpy.frombuffer((ctypes.c_float * count).from_address(address), numpy.float32)

    def on_device(address):
        memory = cupy.cuda.UnownedMemory(address, count * 4, None)
        return cupy.ndarray((count,), cupy.float32, cupy.cuda.MemoryPointer(memory, 0))

    pinned, own, managed = runtime.hostAlloc(count * 4, 2), numpy.empty(count, numpy.float32), runtime.mallocManaged(count * 4)
    runtime.hostRegister(own.ctypes.data, count * 4, 2)
    places = [array(pinned), own, array(managed)]
    kernels = [on_device(place.ctypes.data) for place in places]
    for place in places:
        place[:] = numpy.arange(count)

    def step():
        for kernel in kernels:
            kernel *= 1.5
            kernel -= 1
        cupy.cuda.Device().synchronize()
        for place in places:
            place += 0.5
        return numpy.concatenate(places)

    return measure(step, cupy.cuda.Device().synchronize, numpy.asarray, True, cupy.__version__)


def change(tensor, done):
    """What the other process does with a tensor of this one."""
    tensor.mul_(3)
    done.put(float(tensor.sum()))
    tensor.cpu()


def with_two_processes(_part, quick):
    import torch
    import torch.multiprocessing
    spawn = torch.multiprocessing.get_context("spawn")

    def step():
        tensor = torch.arange(1 << 16, device="cuda", dtype=torch.float32)
        done = spawn.SimpleQueue()
        other = spawn.Process(target=change, args=(tensor, done))
        other.start()
        other.join(60)
        if other.exitcode != 0 or done.get() != float(tensor.sum()):
            raise RuntimeError(f"the other process ended with {other.exitcode}")
        return tensor

    return measure(step, torch.cuda.synchronize, lambda last: last.cpu().numpy(), True, torch.__version__, 1)


def with_nccl(_part, quick):
    import torch
    import torch.distributed
    torch.distributed.init_process_group("nccl", init_method="tcp://127.0.0.1:29511", rank=0, world_size=1)
    a = torch.arange(1 << 20, device="cuda", dtype=torch.float32)

    def step():
        torch.distributed.all_reduce(a)
        out = torch.empty_like(a)
        torch.distributed.all_gather_into_tensor(out, a)
        return out

    answer = measure(step, torch.cuda.synchronize, lambda last: last.cpu().numpy(), quick, torch.__version__)
    torch.distributed.destroy_process_group()
    return answer


def with_transformers(_part, quick):
    """Tokens that a language model with random weights generates, one after the other."""
    import torch
    import transformers
    torch.manual_seed(7)
    width = 256 if quick else 1024
    config = transformers.LlamaConfig(hidden_size=width, intermediate_size=4 * width, num_hidden_layers=12,
                                      num_attention_heads=16, num_key_value_heads=8, vocab_size=32000)
    model = transformers.LlamaForCausalLM(config).half().cuda().eval()
    prompt = torch.arange(1, 33, device="cuda").unsqueeze(0)

    def step():
        with torch.no_grad():
            return model.generate(prompt, max_new_tokens=32, do_sample=False, eos_token_id=None, pad_token_id=0)

    return measure(step, torch.cuda.synchronize, lambda last: last.cpu().numpy(), True, transformers.__version__)


def with_jax(_part, quick):
    import jax
    import numpy
    if jax.devices()[0].platform != "gpu":
        return {"ok": False, "error": f"JAX has no GPU: {jax.devices()}", "libcuda": libraries()}
    size = 256 if quick else 2048
    a = jax.device_put(numpy.random.default_rng(6).standard_normal((size, size), dtype=numpy.float32))
    step = jax.jit(lambda x: jax.numpy.tanh(x @ x.T / size))
    return measure(lambda: step(a), lambda: step(a).block_until_ready(), numpy.asarray, quick, jax.__version__)


def after_end(library, how):
    """Results of the runtime's calls around the end of its primary context, which it or the driver API ends."""
    runtime, driver, memory, context = ctypes.CDLL(library), ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()

    def allocate():
        return runtime.cudaMalloc(ctypes.byref(memory), 1024)

    before = allocate()
    ended = runtime.cudaDeviceReset() if how == "cudaDeviceReset" else getattr(driver, how)(0)
    return [before, ended, allocate(), driver.cuCtxGetCurrent(ctypes.byref(context)), context.value is not None,
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), allocate()]


def with_runtime(_part, _quick):
    for library in ("libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"):
        try:
            ctypes.CDLL(library)
            break
        except OSError:
            continue
    else:
        return {"skipped": "no libcudart"}
    results = {}
    for how in ("cudaDeviceReset", "cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRelease_v2"):
        read, write = os.pipe()
        child = os.fork()  # before any of them has begun
        if child == 0:
            os.write(write, json.dumps(after_end(library, how)).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as told:
            results[how] = json.loads(told.read() or "null")
        os.waitpid(child, 0)
    return {"ok": None not in results.values(), "result": results, "version": library}


def measure(step, synchronize, to_numpy, quick, version, rounds=0):
    for _ in range(min(rounds or 3, 3)):  # warm, and with a state that goes on
        last = step()
    synchronize()
    rounds = rounds or (5 if quick else 50)
    start = time.perf_counter()
    for _ in range(rounds):
        last = step()
    synchronize()
    seconds = (time.perf_counter() - start) / rounds
    values = to_numpy(last)
    return {"ok": True, "result": hashlib.sha256(values.tobytes()).hexdigest(), "seconds": seconds,
            "norm": float((values.astype("float64") ** 2).sum() ** 0.5), "libcuda": libraries(), "version": version}


PARTS = {"cupy": ("cupy", with_cupy), "shared": ("cupy", with_shared_memory), "processes": ("torch", with_two_processes),
         "nccl": ("torch", with_nccl), "generate": ("transformers", with_transformers), "jax": ("jax", with_jax), "triton": ("triton", with_torch),
         "compile": ("triton", with_torch), "runtime": ("ctypes", with_runtime)}


def main():
    part, quick = sys.argv[1], "quick" in sys.argv[2:]
    module, make = PARTS.get(part, ("torch", with_torch))
    for name in {module, "torch" if make is with_torch else module}:
        try:
            importlib.import_module(name)
        except ImportError as error:
            return {"skipped": f"no {name}: {error}"}
    return make(part, quick)


if __name__ == "__main__":  # not in a process that multiprocessing spawns
    answer = main()
    print(json.dumps(answer))
    sys.exit(0 if answer.get("ok") or answer.get("skipped") else 1)
