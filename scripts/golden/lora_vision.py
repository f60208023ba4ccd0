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
import warnings

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from PIL import Image
from safetensors.torch import load_file
from transformers import AutoConfig, AutoImageProcessor, AutoModelForImageTextToText

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


def check(agentcli, folder):
    def run(*args, **more):
        return subprocess.run([agentcli, *args], check=True, capture_output=True, text=True, **more).stdout

    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    os.makedirs(folder, exist_ok=True)
    model, rows, tuned, whole = (os.path.join(folder, n) for n in ("base", "sft.parquet", "tuned", "whole"))
    run("model", "init", "--config", os.path.join(root, "examples/look/config.json"), "--seed", "5", "-o", model)
    run("rollout", "-d", "fineprint", "--split", "traces", "--limit", "4", "-n", "1", "--seed", "3", "--model", "replay:" + model, "-o", rows)
    run("train", rows, "--algo", "sft", "--model", model, "--lora-rank", "4", "--lora-targets", "all-linear,vision", "--epochs", "3",
        "--lr", "1e-2", "--dtype", "float32", "-o", tuned)
    run("model", "convert", tuned, whole, "--merge")
    file = os.path.join(folder, "picture.png")
    noise = np.random.default_rng(0).integers(0, 255, (90, 200, 3), dtype=np.uint8)
    Image.fromarray(noise).save(file)
    px = AutoImageProcessor.from_pretrained(model)(images=[Image.open(file).convert("RGB")], return_tensors="pt")

    def load(path):
        return AutoModelForImageTextToText.from_pretrained(path, attn_implementation="eager", dtype=torch.float32).eval()

    plain = load(model)
    c, n = plain.config, int(px["image_grid_thw"].prod()) // 4
    ids = [5, 6, c.vision_start_token_id] + [c.image_token_id] * n + [c.vision_end_token_id, *range(7, 27)]
    args = dict(input_ids=torch.tensor([ids]), mm_token_type_ids=torch.tensor([[int(i == c.image_token_id) for i in ids]]), use_cache=False, **px)

    def of(m):
        with torch.no_grad():
            lp = torch.log_softmax(m(**args).logits[0, :-1].double(), -1)
        return lp.gather(1, torch.tensor(ids[1:])[:, None])[:, 0].numpy()

    before, merged = of(plain), of(load(whole))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # PEFT warns of tensors that it misses or does not know
        adapted = PeftModel.from_pretrained(plain, tuned).eval()
    theirs = of(adapted)
    ours = np.array(json.loads(run("model", "logprobs", tuned, input=json.dumps({"token_ids": ids, "images": [file]})))["logprobs"])
    on = {n.split(".lora_")[0] for n, _ in adapted.named_parameters() if ".lora_" in n}
    saw = sum(".visual." in n for n in on)
    print(f"{len(on)} modules, {saw} of the encoder; log-probs of PEFT: {np.abs(theirs - ours).max():.1e} from ours at most, "
          f"{np.abs(theirs - merged).max():.1e} from the merged model's in transformers, {np.abs(theirs - before).max():.1e} from the base's")


if __name__ == "__main__":
    check(*sys.argv[1:]) if len(sys.argv) > 1 else make()
