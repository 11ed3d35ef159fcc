from __future__ import annotations

import pytest

from attempt_runner.scores.served import model_evidence, parse_aliases, served_model
from bootstrap.errors import UsageError
from tests.scores import golden, read_bytes


@pytest.mark.parametrize(
    ("file", "frozen", "aliases", "required", "found"),
    [
        ("junit/prop.xml", "openai/gpt-x", {}, True, None),
        ("junit/prop.xml", "openai/gpt-y", {}, False, "openai/gpt-x"),
        ("junit/prop.xml", "openai/gpt-X", {}, False, "openai/gpt-x"),
        ("junit/prop.xml", "gpt", {"openai/gpt-x": "gpt"}, True, None),
        ("junit/prop.xml", "openai/gpt-x", {"openai/gpt-x": "gpt"}, True, None),
        ("junit/prop.xml", "gpt", {"gpt": "openai/gpt-x"}, True, "openai/gpt-x"),
        ("junit/pass.xml", "gpt", {}, False, None),
        ("junit/pass.xml", "gpt", {}, True, "none named"),
        ("ctrf/model.json", "org/model-a", {}, False, "org/model-b"),
        ("ctrf/model.json", "org/model-c", {}, False, "org/model-a, org/model-b"),
    ],
)
def test_the_model_served_is_compared_with_the_frozen_one(
    *, file: str, frozen: str, aliases: dict[str, str], required: bool, found: str | None
) -> None:
    """Another model, or none where one must be named, is a finding that tells both."""
    score = read_bytes(file.partition("/")[0], golden(file))
    finding = served_model(score, frozen, aliases, required=required)
    assert (finding and finding.found) == found
    assert finding is None or (finding.field == "served_model" and frozen in finding.expected)


def test_a_foreign_model_is_seen_beside_a_fail_too() -> None:
    """A mismatch is no matter of the verdict: no score must not hide it."""
    data = golden("promptfoo/err.json")
    score = read_bytes("promptfoo", data)
    assert served_model(score, "echo", {}, required=False) is not None


def test_swebench_names_its_model_by_where_the_report_lies() -> None:
    """The label is a directory of the instance's report, or the name of the run's."""
    instance, run = golden("swebench/report.ok__ok-1.json"), golden("swebench/run_resolved.json")
    named = {
        "logs/run_evaluation/run-1/org__model-a/ok__ok-1/report.json": (instance, "org__model-a"),
        "org__model-a.run-1.json": (run, "org__model-a"),
        "out/gpt-4.1.run-1.json": (run, "gpt-4.1"),
        "report.json": (instance, None),
        "org__model-a/other-1/report.json": (instance, None),
        "run.json": (run, None),
    }
    for file, (data, model) in named.items():
        assert read_bytes("swebench", data, file=file).models == ((model,) if model else ()), file


def test_the_observed_model_goes_to_evidence_by_its_role() -> None:
    """What was asked for and what answered have names of their own."""
    score = read_bytes("inspect", golden("inspect/ok.json"), "accuracy>=0.5")
    assert model_evidence(score) == {
        "gen_ai.request.model": ["mockllm/model"],
        "gen_ai.response.model": ["mockllm/model"],
    }
    assert model_evidence(read_bytes("tap", golden("tap/pass.tap"))) == {}


def test_aliases_are_pairs_of_model_ids() -> None:
    """One served name stands for one frozen id."""
    assert parse_aliases(["a=b", "c=b", "a=b"]) == {"a": "b", "c": "b"}
    for words in (
        ["a"],
        ["=b"],
        ["a="],
        ["a=b=c"],
        ["a b=c"],
        ["-a=b"],
        ["a=b", "a=c"],
        ["a=\u00e9"],
    ):
        with pytest.raises(UsageError):
            parse_aliases(words)
