"""Writes lossscale/testdata/swift.json.gz: how ms-swift cuts and weighs replies.

usage: lossscale.py SWIFT OUT_FOLDER

SWIFT is the folder swift of the package ms-swift 4.6.0 (pip download --no-deps ms-swift,
unpacked). Its rules and its split run as they are; only imports of torch and transformers
are left out. The replies are made here, from a seed, and are no model's.
"""
import ast, enum, gzip, json, os, random, re, sys, types
from typing import Dict, List

SWIFT, OUT = sys.argv[1], sys.argv[2]

# swift.template imports torch; the split itself needs re alone
source = open(os.path.join(SWIFT, "template/utils.py"), encoding="utf-8").read()
wanted = {"_split_str_by_regex", "split_str_parts_by", "get_last_user_round"}
body = [x for x in ast.parse(source).body if isinstance(x, ast.FunctionDef) and x.name in wanted]
assert len(body) == len(wanted)
template = types.ModuleType("swift.template")
template.__dict__.update(re=re, List=List, Dict=Dict, ContextType=None, Messages=None)
exec(compile(ast.Module(body, []), "template/utils.py", "exec"), template.__dict__)
swift = types.ModuleType("swift")
swift.__path__ = [SWIFT]
sys.modules.update({"swift": swift, "swift.template": template})
from swift.loss_scale import get_loss_scale
from swift.loss_scale.mapping import loss_scale_map
from swift.loss_scale.base import ConfigLossScale

random.seed(16)
RULES = {
    "hermes": ["<tool_call>", "</tool_call>", '<tool_call>\n{"name": "search", "arguments": {"q": "π ≈ 3"}}\n</tool_call>',
               "<tool_call></tool_call>", "<tool_call>\n"],
    "react": ["Thought:", "Action:", "Action Input:", "Observation:", "Final Answer:", "Action", "Action Input", "action:"],
    "qwen": ["✿FUNCTION✿:", "✿ARGS✿:", "✿RESULT✿:", "✿RETURN✿:", "✿", "✿FUNCTION✿", ":"],
    "agentflan": ["Name:", "Action:", "ACTION:", "Tool:", "Command", "Command:", "Arguments:", "action input", "ACTION_INPUT:",
                  "Action Input:", "Thought:", "Final Answer:", "Observation:"],
    "alpha_umi": ["Action:", "Action Input:", "Thought:", "Final Answer:", "Observation:", "Next:", "Next"],
    "ignore_empty_think": ["<think>\n\n</think>\n\n", "<think></think>", "<think>\u00a0\u2003\x1c\x0b</think>", "<think>", "</think>\n\n",
                           "<|channel>thought\n<channel|>", "</mm:think>\n", "<think> x </think>",
                           "<seed:think><seed:cot_budget_reflect>The current thinking budget is 0, so I will directly start answering "
                           "the question.</seed:cot_budget_reflect>\n</seed:think>"],
    "ignore_think_prefix": ["<think>\n", "<think>", "<think>\r\n", "</think>", "think>"],
}
QUERIES = ["What is the tool you want to use?", "What are the required parameter names for this tool?", "What is the value of q?"]
WORDS = ["the", " answer", " is", " 42", "\n", "\n\n", " ", "search", "{\"q\": 1}", "naïve", "世界", "🙂", "é", "\u2028", "\t", ".", "<", ">", "e\u0301"]
# rules of a user: anchors, classes, Unicode, lazy repeats, and two patterns that match at one place
OWN = {
    "patterns": {r"<answer>.*?</answer>": [3.0], r"\d+(?:\.\d+)?": [0.5], r"(?:naïve|answer)\s": [0.0], r"[a-zß\u4e00-\u9fff]{5,}": [2.5],
                 r"(?i:THE)\s*": [0.25], r"\u754c\Z": [4.0], r"^\S+": [1.5]},
    "keywords": {"Step": [0.5, 1.5], "<answer>": [2.0, 4.0], "<": [0.0, 1.0], "世": [1.0, 3.0]},
}
PARTS = {"patterns": ["<answer>", "</answer>", "<answer> 12.50 </answer>", "3.14", "THE ", "The", "naïve ", "answer\u3000", "٣"],
         "keywords": ["Step", "Step ", "<answer>", "<", "世", "世界"]}


def reply(parts):
    """Words and parts, in any order; a part often comes first, where ^ is."""
    out = [random.choice(parts)] if random.random() < 0.5 else []
    for _ in range(random.choice((0, 1, 3, 8, 20))):
        out.append(random.choice(parts if random.random() < 0.35 else WORDS))
    return "".join(out)


def rows(scale, parts, queries):
    out = []
    while len(out) < 200:
        text, query = reply(parts), random.choice(queries + ["What now?"])
        if not text:
            continue
        pieces = scale.get_loss_scale(text, query=query)
        assert "".join(pieces[0]) == text and len(pieces[0]) == len(pieces[1])
        out.append({"reply": text, "query": query, "pieces": [[t, w] for t, w in zip(*pieces) if t]})
    return out


cases = [{"scale": name, "rows": rows(get_loss_scale(name), parts, QUERIES if name == "agentflan" else [])} for name, parts in RULES.items()]
for chain in ("hermes+ignore_empty_think", "ignore_think_prefix+react", "last_round+agentflan+hermes+qwen", "react+react"):
    names = [x for x in chain.split("+") if x in RULES]
    cases.append({"scale": chain, "rows": rows(get_loss_scale(chain), sum((RULES[x] for x in names), []), QUERIES)})
for name, table in OWN.items():
    scale = ConfigLossScale()
    scale.loss_scale_map = table
    cases.append({"file": json.dumps(table, ensure_ascii=False), "scale": name, "rows": rows(scale, PARTS[name], [])})
assert {c["scale"] for c in cases} >= set(loss_scale_map) - {"base"}

# which replies a strategy and a message's own loss and loss_scale train
class ContextType(enum.Enum):
    RESPONSE, SUFFIX, OTHER = "response", "suffix", "other"


import swift.loss_scale.base as base

base.ContextType = ContextType
strategies = []
for _ in range(200):
    turns, messages, contexts, kinds = random.choice((1, 2, 3, 5)), [], [], []
    for k in range(turns):
        said = {"role": "assistant", "content": f"reply {k} <think>\n</think>"}
        if random.random() < 0.4:
            said["loss"] = random.random() < 0.5
        if random.random() < 0.4:
            said["loss_scale"] = random.choice((0.0, 0.5, 1.0, 2.0))
        messages += [{"role": "user" if random.random() < 0.5 else "tool", "content": f"question {k}"}, said]
        contexts += [f"question {k}", said["content"]]
        kinds += [ContextType.OTHER, ContextType.RESPONSE]
    for strategy in ("default", "last_round", "all"):
        texts, weights = get_loss_scale(strategy)(contexts, kinds, messages)
        assert texts == contexts
        strategies.append({"strategy": strategy, "messages": messages, "weights": weights[1::2]})

# an empty name and mtime, so that the file is the same each time
with open(os.path.join(OUT, "swift.json.gz"), "wb") as f, gzip.GzipFile(filename="", fileobj=f, mode="wb", mtime=0) as z:
    z.write(json.dumps({"cases": cases, "strategies": strategies}, ensure_ascii=False).encode())
print({c["scale"]: sum(len(r["pieces"]) for r in c["rows"]) for c in cases})
