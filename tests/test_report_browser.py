"""The report in a real browser: what it shows, that it asks for nothing, who can use it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from attempt_runner.report.model import AttemptView, FieldView, WorkspaceView, read_workspace
from attempt_runner.report.render import render
from tests.machine import needs
from tests.outcomes import NASTY, run_every_outcome

pytestmark = needs("browser")
webdriver = pytest.importorskip("selenium.webdriver", reason="machine lacks: selenium")
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from selenium.webdriver import Chrome

NOTHING_LEAVES = ("file://", "data:", "chrome://", "about:")
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the page of one job of every outcome."""
    directory = tmp_path_factory.mktemp("outcomes")
    view = read_workspace(run_every_outcome(directory).state)
    return write_page(directory / "report.html", view)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """Start one browser for all tests of this file."""
    from tests.browser import open_browser  # noqa: PLC0415 - selenium may be absent

    with open_browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(started: Chrome, page: Path) -> Chrome:
    """Return the browser with the page open, as wide as a desk."""
    started.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    prefer(started, "light")
    started.set_window_size(1280, 1400)
    started.get("about:blank")
    for kind in ("performance", "browser"):
        logged(started, kind)
    started.get(page.as_uri())
    return started


def logged(browser: Chrome, kind: str) -> list[dict[str, Any]]:
    """Return what was logged since the last call."""
    return list(browser.get_log(kind))


def write_page(path: Path, *views: WorkspaceView) -> Path:
    """Write the page of some workspaces."""
    path.write_text("".join(render(views, "2026-12-01")), encoding="utf-8")
    return path


def prefer(browser: Chrome, scheme: str) -> None:
    """Prefer light or dark, as a reader's system does."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def phone(browser: Chrome) -> None:
    """Look at the page as a telephone does."""
    size = {"width": 390, "height": 1600, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def shown(browser: Chrome) -> list[str]:
    """Return the outcomes of the attempts that can be seen, in order."""
    script = """return [...document.querySelectorAll('article')]
        .filter(a => a.checkVisibility()).map(a => a.dataset.outcome)"""
    return list(browser.execute_script(script))


def choose(browser: Chrome, name: str, value: str) -> None:
    """Set one field of the filter as a person would, who makes events."""
    script = """const field = document.forms[0].elements[arguments[0]];
        field.value = arguments[1]; field.dispatchEvent(new Event('input', {bubbles: true}))"""
    browser.execute_script(script, name, value)


def test_it_renders_without_a_complaint_and_without_a_request(browser: Chrome) -> None:
    """No console message, no blocked resource, and nothing but the file itself is asked for."""
    assert len(shown(browser)) == 11
    assert logged(browser, "browser") == []
    messages = [json.loads(item["message"])["message"] for item in logged(browser, "performance")]
    asked = [
        item["params"]["request"]["url"]
        for item in messages
        if item["method"] == "Network.requestWillBeSent"
    ]
    assert asked
    assert [url for url in asked if not url.startswith(NOTHING_LEAVES)] == []


def test_untrusted_text_makes_no_element_and_runs_nothing(browser: Chrome) -> None:
    """The name that a hostile model gave itself is text on the page."""
    assert browser.execute_script("return document.images.length") == 0
    assert browser.execute_script("return document.scripts.length") == 1
    text = browser.execute_script("return document.body.textContent")
    assert NASTY.partition("\x1b")[0] in text


@pytest.mark.parametrize(
    ("name", "value", "count"),
    [
        ("model", "model-b", 1),
        ("outcome", "rejected", 5),
        ("field", "verdict", 1),
        ("text", "SCORER-UNAVAILABLE", 1),
        ("text", "nothing has this", 0),
    ],
)
def test_a_filter_leaves_what_matches(browser: Chrome, name: str, value: str, count: int) -> None:
    """By model, verdict, field and text; the count is told to who cannot see it."""
    choose(browser, name, value)
    assert len(shown(browser)) == count
    status = browser.execute_script("return document.getElementById('shown').textContent")
    assert status == f"{count} of 11 attempts"


def test_a_link_of_a_failover_shows_its_target_though_a_filter_hid_it(browser: Chrome) -> None:
    """Following a link clears a filter that hides where it leads."""
    choose(browser, "model", "model-b")
    browser.execute_script("document.querySelector('article:not([hidden]) a').click()")
    script = "return document.querySelector(':target').checkVisibility()"
    assert browser.execute_script(script) is True


def test_the_keyboard_reaches_everything(browser: Chrome) -> None:
    """The first stop skips to the attempts; the filter and every attempt's details follow."""
    from selenium.webdriver import ActionChains, Keys  # noqa: PLC0415 - may be absent

    stops = []
    for _ in range(60):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        script = "const one = document.activeElement; return one.name || one.tagName"
        first_stop = "return document.activeElement.className === 'skip'"
        stops.append(
            "skip" if browser.execute_script(first_stop) else browser.execute_script(script)
        )
    assert stops[0] == "skip"
    wanted = ["model", "outcome", "field", "text"]
    first = stops.index("model")
    assert stops[first : first + 4] == wanted
    round_trip = stops[: stops.index("skip", 1)]
    assert round_trip.count("SUMMARY") == 11


def test_the_page_is_whole_without_script(page: Path, tmp_path: Path) -> None:
    """No filter is offered where none could work, and every attempt is there."""
    from tests.browser import open_browser  # noqa: PLC0415 - selenium may be absent

    with open_browser(tmp_path) as browser:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        browser.get(page.as_uri())
        assert len(shown(browser)) == 11
        visible = "return document.getElementById('filter').checkVisibility()"
        assert browser.execute_script(visible) is False


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_axe_finds_no_serious_fault(browser: Chrome, look: str, tmp_path: Path) -> None:
    """Contrast, names, roles, order: in each look; the screenshot is kept where asked."""
    if look == "phone":
        phone(browser)
    else:
        prefer(browser, look)
    picture = browser.get_screenshot_as_png()
    assert picture.startswith(b"\x89PNG")
    kept = os.environ.get("REPORT_SCREENSHOTS") or str(tmp_path)
    with open(os.path.join(kept, f"report-{look}.png"), "wb") as file:
        file.write(picture)
    faults = [item for item in run_axe(browser) if item["impact"] in SERIOUS]
    assert [(item["id"], item["nodes"][0]["html"]) for item in faults] == []


def run_axe(browser: Chrome) -> list[dict[str, Any]]:
    """Return what axe-core finds fault with."""
    axe = pytest.importorskip("axe_core_python", reason="machine lacks: axe-core-python")
    with open(os.path.join(axe.__path__[0], "axe.min.js"), encoding="utf-8") as file:
        browser.execute_script(file.read())
    script = "const done = arguments[0]; axe.run().then(found => done(found.violations))"
    return list(browser.execute_async_script(script))


def test_a_phone_scrolls_down_and_not_sideways(browser: Chrome) -> None:
    """What is wider than the screen scrolls in a box of its own."""
    phone(browser)
    script = "return [document.documentElement.scrollWidth, innerWidth]"
    width, room = browser.execute_script(script)
    assert width <= room


def test_print_leaves_out_what_paper_cannot_do(browser: Chrome) -> None:
    """The filter is not printed; the attempts are."""
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    script = "return document.getElementById('filter').checkVisibility()"
    assert browser.execute_script(script) is False
    assert len(shown(browser)) == 11
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_ten_thousand_attempts_page_by_hundreds(started: Chrome, tmp_path: Path) -> None:
    """One file holds them all; the browser shows a hundred, and the next."""
    fields = (FieldView("verdict", "pass", "fail", "same identity, verdict fail", "read it"),)
    attempts = tuple(
        AttemptView(
            attempt_id=f"att-20261201T000000Z-{number:032x}",
            generation=f"gen-{number}",
            model_id=f"model-{number % 7}",
            started="2026-12-01T00:00:00Z",
            outcome="rejected",
            cause="",
            phases=(),
            names=("verdict",),
            fields=fields,
            facts=(("scorer", "python score.py"), ("isolation: agent_tier", "none")),
        )
        for number in range(10_000)
    )
    view = WorkspaceView(name="w", path="/w", whole=True, chain="", attempts=attempts, counts={})
    started.get(write_page(tmp_path / "many.html", view).as_uri())
    assert len(shown(started)) == 100
    started.execute_script("document.querySelector('[data-step=\"1\"]').click()")
    place = started.execute_script("return document.getElementById('place').textContent")
    assert place == "page 2 of 100"
    assert len(shown(started)) == 100
    script = "return performance.getEntriesByType('navigation')[0].loadEventEnd"
    print(f"10,000 attempts loaded in {started.execute_script(script):.0f} ms")  # noqa: T201
