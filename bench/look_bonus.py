"""Rewards of bench/look.sh's task with a bonus for looking: agentcli loop … --reward 'exec:python3 bench/look_bonus.py WHICH'

WHICH is any (.5 for a look, whatever the answer) or right (.5 for a look before a right answer)."""
import json
import sys

for line in sys.stdin:
    q = json.loads(line)
    right = q["response"].strip() == q["answer"][0]
    looked = sum(len(m.get("images") or []) for m in q["messages"]) > 1
    bonus = .5 if looked and (right or sys.argv[1] == "any") else 0.
    print(json.dumps({"id": q["id"], "reward": right + bonus, "correct": right, "extracted": q["response"],
                      "parts": {"exact": float(right), "look": bonus}}), flush=True)
