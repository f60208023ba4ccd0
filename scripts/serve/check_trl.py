"""TRL's own client against a running `agentcli serve`: python check_trl.py http://127.0.0.1:8000

Wants the package trl with torch; no vLLM. TRL from 1.11 on asks /v1/completions, before that
/generate/, /chat/ and /get_sequence_logprobs/; both were used (1.16.0, 1.9.2). Prints one line a
check, and ends with 1 where one fails.
"""
import inspect
import json
import sys
import urllib.request

import trl.generation.vllm_client as module

module.is_vllm_available = lambda *_, **__: True  # the client asks for it, and needs it for NCCL alone
client = module.VLLMClient(base_url=sys.argv[1], connection_timeout=10)
failed = False


def check(name, ok, said=""):
    global failed
    failed |= not ok
    print("ok  " if ok else "FAIL", name, said)


def post(path, body):
    request = urllib.request.Request(sys.argv[1] + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))


texts = ["The capital of France is", "1 2 3"]
ids = [post("/tokenize", {"prompt": t})["tokens"] for t in texts]
drawn = client.generate(texts, n=2, max_tokens=8, temperature=1.0, logprobs=3, generation_kwargs={"seed": 1})
check("prompts as texts", drawn["prompt_ids"] == ids and len(drawn["completion_ids"]) == 4)
again = client.generate(ids, n=2, max_tokens=8, temperature=1.0, logprobs=3, generation_kwargs={"seed": 1})
check("prompts as ids", again == drawn)
check("log-probs are ranked, the drawn id among them", all(
    id in ranked and lps == sorted(lps, reverse=True) and 3 <= len(lps) <= 4
    for reply, all_lps, all_ids in zip(drawn["completion_ids"], drawn["logprobs"], drawn["logprob_token_ids"])
    for id, lps, ranked in zip(reply, all_lps, all_ids)))
sequences = [p + c for p, c in zip([p for p in ids for _ in range(2)], drawn["completion_ids"])]
lengths = [len(p) for p in ids for _ in range(2)]
scored = client.get_sequence_logprobs(sequences, lengths, top_logprobs=3)
check("scored ids", [[x[0] for x in s] for s in scored["actual_token_ids"]] == drawn["completion_ids"])
far = max(abs(one[0] - lps[ranked.index(id)])
          for i, reply in enumerate(drawn["completion_ids"])
          for one, id, lps, ranked in zip(scored["actual_logprobs"][i], reply, drawn["logprobs"][i], drawn["logprob_token_ids"][i]))
check("scored log-probs are those of drawing", far < (1e-3 if "--float32" in sys.argv else .3), f"largest difference {far:.1e}")
if "use_binary" in inspect.signature(client.get_sequence_logprobs).parameters:
    plain = client.get_sequence_logprobs(sequences, lengths, top_logprobs=3, use_binary=False)
    check("as numbers", all(a == b[:3] for s, p in zip(scored["logprob_token_ids"], plain["logprob_token_ids"]) for a, b in zip(s, p)))
parts = client.get_sequence_logprobs(sequences, lengths, top_logprobs=3, chunk_size=1)
check("in chunks", parts["logprob_token_ids"] == scored["logprob_token_ids"])
talk = [{"role": "user", "content": "Say hello."}]
said = client.chat([talk, talk], n=2, max_tokens=8, logprobs=0)
check("chat", said["prompt_ids"] == [post("/tokenize", {"messages": talk})["tokens"]] * 2 and len(said["completion_ids"]) == 4)
sys.exit(failed)
