"""Tiny random models as GGUF, with the sums of the tensors they were made from.

    python scripts/golden/tinygguf.py

Writes model/weights/testdata/{llama,qwen2,qwen3}.gguf and tiny.json. The tensors are
those of transformers' own classes; q and k of the Llama are permuted, and its
rope_freqs holds Llama 3's scaling, as llama.cpp's converter does.
"""
import hashlib, json, math, os

import gguf, numpy as np, torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "model", "weights", "testdata")
TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
LAYER = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def rope_freqs(theta, dim, factor=8.0, low=1.0, high=4.0, old=8192):
    out = []
    for i in range(0, dim, 2):
        wave = 2 * math.pi * theta ** (i / dim)
        if wave < old / high:
            out.append(1.0)
        elif wave > old / low:
            out.append(factor)
        else:
            smooth = (old / wave - low) / (high - low)
            out.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(out, dtype=np.float32)


def main():
    os.makedirs(HERE, exist_ok=True)
    torch.manual_seed(0)
    kw = dict(vocab_size=16, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=128)
    models = {"llama": LlamaForCausalLM(LlamaConfig(**kw, rope_parameters={"rope_type": "default", "rope_theta": 500000.0}, tie_word_embeddings=False, attention_bias=True)),
              "qwen2": Qwen2ForCausalLM(Qwen2Config(**kw, tie_word_embeddings=True)), "qwen3": Qwen3ForCausalLM(Qwen3Config(**kw, head_dim=16, tie_word_embeddings=False))}
    sums = {}
    for arch, m in models.items():
        w = gguf.GGUFWriter(os.path.join(HERE, arch + ".gguf"), arch)
        w.add_context_length(128), w.add_embedding_length(16), w.add_block_count(2), w.add_feed_forward_length(24)
        w.add_head_count(2), w.add_head_count_kv(1), w.add_layer_norm_rms_eps(1e-6), w.add_rope_freq_base(m.config.rope_parameters["rope_theta"])
        if arch == "qwen3":
            w.add_key_length(16), w.add_value_length(16)
        sums[arch] = {}
        for name, v in m.state_dict().items():
            if arch == "qwen2" and name == "lm_head.weight":
                continue
            x = torch.randn(v.shape).numpy()
            sums[arch][name] = hashlib.sha256(x.tobytes()).hexdigest()[:16]
            stem, suffix = name.rsplit(".", 1)
            if stem in TOP:
                to = f"{TOP[stem]}.{suffix}"
            else:
                _, _, i, rest = stem.split(".", 3)
                to = f"blk.{i}.{LAYER[rest]}.{suffix}"
            if arch == "llama" and ("q_proj" in name or "k_proj" in name):
                h = 2 if "q_proj" in name else 1
                x = x.reshape(h, 2, x.shape[0] // h // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)
            w.add_tensor(to, np.ascontiguousarray(x))
        if arch == "llama":
            w.add_tensor("rope_freqs.weight", rope_freqs(500000.0, 8))
        w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()
    with open(os.path.join(HERE, "tiny.json"), "w") as f:
        json.dump(sums, f, indent=0)


if __name__ == "__main__":
    main()
