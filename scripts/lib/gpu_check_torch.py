"""gpu_check_torch.py sgemm|train|compile [quick]: a part of scripts/gpu-check that needs PyTorch.

The last line on stdout is a JSON object: a hash of the result's bytes, its norm, the time of a round, and
which libcuda this process had mapped. Without PyTorch: {"skipped": reason}.
"""
import hashlib
import json
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


def compiled(torch, size):
    model, data, _ = model_of(torch, size)
    fast = torch.compile(model)

    def step():
        with torch.no_grad():
            return fast(data)

    return step


def main():
    part, quick = sys.argv[1], "quick" in sys.argv[2:]
    try:
        import torch
    except ImportError as error:
        return {"skipped": f"no PyTorch: {error}"}
    if part == "compile":
        try:
            import triton  # noqa: F401
        except ImportError as error:
            return {"skipped": f"no Triton: {error}"}
    if not torch.cuda.is_available():
        return {"ok": False, "error": "torch.cuda.is_available() is False", "libcuda": libraries()}
    torch.use_deterministic_algorithms(True, warn_only=True)
    step = {"sgemm": sgemm, "train": train, "compile": compiled}[part](torch, 256 if quick else 2048)
    results = [step() for _ in range(3)]  # warm, and with a state that goes on
    torch.cuda.synchronize()
    rounds = 5 if quick else 50
    start = time.perf_counter()
    for _ in range(rounds):
        results.append(step())
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - start) / rounds
    last = results[-1].float().cpu().contiguous()
    return {"ok": True, "result": hashlib.sha256(last.numpy().tobytes()).hexdigest(),
            "norm": float(last.double().norm()), "seconds": seconds, "libcuda": libraries(),
            "torch": torch.__version__, "device": torch.cuda.get_device_name(0)}


answer = main()
print(json.dumps(answer))
sys.exit(0 if answer.get("ok") or answer.get("skipped") else 1)
