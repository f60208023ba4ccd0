"""Three steps of GRPO by TRL on the CPU, with trajectories of `agentcli rollout --serve`.

    python examples/trl/train.py MODEL_FOLDER http://127.0.0.1:8000"""
import random, sys, time

from agentcli_rollout import AgentcliRollout
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

model, server = sys.argv[1:3]
random.seed(1)
sums = [(random.randint(1, 9), random.randint(1, 9)) for _ in range(32)]
rows = {f"What is {a} + {b}? End with the number.": {"answer": str(a + b)} for a, b in sums}
data = Dataset.from_list([{"prompt": [{"role": "user", "content": q}]} for q in rows])


class Says(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **_):
        keys = ("loss", "grad_norm", "reward", "reward_std", "completions/mean_length", "sampling/sampling_logp_difference/mean")
        print(f"step {state.global_step} at {time.strftime('%X')}:", {k: logs[k] for k in keys if k in logs})


config = GRPOConfig(output_dir="trl-out", max_steps=3, per_device_train_batch_size=8, num_generations=4, learning_rate=1e-5,
                    max_completion_length=32, temperature=1.0, beta=0.0, logging_steps=1, save_strategy="no", report_to=[],
                    use_cpu=True, bf16=False, gradient_checkpointing=False, model_init_kwargs={"dtype": "float32"})
trainer = GRPOTrainer(model=model, args=config, train_dataset=data, reward_funcs=AgentcliRollout.reward,
                      rollout_func=AgentcliRollout(server, rows, folder="trl-weights"), callbacks=[Says()])
before = {n: p.detach().clone() for n, p in trainer.model.named_parameters()}
trainer.train()
moved = sum((p.detach() - before[n]).abs().sum().item() for n, p in trainer.model.named_parameters())
print(f"3 steps; the weights have moved by {moved:.3f} in sum")
