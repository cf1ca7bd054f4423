"""numpy arrays in device memory through libcuda alone, as arguments of Triton's kernels: no framework computes here."""

import ctypes

import numpy as np

libcuda = ctypes.CDLL("libcuda.so.1")
libcuda.cuMemAlloc_v2.argtypes = [ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t]
libcuda.cuMemFree_v2.argtypes = [ctypes.c_uint64]
libcuda.cuMemcpyHtoD_v2.argtypes = [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t]
libcuda.cuMemcpyDtoH_v2.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t]


def call(name, *args):
    result = getattr(libcuda, name)(*args)
    if result != 0:
        raise RuntimeError(f"{name} gave {result}")


class OnDevice:
    """The members of an argument that Triton uses: data_ptr() and dtype."""

    def __init__(self, array):
        self.array = np.ascontiguousarray(array)
        self.dtype = self.array.dtype
        self.shape = self.array.shape
        self.strides = tuple(step // self.array.itemsize for step in self.array.strides)
        place = ctypes.c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(place), max(self.array.nbytes, 1))
        self.place = place.value
        call("cuMemcpyHtoD_v2", self.place, self.array.ctypes.data, self.array.nbytes)

    def data_ptr(self):
        return self.place

    def numpy(self):
        found = np.empty_like(self.array)
        call("cuMemcpyDtoH_v2", found.ctypes.data, self.place, found.nbytes)
        return found

    def __del__(self):
        libcuda.cuMemFree_v2(self.place)


def empty_like(array):
    """Filled with a value that no kernel writes, so that a missing write is found."""
    return OnDevice(np.full(array.shape, -77, array.dtype))
