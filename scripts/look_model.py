"""Write the files of the small Qwen2.5-VL of examples/look: configuration, tokenizer, chat template
and image processor. Its weights are made by `agentcli model init`.

usage: python scripts/look_model.py   (no packages)

The tokenizer encodes any text, byte by byte. What every conversation of fineprint has is one added
token each, the description of the tool too, so that prompts are short.
"""

import json
import os

HERE = os.path.join(os.path.dirname(__file__), "../examples/look")

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>",
           "<|video_pad|>"]
TOOL = {"type": "function", "function": {
    "name": "image_zoom_in_tool",
    "description": "Zoom in on a part of an image: the box is cut out of the original image and shown to you.",
    "parameters": {"properties": {
        "bbox_2d": {"description": "the box [x1, y1, x2, y2] in pixels of the image as you see it: x1, y1 is the upper left corner, "
                                   "x2, y2 the lower right one",
                    "items": {"type": "number"}, "maxItems": 4, "minItems": 4, "type": "array"},
        "image": {"description": "which image, counted from 0 (default: 0, the first)", "minimum": 0, "type": "integer"},
        "label": {"description": "what is in the box", "type": "string"}}, "required": ["bbox_2d"], "type": "object"}}}
WORDS = [
    "system\n", "user\n", "assistant\n", "You are a helpful assistant.",
    # the tool in the system prompt, in the words of Qwen's templates
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within "
    "<tools></tools> XML tags:\n<tools>",
    "\n" + json.dumps(TOOL),
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n"
    "<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>",
    # a call and its result
    "<tool_call>", "</tool_call>", "\n{\"name\": \"", "image_zoom_in_tool", "\", \"arguments\": {\"bbox_2d\": [", ", ", "]}}\n",
    "<tool_response>\n", "\n</tool_response>",
    # questions and answers
    "Which way do the stripes run: horizontal, vertical, rising or falling?",
    "Which way do the stripes in the ", " field run: horizontal, vertical, rising or falling?", "Which number is on the plate?",
    "horizontal", "vertical", "rising", "falling",
    "red", "green", "blue", "yellow", "purple", "cyan", "orange", "pink", "brown",
]

# The turns of Qwen2.5-VL's template, without videos.
TEMPLATE = """{% for message in messages %}{% if loop.first and message['role'] != 'system' %}<|im_start|>system
You are a helpful assistant.<|im_end|>
{% endif %}<|im_start|>{{ message['role'] }}
{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}\
{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}\
{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def byte_letters():
    """GPT-2's letters of the bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, n = {b: chr(b) for b in plain}, 0
    for b in range(256):
        if b not in letters:
            letters[b] = chr(256 + n)
            n += 1
    return letters


def write(name, value):
    with open(os.path.join(HERE, name), "w") as f:
        json.dump(value, f, indent=1, ensure_ascii=False)
        f.write("\n")


def main():
    letters = byte_letters()
    vocab = {letters[b]: i for i, b in enumerate(range(256))}
    added = []
    for text in SPECIAL + WORDS:
        added.append({"id": len(vocab) + len(added), "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                      "normalized": False, "special": text in SPECIAL})
    ids = {a["content"]: a["id"] for a in added}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    write("tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": byte_level,
        "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": []}})
    write("tokenizer_config.json", {
        "tokenizer_class": "Qwen2TokenizerFast", "add_bos_token": False, "bos_token": None, "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>", "model_max_length": 1024, "clean_up_tokenization_spaces": False, "chat_template": TEMPLATE})
    write("preprocessor_config.json", {
        "image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 3136, "max_pixels": 12544, "patch_size": 14,
        "temporal_patch_size": 2, "merge_size": 2, "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711]})
    write("config.json", {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl", "tie_word_embeddings": True,
        "image_token_id": ids["<|image_pad|>"], "video_token_id": ids["<|video_pad|>"], "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"], "initializer_range": 0.08,
        "text_config": {
            "model_type": "qwen2_5_vl_text", "vocab_size": len(vocab) + len(added), "hidden_size": 192, "intermediate_size": 512,
            "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 1024,
            "rms_norm_eps": 1e-6, "hidden_act": "silu", "initializer_range": 0.08, "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]},
            "bos_token_id": None, "eos_token_id": ids["<|im_end|>"], "pad_token_id": ids["<|endoftext|>"]},
        "vision_config": {
            "model_type": "qwen2_5_vl", "depth": 4, "hidden_size": 128, "num_heads": 4, "intermediate_size": 256, "out_hidden_size": 192,
            "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "in_channels": 3, "window_size": 56,
            "fullatt_block_indexes": [1, 3], "hidden_act": "silu", "initializer_range": 0.08}})


main()
