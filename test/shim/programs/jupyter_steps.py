"""Jupyter: interrupts and restarts a kernel that uses PyTorch, and reads the GPU dashboard of a server.

usage: jupyter_steps.py STEP...   prints "STEP ok" or "STEP: the error" for each
"""

import asyncio
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request


def kernel():
    from jupyter_client.manager import KernelManager

    manager = KernelManager()
    # The kernel of this Python. A kernel.json would name the path where it was installed.
    manager.kernel_spec.argv[0] = sys.executable
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=120)

    def run(code):
        said = []
        reply = client.execute_interactive(code, timeout=120, output_hook=lambda message: said.append(message["content"].get("text", "")))
        assert reply["content"]["status"] == "ok", reply["content"]
        return "".join(said)

    cell = "import torch; x = torch.arange(8.).cuda(); print(x.cpu().sum().item())"
    assert run(cell) == "28.0\n"
    assert run("print(x.device, torch.cuda.memory_allocated())") == "cuda:0 512\n"
    manager.interrupt_kernel()
    assert run("print(x.clone().cpu().shape)") == "torch.Size([8])\n"
    manager.restart_kernel(now=False)
    client.wait_for_ready(timeout=120)
    assert run(cell) == "28.0\n"
    client.stop_channels()
    manager.shutdown_kernel()


async def of_dashboard(port, name):
    from tornado.websocket import websocket_connect

    connection = await websocket_connect(f"ws://127.0.0.1:{port}/nvdashboard/{name}?token=t")
    await connection.write_message(json.dumps({"updateFrequency": 100, "isPaused": False}))
    assert json.loads(await connection.read_message()) == {"status": "connected"}
    values = json.loads(await connection.read_message())
    connection.close()
    return values


def dashboard():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["--ServerApp.jpserver_extensions={'jupyterlab_nvdashboard': True}", "--IdentityProvider.token=t"]
    server = subprocess.Popen([sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root", f"--port={port}", *options], stderr=subprocess.PIPE, text=True)
    try:
        while True:
            assert server.poll() is None, server.stderr.read()[-2000:]
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api")  # the readiness path in profiles/jupyter.json
                break
            except urllib.error.URLError:
                time.sleep(0.2)
        page = urllib.request.urlopen(f"http://127.0.0.1:{port}/nvdashboard/accelerators/check?token=t")
        assert json.load(page)["ngpus"] == 1
        usage = asyncio.run(of_dashboard(port, "gpu_usage"))
        assert usage["memory_usage"][0] < usage["total_memory"][0] and usage["total_memory"][0] > 79 << 30, usage
        assert asyncio.run(of_dashboard(port, "gpu_utilization")) == {"gpu_utilization": [0]}
        for name in ("gpu_resource", "pci_stats", "nvlink_throughput"):
            asyncio.run(of_dashboard(port, name))
    finally:
        server.terminate()
    assert server.wait() == 0


STEPS = {"kernel": kernel, "dashboard": dashboard}

for name in sys.argv[1:]:
    try:
        STEPS[name]()
        print(name, "ok", flush=True)
    except BaseException as error:
        print(f"{name}: {type(error).__name__} {error}".splitlines()[0], flush=True)
