"""Grades MBPP's own solutions by the reward code, and prints those that are not right.

usage: mbpp.py FILE WORK AGENTCLI

FILE is mbpp.jsonl of google-research (rows of task_id, code, test_list, test_setup_code). WORK is
an empty folder. AGENTCLI is the program.
"""
import collections, json, os, subprocess, sys

file, work, agentcli = sys.argv[1:]
path = os.path.join(work, "rows.jsonl")
with open(file, encoding="utf-8") as source, open(path, "w", encoding="utf-8") as out:
    for row in map(json.loads, filter(str.strip, source)):
        code = row["code"].replace("\r\n", "\n")
        tests = "\n".join([row.get("test_setup_code") or "", *row["test_list"]]).strip()
        out.write(json.dumps({"id": row["task_id"], "response": f"```python\n{code}\n```", "answer": tests}) + "\n")
# A row whose tests cannot run makes the exit code 3.
scored = subprocess.run([agentcli, "score", path, "--reward", "code"], capture_output=True, text=True).stdout
counts = collections.Counter()
for row in map(json.loads, scored.splitlines()):
    counts[row.get("verdict") or "failed"] += 1
    if not row.get("correct"):
        print(row["id"], row.get("verdict"), row.get("error", ""))
print(dict(counts))
