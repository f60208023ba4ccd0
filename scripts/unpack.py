"""Unpack the parts of a wheel whose names start with one of the prefixes.

usage: unpack.py WHEEL SHA256 DEST PREFIX...

Checks the wheel's SHA-256 first. Each file is written under a temporary name
and renamed, and one that is there already with the same bytes (size and CRC-32
as the wheel has them) is left alone, so an interrupted run goes on where it
stopped. Standard library only.
"""

import hashlib
import os
import shutil
import sys
import zipfile
import zlib


def same(path: str, info: zipfile.ZipInfo) -> bool:
    if not os.path.isfile(path) or os.path.getsize(path) != info.file_size:
        return False
    crc = 0
    with open(path, "rb") as f:
        while chunk := f.read(1 << 22):
            crc = zlib.crc32(chunk, crc)
    return crc == info.CRC


def main() -> None:
    wheel, want, dest, *prefixes = sys.argv[1:]
    digest = hashlib.sha256()
    with open(wheel, "rb") as f:
        while chunk := f.read(1 << 22):
            digest.update(chunk)
    if digest.hexdigest() != want:
        os.remove(wheel)
        sys.exit(f"setup: {wheel}: SHA-256 is {digest.hexdigest()}, not {want}; removed, run make setup again")
    with zipfile.ZipFile(wheel) as z:
        for info in z.infolist():
            if info.is_dir() or not info.filename.startswith(tuple(prefixes)):
                continue
            path = os.path.join(dest, info.filename)
            if same(path, info):
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with z.open(info) as src, open(path + ".part", "wb") as dst:
                shutil.copyfileobj(src, dst, 1 << 20)
            os.replace(path + ".part", path)


if __name__ == "__main__":
    main()
