"""Hold agentcli to files that transformers itself has written, and transformers to files
that agentcli has written: log-probs of random models of each family, both ways, and of what a
step of training has saved.

usage: python scripts/golden/families_saved.py AGENTCLI-TORCH FOLDER [FAMILY...]   (transformers 5.23, torch 2.11)

Prints the largest difference of a log-prob, of a logit after `model convert`, and of a log-prob
after a step of SFT, and how far that step has moved the log-probs. Both compute on DEVICE (default:
cpu). A difference above 1e-3 is an exit status of 1; a family that this transformers does not have
is named and left out.
"""

import json
import os
import shutil
import subprocess
import sys

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

DEVICE = os.environ.get("DEVICE", "cpu")
TINY = os.path.join(os.path.dirname(__file__), "../../policy/testdata/tiny-llama")
BASE = dict(vocab_size=264, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0)
DELTA = dict(head_dim=16, linear_key_head_dim=8, linear_value_head_dim=12, linear_num_key_heads=2, linear_num_value_heads=4,
             layer_types=["linear_attention", "linear_attention", "full_attention"])
MODELS = [
    ("llama", {}), ("mistral", dict(sliding_window=16)), ("qwen2", {}), ("qwen3", dict(head_dim=8)), ("olmo2", {}), ("seed_oss", dict(head_dim=8)),
    ("qwen3_moe", dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, head_dim=8)),
    ("glm4_moe", dict(head_dim=16, n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=16, n_group=2, topk_group=1)),
    ("phi3", {}), ("gemma3_text", dict(head_dim=16, sliding_window=8)), ("olmo3", dict(sliding_window=8)), ("smollm3", {}),
    ("granite", dict(logits_scaling=3.0)), ("ministral3", dict(head_dim=8)), ("glm4", dict(head_dim=16)),
    ("gemma4_text", dict(
        head_dim=8, global_head_dim=16, sliding_window=8, num_hidden_layers=5, num_kv_shared_layers=2, use_double_wide_mlp=True,
        layer_types=["full_attention", "sliding_attention"] * 2 + ["full_attention"], enable_moe_block=True, num_experts=5,
        top_k_experts=2, moe_intermediate_size=12, attention_k_eq_v=True, num_global_key_value_heads=1, hidden_size_per_layer_input=8,
        vocab_size_per_layer_input=264, final_logit_softcapping=2.0)),
    ("gpt_oss", dict(num_local_experts=5, num_experts_per_tok=2, head_dim=8, sliding_window=8)),
    ("lfm2", dict(layer_types=["conv", "full_attention", "conv"])),
    ("lfm2_moe", dict(layer_types=["conv", "full_attention", "conv"], num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16,
                      num_dense_layers=1)),
    ("qwen3_5_text", dict(DELTA)),
    ("qwen3_5_moe_text", dict(DELTA, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=24)),
]


def picked(logits, ids):
    return torch.log_softmax(logits[:-1].float(), -1).gather(1, torch.tensor(ids[1:]).unsqueeze(1))[:, 0]


def logits_of(model, ids):
    with torch.no_grad():
        return model.eval().to(DEVICE)(torch.tensor([ids], device=DEVICE)).logits[0].cpu()


def logprobs(agentcli, folder, ids):
    said = subprocess.run([agentcli, "model", "logprobs", folder, "--dtype", "float32", "--device", DEVICE], input=json.dumps({"token_ids": ids}) + "\n",
                          capture_output=True, text=True, check=True).stdout
    return torch.tensor(json.loads(said)["logprobs"])


def main(agentcli, out, *only):
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    transformers.logging.disable_progress_bar()
    os.makedirs(out, exist_ok=True)
    apart = []
    for kind, extra in MODELS:
        if only and kind not in only:
            continue
        if kind not in CONFIG_MAPPING:
            print(f"{kind} is not in transformers {transformers.__version__}", flush=True)
            continue
        m = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**BASE, **extra}))
        with torch.no_grad():
            for p in m.parameters():
                p.normal_(0, 0.2)
        theirs, ours, trained = os.path.join(out, kind), os.path.join(out, kind + "-ours"), os.path.join(out, kind + "-trained")
        for d in (ours, theirs, trained):
            shutil.rmtree(d, ignore_errors=True)
        m.save_pretrained(theirs)
        for f in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(os.path.join(TINY, f), theirs)
        ids = torch.randint(3, 264, (40,)).tolist()
        logits = logits_of(m, ids)
        want = picked(logits, ids)
        said = logprobs(agentcli, theirs, ids)
        subprocess.run([agentcli, "model", "convert", theirs, ours], check=True, capture_output=True)
        back = logits_of(AutoModelForCausalLM.from_pretrained(ours), ids)
        with open(os.path.join(out, "rows.jsonl"), "w") as f:
            for n in range(4):
                f.write(json.dumps({"prompt": f"What is {n} plus {n}?", "completion": f"It is {2 * n}."}) + "\n")
        subprocess.run([agentcli, "train", "--algo", "sft", "--model", theirs, "-o", trained, "--dtype", "float32", "--device", DEVICE,
                        "--chat-template", "chatml", "--lr", "1e-2", "--warmup-steps", "0", "--minibatch", "4", f.name],
                       check=True, capture_output=True)
        learned = logprobs(agentcli, trained, ids)
        after = picked(logits_of(AutoModelForCausalLM.from_pretrained(trained), ids), ids)
        differences = [float((x - y).abs().max()) for x, y in ((said, want), (back, logits), (learned, after))]
        print(kind, *differences, float((after - want).abs().mean()), flush=True)
        if not max(differences) <= 1e-3:
            apart.append(kind)
    if apart:
        sys.exit(f"differences above 1e-3: {', '.join(apart)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
