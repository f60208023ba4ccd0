"""A tool for agentcli: --tool 'exec:python3 examples/tool_python/words.py'"""
import json, sys

SPEC = {"name": "count_words", "description": "Count the words of a text.", "deterministic": True, "version": "1",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}}

for line in sys.stdin:
    request = json.loads(line)
    answer = {"id": request.get("id")}
    if request["method"] == "describe":
        answer["tools"] = [SPEC]
    elif not request["arguments"]["text"].strip():
        answer["error"] = "the text is empty"
    else:
        answer["result"] = len(request["arguments"]["text"].split())
    print(json.dumps(answer), flush=True)
