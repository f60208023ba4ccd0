"""Grades HumanEval's own solutions, and damaged ones, by the reward code.

usage: humaneval.py FILE WORK AGENTCLI

FILE is data/HumanEval.jsonl.gz of the repository openai/human-eval. WORK is an empty folder.
AGENTCLI is the program. HumanEval+ has the same columns with more tests.
"""
import collections, gzip, json, os, subprocess, sys

file, work, agentcli = sys.argv[1:]
path = os.path.join(work, "rows.jsonl")
with gzip.open(file, "rt", encoding="utf-8") as source, open(path, "w", encoding="utf-8") as out:
    for row in map(json.loads, source):
        prompt, solution = row["prompt"], row["canonical_solution"]
        for what, code in (("solution", prompt + solution), ("body alone", solution), ("returns None", prompt + "    return None\n"),
                           ("raises", prompt + "    raise ValueError\n"), ("exits", prompt + "    import sys; sys.exit(0)\n")):
            out.write(json.dumps({"id": row["task_id"] + "/" + what, "response": f"```python\n{code}\n```", "answer": row["test"],
                                  "meta": {"entry_point": row["entry_point"], "prompt": prompt}}) + "\n")
scored = subprocess.run([agentcli, "score", path, "--reward", "code"], check=True, capture_output=True, text=True).stdout
counts = collections.defaultdict(collections.Counter)
for row in map(json.loads, scored.splitlines()):
    counts[row["id"].rsplit("/", 1)[1]][row["verdict"]] += 1
for what, c in counts.items():
    print(f"{what:16}", dict(c))
