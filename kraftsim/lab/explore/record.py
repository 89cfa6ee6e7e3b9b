"""The result of one run: invariant results, errors, the command that repeats it, and `run.json`,
which describes it, so that its directory alone is enough to identify and repeat it.
"""

import platform
import shlex
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from kraftsim.cluster.directories import RunDirectory
from kraftsim.extensions import options
from kraftsim.lab.explore.client_programs import ClientEnd
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.upgrade_course import UpgradeCourse
from kraftsim.version import __version__
from kraftsim.world.interface import Clock

# --------------------------------------------------------------------------------------------------
# `run.json`: the description of a run, so that its directory alone is enough to identify and repeat
# it

RUN_FILE = "run.json"
REPLAY_FILE = "replay.json"


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The description of one run.

    `faults` are the whole schedule, `command` is the command line that replays the run. A run on
    nodes of Apache Kafka has their release (`on`), which invariants it cannot decide, and which
    settings they did not get, with the reasons.
    """

    run: str
    scenario: str
    mode: str
    seed: int
    releases: Mapping[str, str]
    faults: tuple[str, ...]
    faults_left_out: tuple[str, ...]
    bugs: tuple[str, ...]
    settings: Mapping[str, str]
    must_exercise: tuple[str, ...]
    versions: Mapping[str, str]
    outcome: str
    started: str
    command: str
    on: str = ""
    not_evaluated: Mapping[str, str] = {}
    settings_left_out: Mapping[str, str] = {}

    def write(self, root: Path) -> None:
        """Write the record into the run's directory."""
        (root / RUN_FILE).write_bytes(
            msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"
        )


def versions() -> dict[str, str]:
    """Return the versions that a run depends on."""
    return {
        "kraftsim": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
    }


def replay_command(request: RunRequest, directory: RunDirectory | None = None) -> str:
    """Return the command line that replays the run: by its seed, or from its file if the seed alone
    does not determine it.
    """
    if not request.is_as_drawn:
        return shlex.join(
            [
                "kraftsim",
                "replay",
                str(REPLAY_FILE if directory is None else directory.root / REPLAY_FILE),
            ]
        )
    words = [
        "kraftsim",
        "scenario",
        request.scenario.identifier,
        *(
            ["--mode", request.mode.value]
            if request.on is None
            else [
                *("--on", str(request.on)),
                *([] if request.on.home is None else ["--kafka-home", str(request.on.home)]),
            ]
        ),
        "--seed",
        str(request.seed),
    ]
    words += options()
    for bug in request.bugs:
        words += ["--bug", bug]
    if request.release and request.on is None:
        words += ["--release", request.release]
    for option, count in (("--controllers", request.controllers), ("--brokers", request.brokers)):
        words += [] if count is None else [option, str(count)]
    for key, value in sorted(request.settings.items()):
        words += ["--set", f"{key}={value}"]
    for parameter, count in sorted(request.workload.items()):
        words += ["--work", f"{parameter}={count}"]
    for text in request.injected:
        words += ["--inject", text]
    return shlex.join([*words, "--out", f"runs/{request.scenario.name}-{request.seed}"])


def wall_text(clock: Clock) -> str:
    """Return a clock's date and time in UTC, for people."""
    return datetime.fromtimestamp(clock.wall_ms() / 1000, UTC).isoformat(timespec="seconds")


# --------------------------------------------------------------------------------------------------
# The result of one run: invariant results, errors, and the command that repeats it


QUIET_VERDICTS: Final = ("ok", "not applicable")


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one scenario run.

    `violations` are one line each; `trouble` is what aborted the run (lost liveness, a bug in a
    node), if anything did. `seconds` are virtual in simulation. `faults` has counts by kind: armed,
    fired, effective. `events_sha256` is over the event log of all nodes, in simulation only.
    """

    scenario: str
    mode: str
    seed: int
    outcome: str
    violations: tuple[str, ...]
    invariants_violated: tuple[str, ...]
    verdicts: dict[str, str]
    trouble: str | None
    faults: dict[str, tuple[int, int, int]]
    event_count: int
    seconds: float
    events_sha256: str | None
    out: str | None
    command: str
    course: UpgradeCourse | None = None
    """How an upgrade went, if nodes changed their release."""
    clients: tuple[ClientEnd, ...] = ()
    """Own programs that ran beside the scenario."""
    on: str = ""
    """The release of Apache Kafka whose nodes ran."""
    not_evaluated: dict[str, str] = {}
    """Invariant -> why the run cannot decide it: nodes of Apache Kafka emit no events."""
    faults_left_out: tuple[str, ...] = ()
    settings_left_out: dict[str, str] = {}
    exercised: dict[str, tuple[int, int, int]] = {}
    """Counts like those of `faults` by kind and trigger, and by what became of requests of an API
    (`kraftsim.lab.faults.coverage`), in simulation.
    """
    exchanged: dict[str, int] = {}
    """How many requests were sent, by API and role of the client, in simulation."""

    @property
    def replay_line(self) -> str:
        """The command that repeats the run; if the run was kept, the output directory of the
        command is beside that of this run.
        """
        words, option, _ = self.command.rpartition(" --out ")
        return (
            f"{words}{option}{shlex.quote(f'{self.out}-again')}"
            if option and self.out is not None
            else self.command
        )

    def lines(self, *, verbose: bool = False) -> list[str]:
        """Return the result as text for people; `verbose` names every invariant."""
        where = f"{self.scenario} ({self._place}, seed {self.seed})"
        text = [f"{where}: {self.outcome}, {self.event_count} events in {self.seconds:.1f} s"]
        if self.course is not None:
            text += self.course.lines()
        text += [client.line() for client in self.clients]
        text += self._verdict_lines(verbose)
        for kind, (armed, fired, effective) in self.faults.items():
            text.append(f"  fault {kind}: {armed} armed, {fired} fired, {effective} effective")
        text += [f"  fault left out: {each}" for each in self.faults_left_out]
        text += [f"  setting left out: {key}: {why}" for key, why in self.settings_left_out.items()]
        text += [f"  violated: {violation}" for violation in self.violations]
        if self.trouble is not None:
            text.append(f"  trouble: {self.trouble}")
        if self.violations or self.trouble is not None:
            text.append(f"  replay: {self.replay_line}")
        if self.out is not None:
            can_shrink = (
                self.outcome != "ok"
                and self.events_sha256 is not None
                and (self.violations or self.trouble is not None)
            )
            words = (
                ["shrink", self.out] if can_shrink else ["analyze", self.out, *options("INVARIANT")]
            )
            text.append(f"  kept in {self.out}; next: kraftsim {shlex.join(words)}")
        return text

    def _verdict_lines(self, verbose: bool) -> list[str]:
        """Return a line for each invariant, or, unless `verbose`, for those that are neither ok nor
        without events, and one with the numbers of these.
        """
        if verbose:
            return [
                f"  {name}: {self._verdict_text(name, verdict)}"
                for name, verdict in self.verdicts.items()
            ]
        counts = Counter(
            verdict for name, verdict in self.verdicts.items() if name not in self.not_evaluated
        )
        quiet = {verdict: counts.pop(verdict) for verdict in QUIET_VERDICTS if verdict in counts}
        named = [
            f"  {name}: {verdict}"
            for name, verdict in self.verdicts.items()
            if verdict not in QUIET_VERDICTS
        ]
        numbers = ", ".join(f"{count} {verdict}" for verdict, count in quiet.items())
        lines = [*named, f"  invariants: {numbers} (all of them: -v)"] if quiet else named
        if self.not_evaluated:
            lines.append(
                f"  not evaluated: {len(self.not_evaluated)} invariants need events that only "
                "kraftsim's nodes emit (each of them: -v)"
            )
        return lines

    def _verdict_text(self, name: str, verdict: str) -> str:
        reason = self.not_evaluated.get(name)
        return verdict if reason is None else f"not evaluated: {reason}"

    @property
    def _place(self) -> str:
        return f"on Apache Kafka {self.on.partition(':')[2]}" if self.on else self.mode
