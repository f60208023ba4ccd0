"""Make policy/testdata/lora-vision.json.gz: LoRA adapters on the encoders of the models of vision.py and on
their text models, as PEFT saves them, with the log-probs and the gradients that PEFT gives.

usage: python scripts/golden/lora_vision.py   (peft 0.21, transformers 5.23, torch 2.11)

The tensors are not in the file: both sides draw them by their names (draw in vision.py). What PEFT saved
is compared with them here, name by name, and a folder is read back by PEFT before it counts.

With the program and a folder as its arguments it goes the other way round: the program makes a model and
rows with images and trains adapters on text and encoder; PEFT opens them over their base, and says how far its
log-probs are from those of the program and from those of the base:

    python scripts/golden/lora_vision.py AGENTCLI FOLDER
"""

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForImageTextToText

import vision

TEXT = 2  # of vision.TEXTS: three images, two of them side by side
KINDS = [
    ("qwen2_5_vl", dict(r=2, lora_alpha=5, target_modules="all-linear")),
    ("qwen2_5_vl", dict(r=3, lora_alpha=4, target_modules=["q_proj", "gate_proj", "down_proj", "qkv"], use_rslora=True)),
    ("qwen2_5_vl of 4 x 192", dict(r=2, lora_alpha=4, target_modules=r".*visual.*(qkv|attn\.proj|gate_proj|up_proj|down_proj|mlp\.0|mlp\.2)")),
    ("qwen2_vl", dict(r=2, lora_alpha=4, target_modules=["v_proj", "o_proj", "qkv", "fc1", "fc2"])),
    ("qwen3_vl", dict(r=2, lora_alpha=6, target_modules="all-linear")),
    ("qwen3_vl", dict(r=1, lora_alpha=3, target_modules=r"model\.visual\.(blocks\.\d+\.mlp|merger|deepstack_merger_list\.\d+)\.linear_fc2")),
    ("qwen2_5_vl", dict(r=2, lora_alpha=4, target_modules=r"model\.language_model\..*(k_proj|up_proj)")),
]


def base(title):
    kind, text, seen, more = next(m[1:] for m in vision.MODELS if m[0] == title)
    cfg = AutoConfig.for_model(kind, text_config=text, vision_config=seen, **vision.IDS, **more)
    m = AutoModelForImageTextToText.from_config(cfg, attn_implementation="eager").eval().float()
    with torch.no_grad():
        for name, p in m.named_parameters():
            p.copy_(vision.draw(vision.ours(name), tuple(p.shape)))
    m.tie_weights()
    return m.double(), 3 * 2 * seen["patch_size"] ** 2


def logprobs(m, inner, size):
    """Of the text, by a model, or by PEFT's around it."""
    ids, images, args = vision.inputs(inner, vision.TEXTS[TEXT], size, TEXT)
    pos = vision.positions(inner, len(ids), images)
    args.pop("mm_token_type_ids")
    lp = torch.log_softmax(m(**args, position_ids=pos, use_cache=False).logits[0, :-1], -1)
    return ids, lp.gather(1, torch.tensor(ids[1:]).unsqueeze(1))[:, 0]


def make():
    out = []
    for title, how in KINDS:
        inner, size = base(title)
        m = get_peft_model(inner, LoraConfig(task_type="CAUSAL_LM", **how)).eval()
        pairs = {n.replace(".default.", "."): p for n, p in m.named_parameters() if ".lora_" in n}
        with torch.no_grad():
            for name, p in pairs.items():
                p.copy_(vision.draw(name, tuple(p.shape)))
        for p in pairs.values():
            p.data = p.data.double()
        ids, lp = logprobs(m, inner, size)
        lp.mean().backward()
        got = {"title": title, "text": TEXT, "ids": ids, "logprobs": [round(x, 9) for x in lp.tolist()], "tensors": {}, "gradient": {}}
        for name, p in pairs.items():
            v = p.grad.flatten()
            at = [0, v.numel() // 3, v.numel() - 1]
            got["gradient"][name] = {"norm": float(v.norm()), "at": at, "values": [float(v[i]) for i in at]}
        with tempfile.TemporaryDirectory() as d:
            m.save_pretrained(d)
            with open(os.path.join(d, "adapter_config.json")) as f:
                got["config"] = json.load(f)
            for name, t in load_file(os.path.join(d, "adapter_model.safetensors")).items():
                assert torch.equal(t.float(), vision.draw(name, tuple(t.shape))), name
                got["tensors"][name] = list(t.shape)
            assert set(got["tensors"]) == set(pairs), title
            again, _ = base(title)
            with torch.no_grad():
                assert (logprobs(PeftModel.from_pretrained(again, d).eval(), again, size)[1] - lp).abs().max() < 1e-9, title
        # What a pattern of PEFT must match, and nothing else.
        got["modules"] = sorted({re.sub(r"^base_model\.model\.|\.lora_[AB]\.weight$", "", n) for n in pairs})
        got["others"] = sorted(n for n, x in base(title)[0].named_modules() if n and n not in got["modules"])
        if isinstance(got["config"]["target_modules"], list):
            got["config"]["target_modules"].sort()
        got["config"]["base_model_name_or_path"] = ""
        out.append(got)
        print(title, len(pairs), got["config"]["target_modules"])
    with gzip.GzipFile(os.path.join(vision.HERE, "lora-vision.json.gz"), "w", mtime=0) as f:
        f.write(json.dumps(out).encode())


if __name__ == "__main__":
    make()
