"""One attempt under way: started exclusively, closed once - accepted, rejected or aborted."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from attempt_runner.exchange import remove_exchange
from bootstrap.errors import shown
from bootstrap.files import write_new
from bootstrap.identity import write_identity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attempt_runner.enclosure import Enclosures
    from attempt_runner.gate import Accepted
    from attempt_runner.plan import Inputs
    from attempt_runner.settings import Job
    from bootstrap.errors import RefusalError
    from bootstrap.files import Directory
    from bootstrap.identity import AttemptIdentity
    from bootstrap.joblog import Record
    from bootstrap.prepare import Ground, ScorePaths
    from bootstrap.proctable import ProcessId
    from bootstrap.signals import SignalInbox

DECISION: Final = "decision.json"
DECISION_VERSION: Final = 1


@dataclass(slots=True)
class Trial:
    """What the steps of one attempt share.

    Three things grow: processes join `identity`, sealing fills `sealed` with the digests
    `diff_sha256` and `prompt_sha256`, and a capture tells in `change` what it covered.
    """

    ground: Ground
    job: Job
    inputs: Inputs
    inbox: SignalInbox
    environ: Mapping[str, str]
    directory: Directory
    exchange: Directory
    identity: AttemptIdentity
    score_paths: ScorePaths
    requirements: Mapping[str, str | None]
    enclosures: Enclosures
    sealed: dict[str, str]
    change: dict[str, object]

    @property
    def has_started(self) -> bool:
        """Whether agent or scorer may have run: from then on a failure of ours is no 75."""
        return not self.identity.processes.keys() <= {"runner"}

    def log(self, event: str, /, **fields: object) -> Record:
        """Append a record that carries the attempt's generation, id and model."""
        return self.ground.log.append(
            event,
            generation=self.identity.generation,
            attempt_id=self.identity.attempt_id,
            model_id=self.identity.model_id,
            **fields,
        )

    def remember_process(self, role: str, process: ProcessId) -> None:
        """Write a process that was started into attempt.json, for whoever finds a crash."""
        processes = {**self.identity.processes, role: process}
        self.identity = replace(self.identity, processes=processes)
        write_identity(self.directory, self.identity)

    def close(self) -> None:
        """Remove the exchange directory; the attempt's own directory stays for ever."""
        remove_exchange(self.exchange)
        self.directory.close()


def close_accepted(trial: Trial, accepted: Accepted) -> None:
    """Log the accept, then write decision.json: the log record is the commit point.

    Raises TamperedStateError if the lock's file was taken away: another runner could hold one.
    """
    trial.ground.lock.require_held()
    trial.log("accepted", receipt_sha256=accepted.receipt_sha256)
    _write_decision(trial, "accept", [], "")


def close_rejected(trial: Trial, refusal: RefusalError) -> None:
    """Log the reject with its fields, then write decision.json with expected and found."""
    trial.log("rejected", fields=list(refusal.fields))
    findings = [
        {"field": item.field, "expected": shown(item.expected), "found": shown(item.found)}
        for item in refusal.findings
    ]
    _write_decision(trial, "reject", findings, str(refusal))


def close_aborted(trial: Trial, cause: str) -> None:
    """Log that the attempt ended without a decision."""
    trial.log("attempt_aborted", cause=cause)


def _write_decision(
    trial: Trial, decision: str, findings: list[dict[str, str]], cause: str
) -> None:
    document = {
        "attempt_id": trial.identity.attempt_id,
        "cause": cause,
        "decision": decision,
        "decision_version": DECISION_VERSION,
        "findings": findings,
        "generation": trial.identity.generation,
        "model_id": trial.identity.model_id,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    data = json.dumps(document, indent=2, sort_keys=True) + "\n"
    write_new(trial.directory, DECISION, data.encode("ascii"))
