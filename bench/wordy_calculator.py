"""A calculator whose answers are long: for showing what the mask of observations does.

    agentcli rollout -d arith --tools none --tool 'exec:python3 bench/wordy_calculator.py'
"""
import ast, json, operator, sys

SPEC = {"name": "calculator", "description": "Compute the value of an arithmetic expression.", "deterministic": True, "version": "1", "parallel": True,
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}}
OPS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
# Text as a search engine would return it around the answer: nothing of it is the
# policy's doing, and it differs from call to call.
FACTS = ["Note %d: the request was parsed, checked against the grammar and evaluated from left to right; intermediate results were rounded to %d digits.",
         "Source %d, page %d: sums, differences and products of whole numbers are whole numbers again, as every textbook on arithmetic says.",
         "Log entry %d: worker %d answered within its time limit, the cache was cold, and no warnings were raised.",
         "See also item %d of chapter %d, where the history of the multiplication table is told with many pictures."]


def value(node):
    if isinstance(node, ast.Expression):
        return value(node.body)
    if isinstance(node, ast.BinOp) and type(node.op) in OPS:
        return OPS[type(node.op)](value(node.left), value(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -value(node.operand)
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    raise ValueError("only whole numbers, + - *")


for line in sys.stdin:
    request = json.loads(line)
    answer = {"id": request.get("id")}
    if request["method"] == "describe":
        answer["tools"] = [SPEC]
    elif request["method"] == "call":
        try:
            result = value(ast.parse(request["arguments"]["expression"], mode="eval"))
            h = (result * 2654435761) & 0xffffffff
            facts = [FACTS[(h + i) % 4] % ((h >> 3 * i) % 997, (h >> 5 * i) % 89) for i in range(2)]
            answer["result"] = "\n".join(facts) + f"\n{result}"
        except Exception as e:  # the model's expression, whatever it was
            answer["error"] = str(e)
    else:
        continue
    print(json.dumps(answer), flush=True)
