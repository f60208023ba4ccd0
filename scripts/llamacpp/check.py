"""The Python half of check.sh."""
import json, os, shutil, sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

# Families whose GGUFs transformers does not read, or not fully: llama.cpp on the F32 file is
# compared with transformers on the folder.
MORE = {
    "qwen3_moe": dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=128, norm_topk_prob=True, head_dim=64),
    "gemma3_text": dict(head_dim=64, query_pre_attn_scalar=64, sliding_window=8, num_hidden_layers=8),
    "phi3": {}, "smollm3": dict(num_hidden_layers=5), "olmo2": {}, "mistral": dict(sliding_window=None),
    "granite": dict(attention_multiplier=0.1, embedding_multiplier=6.0, residual_multiplier=0.5, logits_scaling=3.0),
}


def random():
    torch.manual_seed(1)
    kw = dict(vocab_size=49152, hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512, bos_token_id=1, eos_token_id=2, initializer_range=0.2)
    for name, m in (("qwen2", lambda: Qwen2ForCausalLM(Qwen2Config(**kw, tie_word_embeddings=True))), ("qwen3", lambda: Qwen3ForCausalLM(Qwen3Config(**kw, head_dim=128, tie_word_embeddings=False)))):
        if os.path.isdir(name):
            continue
        save(m(), name)
    for name, extra in MORE.items():
        if not os.path.isdir(name):
            m = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **{**kw, "pad_token_id": 0, **extra}))
            with torch.no_grad():  # norms too
                for p in m.parameters():
                    p.normal_(0 if p.dim() > 1 or name == "gemma3_text" else 1, 0.2)
            save(m, name)


def save(m, name):
    m.save_pretrained(name)
    for f in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join("llama", f), name)


def compare(name, t):
    got = json.load(open(f"{name}.{t}.json"))
    file = dict(pretrained_model_name_or_path=name) if name in MORE else dict(pretrained_model_name_or_path=".", gguf_file=f"{name}.{t}.gguf")
    m = AutoModelForCausalLM.from_pretrained(**file, dtype=torch.float32)
    ids = torch.tensor([got["ids"]])
    want = m.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=32, do_sample=False)[0, ids.shape[1] :].tolist()
    n = min(len(want), len(got["out"]))
    same = next((i for i in range(n) if want[i] != got["out"][i]), n)
    # Where one token differs, so does the text behind it: what transformers says of llama.cpp's text.
    with torch.no_grad():
        rows = m(torch.tensor([got["ids"] + got["out"]])).logits[0, len(got["ids"]) - 1 : -1]
    below = rows.max(-1).values - rows.gather(-1, torch.tensor(got["out"])[:, None])[:, 0]
    print(f"{name:11} {t:5} {same} of {n} tokens equal; of llama.cpp's {int((below == 0).sum())} of {len(below)} are the first choice, "
          f"the others at most {below.max():.2g} below it, where logits have a standard deviation of {rows.std():.2g}")


if __name__ == "__main__":
    random() if sys.argv[1] == "random" else compare(*sys.argv[2:])
