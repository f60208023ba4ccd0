#!/usr/bin/env bash
# Qwen2.5-VL in the shapes of 3B and 7B, with random weights: it opens, reads an image, draws tokens,
# and recomputes their log-probs; beside transformers' on the same weights, both in DTYPE.
#
#   bench/vl_shapes.sh FOLDER [3B 7B]
#
# 3B takes 8 GB of disk and 10 GB of memory, 7B 17 GB and 19 GB; twice the memory with DTYPE=float32,
# which processors without AVX-512 are fast in. COMPARE=none leaves transformers out. PYTHON: one with torch 2.11, torchvision and transformers.
set -euo pipefail
out=$1; shift
[ $# -gt 0 ] || set -- 3B 7B
root=$(cd "$(dirname "$0")/.." && pwd)
A=${AGENTCLI:-$root/bin/agentcli}
PYTHON=${PYTHON:-python3}
mkdir -p "$out"
echo "| shape | sequence | to open and draw 16, to recompute | peak | drawn and recomputed log-probs: mean, most apart | recomputed and transformers' |"
echo "|---|---|---|---|---|---|"
for shape in "$@"; do
  d="$out/$shape"
  mkdir -p "$d/config"
  cp "$root"/examples/look/*.json "$d/config/"
  "$PYTHON" - "$d/config/config.json" "$shape" <<'P'
import json, sys
path, shape = sys.argv[1:]
c = json.load(open(path))
hidden, ffn, layers, heads, kv, vocab = {"3B": (2048, 11008, 36, 16, 2, 151936), "7B": (3584, 18944, 28, 28, 4, 152064)}[shape]
c["tie_word_embeddings"], c["initializer_range"], c["dtype"] = shape == "3B", .02, "bfloat16"
c["text_config"] |= {"hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": heads,
                     "num_key_value_heads": kv, "vocab_size": vocab, "max_position_embeddings": 128000, "initializer_range": .02,
                     "tie_word_embeddings": shape == "3B",
                     "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0, "mrope_section": [16, 24, 24]}}
c["vision_config"] |= {"depth": 32, "hidden_size": 1280, "num_heads": 16, "intermediate_size": 3420, "out_hidden_size": hidden,
                       "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31], "initializer_range": .02}
json.dump(c, open(path, "w"), indent=1)
p = path.replace("config.json", "preprocessor_config.json")
j = json.load(open(p))
j["min_pixels"], j["max_pixels"] = 3136, 1003520
j.pop("size", None)
json.dump(j, open(p, "w"), indent=1)
P
  [ -f "$d/model/config.json" ] || "$A" model init --config "$d/config/config.json" --seed 1 -o "$d/model"
  "$PYTHON" -c "
import numpy as np; from PIL import Image
Image.fromarray(np.random.default_rng(1).integers(0, 256, (448, 672, 3), dtype=np.uint8)).save('$d/image.png')"
  "$PYTHON" - "$A" "$d" "${COMPARE-transformers}" "${DTYPE:-bfloat16}" <<'P'
import json, os, resource, statistics, subprocess, sys, time
A, d, compare, dtype = sys.argv[1:]

def ask(command, request, *flags):
    begun = time.time()
    p = subprocess.run([A, "model", command, *flags, d + "/model"], input=json.dumps(request) + "\n", stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(p.stdout), time.time() - begun

asked = {"messages": [{"role": "user", "content": [{"type": "image", "image": d + "/image.png"}, {"type": "text", "text": "What is it?"}]}],
         "add_generation_prompt": True}
prompt, _ = ask("render", asked)
drawn, took = ask("generate", {"token_ids": prompt["token_ids"], "images": [d + "/image.png"]}, "--max-tokens", "16", "--seed", "3", "--dtype", dtype)
ids = prompt["token_ids"] + drawn["token_ids"]
again, took2 = ask("logprobs", {"token_ids": ids, "images": [d + "/image.png"]}, "--dtype", dtype)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
n = len(drawn["token_ids"])

def away(a, b):
    x = [abs(p - q) for p, q in zip(a, b)]
    return f"{statistics.mean(x):.1e}, {max(x):.1e}"

line = f"| {os.path.basename(d)} | {len(ids)} ids, {prompt['images'][0]['tokens']} of the image | {took:.0f} s, {took2:.0f} s | {peak:.1f} GB | {away(drawn['logprobs'], again['logprobs'][-n:])} |"
if compare == "transformers":
    import torch
    from PIL import Image
    from transformers import AutoImageProcessor, AutoModelForImageTextToText
    x = AutoImageProcessor.from_pretrained(d + "/model")(images=Image.open(d + "/image.png"), return_tensors="pt")
    model = AutoModelForImageTextToText.from_pretrained(d + "/model", dtype=getattr(torch, dtype))
    t = torch.tensor([ids])
    with torch.no_grad():
        logits = model(input_ids=t, pixel_values=x["pixel_values"].to(model.dtype), image_grid_thw=x["image_grid_thw"],
                       mm_token_type_ids=(t == model.config.image_token_id).int()).logits
    theirs = logits[0, :-1].float().log_softmax(-1).gather(1, t[0, 1:, None])[:, 0].tolist()
    line += f" {away(again['logprobs'], theirs)} |"
print(line)
P
done
