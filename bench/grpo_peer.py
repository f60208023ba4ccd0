"""TRL's GRPOTrainer on the task that bench/grpo.sh gives it, for comparison.

    python bench/grpo_peer.py MODEL-DIR PROMPTS.jsonl STEPS OUT.jsonl [SEED [PARTS]]

PROMPTS.jsonl has the rows of `agentcli datasets show`, OUT.jsonl gets one line a
step: seconds, mean reward. The reward is ours: the reply, but for white space
around it, is the gold answer, and ended by itself. fp32, CPU, 16 prompts x 8 in PARTS
(4) micro-batches: fewer want more memory and change nothing else.
"""
import json, os, resource, sys, time

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

model_dir, prompts, steps, out = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
seed, parts = int((sys.argv[5:] + ["1"])[0]), int((sys.argv[6:] + ["4"])[0])
tok = AutoTokenizer.from_pretrained(model_dir)
rows = [json.loads(l) for l in open(prompts)]
def clean(m):
    return {"role": m["role"], "content": m["content"]}
data = Dataset.from_list([{"prompt": [clean(m) for m in r["messages"]], "gold": r["answers"][0]} for r in rows])
eos = tok.eos_token_id


def exact(completions, gold, completion_ids, **_):
    return [float(c[0]["content"].strip() == g and ids[-1] == eos) for c, g, ids in zip(completions, gold, completion_ids)]


log, begun = open(out, "w"), [time.time()]


class Steps(TrainerCallback):
    def on_step_begin(self, *a, **k):
        begun[0] = time.time()

    def on_log(self, args, state, control, logs=None, **k):
        if logs and "reward" in logs:
            print(json.dumps({"step": state.global_step, "seconds": time.time() - begun[0], "reward": logs["reward"],
                              "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6}), file=log, flush=True)


args = GRPOConfig(output_dir=os.path.join(os.path.dirname(os.path.abspath(out)), f"trl-run-{seed}"), use_cpu=True, bf16=False, fp16=False, per_device_train_batch_size=128 // parts, gradient_accumulation_steps=parts, num_generations=8,
                  max_completion_length=8, temperature=1.0, beta=0.0, learning_rate=2e-5, lr_scheduler_type="constant", loss_type="dapo", epsilon=0.2,
                  scale_rewards="group", max_steps=steps, logging_steps=1, save_strategy="no", report_to=[], shuffle_dataset=False, seed=seed,
                  adam_beta1=.9, adam_beta2=.999, max_grad_norm=1.0, weight_decay=0.0, gradient_checkpointing=False, dataloader_num_workers=0)
model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
trainer = GRPOTrainer(model=model, reward_funcs=exact, args=args, train_dataset=data, processing_class=tok)
trainer.add_callback(Steps())
trainer.train()
