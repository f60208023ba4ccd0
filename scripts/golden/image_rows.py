"""Rows with images as verl and DeepEyes have them, in Parquet as pyarrow writes it:
images are structs of bytes and path, Hugging Face's form.

    ~/.cache/agentcli/python/bin/python scripts/golden/image_rows.py

writes datasets/testdata/deepeyes.parquet. The images are files of media/testdata.
"""

import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

root = pathlib.Path(__file__).parents[2]
image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
schema = pa.schema([
    ("data_source", pa.string()),
    ("prompt", pa.list_(pa.struct([("content", pa.string()), ("role", pa.string())]))),
    ("images", pa.list_(image)),
    ("ability", pa.string()),
    ("env_name", pa.string()),
    ("reward_model", pa.struct([("ground_truth", pa.string()), ("style", pa.string())])),
    ("extra_info", pa.struct([("answer", pa.string()), ("index", pa.string()), ("question", pa.string())])),
])


def file(name):
    return {"bytes": (root / "media/testdata" / name).read_bytes(), "path": name}


def row(i, text, images, env):
    return {
        "data_source": "vstar", "ability": "vl_agent", "images": images, "env_name": env,
        "prompt": [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": text}],
        "reward_model": {"ground_truth": f"answer {i}", "style": "model"},
        "extra_info": {"answer": f"answer {i}", "index": str(i), "question": text},
    }


rows = [
    row(0, "<image>\nWhat is it?", [file("0001.jpg")], "visual_toolbox_v2"),
    row(1, "First <image>, then <image>: which is larger?", [file("0001-L2.png"), file("0001.webp")], ""),
    row(2, "No image here.", None, ""),
]
pq.write_table(pa.Table.from_pylist(rows, schema=schema), root / "datasets/testdata/deepeyes.parquet", compression="zstd")
