"""Aligned columns for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bootstrap.errors import shown

if TYPE_CHECKING:
    from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows below a head, every cell escaped and every column as wide as it must be."""
    cells = [tuple(head), *(tuple(shown(cell) for cell in row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )
    return "".join(f"{line}\n" for line in lines)


def pairs(rows: Sequence[tuple[str, str]]) -> str:
    """Return names and values in two columns, the values escaped."""
    width = max(len(name) for name, _ in rows)
    return "".join(f"{name.ljust(width)}  {shown(value)}\n" for name, value in rows)
