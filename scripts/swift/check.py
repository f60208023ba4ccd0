"""Asks a running `agentcli rollout --serve` as ms-swift's trainer does, and holds every
reply to ms-swift's own code: it is parsed by RolloutOutput and ChatCompletionResponse, and
replace_assistant_response_with_ids puts the ids into the messages.

    python scripts/swift/check.py http://127.0.0.1:8000 [REQUESTS]

It starts nothing. It needs ms-swift (4.6.0 was used; no GPU) and what that imports: torch,
transformers, trl, peft, modelscope, json_repair, msgspec, dacite, aiohttp.

For each reply it asserts:
- as many lists of ids and of masks as messages that were sampled, of equal lengths,
- as many log-probs as ones in the mask,
- the ids stand at our turns: those of the prompt's own replies (shots) are left as text,
- num_turns is at least the number of messages; at most where no reply was continued."""
import copy, json, sys, urllib.request, uuid
from dataclasses import asdict

from swift.infer_engine.protocol import ChatCompletionResponse, RequestConfig, RolloutInferRequest, RolloutOutput
from swift.rlhf_trainers.utils import replace_assistant_response_with_ids

server, count = sys.argv[1].rstrip("/"), int(sys.argv[2]) if len(sys.argv) > 2 else 200


def ask(path, body=None, method="POST"):
    data = None if method == "GET" else json.dumps(body).encode()
    r = urllib.request.Request(server + path, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(r) as answer:
        return json.load(answer)


assert ask("/health/", method="GET") == {"status": "ok"}
assert ask("/get_world_size/", method="GET") == {"world_size": 1}
engine = ask("/get_engine_type/")
assert engine["engine_type"] == "AsyncLLMEngine" and engine["enable_multi_turn"], engine
for cache in "prefix", "encoder", "mm":
    ask(f"/reset_{cache}_cache/")

requests = []
for i in range(count):
    messages = [{"role": "system", "content": "You are brief."}]
    for k in range(i % 3):  # shots
        messages += [{"role": "user", "content": f"What is {k} + {k}?"}, {"role": "assistant", "content": f"It is {2 * k}."}]
    messages.append({"role": "user", "content": f"What is {i} + {i % 7}?"})
    requests.append(RolloutInferRequest(messages=messages, data_dict={"solution": str(i + i % 7), "row": i}, uuid=uuid.uuid4().hex))
config = RequestConfig(max_tokens=24, temperature=1.0, top_k=-1, top_p=1.0, repetition_penalty=1.0, logprobs=True, return_details=True)
outputs = ask("/infer/", {"infer_requests": [asdict(r) for r in requests], "request_config": asdict(config), "use_tqdm": False,
                          "metrics": None, "adapter_request": None})
assert len(outputs) == count, len(outputs)

messages_seen = turns = tokens = masked = continued = shots = 0
for request, raw in zip(requests, outputs):
    out = RolloutOutput(**raw)
    assert isinstance(out.response, ChatCompletionResponse) and out.messages[-1]["role"] == "assistant"
    assert out.response.choices[0].message.content == out.messages[-1]["content"]
    opening = len(request.messages)
    assert out.messages[:opening] == request.messages, (out.messages[:opening], request.messages)
    sampled = [i for i, m in enumerate(out.messages) if i >= opening and m["role"] == "assistant"]
    ids, mask, logprobs = out.response_token_ids, out.response_loss_mask, out.rollout_logprobs
    assert len(ids) == len(mask) == len(logprobs) == len(sampled), (len(ids), len(mask), len(logprobs), len(sampled))
    for a, b, c in zip(ids, mask, logprobs):
        assert len(a) == len(b) and len(c) == sum(b), (len(a), len(b), len(c))
        assert all(x <= 0 for x in c)
    replaced = replace_assistant_response_with_ids(copy.deepcopy(out.messages), ids, mask)
    for i, (was, now) in enumerate(zip(out.messages, replaced)):
        if i in sampled:
            k = sampled.index(i)
            assert now["content"] == {"token_ids": ids[k], "loss_scale": mask[k]}, i
        else:
            assert now == was, i
    n = out.rollout_infos["num_turns"]
    assert n >= len(sampled) and "total_reward" in out.rollout_infos and out.rollout_infos["images"] == []
    messages_seen += len(sampled)
    turns += n
    continued += n > len(sampled)
    shots += (opening - 2) // 2
    tokens += sum(map(len, ids))
    masked += sum(sum(map(lambda m: 1 - m, b)) for b in mask)
print(f"{count} trajectories: {turns} turns in {messages_seen} messages behind {shots} shots, {continued} with a continued reply; "
      f"{tokens} ids, {masked} of them inserted. ms-swift parses all, and puts all ids at our turns.")
