"""Make policy/testdata/tiny-*: random models of 2 layers in Hugging Face's
layout, with transformers' own log-probs, for tests that need a whole model.

usage: python scripts/golden/tiny.py   (transformers 5.23, tokenizers 0.23, torch 2.11)
"""

import json
import os
import shutil

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM,
                          Qwen3Config, Qwen3ForCausalLM)

HERE = os.path.join(os.path.dirname(__file__), "../../policy/testdata")
CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def tokenizer(dst):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {c: i + 3 for i, c in enumerate(alphabet)}
    for i, t in enumerate(["<|endoftext|>", "<|im_start|>", "<|im_end|>"]):
        vocab[t] = i
    merges = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "n"), ("e", "r")]
    for a, b in merges:
        vocab[a + b] = len(vocab)
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    f = PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<|im_end|>", bos_token="<|im_start|>", pad_token="<|im_end|>")
    f.chat_template = CHATML
    f.save_pretrained(dst)
    return len(vocab)


def main():
    torch.manual_seed(0)
    for name, cfg_cls, cls, extra in [
        ("llama", LlamaConfig, LlamaForCausalLM, dict(num_key_value_heads=1, rope_scaling=dict(
            rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32))),
        ("qwen2", Qwen2Config, Qwen2ForCausalLM, dict(num_key_value_heads=2, tie_word_embeddings=True)),
        ("qwen3", Qwen3Config, Qwen3ForCausalLM, dict(num_key_value_heads=1, head_dim=24)),
    ]:
        dst = os.path.join(HERE, "tiny-" + name)
        shutil.rmtree(dst, ignore_errors=True)
        os.makedirs(dst)
        vocab = tokenizer(dst)
        cfg = cfg_cls(vocab_size=vocab, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
                      max_position_embeddings=256, bos_token_id=1, eos_token_id=2, rope_theta=10000.0, **extra)
        m = cls(cfg).eval()
        with torch.no_grad():
            for p in m.parameters():  # larger than the usual init: log-probs that tell errors apart
                p.normal_(0, 0.25 if p.dim() > 1 else 0.5)
        m.save_pretrained(dst)
        seqs = [torch.randint(3, vocab, (n,)).tolist() for n in (2, 17, 100)]
        golden = []
        for dtype in (torch.float32, torch.float64):
            mm = m.to(dtype)
            for s in seqs:
                with torch.no_grad():
                    lp = torch.log_softmax(mm(torch.tensor([s])).logits[0, :-1], -1)
                golden.append({"dtype": str(dtype).split(".")[1], "ids": s,
                               "logprobs": lp.gather(1, torch.tensor(s[1:]).unsqueeze(1))[:, 0].tolist()})
        json.dump(golden, open(os.path.join(dst, "golden.json"), "w"))


main()
