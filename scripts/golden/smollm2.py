"""Make policy/testdata/smollm2.json: what transformers computes in float32 on
the SmolLM2 GGUF: log-probs of token sequences, and 64 greedy tokens.

usage: python scripts/golden/smollm2.py FOLDER_WITH_GGUF   (transformers 5.23, torch 2.11)
"""

import json
import os
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n",
    "In 1969, two people walked on the Moon: Neil Armstrong and Buzz Aldrin. " * 6,
    "Überraschung! 北京 is the capital of China 🇨🇳, and 12 * 34 = 408.",
    "<|im_start|>user\nWhat is 7+5?<|im_end|>\n<|im_start|>assistant\n7 + 5 = 12.<|im_end|>\n",
]
PROMPTS = ["What is 7+5?", "Write a short poem about the sea.", "List three prime numbers."]


def main():
    torch.set_num_threads(2)
    tok = AutoTokenizer.from_pretrained(sys.argv[1], gguf_file=GGUF)
    m = AutoModelForCausalLM.from_pretrained(sys.argv[1], gguf_file=GGUF, dtype=torch.float32).eval()
    out = {"logprobs": [], "greedy": []}
    with torch.no_grad():
        for t in TEXTS:
            ids = tok(t)["input_ids"]
            lp = torch.log_softmax(m(torch.tensor([ids])).logits[0, :-1].float(), -1)
            lp = lp.gather(1, torch.tensor(ids[1:]).unsqueeze(1))[:, 0]
            out["logprobs"].append({"ids": ids, "logprobs": [round(x, 6) for x in lp.tolist()]})
        for p in PROMPTS:
            ids = tok.apply_chat_template([{"role": "user", "content": p}], add_generation_prompt=True)
            ids = ids if isinstance(ids, list) else ids["input_ids"]
            gen = m.generate(torch.tensor([ids]), max_new_tokens=64, do_sample=False, eos_token_id=2)[0, len(ids):].tolist()
            out["greedy"].append({"ids": ids, "new": gen, "text": tok.decode(gen)})
    path = os.path.join(os.path.dirname(__file__), "../../policy/testdata/smollm2.json")
    json.dump(out, open(path, "w"))


main()
