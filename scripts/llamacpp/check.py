"""The Python half of check.sh."""
import json, os, shutil, sys

import torch
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM


def random():
    torch.manual_seed(1)
    kw = dict(vocab_size=49152, hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512, bos_token_id=1, eos_token_id=2, initializer_range=0.2)
    for name, m in (("qwen2", lambda: Qwen2ForCausalLM(Qwen2Config(**kw, tie_word_embeddings=True))), ("qwen3", lambda: Qwen3ForCausalLM(Qwen3Config(**kw, head_dim=128, tie_word_embeddings=False)))):
        if os.path.isdir(name):
            continue
        m().save_pretrained(name)
        for f in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(os.path.join("llama", f), name)


def compare(name, t):
    got = json.load(open(f"{name}.{t}.json"))
    m = AutoModelForCausalLM.from_pretrained(".", gguf_file=f"{name}.{t}.gguf", dtype=torch.float32)
    ids = torch.tensor([got["ids"]])
    want = m.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=32, do_sample=False)[0, ids.shape[1] :].tolist()
    n = min(len(want), len(got["out"]))
    same = next((i for i in range(n) if want[i] != got["out"][i]), n)
    print(f"{name:6} {t:5} {same} of {n} tokens equal")


if __name__ == "__main__":
    random() if sys.argv[1] == "random" else compare(*sys.argv[2:])
