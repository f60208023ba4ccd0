"""Compare models that take images, from image files to log-probs, with transformers: random small
Qwen2-VL, Qwen2.5-VL and Qwen3-VL that transformers wrote, and what `model convert` wrote of them,
opened by transformers.

usage: python scripts/golden/vision_saved.py AGENTCLI FOLDER   (transformers 5.23, torch 2.11, torchvision 0.26)
"""

import json
import os
import subprocess
import sys

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForImageTextToText, Qwen2VLImageProcessor

PAD, START, END = 91, 93, 94
TEXT = dict(vocab_size=96, hidden_size=192, intermediate_size=512, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=2,
            max_position_embeddings=2048, bos_token_id=1, eos_token_id=2, pad_token_id=0)
VISION = dict(depth=4, num_heads=4, patch_size=14, spatial_merge_size=2, temporal_patch_size=2, in_channels=3)


def rope(*section, **more):
    return dict(rope_type="default", rope_theta=10000.0, mrope_section=list(section), **more)


KINDS = {
    "qwen2_vl": (dict(TEXT, rope_parameters=rope(4, 6, 6)), dict(VISION, embed_dim=128, hidden_size=192, mlp_ratio=2)),
    "qwen2_5_vl": (dict(TEXT, rope_parameters=rope(4, 6, 6)),
                   dict(VISION, hidden_size=128, intermediate_size=256, window_size=112, fullatt_block_indexes=[1, 3], out_hidden_size=192)),
    "qwen3_vl": (dict(TEXT, head_dim=32, rope_parameters=rope(6, 5, 5, mrope_interleaved=True)),
                 dict(VISION, patch_size=16, hidden_size=128, intermediate_size=256, num_position_embeddings=2304,
                      deepstack_visual_indexes=[0, 2], out_hidden_size=192)),
}


def pictures(folder):
    y, x = np.mgrid[0:300, 0:421]
    soft = np.stack([x * 255 // 421, y * 255 // 300, (x * y) % 255], -1).astype(np.uint8)
    noise = np.random.default_rng(0).integers(0, 255, (90, 200, 3), dtype=np.uint8)
    files = [f"{folder}/soft.jpg", f"{folder}/noise.png"]
    Image.fromarray(soft).save(files[0], quality=90)
    Image.fromarray(noise).save(files[1])
    return files


def write(kind, folder):
    text, vision = KINDS[kind]
    cfg = AutoConfig.for_model(kind, text_config=text, vision_config=vision, image_token_id=PAD, video_token_id=92,
                               vision_start_token_id=START, vision_end_token_id=END)
    torch.manual_seed(0)
    m = AutoModelForImageTextToText.from_config(cfg, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, p in m.named_parameters():
            if p.dim() > 1:
                p.normal_(0, 0.08)
            else:
                p.copy_((1 if "norm" in name and name.endswith("weight") else 0) + 0.1 * torch.randn_like(p))
    m.save_pretrained(folder)
    side = vision["patch_size"] * 2
    json.dump(dict(image_processor_type="Qwen2VLImageProcessor", patch_size=vision["patch_size"], merge_size=2, temporal_patch_size=2,
                   min_pixels=4 * side * side, max_pixels=64 * side * side), open(f"{folder}/preprocessor_config.json", "w"))
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())[:90]
    tok = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[]))
    tok.pre_tokenizer, tok.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tok.save(f"{folder}/tokenizer.json")
    return m


def main(agentcli, out):
    os.makedirs(out, exist_ok=True)
    files = pictures(out)
    for kind in KINDS:
        folder = f"{out}/{kind}"
        m = write(kind, folder)
        px = Qwen2VLImageProcessor.from_pretrained(folder)([Image.open(f).convert("RGB") for f in files], return_tensors="pt")
        places = [int(g.prod()) // 4 for g in px["image_grid_thw"]]
        ids = [5, 6, START] + [PAD] * places[0] + [END, 7, 8, START] + [PAD] * places[1] + [END, 9, 10, 11, 12]
        args = dict(input_ids=torch.tensor([ids]), mm_token_type_ids=torch.tensor([[int(i == PAD) for i in ids]]), use_cache=False, **px)
        with torch.no_grad():
            logits = m(**args).logits[0]
        want = torch.log_softmax(logits.double(), -1)[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0].numpy()
        line = json.dumps({"token_ids": ids, "images": files})
        r = subprocess.run([agentcli, "model", "logprobs", folder], input=line, capture_output=True, text=True, check=True)
        d = np.abs(np.array(json.loads(r.stdout)["logprobs"]) - want)
        subprocess.run([agentcli, "model", "convert", folder, f"{folder}-ours"], check=True, capture_output=True)
        ours = AutoModelForImageTextToText.from_pretrained(f"{folder}-ours", attn_implementation="eager", dtype=torch.float32).eval()
        with torch.no_grad():
            back = (ours(**args).logits[0] - logits).abs().max().item()
        print(f"{kind}: log-probs {d.mean():.1e} on average, {d.max():.1e} at most; logits of the file we wrote {back:.1e}")


main(*sys.argv[1:])
