"""What Pillow's Image.rotate(angle, expand=True) makes of images: media/raster/testdata/rotate.json.

    images_rotate.py

Needs Pillow 13 and numpy. Pixel (x, y) of an image has the colour (x, y, 7x + 11y + 1), each modulo 256.
"""
import hashlib
import json
import pathlib

import numpy as np
from PIL import Image

SIZES = [(1, 1), (1, 40), (40, 1), (2, 3), (7, 5), (64, 64), (97, 61), (61, 97), (256, 200), (301, 17)]
ANGLES = [0, 90, 180, 270, 360, -90, -180, -270, 450, 720, 1, -1, 30, 45, 60, 89.5, 120, 135, 150, 179, 200.25, 225, 300, 315, 330, 359,
          -30, 1e-20, -1e-20, 1e-13, 180.00000000000003, 89.99999999999999, 90.00000000000001, 1e6, -123456.789, 1e300]
TALL = [((3, 33000), 0.02), ((3, 33000), 0.01), ((33000, 2), 0.005)]  # places that do not fit in 16 bits


def picture(w, h):
    y, x = np.mgrid[0:h, 0:w]
    return Image.fromarray(np.stack([x % 256, y % 256, (7 * x + 11 * y + 1) % 256], -1).astype(np.uint8))


def row(w, h, angle):
    im = picture(w, h).rotate(angle, expand=True)
    return {"width": w, "height": h, "angle": angle, "rotated": list(im.size), "sha256": hashlib.sha256(im.tobytes()).hexdigest()}


r = np.random.default_rng(18)
rows = [row(w, h, a) for w, h in SIZES for a in ANGLES] + [row(w, h, a) for (w, h), a in TALL]
rows += [row(*(int(n) for n in r.integers(1, 160, 2)), float(r.uniform(-400, 400))) for _ in range(300)]
rows += [row(*(int(n) for n in r.integers(1, 160, 2)), int(r.integers(0, 360))) for _ in range(100)]
out = pathlib.Path(__file__).parents[2] / "media/raster/testdata/rotate.json"
out.parent.mkdir(exist_ok=True)
out.write_text("[\n" + ",\n".join(json.dumps(x) for x in rows) + "\n]\n")
