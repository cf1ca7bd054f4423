"""all-MiniLM-L6-v2, whose weights a package carries: its vectors by JAX on the GPU, and by numpy.

usage: jax_embedding.py MODEL   MODEL: the directory of its files; prints "embed ok"
"""

import json
import math
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

SENTENCES = ["A cat sits on the mat.", "There is a kitten on a rug.", "The stock market fell today."]
model = Path(sys.argv[1])
config = json.loads((model / "config.json").read_text())
words = {word: i for i, word in enumerate((model / "vocab.txt").read_text().split("\n"))}


def tensors(file):
    """safetensors: the length of a JSON header, the header, then the numbers it names."""
    data = file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if entry.get("dtype") == "F32":
            start, end = (8 + size + offset for offset in entry["data_offsets"])
            yield name, np.frombuffer(data[start:end], np.float32).reshape(entry["shape"])


def tokens(text):
    """WordPiece: of each word the longest beginning that the vocabulary has, then the longest of the rest."""
    found = [words["[CLS]"]]
    for word in re.findall(r"\w+|[^\w\s]", text.lower()):
        start = 0
        while start < len(word):
            pieces = ((end, ("##" if start else "") + word[start:end]) for end in range(len(word), start, -1))
            start, piece = next((end, piece) for end, piece in pieces if piece in words)
            found.append(words[piece])
    return np.array([*found, words["[SEP]"]])


def product(np, x, weight):
    """A sum of products by rows on the GPU, because a product of matrices is cuBLAS's, which is machine code only."""
    if np is jnp:
        return (x[:, None, :] * weight[None, :, :]).sum(-1)
    return x @ weight.T


def embed(np, weights, ids):
    """BERT as its authors describe it, with either numpy or jax.numpy, then the mean of its rows, of length 1."""

    def dense(name, x):
        return product(np, x, weights[f"{name}.weight"]) + weights[f"{name}.bias"]

    def norm(name, x):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + config["layer_norm_eps"])
        return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def table(name, at):
        return weights[f"embeddings.{name}_embeddings.weight"][at]

    x = table("word", ids) + table("position", np.arange(len(ids))) + table("token_type", ids * 0)
    x = norm("embeddings.LayerNorm", x)
    heads = config["num_attention_heads"]
    for layer in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{layer}"
        q, k, v = (
            dense(f"{at}.attention.self.{one}", x).reshape(len(ids), heads, -1) for one in ("query", "key", "value")
        )
        scores = (q[:, None] * k[None]).sum(-1) / math.sqrt(q.shape[-1])
        scores = np.exp(scores - scores.max(1, keepdims=True))
        scores = scores / scores.sum(1, keepdims=True)
        attended = (scores[..., None] * v[None]).sum(1).reshape(len(ids), -1)
        x = norm(f"{at}.attention.output.LayerNorm", x + dense(f"{at}.attention.output.dense", attended))
        wide = dense(f"{at}.intermediate.dense", x)
        wide = wide * 0.5 * (1 + (jax.lax.erf if np is jnp else erf)(wide / math.sqrt(2)))
        x = norm(f"{at}.output.LayerNorm", x + dense(f"{at}.output.dense", wide))
    mean = x.mean(0)
    return mean / np.sqrt((mean * mean).sum())


erf = np.vectorize(math.erf, otypes=[np.float32])
weights = dict(tensors(model / "model.safetensors"))
gpu = jax.devices("gpu")[0]
on_gpu = {name: jax.device_put(value, gpu) for name, value in weights.items()}
on_gpu_embed = jax.jit(lambda weights, ids: embed(jnp, weights, ids))
vectors = []
for sentence in SENTENCES:
    ids = tokens(sentence)
    wanted, got = embed(np, weights, ids), np.asarray(on_gpu_embed(on_gpu, jax.device_put(ids, gpu)))
    np.testing.assert_allclose(got, wanted, atol=1e-5)
    vectors.append(got)
cat, kitten, stocks = vectors
assert cat @ kitten > 0.5 > 0.2 > cat @ stocks, (cat @ kitten, cat @ stocks)
print("embed ok")
