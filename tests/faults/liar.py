"""A process that rewrites files for ever, in every way there is, until it is killed.

    python liar.py SEED PATTERN=TEXTS...

A pattern is a glob; TEXTS is a JSON array of what its files hold in turn, the first far more
often than the others, so that now and then a lie is taken back in time.
"""

from __future__ import annotations

import glob
import json
import os
import random
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


@contextmanager
def lying(seed: int, lies: Mapping[str, Sequence[str]]) -> Iterator[None]:
    """Run this file beside the caller's block."""
    words = [f"{pattern}={json.dumps(texts)}" for pattern, texts in lies.items()]
    command = [sys.executable, "-I", __file__, str(seed), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as liar:
        try:
            assert liar.stdout
            assert liar.stdout.readline() == b"lying\n"
            yield
            assert liar.poll() is None, "the liar died"
        finally:
            liar.kill()


def write_in_place(path: str, text: str) -> None:
    """Write over what is there, byte for byte, and cut the rest."""
    with open(path, "r+", encoding="utf-8") as file:
        file.write(text)
        file.truncate()


def truncate_first(path: str, text: str) -> None:
    """Empty the file, then write."""
    with open(path, "w", encoding="utf-8") as file:
        time.sleep(0.0005)
        file.write(text)


def rename_over(path: str, text: str) -> None:
    """Put another file in its place."""
    Path(f"{path}.lie").write_text(text, encoding="utf-8")
    os.replace(f"{path}.lie", path)


WAYS: tuple[Callable[[str, str], None], ...] = (write_in_place, truncate_first, rename_over)


def lie(seed: int, lies: Mapping[str, Sequence[str]]) -> None:
    """Rewrite one file after the other for ever."""
    chance = random.Random(seed)  # noqa: S311 - a race needs no secret
    while True:
        for pattern, texts in lies.items():
            for path in glob.glob(pattern):
                text = texts[0] if chance.random() < 0.8 else chance.choice(texts)
                # What it lies about may not be there yet, or may be gone.
                with suppress(OSError):
                    os.chmod(path, 0o600)
                    chance.choice(WAYS)(path, text)
        time.sleep(chance.random() * 0.02)


if __name__ == "__main__":
    sys.stdout.write("lying\n")
    sys.stdout.flush()
    lie(
        int(sys.argv[1]),
        {pattern: json.loads(texts) for pattern, texts in (w.split("=", 1) for w in sys.argv[2:])},
    )
