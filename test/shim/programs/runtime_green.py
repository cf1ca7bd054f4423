"""Green contexts by the runtime (libcudart at sys.argv[1]): each call and its result, one a line."""

import ctypes
import sys

runtime = ctypes.CDLL(sys.argv[1])


class Resource(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("inside", ctypes.c_ubyte * 92),
        ("count", ctypes.c_uint),
        ("rest", ctypes.c_ubyte * 36),
        ("next", ctypes.c_void_p),
    ]


def call(name, *arguments):
    result = getattr(runtime, name)(*arguments)
    print(name, result)


whole, part, stream, memory = Resource(), Resource(), ctypes.c_void_p(), ctypes.c_void_p()
groups, described, context, event = ctypes.c_uint(1), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
by = ctypes.byref
call("cudaSetDevice", 0)
call("cudaDeviceGetDevResource", 0, by(whole), 1)
call("cudaDevSmResourceSplitByCount", by(part), by(groups), by(whole), None, 0, 16)
call("cudaDevResourceGenerateDesc", by(described), by(part), 1)
call("cudaGreenCtxCreate", by(context), described, 0, 0)
call("cudaExecutionCtxStreamCreate", by(stream), context, 1, 0)
call("cudaMalloc", by(memory), 64)
call("cudaMemsetAsync", memory, 7, ctypes.c_size_t(64), stream)
call("cudaEventCreate", by(event))
call("cudaExecutionCtxRecordEvent", context, event)
call("cudaExecutionCtxWaitEvent", context, event)
call("cudaExecutionCtxSynchronize", context)
got = (ctypes.c_ubyte * 64)()
call("cudaMemcpy", got, memory, ctypes.c_size_t(64), 2)
call("cudaExecutionCtxGetDevResource", context, by(whole), 1)
print("multiprocessors", whole.count, "bytes", set(got))
