"""Make model/weights/testdata/converted: tiny models of the families that are not in tinygguf.py,
as llama.cpp's converter writes them, without tokenizers.

usage: python scripts/golden/ggufconverted.py LLAMA_CPP [NAME...]   (transformers 5.23, torch 2.11, gguf 0.19)

LLAMA_CPP is the folder of llama.cpp with convert_hf_to_gguf.py. NAME.gguf.gz is a file,
models.json.gz each model's config.json. Tensors are drawn from their names (families.py) and
rounded to 64ths, so that both sides know them. Those of an mxfp4 file have sums there: what
transformers unpacks, as float32.
"""

import gzip
import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import families

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../model/weights/testdata/converted")
BASE = dict(vocab_size=16, hidden_size=16, intermediate_size=24, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0, head_dim=8)
YARN = dict(rope_type="yarn", rope_theta=150000.0, factor=4.0, original_max_position_embeddings=32, beta_fast=32.0, beta_slow=1.0)
OSS = dict(num_hidden_layers=3, hidden_size=32, num_local_experts=3, num_experts_per_tok=2, intermediate_size=32, sliding_window=9,
           rope_parameters=dict(YARN, truncate=False))
DELTA = dict(num_hidden_layers=4, head_dim=16, linear_key_head_dim=8, linear_value_head_dim=8, linear_num_key_heads=2,
             linear_num_value_heads=6, layer_types=["linear_attention"] * 3 + ["full_attention"],
             rope_parameters=dict(rope_type="default", rope_theta=10000000.0, partial_rotary_factor=0.25, mrope_section=[1, 1, 0],
                                  mrope_interleaved=True))
LFM2 = dict(head_dim=None, norm_eps=1e-5, layer_types=["conv", "full_attention", "conv", "full_attention"],
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0))
SLIDING = ["sliding_attention", "sliding_attention", "full_attention"]
GEMMA4 = dict(num_hidden_layers=6, layer_types=SLIDING * 2, sliding_window=9, global_head_dim=16, hidden_size_per_layer_input=0,
              vocab_size_per_layer_input=16, num_kv_shared_layers=0, enable_moe_block=False)
MODELS = {
    "gpt_oss": ("gpt_oss", OSS),
    "gpt_oss_mxfp4": ("gpt_oss", OSS),
    "qwen3_5": ("qwen3_5_text", dict(DELTA, mtp_num_hidden_layers=1)),
    "qwen3_5_moe": ("qwen3_5_moe_text", dict(DELTA, num_experts=3, num_experts_per_tok=2, moe_intermediate_size=16,
                                             shared_expert_intermediate_size=24, tie_word_embeddings=True)),
    "lfm2": ("lfm2", dict(LFM2, block_auto_adjust_ff_dim=True, block_multiple_of=16, block_ffn_dim_multiplier=1.3)),
    "lfm2_moe": ("lfm2_moe", dict(LFM2, num_experts=3, num_experts_per_tok=2, moe_intermediate_size=16, num_dense_layers=1)),
    "gemma4": ("gemma4_text", dict(GEMMA4, hidden_size_per_layer_input=8, num_kv_shared_layers=3, use_double_wide_mlp=True,
                                   final_logit_softcapping=30.0)),
    "gemma4_moe": ("gemma4_text", dict(GEMMA4, num_hidden_layers=3, layer_types=SLIDING, enable_moe_block=True, num_experts=3,
                                       top_k_experts=2, moe_intermediate_size=16, attention_k_eq_v=True, num_global_key_value_heads=1)),
    "glm4_moe": ("glm4_moe", dict(num_hidden_layers=3, head_dim=16, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=16,
                                  n_group=1, topk_group=1, first_k_dense_replace=1, routed_scaling_factor=1.5, use_qk_norm=True,
                                  n_shared_experts=2, attention_bias=True, num_nextn_predict_layers=1)),
    "glm4": ("glm4", dict(head_dim=16, num_hidden_layers=2)),
    "olmo3": ("olmo3", dict(head_dim=None, sliding_window=9, rope_parameters={
        "full_attention": dict(YARN, rope_theta=500000.0, attention_factor=1.2),
        "sliding_attention": dict(rope_type="default", rope_theta=500000.0)})),
    "ministral3": ("ministral3", dict(num_hidden_layers=2, rope_parameters=dict(
        YARN, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1, rope_theta=1000000.0), tie_word_embeddings=True)),
    "seed_oss": ("seed_oss", dict(num_hidden_layers=2, head_dim=16, attention_bias=True, attention_out_bias=False, mlp_bias=False,
                                  rope_parameters=dict(rope_type="default", rope_theta=10000000.0), tie_word_embeddings=False)),
    "phi3_longrope": ("phi3", dict(head_dim=None, hidden_size=32, num_hidden_layers=2, original_max_position_embeddings=32,
                                   rope_parameters=dict(
        rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.5, original_max_position_embeddings=32, short_factor=[1.0, 1.25],
        long_factor=[1.5, 4.0]))),
}
# Of layers that predict further tokens, which a file may have behind the others.
FURTHER = {
    "qwen3_5": {"mtp.fc.weight": (16, 32), "mtp.norm.weight": (16,), "mtp.pre_fc_norm_embedding.weight": (16,),
                "mtp.layers.0.input_layernorm.weight": (16,)},
    "glm4_moe": {"model.layers.3.eh_proj.weight": (16, 32), "model.layers.3.enorm.weight": (16,),
                 "model.layers.3.input_layernorm.weight": (16,)},
}


def drawn(name, shape):
    return (families.draw(name, shape) * 64).round() / 64


def fill(model, kind):
    families.GPT_OSS = kind in ("gpt_oss", "gemma4_text")
    with torch.no_grad():
        for name, p in [*model.named_parameters(), *model.named_buffers()]:
            if name in dict(model.named_buffers()) and not name.endswith(("e_score_correction_bias", "layer_scalar", "expert_bias")):
                continue
            p.copy_(torch.cat([drawn(part, shape) for part, shape in families.parts(name, p.shape)]).reshape(p.shape))
    model.tie_weights()


def to_mxfp4(folder, config):
    """Experts drawn as blocks of 4-bit numbers; gives the sums of what transformers unpacks."""
    file = os.path.join(folder, "model.safetensors")
    tensors, sums = load_file(file), {}
    for name in [n for n in tensors if n.endswith("_proj") and ".experts." in n]:
        count, columns, rows = tensors.pop(name).shape  # stored [in, out], packed [out, in]
        codes = drawn(name, (count * rows * columns // 2,)).mul(64).long().add(128).remainder(256)
        blocks = codes.to(torch.uint8).reshape(count, rows, columns // 32, 16)
        scales = (drawn(name + "_scales", (count * rows * columns // 32,)) * 8).round().add(125).to(torch.uint8).reshape(count, rows, -1)
        tensors[name + "_blocks"], tensors[name + "_scales"] = blocks, scales
        whole = convert_moe_packed_tensors(blocks, scales).float().contiguous() + 0.0  # a GGUF has one zero
        sums[name] = hashlib.sha256(whole.numpy().tobytes()).hexdigest()[:16]
    save_file(tensors, file, metadata={"format": "pt"})
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": []}
    return sums


def main(llama_cpp, *only):
    sys.path[:0] = [llama_cpp, os.path.join(llama_cpp, "gguf-py")]
    import gguf
    from conversion import get_model_class
    from conversion.llama import LlamaModel

    os.makedirs(HERE, exist_ok=True)
    index = os.path.join(HERE, "models.json.gz")
    out = json.loads(gzip.open(index).read()) if only else {}
    for name, (kind, extra) in MODELS.items():
        if only and name not in only:
            continue
        args = {k: v for k, v in {**BASE, **extra}.items() if v is not None}
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **args)).eval()
        fill(model, kind)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            config, sums = json.loads(model.config.to_json_string(use_diff=False)), {}
            config["architectures"] = [type(model).__name__]
            if name.endswith("mxfp4"):
                sums = to_mxfp4(folder, config)
            if name in FURTHER:
                file = os.path.join(folder, "model.safetensors")
                save_file({**load_file(file), **{k: drawn(k, shape).reshape(shape) for k, shape in FURTHER[name].items()}}, file,
                          metadata={"format": "pt"})
            with open(os.path.join(folder, "config.json"), "w") as f:
                json.dump(config, f)
            with open(os.path.join(folder, "tokenizer.json"), "w") as f:  # the converter counts Gemma's tokens there
                json.dump({"model": {"vocab": dict.fromkeys(map(str, range(BASE["vocab_size"])))}, "added_tokens": []}, f)
            cls = get_model_class(type(model).__name__)
            cls.no_mtp = name not in FURTHER
            cls.set_vocab = LlamaModel.set_vocab = lambda self: None
            path = Path(folder) / "m.gguf"
            cls(Path(folder), gguf.LlamaFileType.ALL_F32, path, eager=True).write()
            with gzip.GzipFile(os.path.join(HERE, name + ".gguf.gz"), "w", mtime=0) as f:
                f.write(path.read_bytes())
        out[name] = {"config": config, "sums": sums}
        print(name)
    with gzip.GzipFile(index, "w", mtime=0) as f:
        f.write(json.dumps(out).encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
