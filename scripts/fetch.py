"""Download one wheel or source package, going on where an interrupted download stopped.

usage: fetch.py NAME VERSION FILE SHA256 DEST PIPARG...

pip finds the file and pip's session brings it, so that its settings count:
index, mirrors, proxies, certificates, credentials. What has arrived lies in
DEST.part; only a file with the right SHA-256 gets the name DEST. A partial file
that turns out to be damaged is deleted and fetched anew, once.

Exit code 3: this pip cannot be asked so; the caller takes `pip download`.
"""

import hashlib
import os
import sys
import time

TRIES = 5  # without a single new byte


def say(text: str) -> None:
    print(f"setup: {text}", file=sys.stderr, flush=True)


def locate(name: str, version: str, file: str, pip_args: list[str]):
    """pip's session, and the URL of the file that pip would download."""
    from pip._internal.cli.cmdoptions import make_target_python
    from pip._internal.commands import create_command
    from pip._internal.utils.temp_dir import global_tempdir_manager, tempdir_registry

    command = create_command("download")
    kind = "--only-binary=:all:" if file.endswith(".whl") else "--no-binary=:all:"
    args = ["--no-cache-dir", "--no-deps", kind, *pip_args, f"{name}=={version}"]
    options, _ = command.parse_args(args)
    with command.main_context():
        command.enter_context(global_tempdir_manager())
        command.enter_context(tempdir_registry())
        session = command.get_default_session(options)
        finder = command._build_package_finder(options, session, target_python=make_target_python(options))
        links = [c.link for c in finder.find_all_candidates(name) if c.link.filename == file]
    if not links:
        raise LookupError(f"pip finds no {file}")
    return session, links[0].url_without_fragment


def transfer(session, url: str, part: str) -> None:
    """Append to part what is missing."""
    have = os.path.getsize(part) if os.path.exists(part) else 0
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with session.get(url, headers=headers, stream=True, timeout=60) as r:
        if have and r.status_code == 416:
            return  # nothing is missing; the hash tells whether it is right
        r.raise_for_status()
        if have and (r.status_code != 206 or not r.headers.get("Content-Range", "").startswith(f"bytes {have}-")):
            have = 0  # this server sends the whole file
        total = have + int(r.headers.get("Content-Length", 0))
        if have:
            say(f"going on at {have / 1e6:.0f} of {total / 1e6:.0f} MB")
        last = time.monotonic()
        with open(part, "r+b" if have else "wb") as out:
            out.seek(have)
            for chunk in r.raw.stream(1 << 20, decode_content=False):
                out.write(chunk)
                have += len(chunk)
                if time.monotonic() - last > 10:
                    last = time.monotonic()
                    say(f"{have / 1e6:.0f} of {total / 1e6:.0f} MB")
        if have < total:
            raise OSError(f"the connection ended at {have} of {total} bytes")


def download(session, url: str, part: str) -> None:
    tries, before = 0, -1
    while True:
        try:
            return transfer(session, url, part)
        except Exception as e:  # pip's requests and urllib3 have many
            now = os.path.getsize(part) if os.path.exists(part) else 0
            tries = tries + 1 if now <= before else 1
            before = now
            if tries >= TRIES:
                sys.exit(f"setup: {url}: {e}; what has arrived is kept, run make setup again")
            time.sleep(2**tries / 2)


def sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while chunk := f.read(1 << 22):
            digest.update(chunk)
    return digest.hexdigest()


def main() -> None:
    name, version, file, want, dest, *pip_args = sys.argv[1:]
    try:
        session, url = locate(name, version, file, pip_args)
    except Exception as e:
        say(f"asking pip for the address failed ({type(e).__name__}: {e}); taking pip download")
        sys.exit(3)
    part = dest + ".part"
    resumed = os.path.exists(part)
    download(session, url, part)
    if (got := sha256(part)) != want and resumed:
        say("the partial file was damaged; fetching it anew")
        os.remove(part)
        download(session, url, part)
        got = sha256(part)
    if got != want:
        os.remove(part)
        sys.exit(f"setup: {file}: SHA-256 is {got}, not {want}; deleted, run make setup again")
    os.replace(part, dest)


if __name__ == "__main__":
    main()
