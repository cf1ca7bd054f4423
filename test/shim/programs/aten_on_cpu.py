"""Importing this module makes the CPU carry out PyTorch's own operations on GPU tensors: copy there, compute, copy back.

ATen's kernels exist as machine code only, which a simulated GPU does not run. So the device computes only the
program's Triton kernels, and all other operations return correct numbers.
"""

import ctypes

import torch

libcuda = ctypes.CDLL("libcuda.so.1")

# Views, memory and waits: these need no kernel, and use the device's own memory.
OWN = (
    "empty", "resize", "set_", "as_strided", "view", "_reshape_alias", "unfold", "record_stream", "is_pinned",
    "_pin_memory", "_local_scalar_dense", "_lazy_clone", "is_set_to", "_fused_", "is_same_size", "data_ptr",
)  # fmt: skip


def move(name, to, from_, size):
    torch.cuda.synchronize()
    result = getattr(libcuda, name)(ctypes.c_uint64(to), ctypes.c_uint64(from_), ctypes.c_size_t(size))
    if result != 0:
        raise RuntimeError(f"{name} gave {result}")


class Moved:
    """One copy of each storage that a call names: views of one storage stay views of one storage."""

    def __init__(self):
        self.copies = {}

    def to_cpu(self, value):
        if isinstance(value, torch.Tensor):
            if value.device.type != "cuda":
                return value
            storage = value.untyped_storage()
            if storage.data_ptr() not in self.copies:
                there = torch.empty(storage.nbytes(), dtype=torch.uint8)
                if storage.nbytes():
                    move("cuMemcpyDtoH_v2", there.data_ptr(), storage.data_ptr(), storage.nbytes())
                self.copies[storage.data_ptr()] = (storage, there)
            there = self.copies[storage.data_ptr()][1]
            return there.new_empty(0).view(value.dtype).set_(
                there.untyped_storage(), value.storage_offset(), value.shape, value.stride())  # fmt: skip
        if isinstance(value, (list, tuple)):
            return type(value)(self.to_cpu(one) for one in value)
        if isinstance(value, torch.device) and value.type == "cuda":
            return torch.device("cpu")
        # Random numbers must come from the CPU's generator: the GPU's generator has another seed.
        return None if isinstance(value, torch.Generator) and value.device.type == "cuda" else value

    def back(self, value, written):
        """The device's tensor for a result: the argument that was written, or a new one."""
        if isinstance(value, torch.Tensor) and value.device.type == "cpu":
            for cpu, cuda in written:
                if cpu is value:
                    return cuda
            there = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda")
            size = min(there.untyped_storage().nbytes(), value.untyped_storage().nbytes() - value.storage_offset() * value.itemsize)
            if size > 0:
                move("cuMemcpyHtoD_v2", there.data_ptr(), value.data_ptr(), size)
            return there
        return type(value)(self.back(one, written) for one in value) if isinstance(value, (list, tuple)) else value


def writes(argument):
    return argument.alias_info is not None and argument.alias_info.is_write


def through_cpu(op):
    names = [argument.name for argument in op._schema.arguments]
    tensors = {argument.name for argument in op._schema.arguments if isinstance(argument.type, torch.TensorType)}
    written_names = {argument.name for argument in op._schema.arguments if writes(argument)}

    def call(*args, **kwargs):
        moved, written = Moved(), []
        given = dict(zip(names, args)) | kwargs
        on_cpu = {name: moved.to_cpu(value) for name, value in given.items()}
        for name in tensors & given.keys():
            if isinstance(on_cpu[name], (int, float)):  # a number in a tensor's place: the dispatcher lets it through
                on_cpu[name] = torch.tensor(on_cpu[name])
        for name in written_names & given.keys():
            if isinstance(given[name], torch.Tensor):
                written.append((on_cpu[name], given[name]))
            elif given[name] is not None:
                written += zip(on_cpu[name], given[name])
        before = [cpu.shape for cpu, _ in written]
        result = op(*(on_cpu[name] for name in names[: len(args)]), **{name: on_cpu[name] for name in kwargs})
        for (cpu, cuda), shape in zip(written, before):
            if cuda.device.type != "cuda":
                continue
            if cpu.shape != shape:  # out= has another size
                cuda.resize_(cpu.shape)
                move("cuMemcpyHtoD_v2", cuda.data_ptr(), cpu.contiguous().data_ptr(), cpu.nbytes)
        for storage, there in moved.copies.values():
            if any(cuda.device.type == "cuda" and cuda.untyped_storage().data_ptr() == storage.data_ptr() for _, cuda in written):
                if storage.nbytes() == there.nbytes and there.nbytes:
                    move("cuMemcpyHtoD_v2", storage.data_ptr(), there.data_ptr(), there.nbytes)
        return moved.back(result, written)

    return call


def zero(tensor):
    """Inductor's timing clears a buffer of the cache's size before each launch. The CPU must not do that."""
    if not tensor.is_contiguous():
        return through_cpu(torch.ops.aten.zero_.default)(tensor)
    size, stream = ctypes.c_size_t(tensor.nbytes), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    result = libcuda.cuMemsetD8Async(ctypes.c_uint64(tensor.data_ptr()), ctypes.c_ubyte(0), size, stream) if tensor.nbytes else 0
    if result != 0:
        raise RuntimeError(f"cuMemsetD8Async gave {result}")
    return tensor


library = torch.library.Library("aten", "IMPL")
for name in torch._C._dispatch_get_all_op_names():
    plain = name.removeprefix("aten::")
    if plain == name or plain.startswith(OWN):
        continue
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    if plain != "copy_" and not (has(name, "CUDA") and (has(name, "CPU") or has(name, "CompositeExplicitAutograd"))):
        continue
    packet, _, overload = plain.partition(".")
    op = getattr(getattr(torch.ops.aten, packet), overload or "default")
    library.impl(plain, zero if plain == "zero_" else through_cpu(op), "CUDA", allow_override=True)
