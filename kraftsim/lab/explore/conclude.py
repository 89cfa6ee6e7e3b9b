"""The end of every run, in every mode: invariant results become a run result, and `run.json` and
`replay.json` are written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.invariants.verdict import Outcome, Verdict, worst
from kraftsim.lab.explore.record import RunRecord, RunResult, replay_command, versions
from kraftsim.lab.explore.replay import replay_of
from kraftsim.lab.explore.request import RunRequest

FaultCounts = dict[str, tuple[int, int, int]]
"""Kind of fault -> how often it was armed, fired, and effective (changed an outcome)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """The data of a finished run. `trouble` is what aborted it."""

    verdicts: Sequence[Verdict]
    trouble: str | None
    faults: FaultCounts
    finished: Sequence[str]
    left_out: Sequence[str]
    event_count: int
    seconds: float
    started: str
    events_sha256: str | None = None
    obstacles: Sequence[str] = ()
    """Why faults were left out."""
    not_evaluated: Mapping[str, str] = field(default_factory=dict)
    """Invariant -> why this run cannot decide it."""
    settings_left_out: Mapping[str, str] = field(default_factory=dict)
    exercised: FaultCounts = field(default_factory=dict)
    exchanged: Mapping[str, int] = field(default_factory=dict)


def conclude(
    request: RunRequest, spec: ClusterSpec, ending: Ending, directory: RunDirectory | None
) -> RunResult:
    """Return the result, and write `run.json` and `replay.json` if the run is kept."""
    outcome = worst(ending.verdicts)
    word = (
        "failed"
        if ending.trouble is not None and outcome is not Outcome.VIOLATED
        else outcome.value
    )
    command = replay_command(request, directory)
    violated = [verdict for verdict in ending.verdicts if verdict.outcome is Outcome.VIOLATED]
    result = RunResult(
        scenario=request.scenario.identifier,
        mode=request.mode.value,
        seed=request.seed,
        outcome=word,
        violations=tuple(
            f"{verdict.invariant}: {each.message}"
            for verdict in violated
            for each in verdict.violations
        ),
        invariants_violated=tuple(verdict.invariant for verdict in violated),
        verdicts={verdict.invariant: verdict.outcome.value for verdict in ending.verdicts},
        trouble=ending.trouble,
        faults=ending.faults,
        exercised=ending.exercised,
        exchanged=dict(ending.exchanged),
        event_count=ending.event_count,
        seconds=ending.seconds,
        events_sha256=ending.events_sha256,
        out=None if directory is None else str(directory.root),
        command=command,
        on="" if request.on is None else str(request.on),
        not_evaluated=dict(ending.not_evaluated),
        faults_left_out=tuple(ending.obstacles),
        settings_left_out=dict(ending.settings_left_out),
    )
    if directory is not None:
        _record(request, spec, ending, word, command).write(directory.root)
        replay_of(request, spec, result).write(directory.root)
    return result


def _record(
    request: RunRequest, spec: ClusterSpec, ending: Ending, outcome: str, command: str
) -> RunRecord:
    return RunRecord(
        run=spec.run,
        scenario=request.scenario.name,
        mode=request.mode.value,
        seed=request.seed,
        releases={node.name: node.properties["kraftsim.release"] for node in spec.nodes()},
        faults=tuple(ending.finished),
        faults_left_out=tuple(ending.left_out),
        bugs=request.bugs,
        settings=dict(spec.settings),
        must_exercise=request.scenario.must_exercise,
        versions=versions(),
        outcome=outcome,
        started=ending.started,
        command=command,
        on="" if request.on is None else str(request.on),
        not_evaluated=dict(ending.not_evaluated),
        settings_left_out=dict(ending.settings_left_out),
    )
