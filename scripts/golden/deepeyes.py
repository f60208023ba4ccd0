"""Play conversations through DeepEyes' own functions: cmd/agentcli/testdata/deepeyes.json.gz.

usage: python scripts/golden/deepeyes.py DEEPEYES
       (torch 2.11, torchvision 0.26, transformers 5.23, qwen-vl-utils 0.0.14, tensordict, omegaconf, tqdm)

DEEPEYES is a checkout of Visual-Agent/DeepEyes; the golden file is of commit 6c5e7967. What runs
is theirs: RLHFDataset reads a row, agent_rollout_loop plays it with VisualToolBoxV2, get_rope_index
gives the positions. Of vLLM there is a stand-in that says what the conversation's script says.
Tokenizer and image processor are those of examples/look; qwen-vl-utils is given the same bounds,
as the published models and qwen-vl-utils have the same.

The system prompt is ours: theirs is not in this repository.
"""

import base64
import gzip
import importlib.machinery
import io
import json
import os
import shutil
import sys
import tempfile
import types

MODEL = os.path.join(os.path.dirname(__file__), "../../examples/look")
OUT = os.path.join(os.path.dirname(__file__), "../../cmd/agentcli/testdata/deepeyes.json.gz")
SETTINGS = json.load(open(os.path.join(MODEL, "preprocessor_config.json")))
FACTOR = SETTINGS["patch_size"] * SETTINGS["merge_size"]
os.environ["IMAGE_MIN_TOKEN_NUM"] = str(SETTINGS["min_pixels"] // FACTOR**2)
os.environ["IMAGE_MAX_TOKEN_NUM"] = str(SETTINGS["max_pixels"] // FACTOR**2)

SYSTEM = """You are a helpful assistant.

# Tools
<tools>
{"type":"function","function":{"name":"image_zoom_in_tool","parameters":{"type":"object","properties":{"bbox_2d":{"type":"array"}}}}}
</tools>
Call it within <tool_call></tool_call>."""
PROMPT, RESPONSE, TURN, TURNS = 2048, 4096, 512, 5  # as in their configuration, smaller


def look(*box):
    return say("image_zoom_in_tool", {"bbox_2d": list(box), "label": "it"})


def say(name, arguments):
    return "<think>Let me see.</think><tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


ANSWER = "<think>I see.</think><answer>rising</answer>"

# name, sizes of the images, question, replies
CONVERSATIONS = [
    ("answer at once", [(112, 84)], "<image>\nWhich way?", [ANSWER]),
    ("look and answer", [(112, 84)], "<image>\nWhich way?", [look(0, 0, 56, 56), ANSWER]),
    ("two looks", [(84, 112)], "Here: <image> Which way?", [look(10, 20, 80, 60), look(28.5, 30.5, 84, 112), ANSWER]),
    ("box over the edge", [(112, 112)], "<image>\nWhich way?", [look(-5, 40, 200, 90), ANSWER]),
    ("shrunk image", [(336, 280)], "<image>\nWhich way?", [look(0, 28, 100, 84), ANSWER]),
    ("two images", [(112, 84), (300, 420)], "<image> or <image>?", [look(0, 0, 84, 56), ANSWER]),
    ("no JSON", [(112, 84)], "<image>\nWhich way?", ["<tool_call>\n{\"name\": \"image_zoom_in_tool\", \n</tool_call>", ANSWER]),
    ("unknown tool", [(112, 84)], "<image>\nWhich way?", [say("telescope", {}), ANSWER]),
    ("small box", [(112, 84)], "<image>\nWhich way?", [look(40, 40, 60, 60), ANSWER]),
    ("two calls", [(112, 84)], "<image>\nWhich way?", [look(0, 0, 56, 56) + "\n" + look(56, 0, 112, 84), ANSWER]),
    ("call beside an answer", [(112, 84)], "<image>\nWhich way?", [look(0, 0, 56, 56) + ANSWER, ANSWER]),
    ("cut off", [(112, 84)], "<image>\nWhich way?", [look(0, 0, 56, 56) + " " * TURN]),
    ("looks without end", [(112, 84)], "<image>\nWhich way?", [look(0, 0, 56, 56)] * (TURNS + 3)),
]


class Stub(types.ModuleType):
    """A module that is not needed here: any name in it is a class."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = type(name, (), {})
        setattr(self, name, value)
        return value


def package(name, path=None):
    m = sys.modules[name] = Stub(name)
    m.__path__ = [path] if path else []
    m.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, m)
    return m


def theirs(folder):
    """Their modules, without those that their packages import for other purposes."""
    for name in ("ray", "pandas", "datasets", "vllm", "vllm.distributed"):
        package(name)
    verl = package("verl", os.path.join(folder, "verl"))
    importlib.import_module("verl.utils")
    for name in ("workers", "workers.agent", "utils.dataset"):
        package("verl." + name, os.path.join(folder, "verl", *name.split(".")))
    verl.DataProto = importlib.import_module("verl.protocol").DataProto
    importlib.import_module("verl.workers.agent.envs.mm_process_engine.visual_toolbox_v2")
    from transformers import Qwen2_5_VLProcessor
    # An output that transformers had not then: their merge of two turns does not know it.
    Qwen2_5_VLProcessor.return_mm_token_type_ids = False
    return verl.DataProto, importlib.import_module("verl.utils.dataset.rl_dataset"), importlib.import_module(
        "verl.workers.agent.parallel_env")


def png(size):
    from PIL import Image
    b = io.BytesIO()
    Image.new("RGB", size, (90, 140, 60)).save(b, "PNG")
    return b.getvalue()


class Engine:
    """Says what the script says, and keeps the ids of each prompt."""

    def __init__(self, tok, script):
        self.tok, self.script, self.asked = tok, script, []

    def generate(self, prompts, sampling_params, use_tqdm):
        assert len(prompts) == 1
        text = self.script[len(self.asked)]
        self.asked.append(list(prompts[0]["prompt_token_ids"]))
        ids, finish = self.tok.encode(text, add_special_tokens=False) + [self.tok.eos_token_id], "stop"
        if len(ids) > sampling_params.max_tokens:
            ids, finish = ids[:sampling_params.max_tokens], "length"
        out = types.SimpleNamespace(token_ids=ids, finish_reason=finish, text=self.tok.decode(ids, skip_special_tokens=False))
        return [types.SimpleNamespace(outputs=[out])]


class Group:
    is_first_rank = True

    def broadcast_object(self, x):
        return x


def play(conversation, modules, model):
    import numpy as np
    from omegaconf import OmegaConf
    proto, rows, loop = modules
    name, sizes, question, script = conversation
    tok, processor = loop.hf_tokenizer(model), loop.hf_processor(model)
    files = [png(s) for s in sizes]
    row = {"data_source": "vstar", "prompt": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}],
           "images": [{"bytes": f, "path": None} for f in files], "ability": "vl_agent", "env_name": "visual_toolbox_v2",
           "reward_model": {"ground_truth": "rising", "style": "model"},
           "extra_info": {"answer": "rising", "index": name, "question": question}}
    stored = json.loads(json.dumps(row, default=lambda b: base64.b64encode(b).decode()))

    data = object.__new__(rows.RLHFDataset)  # its file is this one row
    data.__dict__.update(dataframe=[row], prompt_key="prompt", image_key="images", video_key="videos", tokenizer=tok, processor=processor,
                         max_prompt_length=PROMPT, truncation="error", return_raw_chat=True)
    batch = rows.collate_fn([data[0]])
    prompts = proto.from_single_dict(batch)
    given = {"prompt_token_ids": prompts.non_tensor_batch.pop("raw_prompt_ids")[0],
             "multi_modal_data": prompts.non_tensor_batch.pop("multi_modal_data")[0]}  # as vLLMRollout.generate_sequences does
    given["prompt_token_ids"] = list(given["prompt_token_ids"])

    agent = dict(single_response_max_tokens=TURN, custom_stop=[], vl_model_path=model, max_turns=TURNS, concurrent_workers=1,
                 show_tqdm=False, tool_name_key="env_name")
    config = OmegaConf.create(dict(agent=agent, prompt_length=PROMPT, response_length=RESPONSE))
    params = types.SimpleNamespace(n=1, stop=None)
    params.clone = lambda: types.SimpleNamespace(**params.__dict__)
    engine = Engine(tok, script)
    sys.modules["vllm.distributed"].parallel_state = types.SimpleNamespace(get_tp_group=Group)
    out = loop.agent_rollout_loop(config, engine, [given], prompts, np.array(batch["multi_modal_inputs"], dtype=object), params)

    import torch
    ids = torch.cat([prompts.batch["input_ids"][0], out.batch["response"][0]])
    real = out.batch["attention_mask"][0] == 1
    mask = out.batch["action_mask"][0].clone()
    mask[:-RESPONSE] = 0  # the trainer reads the last RESPONSE of it
    positions = out.batch["position_ids"][0]
    assert positions.shape == (3, PROMPT + RESPONSE), positions.shape
    begin, end = real.nonzero()[0].item(), real.nonzero()[-1].item() + 1
    assert real[begin:end].all() and not mask[~real].any()
    grids = out.non_tensor_batch["multi_modal_inputs"][0]["image_grid_thw"]
    ids = ids[real].tolist()
    pad = tok.convert_tokens_to_ids("<|image_pad|>")
    once = [i for n, i in enumerate(ids) if i != pad or n == 0 or ids[n - 1] != pad]
    for asked in engine.asked:  # vLLM was given what is trained on, with one id for each image
        assert once[:len(asked)] == asked, name
    return {"name": name, "row": stored, "replies": script, "ids": ids, "mask": mask[real].tolist(),
            "positions": positions[:, real].tolist(), "grids": grids.tolist()}, len(engine.asked)


def main(folder):
    modules = theirs(folder)
    golden = {"max_tokens": TURN, "conversations": []}
    with tempfile.TemporaryDirectory() as model:  # the published models have the template for the processor too
        shutil.copytree(MODEL, model, dirs_exist_ok=True)
        template = json.load(open(os.path.join(MODEL, "tokenizer_config.json")))["chat_template"]
        with open(os.path.join(model, "chat_template.jinja"), "w") as f:
            f.write(template)
        for conversation in CONVERSATIONS:
            c, replies = play(conversation, modules, model)
            golden["conversations"].append(c)
            print(f"{c['name']}: {len(c['ids'])} ids, {sum(c['mask'])} trained, {replies} replies, images {c['grids']}")
    with open(OUT, "wb") as f, gzip.GzipFile(fileobj=f, mode="wb", mtime=0, compresslevel=9) as z:
        z.write(json.dumps(golden, separators=(",", ":")).encode())
    print(os.path.getsize(OUT), "bytes")


if __name__ == "__main__":
    main(sys.argv[1])
