"""Make model/chat/testdata/images.json: conversations with images as the processors of
transformers render them: text, ids with the places of images expanded, grids.

usage: python scripts/golden/vision_chat.py TRL   (transformers 5.23, torchvision 0.26)

TRL is the folder trl/chat_templates of the wheel of trl 1.16.0 (Apache 2.0); its templates are
in model/chat/testdata/corpus.json.gz. The tokenizer is that of policy/testdata/tiny-qwen2 with
the special tokens of images.
"""

import json
import os
import sys

import numpy as np
from PIL import Image
from transformers import (AutoTokenizer, Qwen2_5_VLProcessor, Qwen2VLImageProcessor, Qwen3VLProcessor)
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor

ROOT = os.path.join(os.path.dirname(__file__), "../..")
SPECIAL = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]


def image(w, h):
    return {"type": "image", "image": Image.fromarray(np.zeros((h, w, 3), np.uint8))}


def text(s):
    return {"type": "text", "text": s}


def user(*parts):
    return {"role": "user", "content": parts[0] if isinstance(parts[0], str) else list(parts)}


def says(s, *calls):
    m = {"role": "assistant", "content": s}
    return {**m, "tool_calls": list(calls)} if calls else m


ZOOM = {"type": "function", "function": {"name": "zoom", "description": "Zooms.", "parameters": {
    "type": "object", "properties": {"box": {"type": "array", "items": {"type": "integer"}}}, "required": ["box"]}}}
CALL = {"type": "function", "function": {"name": "zoom", "arguments": {"box": [1, 2, 30, 40]}}}
SYSTEM = {"role": "system", "content": "Be brief."}

# Messages, tools, whether an answer is asked for.
ROWS = [
    ([user(image(112, 84), text("What is it?"))], None, True),
    ([user(text("What is it?"), image(30, 200))], None, True),
    ([user(text("One "), image(300, 100), text(" two\n"), image(64, 64), image(65, 129), text("?"))], None, True),
    ([user(image(20, 20))], None, True),
    ([SYSTEM, user("Hi."), says("Hello."), user(image(100, 100), text("And this?"))], None, True),
    ([SYSTEM, user(image(50, 90), text("q")), says("a"), user(text("r "), image(900, 90)), says("b"), user("s")], None, True),
    ([user(image(50, 90), text("q")), says("The answer.")], None, False),
    ([SYSTEM, user(image(700, 500), text("q")), says("", CALL),
      {"role": "tool", "content": [image(56, 84)]}, says("done")], [ZOOM], False),
    ([user(image(700, 500), text("q")), says("I look.", CALL, CALL),
      {"role": "tool", "content": [text("the "), image(56, 84)]}, {"role": "tool", "content": [image(33, 33), text(" end")]}], [ZOOM], True),
]


def stored(m):
    if isinstance(m["content"], str):
        return m
    return {**m, "content": [{"type": "image", "size": list(p["image"].size)} if p["type"] == "image" else p for p in m["content"]]}


def main(trl):
    tok = AutoTokenizer.from_pretrained(os.path.join(ROOT, "policy/testdata/tiny-qwen2"))
    tok.add_special_tokens({"additional_special_tokens": SPECIAL})
    tok.image_token, tok.video_token = "<|image_pad|>", "<|video_pad|>"
    out = {"special": SPECIAL, "first": tok.convert_tokens_to_ids(SPECIAL[0]), "models": []}
    for name, processor, patch in (("qwen2_5_vl", Qwen2_5_VLProcessor, 14), ("qwen3_vl", Qwen3VLProcessor, 16)):
        template = open(os.path.join(trl, name + ".jinja")).read()
        settings = dict(patch_size=patch, min_pixels=4 * patch * patch, max_pixels=4 * patch * patch * 60)
        p = processor(image_processor=Qwen2VLImageProcessor(**settings), tokenizer=tok, video_processor=Qwen2VLVideoProcessor(),
                      chat_template=template)
        rows = []
        for messages, tools, ask in ROWS:
            if tools and name == "qwen2_5_vl":  # its template knows none
                continue
            args = dict(tools=tools, add_generation_prompt=ask)
            shown = p.apply_chat_template(messages, tokenize=False, **args)
            got = p.apply_chat_template(messages, tokenize=True, return_dict=True, return_tensors="pt", **args)
            rows.append({"messages": [stored(m) for m in messages], "tools": tools, "ask": ask, "text": shown,
                         "ids": got["input_ids"][0].tolist(), "grids": got["image_grid_thw"].tolist()})
        out["models"].append({"template": name, **settings, "rows": rows})
    with open(os.path.join(ROOT, "model/chat/testdata/images.json"), "w") as f:
        json.dump(out, f, ensure_ascii=False)
        f.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
