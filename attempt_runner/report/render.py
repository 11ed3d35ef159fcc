"""Views to one self-contained page. The only file that touches the extra [report]."""

from __future__ import annotations

import secrets
import unicodedata
from typing import TYPE_CHECKING, Final

from attempt_runner.report.timeline import draw
from bootstrap.errors import ConfigurationError

try:
    from jinja2 import Environment, PackageLoader, StrictUndefined
except ImportError as error:
    raise ConfigurationError(
        "report",
        expected="the library of the extra [report]",
        found="none",
        remedy="install attempt-runner[report]",
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attempt_runner.report.model import WorkspaceView

PAGE: Final = 100  # attempts that are shown together
# General categories that a reader cannot see, or that change how what follows is shown:
# controls, format and bidirectional marks, surrogates, separators, and what has no meaning.
UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def render(workspaces: Sequence[WorkspaceView], made: str) -> Iterator[str]:
    """Yield the page in pieces. Every text is escaped by the template engine.

    `made` says when, for people. Style and script carry a fresh nonce, and the page's policy
    allows nothing else: what text might smuggle in could not run or load.
    """
    environment = Environment(
        loader=PackageLoader("attempt_runner.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = visible
    attempts = [one for workspace in workspaces for one in workspace.attempts]
    return environment.get_template("page.html").generate(
        workspaces=workspaces,
        timelines=[(one, draw(one.attempts)) for one in workspaces if one.attempts],
        models=sorted({one.model_id for one in attempts}),
        outcomes=sorted({one.outcome for one in attempts}),
        fields=sorted({item.name for one in attempts for item in one.fields}),
        total=len(attempts),
        page=PAGE,
        made=made,
        nonce=secrets.token_urlsafe(24),
    )


def visible(text: object) -> str:
    """Return a text with every character that cannot be seen as a backslash escape."""
    return "".join(
        character.encode("unicode_escape").decode("ascii")
        if unicodedata.category(character) in UNSEEN
        else character
        for character in str(text)
    )
