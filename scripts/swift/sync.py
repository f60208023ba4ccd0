"""Holds `agentcli rollout --serve … --sync-through …` to ms-swift's own code at both ends: its
trainer's VLLMClient asks agentcli, and agentcli asks the FastAPI application of its `swift
rollout`. Only the engine behind that application and NCCL are stand-ins, so it needs no GPU.

    PYTHONPATH=FOLDER_OF_MS_SWIFT python scripts/swift/sync.py bin/agentcli-lite

It needs ms-swift (4.6.0 was used), fastapi, uvicorn, and what ms-swift imports: torch,
transformers, trl, peft, modelscope, json_repair, msgspec, dacite, aiohttp.

It asserts: every endpoint of the client is answered; weights arrive in order and not while
something is sampled; each trajectory is sampled with one version and says which; the ids,
masks and log-probs that the trainer gets are those that the server sampled."""
import importlib.machinery, json, re, subprocess, sys, tempfile, threading, time, types
from types import SimpleNamespace
from unittest.mock import MagicMock


class Anything(type):
    """A class that has every method."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


class StandIn:
    """vllm, of which anything can be imported."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "vllm":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__, module.__version__ = [], "0.11.0"
        module.__getattr__ = lambda name: Anything(name, (), {}) if name[:1].isupper() else MagicMock(name=name)
        return module

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, StandIn())
import importlib.metadata as metadata  # noqa: E402

known = metadata.version
metadata.version = lambda name: "0.11.0" if name == "vllm" else known(name)

import torch, uvicorn  # noqa: E401,E402
from fastapi import FastAPI  # noqa: E402
from swift.infer_engine.protocol import (ChatCompletionResponse, ChatCompletionResponseChoice, ChatMessage, RequestConfig,  # noqa: E402
                                         RolloutInferRequest, RolloutOutput, UsageInfo)
from swift.pipelines.infer import rollout  # noqa: E402
from swift.rlhf_trainers import vllm_client  # noqa: E402
from swift.rlhf_trainers.utils import FlattenedTensorBucket  # noqa: E402

log, version, sampled = [], 0, {}


class Engine:
    """The worker's end of the pipe of SwiftRolloutDeploy: ids are the bytes of a text."""

    def send(self, command):
        global version
        method, kwargs = command["method"], command.get("kwargs", {})
        self.result = True
        if method == "async_infer":
            config = kwargs["request_config"]
            assert config.return_details and config.logprobs and config.n == 1 and config.seed is None, config
            self.result = [self.reply(RolloutInferRequest(**r) if isinstance(r, dict) else r) for r in kwargs["infer_requests"]]
            log.append(f"sample {len(self.result)}")
        elif kwargs.get("method"):
            log.append(kwargs["method"])
            if kwargs["method"] == "process_weights_after_loading":
                version += 1
        else:
            log.append(method)

    def recv(self):
        return self.result

    def reply(self, request):
        text = "".join(f"<{m['role']}>{m['content']}" for m in request.messages) + "<assistant>"
        content = f"It is {version}."
        prompt, ids = list(text.encode()), list(content.encode()) + [0]
        sampled[text] = ids
        choice = ChatCompletionResponseChoice(
            index=0, message=ChatMessage(role="assistant", content=content, tool_calls=None), finish_reason="stop",
            logprobs={"content": [{"token": chr(i), "logprob": -i / 256, "bytes": [i]} for i in ids]}, token_ids=ids)
        return RolloutOutput(response=ChatCompletionResponse(
            model="stand-in", choices=[choice], usage=UsageInfo(len(prompt), len(ids), len(prompt) + len(ids)), id="1",
            prompt_token_ids=prompt))


class Deploy(rollout.SwiftRolloutDeploy):
    def __init__(self):
        self.args = SimpleNamespace(api_key=None, vllm_tensor_parallel_size=1, vllm_data_parallel_size=1, multi_turn_scheduler=None,
                                    vllm_enable_lora=False)
        self.use_gym_env, self.use_async_engine, self.num_connections = False, True, 1
        self.app, self.connections = FastAPI(), [Engine()]
        self._register_rl_rollout_app()


upstream = uvicorn.Server(uvicorn.Config(Deploy().app, host="127.0.0.1", port=0, log_level="warning"))
threading.Thread(target=upstream.run, daemon=True).start()
while not upstream.started:
    time.sleep(.01)
port = upstream.servers[0].sockets[0].getsockname()[1]

agentcli = subprocess.Popen(
    [sys.argv[1], "rollout", "--serve", "127.0.0.1:0", "--sync-through", f"http://127.0.0.1:{port}", "--tools", "none", "--reward", "exact",
     "--scheduler", "math_tip_trick_multi_turn", "--max-turns", "2", "--max-tokens", "32", "--output", tempfile.mkdtemp() + "/run"],
    stderr=subprocess.PIPE, text=True)
said = []
for line in agentcli.stderr:
    said.append(line)
    if found := re.search(r"rollouts at (http://\S+);", line):
        break
else:
    sys.exit("".join(said))
threading.Thread(target=lambda: said.extend(agentcli.stderr), daemon=True).start()

try:
    vllm_client._broadcast_tensors_for_vllm_weight_sync = lambda *a, **k: None
    client = vllm_client.VLLMClient(base_urls=[found[1]])
    engine = client.get_engine_type()
    assert engine["engine_type"] == "AsyncLLMEngine" and engine["enable_multi_turn"] and not engine["enable_lora"], engine
    client.reset_mm_cache()
    client.pynccl_comms = [MagicMock()]
    for path, body in ("/init_communicator/", {"host": "0.0.0.0", "port": 1, "world_size": 2}),:
        assert client.sessions[0].post(client.base_urls[0] + path, json=body).status_code == 200
    assert client.sessions[0].get(client.base_urls[0] + "/get_world_size/").json() == {"world_size": 1}
    assert client.get_model_state_keys() == []
    turns = 0
    for step in range(4):
        requests = [RolloutInferRequest(messages=[{"role": "user", "content": f"What is {i}?"}], data_dict={"solution": str(i)},
                                        uuid=f"{step}-{i}") for i in range(16)]
        outputs = client.infer(requests, RequestConfig(max_tokens=16, temperature=1.0, logprobs=True, return_details=True))
        for out in outputs:
            replies = [m["content"] for m in out.messages if m["role"] == "assistant"]
            assert replies == [f"It is {step}."] * len(replies), (step, replies)
            turns += len(replies)
            text = ""
            for m in out.messages:
                if m["role"] == "assistant":
                    i = replies.index(m["content"]) if len(replies) == 1 else text.count("<assistant>")
                    ids = sampled[text + "<assistant>"]
                    assert out.response_token_ids[i] == ids, (i, out.response_token_ids)
                    assert out.response_loss_mask[i] == [1] * len(ids)
                    assert out.rollout_logprobs[i] == [-x / 256 for x in ids]
                text += f"<{m['role']}>{m['content']}"
        bucket = FlattenedTensorBucket(named_tensors=[("w", torch.zeros(2, 3))])
        client.update_named_param("w", torch.zeros(2, 3))
        client.update_flattened_params(bucket.get_metadata(), bucket.get_flattened_tensor())
        client.process_weights_after_loading()
        client.reset_prefix_cache()
        client.reset_encoder_cache()
    client.close_communicator()
finally:
    agentcli.terminate()
    agentcli.wait(20)

order = [entry for entry in log if not entry.startswith("sample")]
step = ["update_named_param", "update_flattened_params", "process_weights_after_loading", "reset_prefix_cache", "reset_encoder_cache"]
assert order == ["reset_mm_cache", "init_communicator", "get_state_keys"] + step * 4 + ["close_communicator"], order
batches = [int(entry.split()[1]) for entry in log if entry.startswith("sample")]
assert sum("was pushed" in line for line in said) == 4, "".join(said)
print(json.dumps({"steps": 4, "trajectories": 64, "turns": turns, "requests of /infer/": len(batches), "replies in the largest": max(batches)}))
