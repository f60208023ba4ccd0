"""Make policy/testdata/vision.json.gz: small random Qwen2-VL, Qwen2.5-VL and Qwen3-VL models, as
config.json and tensors' names, with what transformers says of texts with images: features of
the encoder, positions, log-probs in float32 and float64, greedy tokens, gradients.

usage: python scripts/golden/vision.py   (transformers 5.23, torch 2.11)

Tensors and patches are not in the file: both sides draw them (draw), so that it stays small.
"""

import glob
import gzip
import json
import math
import os
import tempfile

import numpy as np
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForImageTextToText

HERE = os.path.join(os.path.dirname(__file__), "../../policy/testdata")
VOCAB, PAD_ID = 96, 91
IDS = dict(image_token_id=PAD_ID, video_token_id=92, vision_start_token_id=93, vision_end_token_id=94)
TEXT = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=512, bos_token_id=1, eos_token_id=2, pad_token_id=0)
VISION = dict(depth=4, num_heads=2, patch_size=4, spatial_merge_size=2, temporal_patch_size=2, in_channels=3)


def rope(*section, **more):
    return dict(rope_type="default", rope_theta=10000.0, mrope_section=list(section), **more)


MODELS = [
    ("qwen2_5_vl", "qwen2_5_vl", dict(TEXT, rope_parameters=rope(1, 1, 2)),
     dict(VISION, hidden_size=32, intermediate_size=40, window_size=16, fullatt_block_indexes=[1, 3], out_hidden_size=32), {}),
    ("qwen2_5_vl of 4 x 192", "qwen2_5_vl",
     dict(TEXT, hidden_size=192, intermediate_size=512, num_attention_heads=6, rope_parameters=rope(4, 6, 6)),
     dict(VISION, hidden_size=128, num_heads=4, intermediate_size=256, patch_size=14, window_size=56, fullatt_block_indexes=[1, 3],
          out_hidden_size=192), dict(tie_word_embeddings=True)),
    ("qwen2_vl", "qwen2_vl", dict(TEXT, rope_parameters=rope(2, 1, 1)), dict(VISION, embed_dim=32, hidden_size=32, mlp_ratio=2), {}),
    ("qwen3_vl", "qwen3_vl", dict(TEXT, head_dim=12, rope_parameters=rope(2, 2, 2, mrope_interleaved=True)),
     dict(VISION, hidden_size=32, intermediate_size=40, num_position_embeddings=36, deepstack_visual_indexes=[0, 2], out_hidden_size=32), {}),
]

# Texts: numbers are runs of text, grids are images.
TEXTS = [
    [24],
    [5, (6, 10), 9],
    [(2, 2), (8, 6), 7, (6, 4), 12],
    [3, (10, 14), 1, (4, 2)],
    [3, (4, 4), 2, (2, 6), (6, 2), 5, (8, 4), 4],
]


def draw(name, shape):
    """Values that any language computes alike: splitmix64 from the FNV-1a hash of the name."""
    h = 0xCBF29CE484222325
    for b in name.encode():
        h = ((h ^ b) * 0x100000001B3) & (2**64 - 1)
    with np.errstate(over="ignore"):
        z = np.uint64(h) + np.arange(1, math.prod(shape) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    scale = 0.8
    if len(shape) > 1:
        scale = 0.6 * min(1.0, math.sqrt(32 / math.prod(shape[1:])))
    return torch.from_numpy((((z >> np.uint64(40)).astype(np.float64) / 2**24 - 0.5) * scale).astype(np.float32)).reshape(shape)


def patches(image, size):
    h, w = image
    return draw(f"image {h} {w}", (h * w, size)) * math.sqrt(size / 32) * 5


def joined(x):
    return x if torch.is_tensor(x) else torch.cat(list(x))


def ours(name):
    for prefix, to in (("model.visual.", "visual."), ("model.language_model.", "model.")):
        if name.startswith(prefix):
            return to + name[len(prefix):]
    return name


def inputs(m, text, size, seed):
    g = torch.Generator().manual_seed(seed)
    ids, kinds, images = [], [], []
    for part in text:
        if isinstance(part, int):
            ids += torch.randint(3, 90, (part,), generator=g).tolist()
            kinds += [0] * part
        else:
            n = part[0] * part[1] // 4
            images.append({"start": len(ids), "tokens": n, "grid": [1, *part]})
            ids += [PAD_ID] * n
            kinds += [1] * n
    args = {"input_ids": torch.tensor([ids]), "mm_token_type_ids": torch.tensor([kinds])}
    if images:
        args["pixel_values"] = torch.cat([patches(i["grid"][1:], size) for i in images]).to(m.dtype)
        args["image_grid_thw"] = torch.tensor([i["grid"] for i in images])
    return ids, images, args


def all_logits(m, text, size, seed, more=()):
    """Two images beside each other are one run of kinds: positions are computed image by image."""
    ids, images, args = inputs(m, text, size, seed)
    ids = ids + list(more)
    args["input_ids"] = torch.tensor([ids])
    pos = positions(m, len(ids), images)
    args.pop("mm_token_type_ids")
    return ids, images, pos, m(**args, position_ids=pos, use_cache=False).logits[0]


def positions(m, n, images):
    """By transformers, piece by piece."""
    out, at, cur = [], 0, 0
    for i in [*images, None]:
        end = i["start"] if i else n
        out.append(torch.arange(end - at).view(1, -1).expand(3, -1) + cur)
        cur += end - at
        at = end
        if i:
            out.append(m.model.get_vision_position_ids(cur, torch.tensor(i["grid"]), 1, 2))
            cur += max(i["grid"][1:]) // 2
            at += i["tokens"]
    return torch.cat(out, 1).unsqueeze(1)


def check_positions(m, text, size, seed):
    """get_rope_index itself, where no two images are neighbours."""
    if any(not isinstance(a, int) and not isinstance(b, int) for a, b in zip(text, text[1:])):
        return
    ids, images, args = inputs(m, text, size, seed)
    if images:
        got, _ = m.model.get_rope_index(args["input_ids"], args["mm_token_type_ids"], args["image_grid_thw"])
        assert torch.equal(got, positions(m, len(ids), images))


def old_style(kind, saved):
    """config.json as it was before transformers 4.52: the text model's keys at the top."""
    text = dict(saved["text_config"])
    p = text.pop("rope_parameters")
    vision = {k: v for k, v in saved["vision_config"].items() if k not in ("rope_parameters", "model_type", "dtype", "in_channels")}
    top = {k: v for k, v in saved.items() if k not in ("text_config", "vision_config")}
    out = {**text, **top, "rope_theta": p["rope_theta"], "rope_scaling": {"type": "mrope", "mrope_section": p["mrope_section"]},
           "vision_config": {**vision, "in_chans": 3}, "model_type": kind}
    out.pop("layer_types", None)
    c = AutoConfig.for_model(kind, **{k: v for k, v in out.items() if k != "model_type"})
    assert c.text_config.hidden_size == text["hidden_size"] and c.text_config.rope_parameters["mrope_section"] == p["mrope_section"]
    return out


def main():
    out = []
    for title, kind, text, vision, more in MODELS:
        cfg = AutoConfig.for_model(kind, text_config=text, vision_config=vision, **IDS, **more)
        m = AutoModelForImageTextToText.from_config(cfg, attn_implementation="eager").eval().float()
        with torch.no_grad():
            for name, p in m.named_parameters():
                p.copy_(draw(ours(name), tuple(p.shape)))
        m.tie_weights()
        with tempfile.TemporaryDirectory() as d:
            m.save_pretrained(d)
            saved = json.load(open(os.path.join(d, "config.json")))
            names = []
            for f in glob.glob(d + "/*.safetensors"):
                with safe_open(f, "pt") as t:
                    names += list(t.keys())
        size = 3 * 2 * vision["patch_size"] ** 2
        entry = {"title": title, "config": saved, "stored": sorted(names), "texts": []}
        if kind != "qwen3_vl":
            entry["old_config"] = old_style(kind, saved)
        entry["features"] = []
        for image in [(2, 2), (8, 6), (6, 10)]:
            with torch.no_grad():
                f = m.model.get_image_features(patches(image, size), torch.tensor([[1, *image]]))
            main_, deep = joined(f.pooler_output), list(getattr(f, "deepstack_features", None) or [])
            entry["features"].append({"grid": [1, *image], "values": [round(x, 6) for x in main_.flatten().tolist()],
                                      "deep": [[round(x, 6) for x in d.flatten().tolist()] for d in map(joined, deep)]})
        for n, t in enumerate(TEXTS):
            check_positions(m, t, size, n)
            e = {}
            for dtype in (torch.float32, torch.float64):
                m = m.to(dtype)
                with torch.no_grad():
                    ids, images, pos, logits = all_logits(m, t, size, n)
                lp = torch.log_softmax(logits[:-1].double(), -1).gather(1, torch.tensor(ids[1:]).unsqueeze(1))[:, 0]
                e[str(dtype).split(".")[1]] = [round(x, 9) for x in lp.tolist()]
            m = m.float()
            e.update(ids=ids, images=images, positions=pos[:, 0].tolist())
            greedy = []
            for _ in range(16):
                with torch.no_grad():
                    greedy.append(int(all_logits(m, t, size, n, greedy)[3][-1].argmax()))
            e["greedy"] = greedy
            entry["texts"].append(e)
        m = m.double()
        ids, _, _, logits = all_logits(m, TEXTS[2], size, 2)
        torch.log_softmax(logits[:-1], -1).gather(1, torch.tensor(ids[1:]).unsqueeze(1)).mean().backward()
        entry["gradient"] = {}
        for name, p in m.named_parameters():
            v = p.grad.flatten()
            at = [0, v.numel() // 3, v.numel() - 1]
            entry["gradient"][ours(name)] = {"norm": float(v.norm()), "at": at, "values": [float(v[i]) for i in at]}
        out.append(entry)
        print(title, entry["texts"][1]["float32"][:3], entry["texts"][3]["greedy"])
    with gzip.GzipFile(os.path.join(HERE, "vision.json.gz"), "w", mtime=0) as f:
        f.write(json.dumps(out).encode())


if __name__ == "__main__":
    main()
