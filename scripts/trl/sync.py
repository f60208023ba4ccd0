"""Has TRL's own VLLMClient push weights through `agentcli rollout --serve … --sync-through …` to a
stand-in of `vllm serve`, whose replies say which weights they were sampled with.

    python scripts/trl/sync.py bin/agentcli-lite

It needs TRL (1.16 was used), torch and transformers. vllm and NCCL are stand-ins: no GPU is needed.

It asserts that the client is served, that each push arrives in order, and that every trajectory
has the version whose weights sampled it."""
import http.server, importlib.machinery, importlib.metadata, json, re, subprocess, sys, tempfile, threading, types, urllib.request
from unittest.mock import MagicMock


class StandIn:
    """vllm, of which anything can be imported."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "vllm":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__, module.__version__ = [], "0.27.0"
        module.__getattr__ = lambda name: MagicMock(name=name)
        return module

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, StandIn())
known = importlib.metadata.version
importlib.metadata.version = lambda name: "0.27.0" if name == "vllm" else known(name)

import torch  # noqa: E402
from trl.generation import vllm_client  # noqa: E402

log, version = [], 0


class Server(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer({"/v1/models": {"object": "list", "data": [{"id": "m"}]}, "/get_world_size": {"world_size": 1}}.get(
            self.path, {"vllm_config": {"weight_transfer_config": {"backend": "nccl"}}}))

    def do_POST(self):
        global version
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
        if self.path == "/v1/chat/completions":
            text = f"v{version}"
            return self.answer({"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text},
                                             "token_ids": list(text.encode()), "logprobs": {"content": [{"logprob": -.5}] * len(text)}}],
                                "prompt_token_ids": [1, 2], "usage": {"prompt_tokens": 2, "completion_tokens": len(text)}})
        log.append(self.path)
        version += self.path == "/finish_weight_update"
        self.answer({"success": True})


upstream = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=upstream.serve_forever, daemon=True).start()
agentcli = subprocess.Popen([sys.argv[1], "rollout", "--serve", "127.0.0.1:0", "--sync-through", f"http://127.0.0.1:{upstream.server_port}",
                             "--tools", "none", "--reward", "exact", "--output", tempfile.mkdtemp() + "/run"],
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
try:
    found = next(m for line in agentcli.stderr if (m := re.search(r"rollouts at (http://\S+);", line)))
    threading.Thread(target=lambda: list(agentcli.stderr), daemon=True).start()
    client = vllm_client.VLLMClient(base_url=found[1])
    assert client.model == "m" and client.get_world_size() == 1 and client.get_server_info()["weight_transfer_config"]
    client.communicator = MagicMock()
    for step in range(4):
        rows = [{"id": f"{step}-{i}", "question": "q", "answer": "v"} for i in range(8)]
        request = urllib.request.Request(found[1] + "/v1/rollouts", json.dumps({"rows": rows}).encode())
        with urllib.request.urlopen(request, timeout=30) as lines:
            out = [json.loads(line) for line in lines]
        assert {(t["policy_version"], t["messages"][-1]["content"]) for t in out} == {(step, f"v{step}")} and len(out) == 8, out
        client.update_model_params(torch.nn.Linear(2, 2))
        client.reset_prefix_cache()
finally:
    agentcli.kill()
assert log == ["/start_weight_update", "/update_weights", "/finish_weight_update", "/reset_prefix_cache"] * 4, log
print("32 trajectories, 4 pushes")
