"""Every fault of a job.toml at once, each with its line, what was expected, and the cure.

tomllib tells no positions, so a key's line is found by searching the text; of a file that is
no TOML its own message tells it.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attempt_runner.course import CAUSES, plot_course
from attempt_runner.isolate import TIERS
from attempt_runner.jobfile import TABLES, make_job_file
from attempt_runner.plan import intend
from attempt_runner.resolve import CONVERTERS, frozen_model, resolve
from attempt_runner.scores.formats import TABLE
from attempt_runner.settings import flag_of, settings
from bootstrap.bind_receipt import is_identifier
from bootstrap.errors import RunnerError, shown
from bootstrap.scorepath import check_score_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from dataclasses import Field

    from attempt_runner.plan import Caller

KNOWN: Final = {flag_of(item.name): item for item in settings()}
CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "isolation": ("auto", *TIERS),
    "agent-network": ("on", "off"),
    "scorer-network": ("on", "off"),
    "score-format": tuple(TABLE),
    "failover-on": CAUSES,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One mistake: its line (0 where none tells), and the parts of an error message."""

    line: int
    what: str
    expected: str
    found: str
    remedy: str


def find_faults(path: Path, data: bytes, who: Caller) -> tuple[Fault, ...]:
    """Return what is wrong with the bytes of a job.toml, in the order of its lines.

    1. It is TOML. 2. Tables, keys and each value alone. 3. Only if nothing was found so far:
    what contradicts itself, or names what is not there; of these the first alone.
    """
    try:
        text = data.decode("utf-8")
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # 1
        found = re.search(r"at line (\d+)", str(error))
        return (Fault(int(found[1]) if found else 0, "syntax", "TOML", str(error), "correct it"),)
    faults = list(_faults_alone(text, document))  # 2
    if not faults:
        faults += _faults_together(path, data, text, document, who)  # 3
    return tuple(sorted(faults, key=lambda fault: fault.line))


def _faults_alone(text: str, document: Mapping[str, Any]) -> Iterator[Fault]:
    for table, entries in document.items():
        if table not in TABLES:
            yield _unknown(find_line(text, "", table), "table", table, TABLES)
        elif not isinstance(entries, dict):
            line = find_line(text, "", table)
            yield Fault(line, table, f"a table [{table}]", "a value", f"write [{table}]")
        else:
            for key, value in entries.items():
                yield from _faults_of(find_line(text, table, key), table, key, value)
    if isinstance(document.get("job"), dict) and "workspace" not in document["job"]:
        line, remedy = find_line(text, "", "job"), 'add workspace = "DIR"'
        yield Fault(line, "workspace", "a directory in [job]", "none", remedy)


def _faults_of(line: int, table: str, key: str, value: object) -> Iterator[Fault]:
    item = KNOWN.get(key)
    if item is None:
        yield _unknown(line, "key", key, KNOWN)
    elif (place := item.metadata["table"]) != table:
        yield Fault(line, key, f"it in [{place}]", f"it in [{table}]", f"move it to [{place}]")
    else:
        yield from _faults_of_value(line, key, item, value)


def _faults_of_value(line: int, key: str, item: Field[Any], value: object) -> Iterator[Fault]:
    convert, expected = CONVERTERS[str(item.type)]
    try:
        convert(value, Path("/"))
    except (TypeError, ValueError, OverflowError):
        yield Fault(line, key, expected, repr(value), f"write {_example(item)}")
        return
    for word in value if isinstance(value, list) else [value]:
        if key in CHOICES and word not in CHOICES[key]:
            yield _unknown(line, f"value of {key}", str(word), CHOICES[key])
        elif key == "model" and not is_identifier(word):
            expected = "1 to 256 visible ASCII characters, no space, no leading dash"
            yield Fault(line, key, expected, str(word), "spell it exactly as the provider does")
        elif key == "score-path":
            yield from _faults_of_score_path(line, word)


def _example(item: Field[Any]) -> str:
    key = flag_of(item.name)
    examples = {"bool": "true", "int": "1", "float": "600", "tuple[int, ...]": "[0]"}
    text = '["..."]' if str(item.type).startswith("tuple") else '"..."'
    return f"{key} = {examples.get(str(item.type), text)}"


def _faults_of_score_path(line: int, word: object) -> Iterator[Fault]:
    try:
        check_score_path(str(word))
    except RunnerError as error:
        yield Fault(line, "score-path", error.expected, error.found, error.remedy)


def _faults_together(
    path: Path, data: bytes, text: str, document: Mapping[str, Any], who: Caller
) -> Iterator[Fault]:
    try:
        file = make_job_file(path, document, data)
        job = resolve({}, file.values, cwd=who.cwd, config_path=path, config_sha256=file.sha256)
        frozen_model(job, who.environ)
        plot_course(intend(job, who), who.environ)
    except RunnerError as error:
        line = _line_of(text, error.what)
        yield Fault(line, error.what, error.expected, error.found, error.remedy)
        return
    if job.prompt and not job.prompt.is_file():
        line = _line_of(text, "prompt")
        yield Fault(line, "prompt", "a file", f"none at {job.prompt}", "write the prompt there")


def _line_of(text: str, what: str) -> int:
    """Return the line of the setting that an error's subject names, 0 if none."""
    for word in re.findall(r"[a-z]+(?:-[a-z]+)*", what):
        if word in KNOWN and (line := find_line(text, KNOWN[word].metadata["table"], word)):
            return line
    return 0


def find_line(text: str, table: str, key: str) -> int:
    """Return the line where a key of a table stands, or the table itself for an empty `table`.

    0 for one that is written in a way that this search does not know, such as a dotted key.
    """
    current = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[+\s*[\"']?([^\"'\]]*?)[\"']?\s*\]", line):
            current = header[1]
            if not table and current == key:
                return number
        elif re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line) and current == table:
            return number
    return 0


def _unknown(line: int, kind: str, name: str, known: Iterable[str]) -> Fault:
    names = list(known)
    near = get_close_matches(name, names, n=1)
    expected = near[0] if near else ", ".join(names[:12])
    remedy = f"did you mean {near[0]}?" if near else "remove it, or see docs/configuration.md"
    return Fault(line, f"unknown {kind} {shown(name)}", expected, shown(name), remedy)
