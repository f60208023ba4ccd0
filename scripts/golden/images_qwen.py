"""What Qwen2-VL's image processor of transformers (the torchvision one) makes of pictures of
noise, and the sizes that smart_resize gives, for media/qwen.

Needs torch, torchvision and transformers. Writes media/qwen/testdata/processor.json: of each
picture grid and SHA-256 of the values, and sizes for which patches of 14 and 16 pixels,
other bounds and long sides matter. noise() is that of images_resize.py.
"""
import hashlib
import json
import pathlib
import random

import numpy as np
import torch
import torchvision
import transformers
from PIL import Image
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor, smart_resize

HALF = [0.5, 0.5, 0.5]
CONFIGS = [
    {},
    {"min_pixels": 3136, "max_pixels": 50176},
    {"size": {"shortest_edge": 65536, "longest_edge": 16777216}, "patch_size": 16, "image_mean": HALF, "image_std": HALF},
    {"min_pixels": 12544, "max_pixels": 12544, "merge_size": 1},
    {"patch_size": 8, "merge_size": 3, "temporal_patch_size": 1, "max_pixels": 100000},
]


def noise(seed, n):
    z = np.uint64(seed) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(56)).astype(np.uint8)


def main():
    torch.set_num_threads(1)
    rng = random.Random(18)
    pictures = []
    for i in range(60):
        config = CONFIGS[i % len(CONFIGS)]
        w, h = rng.choice([(rng.randint(1, 60), rng.randint(1, 60)), (rng.randint(20, 500), rng.randint(20, 500)), (rng.randint(5, 20), 900)])
        if max(w, h) > 200 * min(w, h):
            continue
        picture = Image.fromarray(noise(i, 3 * w * h).reshape(h, w, 3))
        out = Qwen2VLImageProcessor(**config)(picture, return_tensors="pt")
        values = out["pixel_values"].contiguous().numpy()
        assert values.dtype == np.float32
        pictures.append({"seed": i, "config": i % len(CONFIGS), "width": w, "height": h, "grid": out["image_grid_thw"][0].tolist(),
                         "shape": list(values.shape), "first": [float(v) for v in values[0, :4]],
                         "sha256": hashlib.sha256(values.tobytes()).hexdigest()})
    sizes = []
    for _ in range(3000):
        top = rng.choice([30, 300, 5000, 65535])
        h, w = rng.randint(1, top), rng.randint(1, top)
        factor = rng.choice([28, 28, 32])
        least = rng.choice([3136, 3136, 65536, rng.randint(1, 100000)])
        most = rng.choice([1003520, 12845056, 16777216, least + rng.randint(0, 1000000)])
        try:
            sizes.append([h, w, factor, least, most, *smart_resize(h, w, factor, least, most)])
        except ValueError:
            sizes.append([h, w, factor, least, most, 0, 0])
    # The sizes are many: a hash for each hundred.
    groups = [hashlib.sha256(json.dumps(sizes[i:i + 100]).replace(" ", "").encode()).hexdigest() for i in range(0, len(sizes), 100)]
    path = pathlib.Path(__file__).parents[2] / "media/qwen/testdata/processor.json"
    path.write_text(json.dumps({
        "versions": f"torch {torch.__version__}, torchvision {torchvision.__version__}, transformers {transformers.__version__}",
        "configs": CONFIGS, "pictures": pictures, "sizes": [s[:5] for s in sizes], "size_hashes": groups}, separators=(",", ":")) + "\n")


main()
