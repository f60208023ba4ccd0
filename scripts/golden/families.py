"""Make model/arch/archtest/families.json.gz, and recurrent.json.gz for those with recurrent
layers: for each family of model/arch random models of 4 small layers, as config.json and tensors, with transformers' own log-probs in float32 and
float64, 64 greedy tokens, and the gradient of the mean log-prob in float64. bfloat16.json has how
far transformers' log-probs in bfloat16 are from those in float32.

usage: python scripts/golden/families.py [families|recurrent|bfloat16]   (transformers 5.23, torch 2.11)

A model's tensors are not in the file: both sides draw them (draw), so that it stays small.
"""

import gzip
import json
import math
import os
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM

HERE = os.path.join(os.path.dirname(__file__), "../../model/arch/archtest")
VOCAB = 96
BASE = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0, head_dim=8)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32)
LONG = dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.5, original_max_position_embeddings=64,
            short_factor=[1.0, 1.1], long_factor=[1.5, 4.0])

MODELS = [
    ("llama", "llama", {}),
    ("llama biases", "llama", dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    ("llama linear", "llama", dict(rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=3.0))),
    ("llama yarn", "llama", dict(rope_parameters=YARN)),
    ("llama yarn of two scales", "llama", dict(rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=0.5, truncate=False))),
    ("llama dynamic", "llama", dict(rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0,
                                                         original_max_position_embeddings=64))),
    ("mistral", "mistral", dict(sliding_window=None)),
    ("mistral with a window", "mistral", dict(sliding_window=9)),
    ("ministral3", "ministral3", dict(rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1,
                                                          max_position_embeddings=256))),
    ("qwen2 with a window on some layers", "qwen2", dict(use_sliding_window=True, sliding_window=9, max_window_layers=2)),
    ("qwen3", "qwen3", {}),
    ("qwen3_moe", "qwen3_moe", dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, norm_topk_prob=True)),
    ("qwen3_moe with dense layers", "qwen3_moe", dict(num_experts=5, num_experts_per_tok=3, moe_intermediate_size=16,
                                                     mlp_only_layers=[2])),
    ("phi3", "phi3", dict(head_dim=None, num_attention_heads=4, num_key_value_heads=2)),
    ("phi3 partial", "phi3", dict(head_dim=None, partial_rotary_factor=0.5, sliding_window=20)),
    ("phi3 longrope", "phi3", dict(head_dim=None, rope_parameters=LONG, original_max_position_embeddings=64)),
    ("smollm3", "smollm3", {}),
    ("smollm3 untied with a window", "smollm3", dict(tie_word_embeddings=False, use_sliding_window=True, sliding_window=11,
                                                    no_rope_layers=[1, 0, 1, 0])),
    ("olmo2", "olmo2", dict(head_dim=None)),
    ("olmo3", "olmo3", dict(head_dim=None, sliding_window=13)),
    ("olmo3 yarn", "olmo3", dict(head_dim=None, sliding_window=13, rope_parameters={
        "full_attention": dict(YARN, rope_theta=500000.0), "sliding_attention": dict(rope_type="default", rope_theta=500000.0)})),
    ("gemma3", "gemma3_text", dict(sliding_window=12, head_dim=16, query_pre_attn_scalar=24, layer_types=[
        "sliding_attention", "sliding_attention", "full_attention", "sliding_attention"])),
    ("gemma3 scaled", "gemma3_text", dict(sliding_window=12, head_dim=16, query_pre_attn_scalar=16, layer_types=[
        "sliding_attention", "full_attention", "sliding_attention", "full_attention"], rope_parameters={
        "full_attention": dict(rope_type="linear", factor=8.0, rope_theta=1000000.0),
        "sliding_attention": dict(rope_type="default", rope_theta=10000.0)})),
    ("glm4", "glm4", dict(head_dim=16)),
    ("glm4_moe", "glm4_moe", dict(head_dim=16, n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=16, n_group=4,
                                  topk_group=2, first_k_dense_replace=1, routed_scaling_factor=1.8, use_qk_norm=True,
                                  attention_bias=True)),
    ("gpt_oss", "gpt_oss", dict(num_local_experts=5, num_experts_per_tok=2, intermediate_size=24, sliding_window=9, rope_parameters=dict(
        YARN, rope_theta=150000.0, truncate=False))),
    ("gpt_oss with clamps that bite", "gpt_oss", dict(num_local_experts=4, num_experts_per_tok=3, intermediate_size=16, sliding_window=200,
                                                      swiglu_limit=0.1, swiglu_alpha=1.5, tie_word_embeddings=True, attention_bias=False,
                                                      layer_types=["full_attention", "sliding_attention"] * 2, rope_parameters=dict(
                                                          rope_type="default", rope_theta=10000.0))),
    ("seed_oss", "seed_oss", dict(head_dim=16, attention_dropout=0.1, residual_dropout=0.1)),
    ("seed_oss with other biases", "seed_oss", dict(attention_bias=False, attention_out_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    ("granite", "granite", dict(embedding_multiplier=6.0, logits_scaling=3.0, residual_multiplier=0.22, attention_multiplier=0.2)),
]


LFM2 = dict(head_dim=None, norm_eps=1e-5, layer_types=["conv", "full_attention", "conv", "conv"])
DELTA = dict(head_dim=16, linear_key_head_dim=8, linear_value_head_dim=12, linear_num_key_heads=2, linear_num_value_heads=4,
             layer_types=["linear_attention"] * 3 + ["full_attention"],
             rope_parameters=dict(rope_type="default", rope_theta=10000000.0, partial_rotary_factor=0.25, mrope_section=[1, 1, 0],
                                  mrope_interleaved=True))
RECURRENT = [
    ("lfm2", "lfm2", dict(LFM2, block_auto_adjust_ff_dim=False)),
    ("lfm2 with biases and a longer convolution", "lfm2", dict(LFM2, conv_bias=True, conv_L_cache=5, tie_word_embeddings=False,
                                                               block_multiple_of=16, block_ffn_dim_multiplier=1.3)),
    ("lfm2_moe", "lfm2_moe", dict(LFM2, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, num_dense_layers=1,
                                  routed_scaling_factor=1.5)),
    ("qwen3_5", "qwen3_5_text", DELTA),
    ("qwen3_5 of equal heads", "qwen3_5_text", dict(DELTA, linear_num_value_heads=2, linear_key_head_dim=16, linear_conv_kernel_dim=3,
                                                   tie_word_embeddings=True)),
    ("qwen3_5_moe", "qwen3_5_moe_text", dict(DELTA, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16,
                                             shared_expert_intermediate_size=24)),
]


STACKED = False  # what is drawn now


def draw(name, shape):
    """The values of a tensor: a function of its name that any language computes alike.
    splitmix64 from the FNV-1a hash of the name; two uniforms summed and centred."""
    h = 0xCBF29CE484222325
    for b in name.encode():
        h = ((h ^ b) * 0x100000001B3) & (2**64 - 1)
    n = math.prod(shape)
    out = torch.empty(n, dtype=torch.float64)
    scale = 0.6 if len(shape) > 1 else 0.8
    for i in range(n):
        h = (h + 0x9E3779B97F4A7C15) & (2**64 - 1)
        z = h
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
        z ^= z >> 31
        out[i] = ((z >> 40) / 2**24 - 0.5) * scale
    return out.float()  # exact in float32


def parts(name, shape):
    """A parameter as the file has it: stacked experts are single ones there, but those of gpt-oss and Gemma 4."""
    if ".experts." not in name or STACKED:
        return [(name, tuple(shape))]
    at, kind = name.rsplit(".", 1)
    out = []
    called = dict(gate_proj="w1", up_proj="w3", down_proj="w2") if ".feed_forward." in name else {}
    for e in range(shape[0]):
        if kind == "gate_up_proj":
            out += [(f"{at}.{e}.{called.get(k, k)}.weight", (shape[1] // 2, shape[2])) for k in ("gate_proj", "up_proj")]
        else:
            out.append((f"{at}.{e}.{called.get(kind, kind)}.weight", tuple(shape[1:])))
    return out


DRAWN = ("e_score_correction_bias", "layer_scalar", "expert_bias")  # buffers that are in files


def drawn(kind, extra):
    global STACKED
    STACKED = kind in ("gpt_oss", "gemma4_text")
    args = {k: v for k, v in {**BASE, **extra}.items() if v is not None or k == "sliding_window"}
    cfg = AutoConfig.for_model(kind, **args)
    m = AutoModelForCausalLM.from_config(cfg, attn_implementation="eager", experts_implementation="eager").eval()
    with torch.no_grad():
        for name, p in [*m.named_parameters(), *m.named_buffers()]:
            if name in dict(m.named_buffers()) and not name.endswith(DRAWN):
                continue
            p.copy_(torch.cat([draw(part, shape) for part, shape in parts(name, p.shape)]).reshape(p.shape))
    m.tie_weights()
    return cfg, m


def logprobs(m, s):
    with torch.no_grad():
        lp = torch.log_softmax(m(torch.tensor([s]), use_cache=False).logits[0, :-1].double(), -1)
    return lp.gather(1, torch.tensor(s[1:]).unsqueeze(1))[:, 0].tolist()


def rounded(models):
    """Sixteen texts of 60 tokens of each model, in float32 and in bfloat16 as from_pretrained opens it:
    the tables of the rotary embeddings stay as they are."""
    out = []
    g = torch.Generator().manual_seed(8)
    seqs = [torch.randint(3, VOCAB, (60,), generator=g).tolist() for _ in range(16)]
    for title, kind, extra in models:
        _, m = drawn(kind, extra)
        wide = [logprobs(m, s) for s in seqs]
        for p in m.parameters():
            p.data = p.data.bfloat16()
        for name, p in m.named_buffers():
            if name.endswith(("layer_scalar", "embed_scale")):
                p.data = p.data.bfloat16()
        off = [abs(a - b) for s, w in zip(seqs, wide) for a, b in zip(logprobs(m, s), w)]
        out.append({"title": title, "ids": seqs, "mean": sum(off) / len(off), "median": sorted(off)[len(off) // 2]})
        print(title, out[-1]["mean"], out[-1]["median"])
    return out


def main(models, file):
    out = []
    for title, kind, extra in models:
        cfg, m = drawn(kind, extra)
        entry = {"title": title, "config": json.loads(cfg.to_json_string(use_diff=False)), "logprobs": []}
        g = torch.Generator().manual_seed(7)
        seqs = [torch.randint(3, VOCAB, (n,), generator=g).tolist() for n in (3, 20, 90)]
        for dtype in (torch.float32, torch.float64):
            m = m.to(dtype)
            for s in seqs:
                entry["logprobs"].append({"dtype": str(dtype).split(".")[1], "ids": s,
                                          "logprobs": [round(x, 9) for x in logprobs(m, s)]})
        m = m.float()
        ids = seqs[1][:12]
        greedy = list(ids)
        for _ in range(64):  # without a cache: the whole text each time
            with torch.no_grad():
                greedy.append(int(m(torch.tensor([greedy]), use_cache=False).logits[0, -1].argmax()))
        entry["prompt"], entry["greedy"] = ids, greedy[len(ids):]
        m = m.double()
        s = seqs[1]
        lp = torch.log_softmax(m(torch.tensor([s]), use_cache=False).logits[0, :-1], -1)
        lp.gather(1, torch.tensor(s[1:]).unsqueeze(1)).mean().backward()
        entry["gradient"] = {}
        for whole, p in m.named_parameters():
            grad = p.grad.flatten()
            for name, shape in parts(whole, p.shape):
                v, grad = grad[:math.prod(shape)], grad[math.prod(shape):]
                at = [0, v.numel() // 3, v.numel() - 1]
                entry["gradient"][name] = {"norm": float(v.norm()), "at": at, "values": [float(v[i]) for i in at]}
        out.append(entry)
        print(title)
    with gzip.GzipFile(os.path.join(HERE, file), "w", mtime=0) as f:
        f.write(json.dumps(out).encode())


if __name__ == "__main__":
    for name, models in (("families", MODELS), ("recurrent", RECURRENT)):
        if name in (sys.argv[1:] or [name]):
            main(models, name + ".json.gz")
    if sys.argv[1:] == ["bfloat16"]:
        import gemma4

        texts = None
        out = rounded(MODELS + RECURRENT + gemma4.ALL)
        for x in out:
            texts = x.pop("ids")
        with open(os.path.join(HERE, "bfloat16.json"), "w") as f:
            json.dump({"ids": texts, "models": out}, f, separators=(",", ":"))
