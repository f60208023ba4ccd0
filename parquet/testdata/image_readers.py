"""Checks that pyarrow, duckdb, polars, and pandas and datasets where they are installed, read
the images of the file of images_test.go. Prints each reader and its version on stdout, and
names the readers that are not installed on stderr.

usage: image_readers.py IN.parquet CAT.jpg DOG.webp
"""
import importlib.metadata, importlib.util, json, sys
import duckdb, polars, pyarrow.parquet as pq

src = sys.argv[1]
cat, dog = (open(p, "rb").read() for p in sys.argv[2:])
readers = ["pyarrow", "duckdb", "polars"]

schema = pq.read_schema(src)
assert schema.metadata[b"agentcli.schema"] == b"2", schema.metadata
features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]["messages"]["feature"]
assert [f.name for f in schema.field("messages").type.value_type] == list(features), features


def check(messages, images):
    assert messages[1]["content"] == "<image>Is <image> as <image><image>?", messages
    assert [(r["image"], r["at"]) for r in messages[1]["image_refs"]] == [(0, 0), (1, 21), (0, 28)]
    assert [i["bytes"] for i in messages[1]["images"]] == [cat, dog, cat]
    assert messages[3]["images"][0] is None or messages[3]["images"][0]["bytes"] is None
    assert images[2]["source"] == images[0]["hash"] and list(images[2]["box"]) == [1, 2, 3, 3]


for row in pq.read_table(src).to_pylist():
    check(row["messages"], row["images"])
for messages, images in duckdb.sql(f"select messages, images from '{src}'").fetchall():
    check(messages, images)
for row in polars.read_parquet(src).to_dicts():
    check(row["messages"], row["images"])
if importlib.util.find_spec("pandas"):
    import pandas
    readers.append("pandas")
    for _, row in pandas.read_parquet(src).iterrows():
        check(row["messages"], row["images"])
if importlib.util.find_spec("datasets"):
    import datasets, tempfile
    readers.append("datasets")
    with tempfile.TemporaryDirectory() as cache:
        for row in datasets.load_dataset("parquet", data_files=src, cache_dir=cache, split="train"):
            seen = row["messages"][1]["images"]
            assert [i.size for i in seen] == [(19, 20), (20, 19), (19, 20)], seen
            assert row["messages"][3]["images"] == [None]
print(*(f"{r} {importlib.metadata.version(r)}" for r in readers))
if skipped := {"pandas", "datasets"} - set(readers):
    print(f"image_readers.py: skipped, not installed: {', '.join(sorted(skipped))}", file=sys.stderr)
