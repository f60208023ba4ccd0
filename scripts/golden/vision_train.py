"""Make app/train/testdata/look/golden.json: what two steps of SFT, of GRPO and of PPO in plain
PyTorch make of a Qwen2.5-VL, from files of trajectories with images, each tensor's update.

usage: python scripts/golden/vision_train.py MODEL   (transformers 5.23, torch 2.11, Pillow, pyarrow)

MODEL is the folder of `agentcli model init --config examples/look/config.json --seed 5 -o MODEL`.
The files beside golden.json are of
    agentcli rollout -d fineprint --split train --limit 2 -n 3 --seed 3 --model MODEL --dtype float32 --max-tokens 24 \
        --reward exec:… -o grpo.parquet    (a program that rewards the attempts of a group with 0, .5 and 1)
    agentcli rollout -d fineprint --split traces --limit 4 -n 1 --seed 3 --model replay:MODEL -o sft.parquet
"""

import io
import json
import os
import sys

import pyarrow.parquet as pq
import torch
from PIL import Image
from transformers import AutoImageProcessor, Qwen2_5_VLForConditionalGeneration

HERE = os.path.join(os.path.dirname(__file__), "../../app/train/testdata/look")
LR, STEPS = 1e-3, 2
CASES = [("sft", "none"), ("sft", "merger"), ("sft", "all"), ("grpo", "none"), ("grpo", "all"), ("ppo", "none"), ("ppo", "all")]
FILES = {"sft": "sft.parquet", "grpo": "grpo.parquet", "ppo": "grpo.parquet"}
torch.set_num_threads(2)


def rows(name, processor):
    out = []
    for t in pq.read_table(os.path.join(HERE, name)).to_pylist():
        files = {}
        for m in t["messages"]:
            for im in m["images"] or []:
                if im and im["bytes"]:
                    files[len(files)] = im["bytes"]
        whole = {}
        for i, im in enumerate(t["images"]):
            if not im["source"]:
                data = im["bytes"] or files[len(whole)]
                whole[im["hash"]] = Image.open(io.BytesIO(data)).convert("RGB")
        images = [whole[im["hash"]] if not im["source"] else whole[im["source"]].crop(im["box"]) for im in t["images"]]
        for s in t["sequences"]:
            shown = [images[x["image"]] for x in s["images"]]
            p = processor(images=shown, return_tensors="pt")
            assert p["image_grid_thw"].tolist() == [x["grid"] for x in s["images"]]
            ids = torch.tensor([s["token_ids"]])
            kinds = torch.zeros_like(ids)
            for x in s["images"]:
                kinds[0, x["start"]:x["start"] + x["tokens"]] = 1
            out.append({"group": t["group_id"], "reward": t["reward"], "ids": ids, "mask": torch.tensor(s["loss_mask"]),
                        "args": {"pixel_values": p["pixel_values"].double(), "image_grid_thw": p["image_grid_thw"], "mm_token_type_ids": kinds}})
    return out


def logprobs(m, r):
    """Of the sampled tokens; the ids of images are not in the distribution."""
    z = m(input_ids=r["ids"], **r["args"], use_cache=False).logits[0, :-1]
    c = m.config
    z[:, [c.vision_start_token_id, c.vision_end_token_id, c.image_token_id, c.video_token_id]] = -torch.inf
    lp = torch.log_softmax(z, -1).gather(1, r["ids"][0, 1:].unsqueeze(1))[:, 0]
    return lp[r["mask"][1:]]


class Critic(torch.nn.Module):
    """The model with a value head that starts at 0, on the hidden state before each token."""

    def __init__(self, folder):
        super().__init__()
        self.model = load(folder).model
        self.score = torch.nn.Linear(self.model.config.text_config.hidden_size, 1, bias=False, dtype=torch.float64)
        torch.nn.init.zeros_(self.score.weight)

    def values(self, r):
        h = self.model(input_ids=r["ids"], **r["args"], use_cache=False).last_hidden_state[0, :-1]
        return self.score(h)[:, 0][r["mask"][1:]]


def load(folder):
    m = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
    m.get_input_embeddings().padding_idx = None  # no gradient reaches that row otherwise, though the token is in the texts
    return m


def train_part(m, part):
    for name, p in m.named_parameters():
        if "visual." in name:
            p.requires_grad_(part == "all" or part == "merger" and ".merger." in name)
    return {n: p.detach().clone() for n, p in m.named_parameters()}


def adamw(m):
    return torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=LR, betas=(.9, .95), eps=1e-8, weight_decay=0)


def step(m, opt):
    torch.nn.utils.clip_grad_norm_([p for p in m.parameters() if p.requires_grad], 1.)
    opt.step()


def updates_of(m, before):
    updates = {}
    for name, p in m.named_parameters():
        d = (p.detach() - before[name]).flatten()
        at = [0, d.numel() // 3, d.numel() // 2, d.numel() - 1]
        name = name.replace("model.visual.", "visual.").replace("model.language_model.", "model.")
        updates[name] = {"norm": float(d.norm()), "at": at, "values": [float(d[i]) for i in at]}
    return updates


def main(folder):
    processor = AutoImageProcessor.from_pretrained(folder)
    out = {"lr": LR, "steps": STEPS, "cases": []}
    for algo, part in CASES:
        m = load(folder)
        before = train_part(m, part)
        data = rows(FILES[algo], processor)
        n = sum(int(r["mask"].sum()) for r in data)
        if algo == "grpo":
            for r in data:
                scores = torch.tensor([x["reward"] for x in data if x["group"] == r["group"]], dtype=torch.float64)
                r["advantage"] = (r["reward"] - scores.mean()) / (scores.std() + 1e-6)
            with torch.no_grad():
                for r in data:
                    r["old"] = logprobs(m, r)
        critic = Critic(folder) if algo == "ppo" else None
        if critic:
            critic_before, critic_opt = train_part(critic, part), adamw(critic)
            with torch.no_grad():
                for r in data:
                    r["old"], r["value"] = logprobs(m, r), critic.values(r)
                    # GAE with gamma = lambda = 1 and the reward at the last sampled token: what is to come less the value.
                    r["return"] = torch.full_like(r["value"], r["reward"])
                    r["advantage"] = r["return"] - r["value"]
            all_ = torch.cat([r["advantage"] for r in data])
            for r in data:
                r["advantage"] = (r["advantage"] - all_.mean()) / (all_.var() + 1e-8).sqrt()
        opt = adamw(m)
        losses = []
        for _ in range(STEPS):
            opt.zero_grad()
            total = 0.
            for r in data:
                lp = logprobs(m, r)
                if algo == "sft":
                    loss = -lp.sum() / n
                else:
                    ratio, a = (lp - r["old"]).exp(), r["advantage"]
                    loss = torch.maximum(-a * ratio, -a * ratio.clamp(.8, 1.2)).sum() / n
                loss.backward()
                total += float(loss.detach())
            step(m, opt)
            losses.append(total)
            if critic:
                critic_opt.zero_grad()
                for r in data:
                    v = critic.values(r)
                    near = r["value"] + (v - r["value"]).clamp(-.2, .2)
                    loss = torch.maximum((v - r["return"]) ** 2, (near - r["return"]) ** 2).sum() / 2 / n
                    loss.backward()
                step(critic, critic_opt)
        case = {"algo": algo, "vision": part, "losses": losses, "updates": updates_of(m, before)}
        if critic:
            case["critic"] = updates_of(critic, critic_before)
        out["cases"].append(case)
        print(algo, part, losses)
    with open(os.path.join(HERE, "golden.json"), "w") as f:
        json.dump(out, f)
        f.write("\n")


main(sys.argv[1])
