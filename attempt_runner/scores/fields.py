"""Typed access to parsed JSON: each getter returns the exact type, or says what is wrong.

`where` names the owner in messages. A boolean is never a number, a number never a text.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from attempt_runner.scores.score import wrong
from bootstrap.bind_receipt import StrictJsonError, load_json

if TYPE_CHECKING:
    from attempt_runner.scores.score import NoScoreError

Table = dict[str, Any]

_KINDS = {
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    type(None): "null",
}


def load_object(data: bytes, what: str) -> Table:
    """Parse a file that must be one strict JSON object."""
    try:
        value = load_json(data)
    except StrictJsonError as error:
        raise wrong(what, "strict UTF-8 JSON", error) from error
    return as_object(value, what)


def kind_of(value: object) -> str:
    """Return what a parsed value is, in words."""
    return _KINDS.get(type(value), "something else")


def as_object(value: object, what: str) -> Table:
    """Return a value that must be an object."""
    if type(value) is not dict:
        raise _unlike(what, dict, value)
    return value


def as_text(value: object, what: str) -> str:
    """Return a value that must be a text with something in it."""
    if type(value) is not str:
        raise _unlike(what, str, value)
    if is_blank(value):
        raise wrong(what, "a text that is not blank", "a blank one")
    return value


def is_blank(value: str) -> bool:
    """Tell whether a text shows a reader nothing, by the rule of the receipt's reasons."""
    return not any(char.isprintable() and not char.isspace() for char in value)


def as_number(value: object, what: str) -> float:
    """Return a value that must be a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _unlike(what, float, value)
    try:
        number = float(value)
    except OverflowError as error:
        raise wrong(what, "a finite number", "a larger one") from error
    if not math.isfinite(number):
        raise wrong(what, "a finite number", number)
    return number


def objects(owner: Table, key: str, where: str) -> list[Table]:
    """Return a member that must be a list of objects, an empty one included."""
    what = f"{where}.{key}"
    return [
        as_object(item, f"{what}[{index}]") for index, item in enumerate(items(owner, key, where))
    ]


def some_objects(owner: Table, key: str, where: str) -> list[Table]:
    """Return a member that may be absent or null, and must else be a list of objects."""
    return objects(owner, key, where) if owner.get(key) is not None else []


def items(owner: Table, key: str, where: str) -> list[Any]:
    """Return a member that must be a list."""
    value = owner.get(key)
    if type(value) is not list:
        raise _unlike(f"{where}.{key}", list, value)
    return value


def texts(owner: Table, key: str, where: str) -> list[str]:
    """Return a member that must be a list of texts, none blank."""
    what = f"{where}.{key}"
    return [
        as_text(item, f"{what}[{index}]") for index, item in enumerate(items(owner, key, where))
    ]


def child(owner: Table, key: str, where: str) -> Table:
    """Return a member that must be an object."""
    return as_object(owner.get(key), f"{where}.{key}")


def text(owner: Table, key: str, where: str) -> str:
    """Return a member that must be a text with something in it."""
    return as_text(owner.get(key), f"{where}.{key}")


def remark(owner: Table, key: str, where: str) -> str:
    """Return a member for people to read: a text that may be absent, null or blank."""
    value = owner.get(key)
    if value is not None and type(value) is not str:
        raise _unlike(f"{where}.{key}", str, value)
    return value or ""


def flag(owner: Table, key: str, where: str) -> bool:
    """Return a member that must be true or false."""
    value = owner.get(key)
    if type(value) is not bool:
        raise _unlike(f"{where}.{key}", bool, value)
    return value


def whole(owner: Table, key: str, where: str) -> int:
    """Return a member that must be an integer of at least 0."""
    value = owner.get(key)
    if type(value) is not int:
        raise _unlike(f"{where}.{key}", int, value)
    if value < 0:
        raise wrong(f"{where}.{key}", "at least 0", value)
    return value


def number(owner: Table, key: str, where: str) -> float:
    """Return a member that must be a finite number."""
    return as_number(owner.get(key), f"{where}.{key}")


def agree(header: int, found: int, what: str) -> None:
    """Refuse a header whose count is not the one that its own list gives."""
    if header != found:
        raise wrong(what, f"{found}, as its list has", header)


def _unlike(what: str, kind: type, value: object) -> NoScoreError:
    return wrong(what, _KINDS[kind], kind_of(value))
