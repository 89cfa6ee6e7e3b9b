"""What the report and the text of an analysis say besides verdicts: the run in one sentence, what
broke, how to reproduce it, latency and throughput.
"""

from collections.abc import Mapping, Sequence

import msgspec

from kraftsim.analysis.incident import Incident, find_incidents
from kraftsim.analysis.pace import RunPace, find_pace, find_waits
from kraftsim.analysis.places import Where
from kraftsim.analysis.reproduction import Reproduction, find_reproduction
from kraftsim.analysis.run_summary import RunSummary, find_summary
from kraftsim.analysis.witnesses import Witness
from kraftsim.invariants.verdict import Outcome, Verdict, Violation


class RunDetails(msgspec.Struct, frozen=True, kw_only=True):
    """The details of a run. `reproduction` is null for a run without violations."""

    summary: RunSummary
    pace: RunPace | None = None
    incidents: tuple[Incident, ...] = ()
    reproduction: Reproduction | None = None


def find_details(
    run: Where,
    parquet: Where,
    verdicts: Sequence[Verdict],
    evidence: Mapping[Violation, tuple[Witness, ...]],
    *,
    command: str = "",
) -> RunDetails:
    """Return the details of an ingested run with its verdicts."""
    waits = find_waits(parquet)
    is_violated = any(verdict.outcome is Outcome.VIOLATED for verdict in verdicts)
    return RunDetails(
        summary=find_summary(parquet, waits.known),
        pace=find_pace(parquet, waits),
        incidents=find_incidents(parquet, verdicts, evidence),
        reproduction=find_reproduction(run, command) if is_violated else None,
    )
