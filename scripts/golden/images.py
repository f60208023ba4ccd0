"""Image files of every kind that media decodes, and what Pillow makes of them.

    images.py                 a few small files and the hashes of their pixels: media/testdata
    images.py FOLDER COUNT    COUNT files a kind (PNG, BMP, GIF, JPEG, WebP) and hashes.json

Needs Pillow 13 and numpy. PNG and BMP are written here in part, since Pillow does not write
all of their variants: PNG's colour types, depths, filters and interlace, transparent colours;
BMP's bits, masks, run lengths and directions.
"""
import hashlib
import io
import json
import pathlib
import struct
import sys
import zlib

import numpy as np
from PIL import Image, ImageOps

ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
PNG_KINDS = {"1": (0, 1), "L2": (0, 2), "L4": (0, 4), "L": (0, 8), "LA": (4, 8), "LA16": (4, 16), "P1": (3, 1), "P2": (3, 2),
             "P4": (3, 4), "P": (3, 8), "PA": (3, 8), "RGB": (2, 8), "RGB16": (2, 16), "RGBA": (6, 8), "RGBA16": (6, 16),
             "key1": (0, 1), "key2": (0, 2), "key4": (0, 4), "key8": (0, 8), "key24": (2, 8), "key48": (2, 16)}
MASKS = [(0xFF0000, 0xFF00, 0xFF, 0), (0xFF000000, 0xFF0000, 0xFF00, 0), (0xFF, 0xFF00, 0xFF0000, 0xFF000000),
         (0xFF0000, 0xFF00, 0xFF, 0xFF000000), (0xFF000000, 0xFF0000, 0xFF00, 0xFF)]


def rgb(im):
    """As a viewer shows it, transparency on white: transformers' convert_to_rgb behind exif_transpose."""
    im = ImageOps.exif_transpose(im)
    if "A" in im.getbands() or im.info.get("transparency") is not None:
        im = im.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", im.size, (255,) * 4), im).convert("RGB")
    return im.convert("RGB")


def picture(r, w, h, c):
    y, x = np.mgrid[0:h, 0:w]
    match r.integers(0, 4):
        case 0:
            a = r.integers(0, 256, (h, w, c))
        case 1:
            a = np.stack([(x * r.integers(1, 9) + y * r.integers(1, 9) + r.integers(0, 255)) % 256 for _ in range(c)], -1)
        case 2:
            a = np.stack([127 + 127 * np.sin(x / (3 + 20 * r.random()) + y / (3 + 20 * r.random())) for _ in range(c)], -1)
        case _:
            a = np.kron(r.integers(0, 256, (h // 8 + 1, w // 8 + 1, c)), np.ones((8, 8, 1)))[:h, :w]
    return a.astype(np.uint8)


def exif(r):
    e = Image.Exif()
    e[0x112] = int(r.integers(1, 9))
    return e


def chance(r, p):
    return bool(r.random() < p)


def some_bytes(r, n):
    return r.integers(0, 256, int(n)).astype(np.uint8).tobytes()


def png_rows(r, samples, depth):
    """The rows of an image or a pass, each with a filter of its own."""
    out, above = b"", None
    for row in samples:
        if depth == 16:
            packed = row.reshape(-1).astype(">u2").tobytes()
        elif depth == 8:
            packed = row.reshape(-1).astype(np.uint8).tobytes()
        else:
            bits = (row.reshape(-1)[:, None] >> np.arange(depth - 1, -1, -1)) & 1
            packed = np.packbits(bits.reshape(-1).astype(np.uint8)).tobytes()
        this = np.frombuffer(packed, np.uint8).astype(int)
        up = np.zeros_like(this) if above is None else above
        size = max(1, row.shape[-1] * depth // 8)
        shift = lambda a: np.concatenate([np.zeros(size, int), a])[:len(this)]
        left, corner = shift(this), shift(up)
        kind = int(r.integers(0, 5))
        if kind == 4:
            p = left + up - corner
            a, b, c = abs(p - left), abs(p - up), abs(p - corner)
            guess = np.where((a <= b) & (a <= c), left, np.where(b <= c, up, corner))
        else:
            guess = [0, left, up, (left + up) // 2][kind]
        out += bytes([kind]) + ((this - guess) % 256).astype(np.uint8).tobytes()
        above = this
    return out


def chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(r, w, h, kind):
    colour, depth = PNG_KINDS[kind]
    samples = picture(r, w, h, {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]).astype(int)
    if depth == 16:
        samples = samples * 257 ^ r.integers(0, 256, samples.shape)
    elif depth < 8:
        samples >>= 8 - depth
    extra = b""
    if colour == 3:
        n = int(r.integers(max(1, 2 ** depth // 2), 2 ** depth + 1))
        extra = chunk(b"PLTE", some_bytes(r, 3 * n))
        if kind == "PA" or chance(r, .3):
            extra += chunk(b"tRNS", some_bytes(r, r.integers(1, n + 1)))
    if kind.startswith("key"):
        extra = chunk(b"tRNS", samples[0, 0].astype(">u2").tobytes())
    if chance(r, .3):
        extra += chunk(b"eXIf", exif(r).tobytes()[6:])
    interlaced = int(r.integers(0, 2))
    passes = [samples[y::dy, x::dx] for x, y, dx, dy in ADAM7] if interlaced else [samples]
    z = zlib.compress(b"".join(png_rows(r, p, depth) for p in passes if p.size), int(r.integers(0, 10)))
    cut = len(z) // 2
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, depth, colour, 0, 0, interlaced)) + extra +
            chunk(b"IDAT", z[:cut]) + chunk(b"IDAT", z[cut:]) + chunk(b"IEND", b""))


def run_lengths(r, w, h, nibbles):
    out = b""
    for _ in range(h):
        x = 0
        while x < w:
            n, kind = int(min(w - x, r.integers(1, 40))), r.random()
            if kind < .4 or n < 3:
                out += bytes([n, int(r.integers(0, 256))])
            elif kind < .9:
                size = (n + 1) // 2 if nibbles else n
                out += bytes([0, n]) + some_bytes(r, size) + b"\0" * (size % 2)
            else:
                out += bytes([0, 2, n := min(n, w - x - 1), 0])
            x += n
        out += b"\0\0"
    return out + b"\0\1"


def bmp(r, w, h, kind):
    if kind < 5:
        mode = ["1", "L", "P", "RGB", "RGBA"][kind]
        im = Image.fromarray(picture(r, w, h, 4), "RGBA")
        b = io.BytesIO()
        (im if mode == "RGBA" else im.convert("RGB").convert(mode)).save(b, "BMP")
        return b.getvalue()
    bits, compression = [(4, 0), (16, 0), (16, 3), (32, 3), (8, 1), (4, 2), (16, 3), (24, 0)][kind - 5]
    header, masks, palette = 40, b"", b""
    if bits == 32:
        header, masks = 56, struct.pack("<IIII", *MASKS[int(r.integers(0, len(MASKS)))])
    elif compression == 3:
        masks = struct.pack("<III", *[(0xF800, 0x7E0, 0x1F), (0x7C00, 0x3E0, 0x1F)][kind == 11])
    elif bits <= 8:
        palette = some_bytes(r, 4 << bits)
    runs = compression in (1, 2)
    data = run_lengths(r, w, h, compression == 2) if runs else some_bytes(r, (w * bits + 31) // 32 * 4 * h)
    down = not runs and chance(r, .3)
    at = 14 + 40 + len(masks) + len(palette)
    return (b"BM" + struct.pack("<IHHI", at + len(data), 0, 0, at) +
            struct.pack("<IiiHHIIiiII", header, w, -h if down else h, 1, bits, compression, len(data), 0, 0, 0, 0) + masks + palette + data)


def gif(r, w, h):
    quantized = lambda n: Image.fromarray(picture(r, w, h, 3)).quantize(n, dither=0)
    options = {"interlace": int(r.integers(0, 2)), "optimize": chance(r, .5)}
    if chance(r, .4):
        options["transparency"] = int(r.integers(0, 4))
    if chance(r, .3):
        options |= {"save_all": True, "append_images": [quantized(16)]}
    b = io.BytesIO()
    quantized(int(r.integers(2, 257))).save(b, "GIF", **options)
    d = bytearray(b.getvalue())
    if chance(r, .4):
        d[6:10] = struct.pack("<HH", w + int(r.integers(0, 20)), h + int(r.integers(0, 20)))
    elif chance(r, .2):
        d[6:10] = struct.pack("<HH", max(1, w - 5), max(1, h - 3))
    return bytes(d)


def other_sampling(r, data, sampling):
    """The file with the blocks of its MCUs in another shape, which Pillow does not write: 4:4:0,
    4:1:1 and 1:4. The size has to be whole MCUs, and the picture is another one."""
    across, down = {"4:2:2": (2, 1), "4:2:0": (2, 2)}[sampling]
    new_across, new_down = (1, 2) if sampling == "4:2:2" else [(4, 1), (1, 4)][int(r.integers(0, 2))]
    at = 2
    while data[at + 1] not in (0xC0, 0xC1, 0xC2):
        at += 2 + struct.unpack(">H", data[at + 2:at + 4])[0]
    h, w = struct.unpack(">HH", data[at + 5:at + 9])
    d = bytearray(data)
    d[at + 5:at + 9] = struct.pack(">HH", h // down * new_down, w // across * new_across)
    d[at + 11] = new_across << 4 | new_down
    return bytes(d)


def jpeg(r, w, h, kind):
    reshaped = kind == 5
    if reshaped:
        w, h = (w + 15) // 16 * 16, (h + 15) // 16 * 16
    mode = ["RGB", "RGB", "RGB", "L", "CMYK", "RGB"][kind]
    im = Image.fromarray(picture(r, w, h, 4), "CMYK")
    im = im if mode == "CMYK" else Image.fromarray(np.asarray(im)[..., :3].copy()).convert(mode)
    options = {"quality": int(r.integers(5, 101)), "progressive": chance(r, .5), "optimize": chance(r, .5)}
    if chance(r, .3):
        options["exif"] = exif(r)
    if chance(r, .3):
        options["restart_marker_blocks"] = int(r.integers(1, 20))
    if reshaped:
        options["subsampling"] = ["4:2:2", "4:2:0"][int(r.integers(0, 2))]
    elif mode == "RGB" and chance(r, .1):
        options["keep_rgb"] = True
    elif mode == "RGB":
        options["subsampling"] = ["4:4:4", "4:2:2", "4:2:0"][int(r.integers(0, 3))]
    b = io.BytesIO()
    try:
        im.save(b, "JPEG", **options)
    except OSError:  # Pillow's buffer is too small for some files that are optimised
        b = io.BytesIO()
        im.save(b, "JPEG", **options | {"optimize": False, "progressive": False})
    return other_sampling(r, b.getvalue(), options["subsampling"]) if reshaped else b.getvalue()


def webp(r, w, h):
    mode = ["RGB", "RGBA"][int(r.integers(0, 2))]
    make = lambda: Image.fromarray(picture(r, w, h, len(mode)), mode)
    options = {"lossless": chance(r, .5), "quality": int(r.integers(0, 101)), "method": int(r.integers(0, 7)),
               "alpha_quality": int(r.integers(0, 101))}
    if chance(r, .3):
        options["exif"] = exif(r)
    if chance(r, .25):
        options |= {"save_all": True, "append_images": [make()]}
    b = io.BytesIO()
    make().save(b, "WEBP", **options)
    return b.getvalue()


def files(count, side):
    """COUNT files a kind, by their numbers: name and content."""
    names = list(PNG_KINDS)
    for i in range(count):
        r = np.random.default_rng(i)
        w, h = int(r.integers(1, side)), int(r.integers(1, side))
        yield f"{i:04d}-{names[i % len(names)]}.png", png(r, w, h, names[i % len(names)])
        yield f"{i:04d}-{i % 13}.bmp", bmp(r, w, h, i % 13)
        yield f"{i:04d}.gif", gif(r, w, h)
        yield f"{i:04d}.jpg", jpeg(r, w, h, i % 6)
        yield f"{i:04d}.webp", webp(r, w, h)


def main():
    folder = pathlib.Path(__file__).parents[2] / "media/testdata"
    count, side = 26, 40
    if len(sys.argv) > 2:
        folder, count, side = pathlib.Path(sys.argv[1]), int(sys.argv[2]), 250
    folder.mkdir(parents=True, exist_ok=True)
    hashes = {}
    for name, content in files(count, side):
        (folder / name).write_bytes(content)
        im = rgb(Image.open(io.BytesIO(content)))
        hashes[name] = [im.width, im.height, hashlib.sha256(im.tobytes()).hexdigest()]
    (folder / "hashes.json").write_text(json.dumps(hashes, indent=0) + "\n")
    print(len(hashes), "files in", folder)


if __name__ == "__main__":
    main()
