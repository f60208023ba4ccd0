"""Writes the trajectory files that another program might write, for
rows_test.go. Run it with pyarrow: python trainer/testdata/make.py"""

import os

import pyarrow as pa
import pyarrow.parquet as pq

here = os.path.dirname(os.path.abspath(__file__))
messages = [[{"role": "user", "content": "?"}]] * 2


def sequence(ids, mask, logprobs):
    return [{"token_ids": ids, "loss_mask": mask, "logprobs": logprobs}]


def write(name, **columns):
    table = pa.table({"id": ["a#0", "a#1"], "messages": messages, **columns})
    pq.write_table(table, os.path.join(here, name), compression="none", write_statistics=False)


good = sequence([1, 2, 3], [False, True, True], [None, -0.5, -0.25])
write("no_sequences.parquet", reward=[1.0, 0.0])
write("no_reward.parquet", sequences=[good, good])
# Two sequences, one with a log-prob too few.
write("ragged.parquet", reward=[1.0, 0.0], sequences=[good, sequence([1, 2, 3], [False, True, True], [None, -0.5])])
# As little as can be trained on.
write("least.parquet", reward=[1.0, 0.0], group_id=["a", "a"], sequences=[good, sequence([1, 2, 4], [False, True, True], [])])
