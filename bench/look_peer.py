"""The recipe of bench/look.sh in plain PyTorch, for comparison: the same model, the same rows, as
many updates, a key-value cache for the first reply.

    python bench/look_peer.py FOLDER/seed-N [STEPS]     (transformers, torch, pyarrow, pillow)

FOLDER/seed-N is what bench/look.sh leaves: init/ and the demonstrations.
GRPO draws its problems from scenes.parquet and measures on its first 256:
    agentcli rollout -d fineprint --split places --seed 99 --limit 576 -n 1 --model replay:FOLDER/seed-N/init -o …/scenes.parquet
"""

import io
import json
import math
import sys
import time

import numpy as np
import pyarrow.parquet as pq
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoTokenizer, DynamicCache

FOLDER, STEPS = sys.argv[1], int((sys.argv[2:] + ["20"])[0])
SEED = int(FOLDER.rstrip("/").split("-")[-1])
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)
tok = AutoTokenizer.from_pretrained(FOLDER + "/init")
model = AutoModelForImageTextToText.from_pretrained(FOLDER + "/init").float()
config = model.config
PAD, END = config.image_token_id, tok.convert_tokens_to_ids("<|im_end|>")
HIDDEN = torch.tensor([config.vision_start_token_id, config.vision_end_token_id, PAD, config.video_token_id])
GRID = torch.tensor([1, 8, 8])
MEAN = torch.tensor([.48145466, .4578275, .40821073]).view(3, 1, 1)
STD = torch.tensor([.26862954, .26130258, .27577711]).view(3, 1, 1)


def patches(image):
    """[64, 1176], as the processor makes them of an image at 112 × 112."""
    t = torch.from_numpy(image).permute(2, 0, 1)[None]
    x = torch.nn.functional.interpolate(t, (112, 112), mode="bicubic", antialias=True)[0].float()
    x = ((x / 255 - MEAN) / STD)[None].repeat(2, 1, 1, 1)
    return x.reshape(1, 2, 3, 4, 2, 14, 4, 2, 14).permute(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(64, -1)


def positions(ids, known={}):
    key = tuple(i == PAD for i in ids)
    if key not in known:
        p, at, i = torch.zeros(3, len(ids), dtype=torch.long), 0, 0
        while i < len(ids):
            if ids[i] == PAD:
                for k in range(16):
                    p[:, i + k] = torch.tensor([at, at + k // 4, at + k % 4])
                i, at = i + 16, at + 4
            else:
                p[:, i] = at
                i, at = i + 1, at + 1
        known[key] = p
    return known[key]


def encode(images):
    """[images, 16, hidden]"""
    x = torch.cat(images)
    return model.model.visual(x, GRID[None].expand(len(images), 3)).pooler_output.reshape(len(images), 16, -1)


def forward(sequences, features):
    """ids [sequences, longest], hidden states; features are those of all images in order"""
    longest = max(map(len, sequences))
    ids = torch.full((len(sequences), longest), config.text_config.pad_token_id)
    pos = torch.zeros(3, len(sequences), longest, dtype=torch.long)
    for i, s in enumerate(sequences):
        ids[i, :len(s)], pos[:, i, :len(s)] = torch.tensor(s), positions(s)
    h = model.model.get_input_embeddings()(ids)
    h = h.masked_scatter((ids == PAD)[..., None].expand_as(h), features.reshape(-1))
    return ids, model.model.language_model(inputs_embeds=h, position_ids=pos, use_cache=False).last_hidden_state


def logits(h):
    return model.lm_head(h).index_fill(-1, HIDDEN, -1e30)


def logprobs(ids, h, spans):
    """those of the tokens in spans (sequence, from, to), and the sequence of each"""
    row = torch.tensor([s for s, a, b in spans for _ in range(a, b)])
    at = torch.tensor([t for _, a, b in spans for t in range(a, b)])
    return torch.log_softmax(logits(h[row, at - 1]), -1).gather(1, ids[row, at][:, None])[:, 0], row


def rows(path, keep=False):
    """(ids, spans, patches of the images, image or None, answer)"""
    out = []
    for batch in pq.ParquetFile(path).iter_batches(64, columns=["sequences", "images", "messages", "answer", "steps"]):
        for r in batch.to_pylist():
            files = {ref["image"]: im["bytes"] for m in r["messages"] for im, ref in zip(m["images"], m["image_refs"]) if im and im["bytes"]}
            whole = np.array(Image.open(io.BytesIO(files[0])).convert("RGB"))
            images = []
            for im in r["images"]:
                x0, y0, x1, y1 = im["box"] or (0, 0, *whole.shape[1::-1])
                images.append(patches(np.ascontiguousarray(whole[y0:y1, x0:x1])))
            s = r["sequences"][0]
            answer = r["answer"][0] if isinstance(r["answer"], list) else r["answer"]
            out.append((s["token_ids"], [(t["start"], t["end"]) for t in r["steps"]], images, whole if keep else None, answer))
    return out


def optimiser(lr, decay):
    matrices = [p for p in model.parameters() if p.ndim > 1]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": decay}, {"params": [p for p in model.parameters() if p.ndim < 2]}],
                             lr=lr, betas=(.9, .99), weight_decay=0.)


def update(opt, loss):
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.)
    opt.step()


def sft(data, cosine, batch=32, lr=7e-4):
    opt, order = optimiser(lr, .01), rng.permutation(len(data))
    steps = math.ceil(len(data) / batch)
    for step in range(steps):
        for g in opt.param_groups:
            g["lr"] = lr * (step + 1) / 10 if step < 10 else lr * (.5 * (1 + math.cos(math.pi * (step - 10) / (steps - 10))) if cosine else 1)
        some = [data[i] for i in order[step * batch:(step + 1) * batch]]
        ids, h = forward([r[0] for r in some], encode([p for r in some for p in r[2]]))
        lp, _ = logprobs(ids, h, [(i, a, b) for i, r in enumerate(some) for a, b in r[1]])
        update(opt, -lp.mean())


def box_of(reply):
    try:
        text = reply.split("<tool_call>")[1].split("</tool_call>")[0]
        box = json.loads(text)["arguments"]["bbox_2d"]
        x0, y0, x1, y1 = (min(max(6 * v, 0), 672) for v in box)
        if x0 >= x1 or y0 >= y1:
            return None
        grow = lambda a, b: (a, b) if b - a >= 28 else (lambda c: (c, c + 28))(min(max((a + b - 28) // 2, 0), 644))
        return (*grow(x0, x1), *grow(y0, y1))
    except (ValueError, KeyError, TypeError, IndexError):
        return None


BRIDGE = tok("\n<|im_start|>user\n<tool_response>\n<|vision_start|>" + "<|image_pad|>" * 16 +
             "<|vision_end|>\n</tool_response><|im_end|>\n<|im_start|>assistant\n")["input_ids"]


@torch.no_grad()
def play(scenes, n, temperature):
    """trajectories: ids, spans, images' patches, reward, whether it looked"""
    draw = lambda z: z.argmax(-1) if temperature == 0 else torch.multinomial(torch.softmax(z / temperature, -1), 1)[:, 0]
    prompt = scenes[0][0][:scenes[0][1][0][0]]
    owner = [i for i in range(len(scenes)) for _ in range(n)]
    features = encode([s[2][0] for s in scenes])[owner]
    x = torch.tensor([prompt] * len(owner))
    h = model.model.get_input_embeddings()(x).masked_scatter((x == PAD)[..., None].expand(-1, -1, features.shape[-1]), features.reshape(-1))
    pos, cache = positions(prompt), DynamicCache()
    said, done, at = [[] for _ in owner], [False] * len(owner), int(pos.max()) + 1
    out = model.model.language_model(inputs_embeds=h, position_ids=pos[:, None].expand(3, len(owner), -1), past_key_values=cache, use_cache=True)
    for t in range(40):
        ids = draw(logits(out.last_hidden_state[:, -1]))
        for i, v in enumerate(ids.tolist()):
            if not done[i]:
                said[i].append(v)
                done[i] = v == END
        if all(done):
            break
        out = model.model.language_model(inputs_embeds=model.model.get_input_embeddings()(ids[:, None]), past_key_values=cache,
                                         position_ids=torch.full((3, len(owner), 1), at + t), use_cache=True)
    result, second = [], []
    for i, k in enumerate(owner):
        reply = tok.decode(said[i][:-1])
        r = {"ids": prompt + said[i], "spans": [(len(prompt), len(prompt) + len(said[i]))], "images": [scenes[k][2][0]],
             "reward": float(reply == scenes[k][4]), "looked": False}
        box = box_of(reply) if "<tool_call>" in reply else None
        if box:
            x0, x1, y0, y1 = box
            r.update(ids=r["ids"] + BRIDGE, looked=True, reward=0., answer=scenes[k][4])
            r["images"] = r["images"] + [patches(np.ascontiguousarray(scenes[k][3][y0:y1, x0:x1]))]
            second.append(r)
        result.append(r)
    for _ in range(2):
        live = [r for r in second if r["ids"][-1] != END or len(r["spans"]) == 1]
        if not live:
            break
        _, h = forward([r["ids"] for r in live], encode([p for r in live for p in r["images"]]))
        ids = draw(logits(torch.stack([h[i, len(r["ids"]) - 1] for i, r in enumerate(live)])))
        for r, v in zip(live, ids.tolist()):
            if len(r["spans"]) == 1:
                r["spans"].append((len(r["ids"]), 0))
            r["ids"] = r["ids"] + [v]
            r["spans"][1] = (r["spans"][1][0], len(r["ids"]))
    for r in second:
        a, b = r["spans"][1]
        r["reward"] = float(tok.decode(r["ids"][a:b]) == r["answer"] + "<|im_end|>")
    return result


def grpo(scenes, steps, tasks=16, n=8, lr=1e-4, epochs=2, clip=.2):
    opt = optimiser(lr, 0.)
    for step in range(steps):
        some = [scenes[i] for i in rng.choice(len(scenes), tasks, replace=False)]
        played = play(some, n, 1.)
        reward = np.array([r["reward"] for r in played]).reshape(tasks, n)
        advantage = ((reward - reward.mean(1, keepdims=True)) / (reward.std(1, ddof=1, keepdims=True) + 1e-6)).reshape(-1)
        total = sum(b - a for r in played for a, b in r["spans"])
        taught = [(r, a) for r, a in zip(played, advantage) if abs(a) > 1e-4]
        if taught:
            shown = {id(p): p for r, _ in taught for p in r["images"]}  # a scene's image once
            number = {key: i for i, key in enumerate(shown)}
            each = [number[id(p)] for r, _ in taught for p in r["images"]]
            for epoch in range(epochs):
                ids, h = forward([r["ids"] for r, _ in taught], encode(list(shown.values()))[each])
                lp, row = logprobs(ids, h, [(i, a, b) for i, (r, _) in enumerate(taught) for a, b in r["spans"]])
                if epoch == 0:
                    old = lp.detach()
                weight, ratio = torch.tensor([a for _, a in taught], dtype=torch.float32)[row], torch.exp(lp - old)
                update(opt, -torch.minimum(ratio * weight, ratio.clamp(1 - clip, 1 + clip) * weight).sum() / total)
        print(json.dumps({"step": step + 1, "reward": reward.mean(), "looks": np.mean([r["looked"] for r in played])}), flush=True)


def measure(name, scenes):
    for t in 1., 0.:
        played = [r for k in range(0, len(scenes), 64) for r in play(scenes[k:k + 64], 1, t)]
        print(json.dumps({"measured": name, "temperature": t, "accuracy": np.mean([r["reward"] for r in played]),
                          "looks": np.mean([r["looked"] for r in played])}), flush=True)


def main():
    begun = time.time()
    data = {name: rows(f"{FOLDER}/{name}.parquet", name == "scenes") for name in ("places", "crops", "glances", "again", "crops-again", "scenes")}
    sft(data["places"] + data["crops"], cosine=False)
    sft(data["glances"] + data["again"] + data["crops-again"], cosine=True)
    print(json.dumps({"cold_start_seconds": time.time() - begun, "cpu": time.process_time()}), flush=True)
    measure("before", data["scenes"][:256])
    at = time.time()
    grpo(data["scenes"][256:], STEPS)
    print(json.dumps({"grpo_seconds": time.time() - at}), flush=True)
    measure("after", data["scenes"][:256])
    print(json.dumps({"seconds": time.time() - begun, "cpu": time.process_time()}), flush=True)


main()
