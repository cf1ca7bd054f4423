"""Inference libraries on a device that skips kernels: every call must be answered. Only copied bytes are
compared.

usage: inference_steps.py STEP...   prints "STEP ok" or "STEP: the error" for each
"""

import os
import sys
import tempfile

import numpy
import torch
from torch.utils.data import DataLoader, Dataset

os.environ["HF_HUB_OFFLINE"] = "1"


def equal(one, other):
    assert one == other, f"{one} instead of {other}"


class Rows(Dataset):
    def __init__(self, device):
        self.device = device

    def __len__(self):
        return 16

    def __getitem__(self, index):
        return torch.full((8,), float(index)).to(self.device)


def workers(context, device="cpu"):
    """Workers read rows and, with `device` "cuda", copy them to the GPU and send the GPU's memory."""
    torch.ones(1, device="cuda")
    rows = DataLoader(Rows(device), batch_size=None, num_workers=2, multiprocessing_context=context, pin_memory=device == "cpu")
    equal(sum(row.to("cuda").cpu().sum().item() for row in rows), 8 * sum(range(16)))


def workers_with_the_gpu_after_fork():
    """PyTorch refuses it; the worker must end with PyTorch's message and not hang in our library."""
    try:
        workers("fork", "cuda")
    except RuntimeError as error:
        assert "Cannot re-initialize CUDA in forked subprocess" in str(error), error
        return
    raise AssertionError("a forked worker used the parent's GPU")


def embeddings(pool=False):
    from sentence_transformers import SentenceTransformer, models
    from transformers import BertConfig, BertModel, BertTokenizerFast

    with tempfile.TemporaryDirectory() as directory:
        letters = [chr(letter) for letter in range(ord("a"), ord("z") + 1)]
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + letter for letter in letters)]
        with open(f"{directory}/vocab.txt", "w") as file:
            file.write("\n".join(words))
        BertTokenizerFast(f"{directory}/vocab.txt").save_pretrained(directory)
        size = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
        BertModel(BertConfig(vocab_size=len(words), **size)).save_pretrained(directory)
        reader = models.Transformer(directory, max_seq_length=64)
        model = SentenceTransformer(modules=[reader, models.Pooling(64)])
        equal(model.device.type, "cuda")
        equal(model.encode(["a cat", "a kitten", "stock market"]).shape, (3, 64))
        if pool:
            processes = model.start_multi_process_pool(["cuda:0", "cuda:0"])
            equal(model.encode(["a cat"] * 8, pool=processes).shape, (8, 64))
            model.stop_multi_process_pool(processes)


def onnx_graphs():
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    numbers = numpy.random.default_rng(0)

    def session(nodes, weights, x, y, **options):
        tensors = [numpy_helper.from_array(numbers.standard_normal(shape).astype("f"), name) for name, shape in weights]
        ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)] for name, shape in (("x", x), ("y", y))]
        graph = helper.make_graph(nodes, "graph", *ends, tensors)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        made = onnxruntime.InferenceSession(model.SerializeToString(), providers=[("CUDAExecutionProvider", options)])
        equal(made.get_providers()[0], "CUDAExecutionProvider")
        return made

    four = numpy.arange(4, dtype="f")
    same = session([helper.make_node("Identity", ["x"], ["y"])], [], [4], [4])
    equal(same.run(None, {"x": four})[0].tolist(), four.tolist())

    net = [
        helper.make_node("Conv", ["x", "kernel"], ["convolved"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["convolved"], ["positive"]),
        helper.make_node("Flatten", ["positive"], ["flat"]),
        helper.make_node("MatMul", ["flat", "matrix"], ["product"]),
        helper.make_node("Softmax", ["product"], ["y"]),
    ]
    weights = [("kernel", (4, 3, 3, 3)), ("matrix", (256, 10))]
    x = numbers.standard_normal((2, 3, 8, 8)).astype("f")
    # Not the default EXHAUSTIVE, which picks an algorithm by its time. With skipped kernels times mean nothing.
    plain = session(net, weights, x.shape, [2, 10], cudnn_conv_algo_search="HEURISTIC")
    equal(plain.run(None, {"x": x})[0].shape, (2, 10))

    replayed = session(net, weights, x.shape, [2, 10], cudnn_conv_algo_search="HEURISTIC", enable_cuda_graph="1")
    on_gpu = onnxruntime.OrtValue.ortvalue_from_numpy
    given, answer = on_gpu(x, "cuda", 0), on_gpu(numpy.zeros((2, 10), "f"), "cuda", 0)
    binding = replayed.io_binding()
    binding.bind_ortvalue_input("x", given)
    binding.bind_ortvalue_output("y", answer)
    for _ in range(3):
        replayed.run_with_iobinding(binding)
    assert numpy.array_equal(given.numpy(), x)
    equal(answer.numpy().shape, (2, 10))


def quantized():
    import bitsandbytes

    x = torch.randn(64, 64, device="cuda")
    packed, state = bitsandbytes.functional.quantize_4bit(x)
    equal(bitsandbytes.functional.dequantize_4bit(packed, state).shape, x.shape)
    layers = bitsandbytes.nn
    for layer in (layers.Linear4bit(64, 32), layers.Linear8bitLt(64, 32, has_fp16_weights=False)):
        equal(layer.cuda()(x.half()).cpu().shape, (64, 32))
    for optimizer in (bitsandbytes.optim.Adam8bit, bitsandbytes.optim.PagedAdamW8bit):
        model = torch.nn.Linear(64, 64).cuda()
        steps = optimizer(model.parameters(), min_8bit_size=16)
        for _ in range(2):
            steps.zero_grad()
            model(x).sum().backward()
            steps.step()
    torch.cuda.synchronize()


def whisper():
    """A random Whisper in CTranslate2, the library of faster-whisper. A longer prompt needs a number that a kernel computes."""
    import ctranslate2
    from ctranslate2.converters import TransformersConverter
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast, WhisperConfig, WhisperForConditionalGeneration

    with tempfile.TemporaryDirectory() as directory:
        special = ["<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>", "<|startofprev|>", "<|nospeech|>"]
        words = {word: index for index, word in enumerate([*map(str, range(250)), *special])}  # not 0, the result of skipped kernels
        PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, "0"))).save_pretrained(directory)
        layers = {f"{half}_{what}": size for half in ("encoder", "decoder") for what, size in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 128))}
        ends = {"bos_token_id": 250, "eos_token_id": 250, "pad_token_id": 250, "decoder_start_token_id": 251}
        config = WhisperConfig(vocab_size=len(words), d_model=64, suppress_tokens=None, begin_suppress_tokens=None, **layers, **ends)
        WhisperForConditionalGeneration(config).save_pretrained(directory)
        TransformersConverter(directory).convert(f"{directory}/converted")
        sound = ctranslate2.StorageView.from_array(numpy.ones((1, 80, 3000), "f"))
        for numbers in ("float32", "float16", "int8"):
            model = ctranslate2.models.Whisper(f"{directory}/converted", device="cuda", compute_type=numbers)
            equal(model.encode(sound, to_cpu=True).shape, [1, 1500, 64])
            equal(len(model.generate(sound, [[251]], beam_size=1, max_length=8)[0].sequences_ids[0]), 4)
    there = ctranslate2.StorageView.from_array(numpy.arange(8, dtype="f")).to_device(ctranslate2.Device.cuda)
    equal(numpy.asarray(there.to_device(ctranslate2.Device.cpu)).tolist(), list(range(8)))


STEPS = {
    "workers-fork": lambda: workers("fork"),
    "workers-fork-gpu": workers_with_the_gpu_after_fork,
    "workers-spawn": lambda: workers("spawn", "cuda"),
    "embeddings": embeddings,
    "embeddings-in-processes": lambda: embeddings(pool=True),
    "onnx": onnx_graphs,
    "quantized": quantized,
    "whisper": whisper,
}

if __name__ == "__main__":
    for name in sys.argv[1:]:
        try:
            STEPS[name]()
            print(name, "ok", flush=True)
        except BaseException as error:
            print(f"{name}: {type(error).__name__} {error}".splitlines()[0], flush=True)
    torch.cuda.synchronize()
