"""A pydantic model's schema for package grammar, and what pydantic writes of a value of it:
grammar/testdata/pydantic.json.

    ~/.cache/agentcli/python/bin/python scripts/golden/grammar_pydantic.py
"""
import datetime
import enum
import ipaddress
import json
import typing
import uuid
from pathlib import Path

import pydantic


class Color(str, enum.Enum):
    red = "red"
    blue = "blue"


class Cat(pydantic.BaseModel):
    kind: typing.Literal["cat"]
    lives: int = 9


class Dog(pydantic.BaseModel):
    kind: typing.Literal["dog"]
    tricks: list[str] = []


class Node(pydantic.BaseModel):
    v: int
    kids: list["Node"] = []


class Big(pydantic.BaseModel):
    name: pydantic.constr(min_length=1, max_length=40)
    age: typing.Annotated[int, pydantic.Field(ge=0, lt=150)]
    ratio: typing.Annotated[float, pydantic.Field(gt=0, le=1)] = 0.5
    color: Color = Color.red
    pet: typing.Annotated[typing.Union[Cat, Dog], pydantic.Field(discriminator="kind")]
    when: datetime.datetime
    day: datetime.date | None = None
    time: datetime.time | None = None
    took: datetime.timedelta | None = None
    id: uuid.UUID
    pair: tuple[int, str]
    many: tuple[int, ...] = ()
    table: dict[str, float] = {}
    by: dict[Color, int] = {}
    flags: dict[typing.Literal["a", "b"], bool] = {}
    any: typing.Any = None
    tree: Node | None = None
    either: int | str | list[int] | None = None
    address: ipaddress.IPv4Address | None = None
    code: pydantic.constr(pattern=r"^[A-Z]{2}\d+$") = "AB1"


full = Big(name='Zoë "x"', age=3, pet=Dog(kind="dog", tricks=["sit"]), when=datetime.datetime(2024, 2, 29, 1, 2, 3, tzinfo=datetime.timezone.utc),
           day=datetime.date(2020, 1, 1), took=datetime.timedelta(days=1, seconds=5), id=uuid.UUID(int=7), pair=(1, "a"), many=(1, 2),
           table={"x": 1.5}, by={"red": 1}, flags={"b": True}, any={"z": [1]}, tree=Node(v=1, kids=[Node(v=2)]), either=[1], address="1.2.3.4")
least = Big(name="x", age=149, pet=Cat(kind="cat"), when=datetime.datetime(1999, 12, 31, 23, 59, 59, 250000, tzinfo=datetime.timezone.utc),
            id=uuid.UUID(int=2**127), pair=(-1, ""))
documents = [m.model_dump_json(indent=i, exclude_unset=u) for m in (full, least) for i in (None, 2) for u in (False, True)]
out = Path(__file__).resolve().parents[2] / "grammar" / "testdata" / "pydantic.json"
out.write_text(json.dumps({"schema": Big.model_json_schema(), "documents": documents}, ensure_ascii=False, indent=1) + "\n")
