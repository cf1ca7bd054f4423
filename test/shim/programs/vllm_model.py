"""A small Llama of random weights, with a tokenizer of single bytes, as vLLM reads models.

usage: vllm_model.py DIRECTORY
"""

import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

directory = sys.argv[1]
words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<s>", "</s>"]
tokenizer = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(directory)
config = LlamaConfig(
    vocab_size=len(words),
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=2,
    max_position_embeddings=512,
    bos_token_id=len(words) - 2,
    eos_token_id=len(words) - 1,
)
LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(directory)
