from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from attempt_runner.advice import NEXT
from attempt_runner.gate import ORDER
from attempt_runner.lab import CASES
from attempt_runner.report.model import STATES, AttemptView, WorkspaceView, read_workspace
from attempt_runner.report.render import render, visible
from attempt_runner.report.timeline import draw
from tests.jobs import ROOT_COMMAND, Job, make_job
from tests.outcomes import run_every_outcome

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Run one job of every outcome."""
    return run_every_outcome(tmp_path_factory.mktemp("outcomes"))


@pytest.fixture(scope="module")
def view(outcomes: Job) -> WorkspaceView:
    """Read the state of those jobs."""
    return read_workspace(outcomes.state)


class Reader(HTMLParser):
    """Keeps what a page would load, where its links lead, and which ids it has."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take one tag."""
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            elif name == "href":
                (self.loads if tag == "link" else self.links).append(str(value))
            elif name in ("src", "srcset", "data", "action") or name.startswith("on"):
                self.loads.append(str(value))


def page_of(*views: WorkspaceView) -> str:
    """Return the page of some workspaces."""
    return "".join(render(views, "2026-12-01"))


def test_every_outcome_is_told_as_the_log_has_it(view: WorkspaceView) -> None:
    """Newest first, each with its outcome and the fields that refused."""
    assert view.whole
    assert [(one.model_id, one.outcome, one.names) for one in view.attempts] == [
        ("model-a", "open", ()),
        ("model-b", "accepted", ()),
        ("model-a", "attempt_aborted", ()),
        ("model-a", "attempt_aborted", ()),
        ("model-a", "rejected", ("served_model",)),
        ("model-a", "rejected", ("diff_sha256",)),
        ("model-a", "rejected", ("agent",)),
        ("model-a", "rejected", ("missing_receipt",)),
        ("model-a", "rejected", ("verdict",)),
        ("model-a", "accepted", ()),
        ("model-a", "consumed", ()),
    ]


def test_a_reject_shows_expected_beside_found_and_its_row_of_the_table(
    view: WorkspaceView,
) -> None:
    """What decision.json holds is joined with the decision table and what to do next."""
    by_name = {item.name: item for one in view.attempts for item in one.fields}
    assert (by_name["verdict"].expected, by_name["verdict"].found) == ("pass", "fail")
    assert by_name["verdict"].state == "same identity, verdict fail"
    assert by_name["diff_sha256"].state == "diff changed after scoring"
    assert by_name["missing_receipt"].state == "receipt missing"
    assert all(item.next_step for item in by_name.values())


def test_a_failover_links_both_attempts(view: WorkspaceView) -> None:
    """The one that gave way names the next, and the next names it, with the cause."""
    after, before = view.attempts[1:3]
    assert (after.earlier, before.later) == (before.attempt_id, after.attempt_id)
    assert before.gave_way == "scorer-unavailable"
    assert before.ended == "aborted, failed over"
    rows = {row.attempt.attempt_id: row for row in draw(view.attempts).rows}
    assert rows[after.attempt_id].follows
    assert rows[after.attempt_id].start == rows[before.attempt_id].end


def test_the_page_loads_nothing_and_its_links_lead_to_its_own_ids(view: WorkspaceView) -> None:
    """One file: no request, no handler, and every link leads somewhere in it."""
    reader = Reader(page_of(view))
    assert reader.loads == ["data:,"]
    assert all(link.startswith("#") and link[1:] in reader.ids for link in reader.links)
    assert len(set(reader.ids)) == len(reader.ids)
    assert reader.tags.count("article") == len(view.attempts)
    assert reader.tags.count("script") == 1


def test_the_policy_allows_only_this_pages_own_script_and_style(view: WorkspaceView) -> None:
    """The nonce is fresh, and nothing is inline beside it."""
    nonces = []
    for page in (page_of(view), page_of(view)):
        (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
        (nonce,) = set(re.findall(r"'nonce-([^']+)'", policy))
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy
        assert f'<script nonce="{nonce}">' in page
        assert ' style="' not in page
        nonces.append(nonce)
    assert len(set(nonces)) == 2


def test_untrusted_text_stays_text(view: WorkspaceView) -> None:
    """What the served model called itself is neither markup nor a control character."""
    page = page_of(view)
    assert "<script>alert" not in page
    assert "<img" not in page
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u202e]", page)
    assert "&lt;/script&gt;" in page


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 日本", "plain é 日本"),
        ("a\nb\x1b[2K", "a\\nb\\x1b[2K"),
        ("\u202eabc\u2066", "\\u202eabc\\u2066"),
        ("\udcff", "\\udcff"),
        ("\u200b\ufeff\U000e0041", "\\u200b\\ufeff\\U000e0041"),
    ],
)
def test_what_cannot_be_seen_is_spelled_out(text: str, shown: str) -> None:
    """Letters of every script stay; what hides or reorders them does not."""
    assert visible(text) == shown


def test_a_broken_chain_is_said_and_what_stands_before_it_is_shown(tmp_path: Path) -> None:
    """The report is needed most when something is broken."""
    job = make_job(tmp_path)
    job.run()
    log = job.state / "job-log.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"event":"accepted"', b'"event":"rejected"'))
    view = read_workspace(job.state)
    assert not view.whole
    assert "line" in view.chain
    assert len(view.attempts) == 1
    assert ">broken<" in page_of(view)


def test_files_that_are_gone_are_said(tmp_path: Path) -> None:
    """An attempt of the log without a directory is listed all the same."""
    job = make_job(tmp_path)
    job.run(scorer=job.scorer("fail"))
    shutil.rmtree(job.attempts[0])
    (one,) = read_workspace(job.state).attempts
    assert one.trouble
    assert [(item.name, item.found) for item in one.fields] == [("verdict", "not recorded")]


def test_the_command_writes_one_file_of_all_workspaces(outcomes: Job, tmp_path: Path) -> None:
    """Without --workspace, all that have state in the state directory."""
    out = tmp_path / "page.html"
    flags = ("--state-dir", str(outcomes.state_root), "--out", str(out))
    done = subprocess.run(
        [*ROOT_COMMAND, "report", *flags], capture_output=True, check=False, text=True
    )
    assert (done.returncode, done.stdout) == (0, f"{out}\n")
    assert out.read_text().count("<article") == 11


def test_a_state_directory_without_logs_is_refused(tmp_path: Path) -> None:
    """An empty page would look like a quiet machine."""
    job = make_job(tmp_path)
    job.state_root.mkdir(mode=0o700)
    assert job.command("report").returncode == 78


def test_every_reject_name_has_a_next_step_that_is_not_to_ask_again() -> None:
    """Nothing advises to verify the same attempt once more."""
    assert set(ORDER) == set(NEXT)
    assert not [text for text in NEXT.values() if "retry" in text or "verify again" in text]


def test_the_states_are_those_of_the_decision_table() -> None:
    """Seven states, each under what the bound gate says of it."""
    assert list(STATES.values()) == [case.state for case in CASES]


def test_ten_thousand_attempts_are_one_page_of_hundreds() -> None:
    """Each hundred is a part of its own, which a browser lays out only when it is looked at."""
    attempts = tuple(
        AttemptView(
            attempt_id=f"att-20261201T000000Z-{number:032x}",
            generation="gen",
            model_id="m",
            started="",
            outcome="accepted",
            cause="",
            phases=(),
            names=(),
        )
        for number in range(10_000)
    )
    page = page_of(
        WorkspaceView(name="w", path="/w", whole=True, chain="", attempts=attempts, counts={})
    )
    assert page.count('<div class="chunk">') == 100
