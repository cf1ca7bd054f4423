"""NVRTC and nvJitLink of CUDA 13.5 by cuda-bindings: what they compile and link, and the driver that runs it.

usage: jitlink_steps.py STEP...   prints "STEP ok" or "STEP: the error" for each
"""

import sys

import numpy as np
from cuda.bindings import driver, nvjitlink, nvrtc

SCALE = b'extern "C" __device__ float scale(float x) { return x * 3 + 1; }'
MAIN = b"""
extern "C" __device__ float scale(float x);
__constant__ float shift = 0.5f;
extern "C" __global__ void run(const float *in, float *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = scale(in[i]) + shift;
}"""
WHOLE = SCALE + MAIN.replace(b'extern "C" __device__ float scale(float x);', b"")


def done(answer):
    error, *values = answer
    assert error == 0, error
    return values[0] if len(values) == 1 else values


def compiled(source, *options, what="PTX"):
    program = done(nvrtc.nvrtcCreateProgram(source, b"kernel.cu", 0, [], []))
    options = [b"--gpu-architecture=compute_90", *options]
    done(nvrtc.nvrtcCompileProgram(program, len(options), options))
    image = b" " * done(getattr(nvrtc, f"nvrtcGet{what}Size")(program))
    done(getattr(nvrtc, f"nvrtcGet{what}")(program, image))
    return image


def linked(kind, options, *images):
    link = nvjitlink.create(len(options), options)
    for number, image in enumerate(images):
        nvjitlink.add_data(link, kind, image, len(image), f"part {number}")
    nvjitlink.complete(link)
    what = "ptx" if "-ptx" in options else "cubin"
    image = bytearray(getattr(nvjitlink, f"get_linked_{what}_size")(link))
    getattr(nvjitlink, f"get_linked_{what}")(link, image)
    nvjitlink.destroy(link)
    return bytes(image)


def launch(image):
    """The results of run() in `image`, and what its launch or the wait for them returns."""
    module = done(driver.cuModuleLoadData(image))
    values = np.arange(-500, 500, dtype=np.float32)
    there, back = (done(driver.cuMemAlloc(values.nbytes)) for _ in range(2))
    done(driver.cuMemcpyHtoD(there, values.ctypes.data, values.nbytes))
    arguments = [np.array([int(there)], np.uint64), np.array([int(back)], np.uint64), np.array([1000], np.int32)]
    pointers = np.array([one.ctypes.data for one in arguments], np.uint64)
    run = done(driver.cuModuleGetFunction(module, b"run"))
    (status,) = driver.cuLaunchKernel(run, 8, 1, 1, 128, 1, 1, 0, 0, pointers.ctypes.data, 0)
    if status == 0:
        (status,) = driver.cuCtxSynchronize()
    results = np.empty_like(values)
    done(driver.cuMemcpyDtoH(results.ctypes.data, back, values.nbytes))
    for address in (there, back):
        done(driver.cuMemFree(address))
    done(driver.cuModuleUnload(module))
    return status, results, values * 3 + np.float32(1.5)


def computes(image):
    status, got, wanted = launch(image)
    assert status == 0, status
    np.testing.assert_array_equal(got, wanted)


def compile_whole():
    assert done(nvrtc.nvrtcVersion()) == [13, 5]
    computes(compiled(WHOLE))


def link_to_ptx():
    assert nvjitlink.version() == (13, 5)
    parts = [compiled(source, b"-dlto", b"-rdc=true", what="LTOIR") for source in (SCALE, MAIN)]
    computes(linked(nvjitlink.InputType.LTOIR, ["-arch=sm_90", "-lto", "-ptx"], *parts))


def link_to_machine_code():
    """As on any driver it loads; its launch fails, because the simulated GPU has no code to run."""
    parts = [compiled(source, b"-rdc=true") for source in (SCALE, MAIN)]
    status, got, _ = launch(linked(nvjitlink.InputType.PTX, ["-arch=sm_90"], *parts))
    assert status == driver.CUresult.CUDA_ERROR_NO_BINARY_FOR_GPU, status


STEPS = {"nvrtc": compile_whole, "link-to-ptx": link_to_ptx, "link-to-machine-code": link_to_machine_code}

done(driver.cuInit(0))
done(driver.cuCtxSetCurrent(done(driver.cuDevicePrimaryCtxRetain(0))))
for name in sys.argv[1:]:
    try:
        STEPS[name]()
        print(f"{name} ok", flush=True)
    except Exception as error:  # noqa: BLE001
        print(f"{name}: {type(error).__name__}: {error}".replace("\n", " ")[:1500], flush=True)
