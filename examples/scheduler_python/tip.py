"""A scheduler for agentcli: --scheduler 'exec:python3 examples/scheduler_python/tip.py'

A reply without \\boxed{} is told so, twice at most; then a small reward is lost."""
import json, sys

tips = {}  # by trajectory

for line in sys.stdin:
    ask = json.loads(line)
    method, name = ask.get("method"), ask["trajectory"] if "trajectory" in ask else None
    if method == "end":
        tips.pop(name, None)
        continue
    if method == "cancel":
        continue
    answer = {"id": ask["id"]}
    if method == "start":
        tips[name] = 0
    elif "\\boxed{" in ask["reply"]["text"] or ask["last"]:
        answer.update(done=True, infos={"tips": tips[name]})
    elif tips[name] == 2:
        answer.update(done=True, reward=-0.1, infos={"tips": 2})
    else:
        tips[name] += 1
        answer["messages"] = [{"role": "user", "content": "Write your answer as \\boxed{...}."}]
    print(json.dumps(answer), flush=True)
