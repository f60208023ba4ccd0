"""Make model/weights/testdata/random_init.json.gz: what transformers gives the tensors of a new
model of each configuration of model/arch/archtest and policy/testdata/vision.json.gz.

usage: python scripts/golden/random_init.py   (transformers 5.23, torch 2.11)

A tensor is its value where all its numbers are one, else [deviation, rows that are 0].
"""

import glob
import gzip
import json
import os
import tempfile

import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

ROOT = os.path.join(os.path.dirname(__file__), "../..")
RANGE = 0.0625


def with_range(config, vision):
    config = dict(config, initializer_range=RANGE)
    for key, value in (("text_config", RANGE), ("vision_config", RANGE / 2)):
        if key in config and vision:
            config[key] = dict(config[key], initializer_range=value)
    return config


def said(t):
    t = t.float()
    if bool((t == t.flatten()[0]).all()):
        return t.flatten()[0].item()
    zero = (t.reshape(t.shape[0], -1) == 0).all(1).nonzero().flatten().tolist()
    return [round(t.std().item(), 5), zero]


def main():
    out = []
    files = sorted(glob.glob(ROOT + "/model/arch/archtest/*.json.gz")) + [ROOT + "/policy/testdata/vision.json.gz"]
    for path in files:
        vision = path.endswith("vision.json.gz")
        for m in json.load(gzip.open(path)):
            title, config = m.get("Title") or m["title"], with_range(m.get("Config") or m["config"], vision)
            torch.manual_seed(1)
            with tempfile.TemporaryDirectory() as d:
                json.dump(config, open(d + "/config.json", "w"))
                c = AutoConfig.from_pretrained(d)
                model = (AutoModelForImageTextToText if vision else AutoModelForCausalLM).from_config(c, dtype=torch.float32)
                model.save_pretrained(d + "/m")
                tensors = {}
                for f in glob.glob(d + "/m/*.safetensors"):
                    with safe_open(f, "pt") as t:
                        tensors.update({k: said(t.get_tensor(k)) for k in t.keys()})
            out.append({"title": title, "config": config, "tensors": tensors})
    with gzip.GzipFile(ROOT + "/model/weights/testdata/random_init.json.gz", "w", mtime=0) as f:
        f.write(json.dumps(out, sort_keys=True).encode())


main()
