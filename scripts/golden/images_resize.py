"""What three libraries make of noise when they resize it, for media/resize.

Run once for each rule, with the library that it names: images_resize.py RULE [PAIRS]

    torchvision   torch (interpolate of uint8, bicubic, antialias; what torchvision calls)
    pillow        Pillow up to 12.2
    pillow13      Pillow 13

It puts the hashes into media/resize/testdata/resize.json: of each GROUP pairs of sizes one
SHA-256, of the pixels of all of them. noise() and sizes() are those of resize_test.go.
"""
import hashlib
import json
import pathlib
import sys

import numpy as np

GROUP = 20
MAXIMA = [8, 64, 300, 900]


def noise(seed, n):
    """n bytes: the highest ones of splitmix64."""
    z = np.uint64(seed) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(56)).astype(np.uint8)


def sizes(i):
    """Source and target of pair i: width, height, width, height."""
    b = [int(v) for v in noise((1 << 32) + i, 13)]
    side = lambda k, m: 1 + (256 * b[k] + b[k + 1]) % MAXIMA[b[m] % 4]
    w, h, to_w, to_h = side(1, 0), side(3, 0), side(5, 9), side(7, 10)
    return w, h, w if b[11] % 16 == 0 else to_w, h if b[12] % 16 == 0 else to_h


def picture(i, w, h):
    a = noise(i, 3 * w * h).reshape(h, w, 3)
    return np.where(a > 127, 255, 0).astype(np.uint8) if i % 3 == 0 else a


def resizer(rule):
    if rule == "torchvision":
        import torch

        def resize(a, w, h):
            if a.shape[:2] == (h, w):
                return a
            t = torch.from_numpy(a.copy()).permute(2, 0, 1)[None]
            t = torch.nn.functional.interpolate(t, size=(h, w), mode="bicubic", antialias=True)
            return t[0].permute(1, 2, 0).contiguous().numpy()

        return resize, torch.__version__
    import PIL
    from PIL import Image

    if (int(PIL.__version__.split(".")[0]) >= 13) != (rule == "pillow13"):
        sys.exit(f"Pillow {PIL.__version__} does not have the rule {rule}")
    return (lambda a, w, h: np.asarray(Image.fromarray(a).resize((w, h), Image.BICUBIC))), PIL.__version__


def main():
    rule, pairs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    resize, version = resizer(rule)
    hashes, group = [], hashlib.sha256()
    for i in range(pairs):
        w, h, to_w, to_h = sizes(i)
        group.update(resize(picture(i, w, h), to_w, to_h).tobytes())
        if (i + 1) % GROUP == 0:
            hashes.append(group.hexdigest())
            group = hashlib.sha256()
    path = pathlib.Path(__file__).parents[2] / "media/resize/testdata/resize.json"
    golden = json.loads(path.read_text()) if path.exists() else {}
    golden[rule] = {"version": version, "hashes": hashes}
    path.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")


main()
