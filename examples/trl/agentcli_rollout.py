"""A rollout_func for TRL's GRPOTrainer (1.16) that plays its rows at `agentcli rollout --serve`.

    rollout = AgentcliRollout("http://127.0.0.1:8000", rows, folder="weights")
    trainer = GRPOTrainer(..., reward_funcs=AgentcliRollout.reward, rollout_func=rollout)

rows maps the text of a prompt's last message to the columns of a row: {"answer": …}. The
server plays tools, turns and scheduler, and gives the reward (--reward)."""
import json, os, shutil, urllib.request, uuid


class AgentcliRollout:
    def __init__(self, server, rows, folder, every=1, token=""):
        self.server, self.rows, self.folder, self.every, self.token = server, rows, folder, every, token
        self.sent = 0  # the step whose weights the server has

    def post(self, path, body):
        headers = {"Content-Type": "application/json"} | ({"Authorization": "Bearer " + self.token} if self.token else {})
        return urllib.request.urlopen(urllib.request.Request(self.server + path, json.dumps(body).encode(), headers))

    def send_weights(self, trainer):
        step = trainer.state.global_step
        if step - self.sent < self.every:
            return
        folder = os.path.abspath(os.path.join(self.folder, f"step-{step}"))
        trainer.accelerator.unwrap_model(trainer.model).save_pretrained(folder)
        trainer.processing_class.save_pretrained(folder)
        with self.post("/update_weights_from_disk", {"model_path": folder}) as answer:
            print(f"step {step}: the server has version", json.load(answer)["weight_version"])
        shutil.rmtree(os.path.join(self.folder, f"step-{self.sent}"), ignore_errors=True)
        self.sent = step

    def __call__(self, prompts, trainer):
        self.send_weights(trainer)
        ids = [uuid.uuid4().hex for _ in prompts]
        rows = []
        for i, prompt in zip(ids, prompts):  # TRL repeats a prompt for each of its generations
            text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
            messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
            rows.append(self.rows.get(text, {}) | {"id": i, "group": text, "messages": messages})
        sampling = {"temperature": trainer.args.temperature, "max_tokens": trainer.args.max_completion_length}
        with self.post("/v1/rollouts", {"rows": rows, "sampling": sampling}) as lines:  # as they end
            played = {t["task_id"].removeprefix("requests/"): t for t in map(json.loads, lines)}
        out = {k: [] for k in ("prompt_ids", "completion_ids", "logprobs", "env_mask", "agentcli_reward", "turns")}
        for i in ids:
            for key, value in self.one(played[i]).items():
                out[key].append(value)
        return out

    def one(self, t):
        if t.get("error"):
            raise RuntimeError(f"{t['id']} ended as {t['termination']}: {t['error']}")
        weights = t["loss_weights"] or [[1.0] * len(s["token_ids"]) for s in t["sequences"]]
        kept = [(s, w) for s, w in zip(t["sequences"], weights) if any(m and x for m, x in zip(s["loss_mask"], w))]
        if len(kept) != 1:  # what was cut off has the weight 0 and is left out
            raise ValueError(f"{t['id']}: TRL's form holds one sequence, and this trajectory has {len(kept)}: a rewritten "
                             "history, a template that drops earlier thinking, or a reply that was opened again")
        if t.get("images"):
            raise ValueError(f"{t['id']}: TRL's form drops the pictures of a rollout_func, and this trajectory has some")
        s, w = kept[0]
        if any(m and x not in (0, 1) for m, x in zip(s["loss_mask"], w)):
            raise ValueError(f"{t['id']}: TRL's form has no weights of tokens; its scheduler gives some")
        start = s["loss_mask"].index(True)
        mask = [int(m and x == 1) for m, x in zip(s["loss_mask"], w)][start:]
        return {"prompt_ids": s["token_ids"][:start], "completion_ids": s["token_ids"][start:], "env_mask": mask,
                "logprobs": [x if m and x is not None else 0.0 for x, m in zip(s["logprobs"][start:], mask)],
                "agentcli_reward": t["reward"], "turns": t["turns"]}

    @staticmethod
    def reward(completions, agentcli_reward, **_):
        return agentcli_reward
