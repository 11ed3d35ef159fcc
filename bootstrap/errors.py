"""The error tree: one branch for each party at fault, with the exit status it earns.

Only the command line exits. Every message is one line of printable ASCII that says what
happened, what was expected, what was found, and what to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

SHOWN_LIMIT: Final = 200  # characters of untrusted text that one message may carry


def shown(value: object, limit: int = SHOWN_LIMIT) -> str:
    """Return untrusted text as one line of printable ASCII, cut to `limit` characters.

    Bytes are decoded with `surrogateescape`, so a name that is not UTF-8 shows its bytes.
    Control characters, line separators, bidirectional marks and everything else outside
    visible ASCII become backslash escapes. A backslash is doubled, so two different names
    never look the same.
    """
    text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
    cut = text[:limit]
    escaped = cut.encode("unicode_escape", "surrogatepass").decode("ascii")
    return escaped if len(cut) == len(text) else escaped + "..."


@dataclass(frozen=True, slots=True)
class Finding:
    """One field that refused: its name from the fixed list, what it must be and what it was."""

    field: str
    expected: str
    found: str


class RunnerError(Exception):
    """Base of every error this project raises on purpose.

    `what` names the thing, `expected` and `found` tell the difference, `remedy` says what
    the reader can do now. All four may hold untrusted text: `str()` escapes them.
    """

    status: ClassVar[int] = 70

    def __init__(self, what: str, *, expected: str, found: str, remedy: str) -> None:
        super().__init__(what, expected, found, remedy)
        self.what = what
        self.expected = expected
        self.found = found
        self.remedy = remedy

    def __str__(self) -> str:
        what, expected, found, remedy = (
            shown(part, 400) for part in (self.what, self.expected, self.found, self.remedy)
        )
        return f"{what}: expected {expected}, got {found}; {remedy}"


class UsageError(RunnerError):
    """The command line does not make sense."""

    status = 2


class RefusalError(RunnerError):
    """The gate's no. It names its fields; it is recorded, final, and never retried."""

    status = 1

    def __init__(self, findings: tuple[Finding, ...], *, remedy: str) -> None:
        first = findings[0]
        super().__init__(first.field, expected=first.expected, found=first.found, remedy=remedy)
        self.findings = findings

    @property
    def fields(self) -> tuple[str, ...]:
        """The reject names, in the order in which they are printed."""
        return tuple(finding.field for finding in self.findings)


class UnavailableError(RunnerError):
    """Could not start, or was interrupted, before any verdict existed: start again."""

    status = 75


class LockHeldError(UnavailableError):
    """Another process holds the workspace lock."""


class ScorerUnavailableError(UnavailableError):
    """A scorer that was declared to be sometimes unavailable says so, and left no score."""


class InterruptedRunError(UnavailableError):
    """A signal asked the runner to stop before a score was read."""


class IntegrityError(RunnerError):
    """The machine must be held: what we guard, or our own I/O, cannot be trusted."""

    status = 77


class WipeError(IntegrityError):
    """A score path could not be cleared, or its absence could not be proved."""


class LogChainError(IntegrityError):
    """The job log is not the chain that was written."""


class TamperedStateError(IntegrityError):
    """A file of the state directory is not what the runner left there."""

    def __init__(
        self,
        what: str,
        *,
        expected: str,
        found: str,
        remedy: str = "hold the machine and find out who writes the state directory",
    ) -> None:
        super().__init__(what, expected=expected, found=found, remedy=remedy)


class StorageError(IntegrityError):
    """Our own write failed: disk full, I/O error, read-only filesystem."""


class ProcessesRemainError(IntegrityError):
    """Processes of an earlier run could not be proved gone."""


class UnsafeFileError(IntegrityError):
    """A file is missing or not of the kind that may be read; `reason` is one word for it.

    Who wrote the file decides what follows: a caller that reads what an agent, a scorer or
    an operator wrote catches this and answers with its own refusal.
    """

    def __init__(self, what: str, *, expected: str, found: str, reason: str) -> None:
        super().__init__(what, expected=expected, found=found, remedy="replace the file")
        self.reason = reason


class ConfigurationError(RunnerError):
    """The configuration is refused: the same call will never work."""

    status = 78


class IsolationError(ConfigurationError):
    """The isolation that was asked for is not to be had on this machine."""
