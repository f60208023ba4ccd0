"""Make policy/testdata/lora-experts.json.gz: LoRA adapters on the experts of the models of
model/arch/archtest, as PEFT saves them, with the log-probs and the gradients that PEFT gives.

usage: python scripts/golden/lora_experts.py   (peft 0.21, transformers 5.23, torch 2.11)

The tensors are not in the file: both sides draw them by their names (draw in families.py). What PEFT
saved is compared with them here, name by name, and a folder is read back by PEFT before it counts.
scripts/golden/lora.py DIR goes the other way round, with adapters that agentcli trained.
"""

import gzip
import json
import os
import tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

import families

POLICY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../policy/testdata")
GATE_UP, DOWN = "experts.gate_up_proj", "experts.down_proj"
KINDS = [
    ("qwen3_moe", dict(r=2, lora_alpha=5, target_modules=["q_proj", "o_proj"], target_parameters=[GATE_UP, DOWN])),
    ("qwen3_moe", dict(r=2, lora_alpha=4, target_modules=[], target_parameters=[GATE_UP])),
    ("qwen3_moe", dict(r=3, lora_alpha=4, target_modules=["v_proj"], target_parameters=[DOWN], use_rslora=True)),
    ("qwen3_moe with dense layers", dict(r=2, lora_alpha=4, target_modules=["k_proj"], target_parameters=[
        GATE_UP, DOWN, "mlp.gate_proj.weight", "mlp.down_proj.weight"])),
    ("glm4_moe", dict(r=1, lora_alpha=3, target_modules=["q_proj"], target_parameters=[GATE_UP, DOWN])),
    ("gpt_oss", dict(r=2, lora_alpha=6, target_modules=["v_proj"], target_parameters=[GATE_UP, DOWN])),
    ("gpt_oss with clamps that bite", dict(r=2, lora_alpha=2, target_modules=[], target_parameters=[GATE_UP])),
    ("lfm2_moe", dict(r=2, lora_alpha=4, target_modules=["w1"], target_parameters=[GATE_UP, DOWN])),
    ("qwen3_5_moe", dict(r=2, lora_alpha=4, target_modules=["in_proj_qkv"], target_parameters=[GATE_UP, DOWN])),
    ("gemma4 with experts and keys that are values", dict(r=2, lora_alpha=4, target_modules=["down_proj"], target_parameters=[GATE_UP, DOWN])),
]


def models():
    out = {}
    for name in ("families", "recurrent", "families_gemma4"):
        with gzip.open(os.path.join(families.HERE, name + ".json.gz")) as f:
            out.update({m["title"]: m for m in json.load(f)})
    return out


def base(entry):
    """The model, in float64, whose log-probs must be those of the entry."""
    kind = entry["config"]["model_type"]
    families.GPT_OSS = kind in ("gpt_oss", "gemma4_text")  # whose stacked experts are one tensor in files
    cfg = AutoConfig.for_model(**entry["config"])
    m = AutoModelForCausalLM.from_config(cfg, attn_implementation="eager", experts_implementation="eager", dtype=torch.float32).eval()
    buffers = dict(m.named_buffers())
    with torch.no_grad():
        for name, p in [*m.named_parameters(), *buffers.items()]:
            if name in buffers and not name.endswith(("e_score_correction_bias", "layer_scalar", "expert_bias")):
                continue
            p.copy_(torch.cat([families.draw(part, shape) for part, shape in families.parts(name, p.shape)]).reshape(p.shape))
    m.tie_weights()
    m = m.double()
    want = [g for g in entry["logprobs"] if g["dtype"] == "float64"][1]
    worst = max(abs(a - b) for a, b in zip(logprobs(m, want["ids"]).tolist(), want["logprobs"]))
    assert worst < 1e-6, (entry["title"], worst)
    return m


def logprobs(m, ids):
    lp = torch.log_softmax(m(torch.tensor([ids]), use_cache=False).logits[0, :-1], -1)
    return lp.gather(1, torch.tensor(ids[1:]).unsqueeze(1))[:, 0]


def saved_name(name):
    return name.replace(".default.", ".")


def main():
    out, all_models = [], models()
    for title, how in KINDS:
        entry = all_models[title]
        m = get_peft_model(base(entry), LoraConfig(task_type="CAUSAL_LM", **how)).eval()
        pairs = {saved_name(n): p for n, p in m.named_parameters() if ".lora_" in n}
        with torch.no_grad():
            for name, p in pairs.items():
                p.copy_(families.draw(name, tuple(p.shape)).reshape(p.shape))
        ids = [g["ids"] for g in entry["logprobs"] if g["dtype"] == "float64"][1]
        for p in pairs.values():
            p.requires_grad_(True)
        lp = logprobs(m, ids)
        lp.mean().backward()
        got = {"title": title, "ids": ids, "logprobs": [round(x, 9) for x in lp.tolist()], "tensors": {}, "gradient": {}}
        for name, p in pairs.items():
            v = p.grad.flatten()
            at = [0, v.numel() // 3, v.numel() - 1]
            got["gradient"][name] = {"norm": float(v.norm()), "at": at, "values": [float(v[i]) for i in at]}
        with tempfile.TemporaryDirectory() as d:
            m.save_pretrained(d)
            with open(os.path.join(d, "adapter_config.json")) as f:
                got["config"] = json.load(f)
            for name, t in load_file(os.path.join(d, "adapter_model.safetensors")).items():
                assert torch.equal(t.float(), families.draw(name, tuple(t.shape)).reshape(t.shape)), name
                got["tensors"][name] = list(t.shape)
            assert set(got["tensors"]) == set(pairs), title
            again = PeftModel.from_pretrained(base(entry), d).eval()
            with torch.no_grad():
                assert (logprobs(again, ids) - lp).abs().max() < 1e-9, title
        for key in ("target_modules", "target_parameters"):
            got["config"][key] = sorted(got["config"][key] or [])
        got["config"]["base_model_name_or_path"] = ""
        out.append(got)
        print(title, len(pairs))
    with gzip.GzipFile(os.path.join(POLICY, "lora-experts.json.gz"), "w", mtime=0) as f:
        f.write(json.dumps(out).encode())


if __name__ == "__main__":
    main()
