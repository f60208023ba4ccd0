"""Compares the reward tool-call with BFCL's ast_checker on every question of one turn.

usage: bfcl.py PACKAGE WORK AGENTCLI

PACKAGE is the folder of bfcl_eval 2026.3.23 (pip download --no-deps bfcl-eval, unzipped), which
carries checker and data. WORK is an empty folder. AGENTCLI is the program.

Each question is read by a dataset entry in the form of the registry's bfcl. Its calls are then
damaged, one way at a time, and graded by both. Calls that a chat API cannot carry are left out:
arguments that are no JSON. A verdict of the checker that is an exception counts as wrong.
"""
import collections, copy, json, os, random, subprocess, sys, types

package, work, agentcli = sys.argv[1:]
sys.path.insert(0, package)


class Plain:
    underscore_to_dot = False


class OfServer:  # of models behind APIs whose names of functions have no dots
    underscore_to_dot = True


config = types.ModuleType("bfcl_eval.constants.model_config")
config.MODEL_CONFIG_MAPPING = {"plain": Plain, "server": OfServer}
sys.modules["bfcl_eval.constants.model_config"] = config
for language in ("java", "js"):
    name = f"bfcl_eval.eval_checker.ast_eval.type_convertor.{language}_type_converter"
    module = types.ModuleType(name)
    setattr(module, f"{language}_type_converter", lambda *a: a[0])
    sys.modules[name] = module
from bfcl_eval.constants.enums import Language
from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker

CATEGORIES = ["simple_python", "multiple", "parallel", "parallel_multiple",
              "live_simple", "live_multiple", "live_parallel", "live_parallel_multiple"]
ENTRY = """name: real-{kind}
splits: {{test: {{files: [{files}]}}}}
join: {{files: ["possible_answer/*.json"], on: id}}
fields: {{messages: question.0, answer: ground_truth, answer_form: json, id: id, tools: function, meta: [tools]}}
reward: tool-call
"""


def lines(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def read_by_entry(kind, categories):
    """The tasks of an entry over the package's files, as `datasets show` prints them."""
    folder = os.path.join(work, kind)
    os.makedirs(os.path.join(folder, "possible_answer"))
    names = []
    for category in categories:
        names.append(f"BFCL_v4_{category}.json")
        for place in ("", "possible_answer"):
            os.symlink(os.path.abspath(os.path.join(package, "bfcl_eval/data", place, names[-1])), os.path.join(folder, place, names[-1]))
    entry = os.path.join(folder, f"real-{kind}.yaml")
    with open(entry, "w", encoding="utf-8") as f:
        f.write(ENTRY.format(kind=kind, files=", ".join(names)))
    out = subprocess.run([agentcli, "datasets", "show", entry, "-n", "100000"], check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def value_of(v, kind):
    """One of an argument's allowed values as a model would write it."""
    if isinstance(v, dict):
        return {k: value_of(next((x for x in xs if x != ""), ""), None) for k, xs in v.items() if isinstance(xs, list) and xs and xs[0] != ""} \
            if all(isinstance(xs, list) for xs in v.values()) else v
    if isinstance(v, list):
        return [value_of(x, None) if isinstance(x, dict) else x for x in v]
    return v


def gold_calls(gold, pick=0):
    calls = []
    for call in gold:
        (name, arguments), = call.items()
        made = {}
        for argument, values in arguments.items():
            said = [v for v in values if v != ""]
            if said:
                made[argument] = value_of(said[min(pick, len(said) - 1)], None)
            elif "" not in values:
                made[argument] = ""
        calls.append({name: made})
    return calls


def mutations(calls, gold, rnd):
    """Variants of calls: a name and the calls."""
    yield "gold", calls
    yield "last allowed values", gold_calls(gold, 99)
    yield "reversed", calls[::-1]
    yield "twice", calls + calls[:1]
    yield "without the last", calls[:-1]
    yield "names with _", [{name.replace(".", "_"): arguments for name, arguments in call.items()} for call in calls]
    for i, call in enumerate(calls):
        (name, arguments), = call.items()

        def with_arguments(changed, name=name, i=i):
            return calls[:i] + [{name: changed}] + calls[i + 1:]
        yield "another name", with_arguments(arguments, name + "x")
        yield "unknown argument", with_arguments({**arguments, "zz": 1})
        for argument, v in arguments.items():
            rest = {k: x for k, x in arguments.items() if k != argument}
            yield "left out", with_arguments(rest)
            yield "null", with_arguments({**arguments, argument: None})
            yield "empty text", with_arguments({**arguments, argument: ""})
            yield "as text", with_arguments({**arguments, argument: json.dumps(v)})
            yield "in a list", with_arguments({**arguments, argument: [v]})
            if isinstance(v, bool):
                yield "other truth", with_arguments({**arguments, argument: not v})
                yield "truth as number", with_arguments({**arguments, argument: int(v)})
            elif isinstance(v, (int, float)):
                yield "number + 1", with_arguments({**arguments, argument: v + 1})
                yield "number as float", with_arguments({**arguments, argument: float(v)})
                if float(v).is_integer():
                    yield "number as int", with_arguments({**arguments, argument: int(v)})
            elif isinstance(v, str):
                yield "upper case", with_arguments({**arguments, argument: v.upper()})
                yield "other spaces", with_arguments({**arguments, argument: v.replace(" ", "_") + "."})
                yield "other quotes", with_arguments({**arguments, argument: v.replace("'", '"')})
                yield "other text", with_arguments({**arguments, argument: v + "q"})
            elif isinstance(v, list) and v:
                yield "list reversed", with_arguments({**arguments, argument: v[::-1]})
                yield "list cut", with_arguments({**arguments, argument: v[1:]})
                yield "list + null", with_arguments({**arguments, argument: v + [None]})
                if all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in v):
                    yield "list as floats", with_arguments({**arguments, argument: [float(x) for x in v]})
                if isinstance(v[0], dict):
                    yield "object of list + key", with_arguments({**arguments, argument: [{**v[0], "zz": 1}] + v[1:]})
            elif isinstance(v, dict) and v:
                key = rnd.choice(sorted(v))
                yield "object without key", with_arguments({**arguments, argument: {k: x for k, x in v.items() if k != key}})
                yield "object + key", with_arguments({**arguments, argument: {**v, "zz": 1}})
                if isinstance(v[key], str):
                    yield "object upper case", with_arguments({**arguments, argument: {**v, key: v[key].upper()}})


def theirs(functions, calls, gold, category, model):
    try:
        return bool(ast_checker(copy.deepcopy(functions), copy.deepcopy(calls), copy.deepcopy(gold), Language.PYTHON, category, model)["valid"]), ""
    except Exception as e:
        return False, type(e).__name__ + ": " + str(e)[:60]


def main():
    rnd = random.Random(3)
    tasks = read_by_entry("plain", CATEGORIES[:4]) + read_by_entry("live", CATEGORIES[4:])
    by_id = {t["id"].split("/", 1)[1].split("-", 1)[1]: t for t in tasks}
    rows, want = [], {}
    questions = collections.Counter()
    for category in CATEGORIES:
        data = os.path.join(package, "bfcl_eval/data")
        golds = {r["id"]: r["ground_truth"] for r in lines(f"{data}/possible_answer/BFCL_v4_{category}.json")}
        for row in lines(f"{data}/BFCL_v4_{category}.json"):
            questions[category] += 1
            task, gold = by_id[row["id"]], golds[row["id"]]
            if json.loads(task["answers"][0]) != gold or len(task["meta"]["tools"]) != len(row["function"]):
                sys.exit(f"{row['id']} is read as something else")
            for what, calls in mutations(gold_calls(gold), gold, rnd):
                n = str(len(rows))
                model = "server" if what == "names with _" else "plain"
                want[n] = (row["id"], what, *theirs(row["function"], calls, gold, category, model), calls, gold)
                rows.append({"id": n, "answer": gold, "tools": task["meta"]["tools"], "messages": [
                    {"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": [
                        {"type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
                        for call in calls for name, arguments in call.items()]}]})
    path = os.path.join(work, "rows.jsonl")
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)
    out = subprocess.run([agentcli, "score", path, "--reward", "tool-call"], check=True, capture_output=True, text=True).stdout
    counts = collections.defaultdict(collections.Counter)
    with open(os.path.join(work, "differences.jsonl"), "w", encoding="utf-8") as f:
        for line in out.splitlines():
            row = json.loads(line)
            question, what, valid, error, calls, gold = want[row["id"]]
            c = counts[what]
            c["calls"] += 1
            c["right"] += row["correct"]
            if error:
                c["raises"] += 1
            if what == "gold" and not row["correct"]:
                print("its own gold answer is wrong:", question, json.dumps(calls)[:160])
            if row["correct"] != valid:
                c["differ"] += 1
                f.write(json.dumps({"id": question, "what": what, "theirs": valid, "error": error, "calls": calls, "gold": gold}) + "\n")
    print(sum(questions.values()), "questions:", dict(questions))
    total = collections.Counter()
    for what, c in counts.items():
        print(f"{what:24}{c['calls']:7} graded {c['right']:7} right {c['differ']:5} differ {c['raises']:5} raise")
        total += c
    print(f"{'all':24}{total['calls']:7} graded {total['right']:7} right {total['differ']:5} differ {total['raises']:5} raise")


main()
