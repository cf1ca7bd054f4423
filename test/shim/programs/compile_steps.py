"""torch.compile for a simulated GPU: Inductor's kernels are Triton's and compute; ATen's are done by the CPU (aten_on_cpu).
Each result and gradient is compared with PyTorch's on the CPU, without a compiler.

usage: compile_steps.py STEP...   prints "STEP ok" or "STEP: the error" for each
"""

import copy
import sys
import warnings

import aten_on_cpu  # noqa: F401
import torch
from torch import nn
from torch.nn import functional as F

warnings.filterwarnings("ignore")
torch.manual_seed(3)
launched = 0


def count(*_, **__):
    global launched
    launched += 1


def count_launches():
    """Counts launches of Triton kernels: a step without a launch would compare PyTorch with itself."""
    from torch._inductor.runtime import triton_heuristics

    run = triton_heuristics.CachingAutotuner.run

    def counted(self, *args, **kwargs):
        count()
        return run(self, *args, **kwargs)

    triton_heuristics.CachingAutotuner.run = counted


count_launches()


def close(is_, wanted, tolerance=2e-5):
    torch.testing.assert_close(is_.detach().cpu(), wanted.detach(), rtol=tolerance, atol=tolerance)


def same(module, *inputs, tolerance=2e-5, compiled=None):
    """Forward and backward of the module, compiled for the device, as on the CPU."""
    twin = copy.deepcopy(compiled or module).to("cuda")
    here = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    there = [x.to("cuda").requires_grad_(x.is_floating_point()) for x in inputs]
    wanted, is_ = module(*here), torch.compile(twin)(*there)
    close(is_, wanted, tolerance)
    wanted.square().mean().backward()
    is_.square().mean().backward()
    for a, b in zip([*module.parameters(), *here], [*twin.parameters(), *there]):
        if a.grad is not None:
            close(b.grad, a.grad, tolerance)


class Pointwise(nn.Module):
    def forward(self, x, y):
        return torch.where(x > y, torch.sin(x) * torch.exp(-y.abs()), torch.erf(x) + torch.log1p(y.square()))


def pointwise():
    same(Pointwise(), torch.randn(33, 65), torch.randn(33, 65))


class Reductions(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1) * x.std(0) + x.amax(1, keepdim=True) + x.cumsum(1) / x.norm()


def reductions():
    same(Reductions(), torch.randn(40, 130), tolerance=1e-4)


def mlp():
    same(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8)), torch.randn(20, 32))


def convolution():
    torch.backends.cudnn.enabled = False
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(288, 5))
    same(net, torch.randn(4, 3, 14, 14), tolerance=1e-4)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.norm, self.qkv, self.out, self.head = nn.RMSNorm(32), nn.Linear(32, 96), nn.Linear(32, 32), nn.Linear(32, 50)

    def forward(self, tokens):
        x = self.embedding(tokens)
        q, k, v = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        scores = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(~torch.ones(16, 16, device=x.device).tril().bool(), -torch.inf)
        x = x + self.out((torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(-2))
        return self.head(F.silu(x))


def transformer():
    same(Block(), torch.randint(0, 50, (3, 16)), tolerance=1e-4)


def training():
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    twin = copy.deepcopy(net).to("cuda")
    x, y = torch.randn(64, 16), torch.randint(0, 4, (64,))
    for model, inputs in ((net, (x, y)), (twin, (x.cuda(), y.cuda()))):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, capturable=model is twin)

        def step(inputs=inputs, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs[0]), inputs[1])
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = torch.compile(step) if model is twin else step
        for _ in range(3):
            last = step()
        close(last, losses, 1e-4) if model is twin else (losses := last)
    for a, b in zip(net.parameters(), twin.parameters()):
        close(b, a, 1e-4)


class Flex(nn.Module):
    def forward(self, q, k, v):
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        mask = create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 128, 128, device=q.device)
        return flex_attention(q, k, v, score_mod=lambda score, b, h, q, kv: score + (kv - q) / 16, block_mask=mask)


class Attention(nn.Module):
    """The same as Flex, whose backward PyTorch does not have on the CPU."""

    def forward(self, q, k, v):
        at = torch.arange(128)
        scores = q @ k.transpose(-1, -2) / 32**0.5 + (at[None, :] - at[:, None]) / 16
        return torch.softmax(scores.masked_fill(at[None, :] > at[:, None], -torch.inf), -1) @ v


def flex_attention():
    same(Attention(), *(torch.randn(1, 2, 128, 32) for _ in range(3)), tolerance=5e-3, compiled=Flex())


class Half(nn.Module):
    def forward(self, x, y):
        return (torch.tanh(x) * y.bfloat16()).float().sum(-1) + F.layer_norm(x.float(), (64,)).half().float().amax(-1)


def halves():
    from torch._inductor import config

    # Without this Inductor rounds once at the end, and PyTorch after each operation.
    with config.patch(emulate_precision_casts=True):
        same(Half(), torch.randn(30, 64).half(), torch.randn(30, 64).half(), tolerance=2e-3)


def matmul_templates():
    """max-autotune takes Triton's products instead of cuBLAS's."""
    from torch._inductor import config

    with config.patch(max_autotune=True, max_autotune_gemm_backends="TRITON", autotune_in_subproc=False):
        net = nn.Linear(64, 96)
        twin, x = copy.deepcopy(net).to("cuda"), torch.randn(48, 64)
        close(torch.compile(lambda x: F.relu(twin(x)))(x.cuda()), F.relu(net(x)), 1e-2)


STEPS = {
    "pointwise": pointwise,
    "reductions": reductions,
    "mlp": mlp,
    "convolution": convolution,
    "transformer": transformer,
    "training": training,
    "flex-attention": flex_attention,
    "halves": halves,
    "matmul-templates": matmul_templates,
}

for name in sys.argv[1:]:
    try:
        launched = 0
        STEPS[name]()
        assert launched > 0, "no kernel of Triton was launched"
        print(name, "ok", flush=True)
    except BaseException as error:
        print(f"{name}: {type(error).__name__} {error}".replace("\n", "; "), flush=True)
