"""Three steps of GRPO by TRL on the CPU, with trajectories of `agentcli rollout --serve`.

    python examples/trl/train.py MODEL_FOLDER http://127.0.0.1:8000"""
import random, sys, time

import torch
from agentcli_rollout import AgentcliRollout
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

model, server = sys.argv[1:3]
random.seed(1)
sums = [(random.randint(1, 4), random.randint(1, 4)) for _ in range(32)]
rows = {f"What is {a} + {b}? End with the number.": {"answer": str(a + b)} for a, b in sums}
data = Dataset.from_list([{"prompt": [{"role": "user", "content": q}]} for q in rows])


class Says(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **_):
        keys = ("loss", "grad_norm", "reward", "reward_std", "completions/mean_length")
        print(f"step {state.global_step} at {time.strftime('%X')}:", {k: logs[k] for k in keys if k in logs})


class Checked(AgentcliRollout):
    """Says how far the server's log-probs are from those of the model that is trained."""

    @torch.no_grad()
    def __call__(self, prompts, trainer):
        out = super().__call__(prompts, trainer)
        worst = 0.0
        for prompt, ids, mask, given in zip(out["prompt_ids"], out["completion_ids"], out["env_mask"], out["logprobs"]):
            logits = trainer.model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1:-1].float()
            own = logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0]
            worst = max(worst, max(abs(a - b) for a, b, m in zip(own.tolist(), given, mask) if m))
        print(f"{len(prompts)} trajectories of {sorted(out['turns'])} turns: log-probs differ by {worst:.2g} at most")
        return out


config = GRPOConfig(output_dir="trl-out", max_steps=3, per_device_train_batch_size=16, num_generations=8, learning_rate=1e-5,
                    max_completion_length=32, temperature=1.0, beta=0.0, logging_steps=1, save_strategy="no", report_to=[],
                    use_cpu=True, bf16=False, gradient_checkpointing=False, model_init_kwargs={"dtype": "float32"})
trainer = GRPOTrainer(model=model, args=config, train_dataset=data, reward_funcs=AgentcliRollout.reward,
                      rollout_func=Checked(server, rows, folder="trl-weights"), callbacks=[Says()])
before = {n: p.detach().clone() for n, p in trainer.model.named_parameters()}
trainer.train()
moved = sum((p.detach() - before[n]).abs().sum().item() for n, p in trainer.model.named_parameters())
print(f"3 steps; the weights have moved by {moved:.3f} in sum")
