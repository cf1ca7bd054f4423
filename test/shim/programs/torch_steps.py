"""What PyTorch does on a device whose kernels are skipped: calls must be answered, numbers mean nothing.

usage: torch_steps.py STEP...   prints "STEP ok" or "STEP: the error" for each
"""

import sys

import torch

D = "cuda"


def on(tensor):
    return tensor.to(D)


def train():
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)).to(D)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x, y = on(torch.randn(128, 32)), on(torch.randint(0, 4, (128,)))
    for _ in range(3):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        loss.item()


def convolution():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)).to(D)
    model(on(torch.ones(2, 3, 16, 16))).sum().backward()


def graph():
    model, x = torch.nn.Linear(32, 32).to(D), torch.ones(4, 32, device=D)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            model(x)
    torch.cuda.current_stream().wait_stream(stream)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        y = model(x)
    captured.replay()
    torch.cuda.synchronize()
    assert y.cpu().shape == (4, 32)


def attention():
    parts = [on(torch.ones(1, 4, 128, 64).half()) for _ in range(3)]
    torch.nn.functional.scaled_dot_product_attention(*parts).cpu()


def expandable():
    torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    assert torch.empty(100 << 20, device=D).numel() == 100 << 20


def memory_runs_out():
    try:
        torch.empty(200 << 30, device=D, dtype=torch.uint8)
    except torch.OutOfMemoryError:
        return
    raise AssertionError("200 GiB were given")


STEPS = {
    "mm": lambda: (on(torch.ones(64, 64)) @ on(torch.ones(64, 64))).cpu(),
    "bf16": lambda: (on(torch.ones(64, 64).bfloat16()) @ on(torch.ones(64, 64).bfloat16())).cpu(),
    "half": lambda: (on(torch.ones(64, 64).half()) @ on(torch.ones(64, 64).half())).cpu(),
    "train": train,
    "graph": graph,
    "expandable": expandable,
    "memory": memory_runs_out,
    "convolution": convolution,
    "attention": attention,
    "fft": lambda: torch.fft.fft(on(torch.ones(64))).cpu(),
    "solve": lambda: torch.linalg.solve(on(torch.eye(8)), on(torch.ones(8, 1))).cpu(),
    "svd": lambda: torch.linalg.svd(on(torch.eye(8)))[1].cpu(),
    "sparse": lambda: (on(torch.eye(8).to_sparse_csr()) @ on(torch.ones(8, 8))).cpu(),
    "compile": lambda: torch.compile(lambda x: torch.sin(x) * 2 + 1)(on(torch.ones(1000))).cpu(),
}

for name in sys.argv[1:]:
    try:
        STEPS[name]()
        print(name, "ok", flush=True)
    except BaseException as error:
        print(f"{name}: {type(error).__name__} {error}".splitlines()[0], flush=True)
torch.cuda.synchronize()
