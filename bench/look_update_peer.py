"""One GRPO step over the rows of a trajectory file with images in plain PyTorch, for
bench/look_update.sh.

    python bench/look_update_peer.py MODEL-DIR FILE.parquet [--micro-tokens 4096] [--freeze-vision]

What bench/train_peer.py does for text, with transformers' model for images and text: rows sorted by
length into padded micro-batches, their images through the encoder in each of them, logits of the
trained positions only, rows whose advantage is 0 left out, the clipped loss over the mean of all
tokens, gradient clipping, fused AdamW, in float32. Images are decoded, cut and made into patches
before the clock starts. Prints one JSON object.
"""
import argparse, io, json, os, resource, time

os.environ["TQDM_DISABLE"] = "1"

import pyarrow.parquet as pq
import torch
import transformers
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForImageTextToText

from train_peer import advantages, clipped_loss, micro_batches, padded


def pictures(row):
    """The images of a row as Pillow's, by their number: files, and what is cut from them."""
    parts = [p["bytes"] for m in row["messages"] for p in (m["images"] or []) if p and p["bytes"]]
    files = {im["hash"]: Image.open(io.BytesIO(b)).convert("RGB")
             for im, b in zip((im for im in row["images"] if im["source"] is None), parts)}
    return [files[im["hash"]] if im["source"] is None else files[im["source"]].crop(im["box"]) for im in row["images"]]


def rows_of(path, processor):
    """Sequences with masks, log-probs, the advantages of GRPO, and the patches and grids of their images."""
    t = pq.read_table(path, columns=["group_id", "reward", "sequences", "images", "messages"]).to_pylist()
    out = []
    for r, advantage in advantages(t):
        have = pictures(r)
        for q in r["sequences"]:
            made = [processor(images=have[i["image"]], return_tensors="pt") for i in q["images"]]
            for i, m in zip(q["images"], made):
                assert list(m["image_grid_thw"][0]) == list(i["grid"]), (i, m["image_grid_thw"])
            out.append((q["token_ids"], q["loss_mask"], q["logprobs"], advantage,
                        [m["pixel_values"] for m in made], [m["image_grid_thw"] for m in made]))
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("model")
    p.add_argument("file")
    p.add_argument("--micro-tokens", type=int, default=4096)
    p.add_argument("--freeze-vision", action="store_true")
    p.add_argument("--lr", type=float, default=1e-6)
    a = p.parse_args()
    torch.set_num_threads(os.cpu_count())
    transformers.logging.set_verbosity_error()
    model = AutoModelForImageTextToText.from_pretrained(a.model, dtype=torch.float32).train()
    if a.freeze_vision:
        for w in model.model.visual.parameters():
            w.requires_grad_(False)
    weights = [w for w in model.parameters() if w.requires_grad]
    opt = torch.optim.AdamW(weights, lr=a.lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    rows = rows_of(a.file, AutoImageProcessor.from_pretrained(a.model))
    count = sum(sum(m) for _, m, *_ in rows)  # the denominator has all tokens that were sampled
    some = [r for r in rows if r[3] != 0]
    image = model.config.image_token_id

    begun = time.perf_counter()
    total = 0.0
    for mb in micro_batches(some, a.micro_tokens):
        ids, seen, own, old, adv = padded(mb)
        pixels, grids = [x for r in mb for x in r[4]], [x for r in mb for x in r[5]]
        kinds = (ids == image).int()
        hidden = model.model(input_ids=ids, attention_mask=seen, mm_token_type_ids=kinds, pixel_values=torch.cat(pixels),
                             image_grid_thw=torch.cat(grids), use_cache=False).last_hidden_state
        logits = model.lm_head(hidden[:, :-1][own[:, 1:]])
        loss = clipped_loss(logits, ids, own, old, adv) / count
        loss.backward()
        total += loss.item()
    norm = torch.nn.utils.clip_grad_norm_(weights, 1.0).item()
    opt.step()
    opt.zero_grad(set_to_none=True)
    seconds = time.perf_counter() - begun
    lengths = [len(r[0]) for r in some]
    print(json.dumps({
        "seconds": seconds, "loss": total, "grad_norm": norm, "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "rows": len(some), "of": len(rows), "tokens": sum(lengths), "shortest": min(lengths), "longest": max(lengths),
        "trained": sum(sum(m) for _, m, *_ in some), "images": sum(len(r[4]) for r in some),
    }))


if __name__ == "__main__":
    main()
