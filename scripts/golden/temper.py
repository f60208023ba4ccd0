"""Golden log-probs and entropies at a temperature, by TRL's GRPOTrainer's own head on
tiny-llama, and the gradient that autograd makes of them.

    python scripts/golden/temper.py          (torch 2.11, transformers 5.23, trl 1.16)

Writes policy/testdata/tempered.json: for each temperature the log-prob and entropy of
every token after the first, and the gradient of sum a_i*lp_i + b_i*H_i with
a_i = sin(3i + 1), b_i = sin(3i + 2) with respect to some of the parameters. TRL divides
the logits by the temperature (add_fused_lm_head, as GRPOTrainer calls it); plain
log_softmax(logits / T) must agree with it, and gives the gradient.
"""
import json, math, os

import torch
from transformers import AutoModelForCausalLM
from trl.trainer.utils import add_fused_lm_head

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TINY = os.path.join(ROOT, "policy/testdata/tiny-llama")
IDS = [5, 6, 7, 8, 9, 20, 21]
PARAMETERS = ["model.norm.weight", "model.layers.0.input_layernorm.weight", "model.layers.1.self_attn.o_proj.weight"]
torch.set_num_threads(1)

out = {"ids": IDS, "temperatures": []}
for temperature in (0.6, 1.0, 1.3):
    model = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float64)
    add_fused_lm_head(model, temperature=temperature, outputs=("log_probs", "entropy"))
    ids = torch.tensor([IDS])
    labels = ids.clone()
    labels[0, 0] = -100
    with torch.no_grad():
        theirs = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels, fused_lm_head=True)
    lp = torch.log_softmax(model(input_ids=ids).logits[0, :-1] / temperature, -1)
    entropy = -(lp.exp() * lp).sum(-1)
    chosen = lp.gather(1, ids[0, 1:, None])[:, 0]
    n = len(IDS) - 1
    far = max((theirs.log_probs[0, -n:] - chosen).abs().max().item(), (theirs.entropy[0, -n:] - entropy).abs().max().item())
    print(temperature, "TRL against log_softmax(logits / T):", far)
    assert far < 1e-5, far
    i = torch.arange(n, dtype=torch.float64)
    ((3 * i + 1).sin() * chosen + (3 * i + 2).sin() * entropy).sum().backward()
    grads = dict(model.named_parameters())
    out["temperatures"].append({
        "temperature": temperature,
        "logprobs": theirs.log_probs[0, -n:].tolist(), "entropy": theirs.entropy[0, -n:].tolist(),
        "gradient": {name: grads[name].grad.flatten()[:8].tolist() for name in PARAMETERS}})
with open(os.path.join(ROOT, "policy/testdata/tempered.json"), "w") as f:
    json.dump(out, f)
