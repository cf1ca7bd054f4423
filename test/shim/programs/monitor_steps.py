"""GPU monitors: each must show the memory that this process holds on the GPU.

usage: monitor_steps.py STEP...   prints "STEP ok" or "STEP: the error" for each; NVTOP names nvtop
"""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

import torch

held = torch.ones(256 << 20, dtype=torch.uint8, device="cuda")
SECONDS = 60


def nvitop():
    shown = subprocess.run([sys.executable, "-m", "nvitop", "--once"], capture_output=True, text=True, check=True).stdout
    assert "CUDA Driver Version: 13.0" in shown and "H100" in shown.replace("..ipped", "H100"), shown
    assert re.search(rf"\b{os.getpid()}\b.* 256\.0MiB ", shown), shown


def nvtop():
    """Runs nvtop in a terminal, because this version has no other output."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(os.environ["NVTOP"], ["nvtop"], {**os.environ, "TERM": "xterm"})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    shown, asked, end = "", False, time.monotonic() + SECONDS
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 0.2)[0]:
            continue
        try:
            shown += os.read(terminal, 65536).decode(errors="replace")
        except OSError:  # nvtop has exited
            break
        plain = re.sub(r"\x1b[\[(][0-9;?]*[A-Za-z0-9]", " ", shown)
        if not asked and re.search(rf"\b{os.getpid()}\b", plain) and re.search(r"\b256MiB", plain):
            os.write(terminal, b"q")
            asked = True
    assert asked, repr(shown[-3000:])
    assert os.waitpid(pid, 0)[1] == 0


STEPS = {"nvitop": nvitop, "nvtop": nvtop}

for name in sys.argv[1:]:
    try:
        STEPS[name]()
        print(name, "ok", flush=True)
    except BaseException as error:
        print(f"{name}: {type(error).__name__} {error}".splitlines()[0], flush=True)
