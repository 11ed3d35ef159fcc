"""A real browser that cannot reach anything, for tests that look at a page."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from selenium.webdriver import Chrome, ChromeOptions, ChromeService

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


@contextmanager
def open_browser(profile: Path, *flags: str) -> Iterator[Chrome]:
    """Start the system's chromium with a fresh profile; end it with everything it started."""
    options = ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in (*FLAGS, f"--user-data-dir={profile}", *flags):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = Chrome(options=options, service=ChromeService(shutil.which("chromedriver")))
    try:
        yield browser
    finally:
        browser.quit()


def set_media(browser: Chrome, **features: str) -> None:
    """Emulate what a reader prefers, such as `prefers_color_scheme="dark"`."""
    listed = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": listed})
