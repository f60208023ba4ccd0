"""The processor time of what bench/images does, with transformers' image processor on one thread.

    images_peer.py make FOLDER                    the files
    images_peer.py compare IMAGES ROUNDS FILE...  each file with both, one after the other

IMAGES is the program of bench/images. The table has medians in milliseconds of processor time.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time


def make(folder):
    import numpy as np
    from PIL import Image

    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    r = np.random.default_rng(18)
    for name, (w, h) in {"0.3MP": (640, 480), "1.2MP": (1280, 960), "4.3MP": (2400, 1800)}.items():
        # Noise at four scales and a sensor's: about a photograph's bytes a pixel.
        a = r.normal(size=(h, w, 3)) * .05
        for s in (2, 8, 32, 128):
            n = r.normal(size=(h // s + 2, w // s + 2, 3)).astype(np.float32)
            a += np.stack([np.asarray(Image.fromarray(n[..., c]).resize((w, h), Image.BICUBIC)) for c in range(3)], -1) * (s / 128) ** .7
        im = Image.fromarray(np.clip(128 + a * 51 / a.std(), 0, 255).astype(np.uint8))
        im.save(folder / f"{name}.jpg", quality=85)
        im.save(folder / f"{name}-progressive.jpg", quality=85, progressive=True)
        im.save(folder / f"{name}.png")
        im.save(folder / f"{name}.webp", quality=80)
        im.save(folder / f"{name}-lossless.webp", lossless=True, method=2)
        im.save(folder / f"{name}.bmp")
        im.quantize(256).save(folder / f"{name}.gif")


def compare(program, rounds, files):
    import torch
    from PIL import Image
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

    torch.set_num_threads(1)
    processor = Qwen2VLImageProcessor()
    print("| file | agentcli, ms (decode, resize, patches) | transformers, ms | ratio |\n|---|---|---|---|")
    for path in files:
        times = []
        for _ in range(rounds):
            start = time.process_time()
            processor(Image.open(path), return_tensors="pt")
            times.append(1000 * (time.process_time() - start))
        theirs = statistics.median(times)
        ours = json.loads(subprocess.run([program, str(rounds), path], capture_output=True, check=True).stdout)
        print(f"| {os.path.basename(path)} | {ours['ms']:.1f} ({ours['decode_ms']:.1f}, {ours['resize_ms']:.1f}, {ours['patches_ms']:.1f}) "
              f"| {theirs:.1f} | {ours['ms'] / theirs:.2f} |")


if sys.argv[1] == "make":
    make(sys.argv[2])
else:
    compare(sys.argv[2], int(sys.argv[3]), sys.argv[4:])
