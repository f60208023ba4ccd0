"""Times what bench/images does, with transformers' image processor on one thread.

    images_peer.py make FOLDER        the files
    images_peer.py time ROUNDS FILE…  a JSON line for each: the median in milliseconds
"""
import json
import pathlib
import statistics
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


def measure(rounds, files):
    import torch
    from PIL import Image
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

    torch.set_num_threads(1)
    processor = Qwen2VLImageProcessor()
    for path in files:
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            processor(Image.open(path), return_tensors="pt")
            times.append(1000 * (time.perf_counter() - start))
        print(json.dumps({"file": path, "ms": statistics.median(times)}))


if sys.argv[1] == "make":
    make(sys.argv[2])
else:
    measure(int(sys.argv[2]), sys.argv[3:])
