"""Python's openai client against a running `agentcli serve`: python check.py http://127.0.0.1:8000/v1

Wants the package openai. Prints one line a check, and ends with 1 where one fails.
"""
import json
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key=sys.argv[2] if len(sys.argv) > 2 else "none")
model = client.models.list().data[0].id
ask = dict(model=model, messages=[{"role": "user", "content": "What is 2 + 2?"}], max_tokens=16, seed=1)
failed = False


def check(name, ok, said=""):
    global failed
    failed |= not ok
    print("ok  " if ok else "FAIL", name, said)


whole = client.chat.completions.create(**ask, logprobs=True, top_logprobs=3, extra_body={"return_token_ids": True})
pieces = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
text = "".join(p.choices[0].delta.content or "" for p in pieces if p.choices)
check("chat, whole and streamed", text == whole.choices[0].message.content, repr(text))
check("usage", pieces[-1].usage.completion_tokens == whole.usage.completion_tokens)
check("log-probs", len(whole.choices[0].logprobs.content) == whole.usage.completion_tokens
      and len(whole.choices[0].logprobs.content[0].top_logprobs) == 3)
check("ids", len(whole.choices[0].token_ids) == whole.usage.completion_tokens)
check("three choices", len(client.chat.completions.create(**ask, n=3).choices) == 3)
schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"], "additionalProperties": False}
made = client.chat.completions.create(**{**ask, "max_tokens": 64}, response_format={
    "type": "json_schema", "json_schema": {"name": "sum", "schema": schema, "strict": True}}).choices[0].message.content
check("a JSON schema", isinstance(json.loads(made)["sum"], int), made)
echoed = client.completions.create(model=model, prompt="The capital of France is", max_tokens=1, echo=True, logprobs=1)
check("echo", echoed.choices[0].text.startswith("The capital of France is") and echoed.choices[0].logprobs.token_logprobs[0] is None)
check("prompts in a list", len(client.completions.create(model=model, prompt=["a b c", "1 2 3"], max_tokens=2).choices) == 2)
for name, more, kind in [("a bad field", {"temperature": -1}, openai.BadRequestError), ("another model", {"model": "gpt"}, openai.NotFoundError)]:
    try:
        client.chat.completions.create(**{**ask, **more})
        check(name, False, "was taken")
    except kind as e:
        check(name, True, e.body["message"] if isinstance(e.body, dict) else str(e))
sys.exit(failed)
