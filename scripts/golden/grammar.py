"""Documents for package grammar: values made from the schemas of grammar/testdata/schemas.jsonl and values
that are wrong, as jsonschema (with formats asserted) judges them. Properties are in the schema's order.

    ~/.cache/agentcli/python/bin/python scripts/golden/grammar.py
"""
import copy
import datetime
import json
import random
import string
import uuid
from pathlib import Path

import jsonschema

FOLDER = Path(__file__).resolve().parents[2] / "grammar" / "testdata"
random.seed(7)

FORMATS = {
    "date-time": lambda: datetime.datetime(random.randint(1990, 2040), random.randint(1, 12), random.randint(1, 28), 13, 5, 59).isoformat() + random.choice(["Z", "+02:00", ".25Z"]),
    "date": lambda: datetime.date.fromordinal(random.randint(700000, 740000)).isoformat(),
    "time": lambda: random.choice(["00:00:00Z", "23:59:59.999+01:00", "08:30:00-05:30"]),
    "uuid": lambda: str(uuid.UUID(int=random.getrandbits(128), version=4)),
    "ipv4": lambda: ".".join(str(random.randint(0, 255)) for _ in range(4)),
    "ipv6": lambda: random.choice(["::1", "::", "2001:db8::8a2e:370:7334", "fe80:0:0:0:1:2:3:4", "1:2:3:4:5:6:7::"]),
    "hostname": lambda: random.choice(["example.com", "a", "x1.y-2.org"]),
    "uri": lambda: random.choice(["https://example.com/a/b?c=d#e", "ftp://host:21/x", "http://a.b"]),
    "duration": lambda: random.choice(["P1Y2M3DT4H5M6S", "PT5M", "P3W", "P1D"]),
    "email": lambda: random.choice(["ada@example.com", "a.b+c@d.org"]),
}
PATTERNS = {
    r"^[A-Z]{2}-\d{3}$": ["AB-123", "ZZ-000"], "ab+c": ["abc", "xx abbbc\nyy", 'é"abc\\'], r"^\w+$": ["ab", "a_9Z", "abcdefgh"],
}
LETTERS = string.ascii_letters + ' .,"\\/\n\t{}[]:é世😀\u0001'


def text(low, high):
    return "".join(random.choice(LETTERS) for _ in range(random.randint(low, max(low, min(high, low + 12)))))


def value(s, root, depth=0):
    """A random value of a schema."""
    if s is True or s == {}:
        return random.choice([None, 1, -2.5e-3, "x", [1, {"a": []}], {"q": "w", "z": {}}, True])
    if "$ref" in s:
        target = root
        for part in s["$ref"].split("/")[1:]:
            target = target[part]
        return value(target, root, depth + 1)
    for key in ("anyOf", "oneOf"):
        if key in s:
            rest = {k: v for k, v in s.items() if k != key}
            branches = sorted(s[key], key=lambda b: "$ref" in b or b.get("type") in ("object", "array")) if depth > 4 else random.sample(s[key], len(s[key]))
            return value(merged([rest, branches[0]]), root, depth + 1)
    if "allOf" in s:
        parts = []
        for part in s["allOf"]:
            while "$ref" in part:
                part = root["$defs"][part["$ref"].split("/")[-1]]
            parts.append(part)
        return value(merged([{k: v for k, v in s.items() if k != "allOf"}] + parts), root, depth + 1)
    if "const" in s:
        return s["const"]
    if "enum" in s:
        return random.choice(s["enum"])
    kind = s.get("type") or ("object" if {"properties", "required"} & set(s) else "number" if "minimum" in s or "maximum" in s else None)
    if isinstance(kind, list):
        kind = random.choice(kind)
    if kind is None:
        return value(True, root)
    if kind == "null":
        return None
    if kind == "boolean":
        return random.random() < 0.5
    if kind in ("integer", "number"):
        low = s.get("minimum", s.get("exclusiveMinimum", -10_000))
        high = s.get("maximum", s.get("exclusiveMaximum", 10_000))
        step = s.get("multipleOf")
        for _ in range(1000):
            x = random.uniform(low, high)
            x = round(x / step) * step if step else x
            x = round(x, 2) if kind == "number" else round(x)
            if jsonschema.Draft202012Validator({k: v for k, v in s.items() if k != "multipleOf"}).is_valid(x):
                return x
    if kind == "string":
        if "format" in s:
            return FORMATS[s["format"]]()
        if "pattern" in s:
            return random.choice(PATTERNS[s["pattern"]])
        return text(s.get("minLength", 0), s.get("maxLength", 20))
    if kind == "array":
        prefix = s.get("prefixItems", [])
        items = s.get("items", True if not prefix else False)
        low, high = s.get("minItems", 0), s.get("maxItems", 3)
        n = random.randint(low, max(low, min(high, low + 3 if depth < 4 else low)))
        if items is False:
            n = min(n, len(prefix))
        return [value(prefix[i] if i < len(prefix) else items, root, depth + 1) for i in range(n)]
    out = {}
    properties = s.get("properties", {})
    required = s.get("required", [])
    for name, sub in properties.items():
        if name in required or sub is not False and random.random() < (0.5 if depth < 4 else 0.1):
            out[name] = value(sub, root, depth + 1)
    for name in required:
        if name not in properties:
            out[name] = value(True, root)
    more = s.get("additionalProperties", not properties and "patternProperties" not in s)
    if more is not False:
        for _ in range(max(s.get("minProperties", 0), random.randint(0, min(2, s.get("maxProperties", 2))))):
            name = random.choice(s.get("propertyNames", {}).get("enum", [f"other {len(out)} é"]))
            out[name] = value(more, root, depth + 1)
    return out


def merged(parts):
    """Enough of allOf for these schemas."""
    out = {}
    for part in parts:
        for k, v in copy.deepcopy(part).items():
            if k == "properties":
                for name, sub in v.items():
                    out.setdefault(k, {})[name] = merged([out.get(k, {}).get(name, {}), sub]) if name in out.get(k, {}) else sub
            elif k == "required":
                out[k] = out.get(k, []) + [x for x in v if x not in out.get(k, [])]
            else:
                out[k] = v
    return out


def spoilt(v):
    """A value that differs in one place."""
    if isinstance(v, dict) and v and random.random() < 0.8:
        k = random.choice(list(v))
        if random.random() < 0.3:
            return {a: b for a, b in v.items() if a != k}
        return {a: spoilt(b) if a == k else b for a, b in v.items()}
    if isinstance(v, list) and v and random.random() < 0.8:
        i = random.randrange(len(v))
        return v[:i] + ([] if random.random() < 0.3 else [spoilt(v[i])]) + v[i + 1:]
    if isinstance(v, bool) or v is None:
        return random.choice([0, "x", [], {}])
    if isinstance(v, (int, float)):
        return random.choice([v + 0.5, -v - 1000, v * 10 + 3, str(v), v + 1])
    if isinstance(v, str):
        return random.choice([v + "x", v[1:], v * 300, 5, v.upper(), "0" + v])
    return random.choice([None, 7, [v], {"a": v}])


def main():
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    lines = []
    for i, line in enumerate((FOLDER / "schemas.jsonl").read_text().splitlines()):
        schema = json.loads(line)
        validator = jsonschema.Draft202012Validator(schema, format_checker=checker)
        good = bad = 0
        for n in range(200):
            v = value(schema, schema)
            if good < 6 and validator.is_valid(v):
                how = [{"ensure_ascii": False}, {"ensure_ascii": False, "indent": 2}, {"ensure_ascii": False, "separators": (",", ":")}][n % 3]
                lines.append({"schema": i, "valid": True, "text": json.dumps(v, **how)})
                good += 1
            w = spoilt(v)
            if bad < 6 and not validator.is_valid(w):
                lines.append({"schema": i, "valid": False, "text": json.dumps(w, ensure_ascii=False)})
                bad += 1
        assert good == 6, schema
    (FOLDER / "documents.jsonl").write_text("".join(json.dumps(x, ensure_ascii=False) + "\n" for x in lines))
    print(len(lines), "documents,", sum(x["valid"] for x in lines), "of them valid")


main()
