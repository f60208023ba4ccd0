"""Reads the file of oracle_test.go with pyarrow, duckdb and polars, prints what
each saw as JSON, and writes files of the same layout with each of them.

usage: oracle.py IN.parquet OUT_FOLDER
"""
import json, math, sys
import duckdb, polars, pyarrow as pa, pyarrow.parquet as pq

src, out = sys.argv[1], sys.argv[2]


def plain(v):
    if isinstance(v, dict):
        return {k: plain(x) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return [plain(x) for x in v]
    if isinstance(v, bytes):
        return list(v)
    if hasattr(v, "timestamp"):
        return round(v.timestamp() * 1e6)
    if isinstance(v, float) and math.isnan(v):
        return None
    return v


def rows(names, columns):
    return [dict(zip(names, [plain(c[i]) for c in columns])) for i in range(len(columns[0]))]


t = pq.read_table(src)
names = t.column_names
md = {k.decode(): v.decode() for k, v in t.schema.metadata.items() if k.startswith(b"agentcli")}
seen = {"metadata": md, "types": {f.name: str(f.type) for f in t.schema}, "nullable": {f.name: f.nullable for f in t.schema},
        "compression": pq.ParquetFile(src).metadata.row_group(0).column(0).compression,
        "row_groups": pq.ParquetFile(src).num_row_groups}
seen["pyarrow"] = rows(names, [c.to_pylist() for c in t.columns])
con = duckdb.connect()
con.execute("SET TimeZone='UTC'")
got = con.execute(f"SELECT * EXCLUDE (started_at), epoch_us(started_at) AS started_at FROM '{src}'")
dn = [d[0] for d in got.description]
seen["duckdb"] = [dict(zip(dn, [plain(v) for v in r])) for r in got.fetchall()]
df = polars.read_parquet(src)
seen["polars"] = [{k: plain(v) for k, v in r.items()} for r in df.to_dicts()]
json.dump(seen, sys.stdout)

# The same values as others write them.
pq.write_table(t, f"{out}/pyarrow.parquet", row_group_size=2)
pq.write_table(t, f"{out}/pyarrow_v1_plain.parquet", use_dictionary=False, data_page_version="1.0", compression="snappy", data_page_size=64)
pq.write_table(t, f"{out}/pyarrow_v2.parquet", data_page_version="2.0", compression="gzip")
big = []
for f in t.schema:
    ty = f.type
    if ty == pa.string(): ty = pa.large_string()
    if ty == pa.list_(pa.string()) or (pa.types.is_list(ty) and ty.value_type == pa.string()): ty = pa.large_list(pa.large_string())
    if ty in (pa.int32(), pa.int64()) and f.name not in ("seed",): ty = pa.int16() if f.name == "attempt" else ty
    big.append(pa.field(f.name, ty, True))
pq.write_table(pa.table([c.cast(f.type) for c, f in zip(t.columns, big)], schema=pa.schema(big)), f"{out}/pyarrow_large.parquet")
df.write_parquet(f"{out}/polars.parquet")
con.execute(f"COPY (SELECT * FROM '{src}') TO '{out}/duckdb.parquet' (FORMAT parquet)")
# From plain Python rows: wide integers, no column of its own type, absent columns.
keep = ["id", "group_id", "messages", "reward"]
py = [{k: r[k] for k in keep} for r in t.to_pylist()]
pq.write_table(pa.Table.from_pylist(py), f"{out}/few.parquet")
seqs = [{"id": r["id"], "group_id": r["group_id"], "reward": r["reward"], "sequences": r["sequences"]} for r in t.to_pylist()]
pq.write_table(pa.Table.from_pylist(seqs), f"{out}/sequences.parquet")
pq.write_table(pa.table({"text": ["a"], "n": [1]}), f"{out}/foreign.parquet")
pq.write_table(pa.table({"id": ["a#0", "b#0"], "reward": ["x", "y"]}), f"{out}/wrongtype.parquet")
bad = [seqs[0], dict(seqs[1], sequences=[{"token_ids": [1, 2], "loss_mask": [True], "logprobs": [None]}])]
pq.write_table(pa.Table.from_pylist(bad, schema=pa.Table.from_pylist(seqs).schema), f"{out}/badrow.parquet")
