"""A context manager for agentcli: --scheduler 'exec:python3 examples/scheduler_python/summarise.py'

Asks for more until the model says DONE. When the conversation is longer than LIMIT
characters, its older turns are replaced by the first line of each."""
import json, sys

LIMIT, talks = 400, {}  # by trajectory: its messages

for line in sys.stdin:
    ask = json.loads(line)
    method, name = ask.get("method"), ask.get("trajectory")
    if method == "end":
        talks.pop(name, None)
    if method not in ("start", "next"):
        continue
    answer = {"id": ask["id"]}
    if method == "start":
        talks[name] = list(ask["messages"])
    else:
        talk = talks[name]
        talk.append({"role": "assistant", "content": ask["reply"]["content"]})
        talk.extend((ask["observation"] or {}).get("messages", []))
        if ask["final"] and "DONE" in ask["reply"]["content"]:
            answer["done"] = True
        else:
            more = {"role": "user", "content": "Go on. Write DONE when you have finished."}
            talk.append(more)
            if sum(len(m["content"]) for m in talk) > LIMIT and len(talk) > 3:
                old = talk[1:-2]
                notes = "\n".join(m["content"].split("\n")[0][:80] for m in old if m["role"] == "assistant")
                first = dict(talk[0], content=talk[0]["content"] + "\n\nYour notes so far:\n" + notes)
                talks[name] = talk = [first, talk[-2], more] if notes else talk
                answer["history"] = talk
                answer["infos"] = {"summarised": len(old)}
            else:
                answer["messages"] = [more]
    print(json.dumps(answer), flush=True)
