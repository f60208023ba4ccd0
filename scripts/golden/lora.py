"""Make policy/testdata/lora-*: LoRA adapters on policy/testdata/tiny-*, as PEFT
writes them, with PEFT's own log-probs, for the tests that read adapters.

usage: python scripts/golden/lora.py   (peft 0.21, transformers 5.23, torch 2.11)

With a folder as its argument it goes the other way round: it opens an adapter
that agentcli trained and prints the log-probs of its golden.json's ids as PEFT
computes them, and how far they are from those recorded there:

    python scripts/golden/lora.py DIR
"""

import json
import os
import shutil
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../policy/testdata")
KINDS = {
    "llama": dict(r=4, lora_alpha=8, target_modules="all-linear"),
    "qwen2": dict(r=2, lora_alpha=3, target_modules=["q_proj", "v_proj"], use_rslora=True),
    "qwen3": dict(r=3, lora_alpha=12, target_modules=["o_proj", "up_proj", "down_proj"], lora_dropout=0.1),
}


def logprobs(model, ids):
    with torch.no_grad():
        lp = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)
    return lp[:-1].gather(1, torch.tensor(ids)[1:, None])[:, 0].tolist()


def make():
    torch.manual_seed(1)
    for arch, how in KINDS.items():
        dst = os.path.join(HERE, "lora-" + arch)
        shutil.rmtree(dst, ignore_errors=True)
        base = AutoModelForCausalLM.from_pretrained(os.path.join(HERE, "tiny-" + arch), dtype=torch.float64)
        model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **how)).double().eval()
        with torch.no_grad():
            for name, p in model.named_parameters():
                if "lora_B" in name:  # zero at first: the adapter would do nothing
                    p.normal_(0, 0.3)
        model = model.float()
        model.save_pretrained(dst)
        path = os.path.join(dst, "adapter_config.json")
        with open(path) as f:
            config = json.load(f)
        config["base_model_name_or_path"] = "../tiny-" + arch
        config["target_modules"] = sorted(config["target_modules"])
        with open(path, "w") as f:
            json.dump(config, f, indent=2, sort_keys=True)
        os.remove(os.path.join(dst, "README.md"))
        model = model.double()
        golden = []
        for n in (2, 17, 60):
            ids = torch.randint(3, base.config.vocab_size, (n,)).tolist()
            golden.append(dict(dtype="float64", ids=ids, logprobs=logprobs(model, ids)))
        with open(os.path.join(dst, "golden.json"), "w") as f:
            json.dump(golden, f)


def check(folder):
    with open(os.path.join(folder, "adapter_config.json")) as f:
        base = json.load(f)["base_model_name_or_path"]
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), folder).double().eval()
    with open(os.path.join(folder, "golden.json")) as f:
        for g in json.load(f):
            ours = g["logprobs"]
            theirs = logprobs(model, g["ids"])
            print(json.dumps(dict(tokens=len(g["ids"]), worst=max(abs(a - b) for a, b in zip(ours, theirs)), moved=max(
                abs(a - b) for a, b in zip(theirs, g.get("before", theirs))))))


if __name__ == "__main__":
    check(sys.argv[1]) if len(sys.argv) > 1 else make()
