"""Write docs/configuration.md from the settings; `--print` prints the page instead."""

from __future__ import annotations

import re
import sys
from dataclasses import MISSING
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attempt_runner.resolve import CONVERTERS
from attempt_runner.settings import flag_of, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from dataclasses import Field

PAGE: Final = Path(__file__).parent.parent / "docs" / "configuration.md"
HEAD: Final = """\
# Configuration

Made from the settings' own types and help by `scripts/write_configuration.py`; do not edit.

Every setting is a flag of the same name, and a key of `job.toml` in the table named here. A flag
wins over the key, the key over the default. Relative paths of flags are relative to the caller's
directory, those of `job.toml` to the file's. An empty value is refused, never read as "not given".

```toml
[job]
workspace = "workspace"
model = "my-model-1"
prompt = "prompt.md"
diff = "workspace/change.diff"
score-path = ["receipt.json", "score.json"]

[scorer]
scorer = ["python3", "-I", "/opt/scorers/native.py"]
scorer-timeout = 600
```

Only you or root may be able to write the file, and it may not lie in the workspace; a link to it
is followed, and its target judged. An unknown table or key is refused (78).

*Read by*: `bootstrap`, `attempt`, or both; `run` reads all.
"""
READERS: Final = {
    "both": "bootstrap, attempt",
    "start": "bootstrap",
    "attempt": "attempt",
    "run": "run",
}


def default_of(item: Field[Any]) -> str:
    """Return a default as job.toml would have it."""
    if item.default is MISSING:
        return "required"
    if item.default is None or item.default is False or item.default == ():
        return ""
    if isinstance(item.default, tuple):
        return ", ".join(map(str, item.default))
    return f"{item.default:g}" if isinstance(item.default, float) else str(item.default)


def plain(text: str) -> str:
    """Return a text that markdown shows as it stands, also in a table."""
    return re.sub(r"([|*_<])", r"\\\1", text)


def rows(table: str) -> Iterator[str]:
    """Yield the rows of one table of job.toml."""
    for item in settings():
        about = item.metadata
        if about["table"] == table:
            takes = CONVERTERS[str(item.type)][1]
            cells = (f"`{flag_of(item.name)}`", takes, default_of(item), READERS[about["stage"]])
            yield f"| {' | '.join((*cells, plain(about['help'])))} |"


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    for table in ("job", "agent", "scorer"):
        head = "| setting | takes | default | read by | meaning |\n|---|---|---|---|---|"
        parts.append("\n".join((f"## `[{table}]`", "", head, *rows(table), "")))
    return "\n".join(parts)


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(page())
    else:
        PAGE.write_text(page(), encoding="utf-8")
