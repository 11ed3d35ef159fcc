from __future__ import annotations

import csv
from typing import Final, NamedTuple

import pytest

from tests.scores import GOLDEN, golden, read_bytes


class Row(NamedTuple):
    """One line of the table of expected verdicts."""

    file: str
    threshold: str
    verdict: str
    says: str


def _rows() -> list[Row]:
    with (GOLDEN / "verdicts.tsv").open(encoding="utf-8", newline="") as table:
        lines = csv.reader(table, delimiter="\t", quoting=csv.QUOTE_NONE)
        next(lines)
        return [Row(*line) for line in lines]


ROWS: Final = _rows()
# A numeric format must be given a threshold before it names anything.
THRESHOLDS: Final = {
    "harbor": "reward>=0",
    "inspect": "accuracy>=0",
    "lm-eval": "acc,none>=0",
}
MODELS: Final = [
    ("ctrf/pass.json", ()),
    ("harbor/ok-trial.json", ("anthropic/claude-x",)),
    ("harbor/no_model.json", ()),
    ("harbor/no_provider.json", ("claude-x",)),
    ("inspect/ok.json", ("mockllm/model",)),
    ("inspect/ok.eval", ("mockllm/model",)),
    ("promptfoo/fail.json", ("echo",)),
    ("promptfoo/err.json", ("exec:false",)),
    ("lm-eval/ok.json", ()),
    ("lm-eval/named.json", ("org/model-a",)),
    ("lm-eval/text_arguments.json", ("org/model-a",)),
    ("lm-eval/adapter.json", ("org/adapter", "org/model-a")),
    ("junit/prop.xml", ("openai/gpt-x",)),
    ("ctrf/model.json", ("org/model-a", "org/model-b")),
    ("score-json/model.json", ("org/model-a",)),
    ("swebench/report.ok__ok-1.json", ()),
    ("tap/pass.tap", ()),
    ("sarif/syn.sarif", ()),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.file} {row.threshold}".strip())
def test_each_file_gives_its_verdict(row: Row) -> None:
    """Real output and every defect give the verdict of the table, and say why."""
    thresholds = [row.threshold] if row.threshold else []
    score = read_bytes(row.file.partition("/")[0], golden(row.file), *thresholds)
    assert score.verdict == row.verdict
    assert row.says in "\n".join((*score.reasons, score.cause))


def test_the_table_is_complete() -> None:
    """No file is left out of the table, and every format that has files is in it."""
    found = {str(path.relative_to(GOLDEN)) for path in GOLDEN.glob("*/*")}
    assert found == {row.file for row in ROWS}


@pytest.mark.parametrize(("file", "models"), MODELS)
def test_each_file_names_its_models(file: str, models: tuple[str, ...]) -> None:
    """The model ids are the file's own, in its own spelling."""
    name = file.partition("/")[0]
    thresholds = [THRESHOLDS[name]] if name in THRESHOLDS else []
    assert read_bytes(name, golden(file), *thresholds).models == models
