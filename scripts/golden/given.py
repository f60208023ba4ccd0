"""Golden losses of supervised training, by TRL and transformers on tiny-llama.

    python scripts/golden/given.py          (torch 2.11, transformers 5.23, trl 1.16)

Each algorithm takes a few AdamW steps over all rows in float64, with the library's
own trainer: SFTTrainer, DPOTrainer, RewardTrainer; the process reward model, which
TRL no longer has, in plain torch. A step's loss is of the model after the steps
before it, so that gradients and optimiser are checked too. Writes
trainer/testdata/given.json: the rows as `train` reads them, and each step's numbers.
"""
import json, os, tempfile

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer, TrainerCallback
from trl import DPOConfig, DPOTrainer, RewardConfig, RewardTrainer, SFTConfig, SFTTrainer

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TINY = os.path.join(ROOT, "policy/testdata/tiny-llama")
STEPS, LR = 4, 2e-3
torch.set_num_threads(1)

tok = AutoTokenizer.from_pretrained(TINY)
ask = lambda q: f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n"
sft = [{"prompt": "What is 2+3?", "completion": "5"}, {"prompt": "Say hi, please.", "completion": "hello there"}, {"prompt": "a b c", "completion": "the last is c"}]
pairs = [{"prompt": "What is 2+3?", "chosen": "5", "rejected": "I do not know", "margin": 0.5},
         {"prompt": "Say hi", "chosen": "hello there", "rejected": "no", "margin": 0.0},
         {"prompt": "a b c", "chosen": "the last is c", "rejected": "the last is b, I think", "margin": 1.25}]
steps = [{"prompt": "What is 2+3*4?", "completions": ["3*4 is 12.", "2+12 is 15."], "labels": [True, False]},
         {"prompt": "What is 1+1?", "completions": ["It is 2."], "labels": [True]}]
soft = [{**steps[0], "labels": [0.75, 0.125]}, {**steps[1], "labels": [0.5]}]


class Keep(TrainerCallback):
    def __init__(self): self.log = []
    def on_log(self, args, state, control, logs=None, **kw):
        if "loss" in logs:
            self.log.append(logs)


def common(**more):
    return dict(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=8, max_steps=STEPS, learning_rate=LR, lr_scheduler_type="constant", adam_beta1=0.9, adam_beta2=0.95,
                adam_epsilon=1e-8, weight_decay=0.0, max_grad_norm=1.0, logging_steps=1, save_strategy="no", report_to=[], use_cpu=True, bf16=False, gradient_checkpointing=False, disable_tqdm=True, **more)


def run(trainer, names):
    # A Trainer rounds what it logs; the metrics are taken as they are computed.
    keep = Keep()
    trainer.add_callback(keep)
    exact = []
    inner = trainer.compute_loss
    def loss(*a, **k):
        out = inner(*a, **k)
        exact.append(float(out[0] if isinstance(out, tuple) else out))
        return out
    trainer.compute_loss = loss
    trainer.train()
    return {"loss": exact, **{n: [float(l[k]) for l in keep.log] for n, k in names.items()}}


def lm():
    return AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float64)


out = {"lr": LR, "sft": {"rows": sft}}
data = Dataset.from_list([{"prompt": ask(r["prompt"]), "completion": r["completion"] + "<|im_end|>"} for r in sft])
out["sft"] |= run(SFTTrainer(lm(), args=SFTConfig(**common(completion_only_loss=True, max_length=None)), train_dataset=data, processing_class=tok), {})

data = Dataset.from_list([{"prompt": ask(r["prompt"]), "chosen": r["chosen"] + "<|im_end|>", "rejected": r["rejected"] + "<|im_end|>"} for r in pairs])
for kind, beta in [("sigmoid", 0.1), ("ipo", 0.2), ("hinge", 0.3)]:
    name = f"dpo-{kind}"
    args = DPOConfig(**common(beta=beta, loss_type=[kind], max_length=None, disable_dropout=True))
    out[name] = {"rows": pairs, "beta": beta, "kind": kind}
    out[name] |= run(DPOTrainer(lm(), args=args, train_dataset=data, processing_class=tok),
                     {"margins": "rewards/margins", "chosen": "rewards/chosen", "rejected": "rewards/rejected", "accuracies": "rewards/accuracies", "logps_chosen": "logps/chosen", "logps_rejected": "logps/rejected"})

tok.pad_token = "<|endoftext|>"  # the score is read at the last token that is no padding
for margin in (True, False):
    m = AutoModelForSequenceClassification.from_pretrained(TINY, num_labels=1, dtype=torch.float64)
    with torch.no_grad():
        m.score.weight.zero_()
    rows = [{"chosen": ask(r["prompt"]) + r["chosen"] + "<|im_end|>", "rejected": ask(r["prompt"]) + r["rejected"] + "<|im_end|>", **({"margin": r["margin"]} if margin else {})} for r in pairs]
    args = RewardConfig(**common(max_length=None, disable_dropout=True, pad_token="<|endoftext|>"))
    name = "rm" if margin else "rm-log-exp"
    out[name] = {"rows": pairs} | run(RewardTrainer(m, args=args, train_dataset=Dataset.from_list(rows), processing_class=tok), {"accuracy": "accuracy", "margins": "margin"})

ids = lambda s: tok(s, add_special_tokens=False)["input_ids"]
marker, good, bad = ids("\n")[0], ids("+")[0], ids("-")[0]
for name, rows in [("prm", steps), ("prm-soft", soft)]:
    m = lm()
    opt = torch.optim.AdamW(m.parameters(), lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    losses = []
    for _ in range(STEPS):
        terms = []
        for r in rows:
            x, at = ids(ask(r["prompt"])), []
            for s in r["completions"]:
                x = x + ids(s) + [marker]
                at.append(len(x) - 1)
            z = m(torch.tensor([x])).logits[0, at][:, [good, bad]]
            p = torch.tensor([float(l) for l in r["labels"]], dtype=torch.float64)
            terms.append(torch.nn.functional.cross_entropy(z, torch.stack([p, 1 - p], -1), reduction="none"))
        l = torch.cat(terms).mean()
        losses.append(l.item())
        opt.zero_grad(); l.backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
    out[name] = {"rows": rows, "loss": losses}

with open(os.path.join(ROOT, "trainer/testdata/given.json"), "w") as f:
    json.dump(out, f, indent=1)
    f.write("\n")
