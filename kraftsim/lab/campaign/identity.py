"""Checks that a seed gives the same event log, byte for byte: runs each in two processes under two
hash seeds, and reports the first difference.

The second process of each pair runs the seeds in reverse order, so that state that leaks from one
run into the next becomes visible.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec

from kraftsim.lab.campaign.summary import FaultCounts, add_faults, found_lines
from kraftsim.lab.campaign.sweep import Report, SweepProgress
from kraftsim.lab.campaign.worker_pool import USUAL, CampaignJob, JobDone, Terms, jobs_of, names_of
from kraftsim.lab.explore.divergence import compare
from kraftsim.lab.explore.record import RunResult

HASH_SEEDS = ("0", "12345")
PLAYERS = tuple(
    (hash_seed, is_backwards) for hash_seed in HASH_SEEDS for is_backwards in (False, True)
)
BATCH = 8
"""How many seeds each process gets at a time."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A seed whose event logs differ: the digests by process, and the first divergence of two of
    them.
    """

    scenario: str
    seed: int
    sha256: dict[str, str | None]
    parting: tuple[str, ...]


class IdentityResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the comparison. `seeds` counts those that were compared, each run once by each
    process; `found` are the runs that were not clean, each from its first process.
    """

    scenarios: tuple[str, ...]
    seeds: int
    runs: int
    events: int
    differing: tuple[Difference, ...]
    found: tuple[RunResult, ...]
    faults: FaultCounts
    simulated_seconds: float
    cpu_seconds: float

    def lines(self) -> list[str]:
        """Return the result as text for people."""
        armed, fired, effective = (
            sum(counts[place] for counts in self.faults.values()) for place in range(3)
        )
        text = [
            f"{', '.join(self.scenarios)}: {len(self.differing)} of {self.seeds} seeds differ "
            f"between {len(PLAYERS)} processes under hash seeds {' and '.join(HASH_SEEDS)}; "
            f"{self.runs} runs, {self.events} events, {armed} faults armed, {fired} fired, "
            f"{effective} effective, {len(self.found)} not clean, {self.simulated_seconds:.0f} "
            f"simulated seconds in {self.cpu_seconds:.0f} CPU seconds"
        ]
        for each in self.differing:
            text.append(
                f"  {each.scenario}, seed {each.seed}: "
                f"{', '.join(f'{name} {digest}' for name, digest in each.sha256.items())}"
            )
            text += [f"    {line}" for line in each.parting]
        return text + found_lines(self.found)


class Player:
    """A process with a hash seed of its own that runs the seeds it receives.

    Use as a context manager.
    """

    def __init__(self, hash_seed: str, is_backwards: bool) -> None:
        self.name = f"hash seed {hash_seed}{', backwards' if is_backwards else ''}"
        self._is_backwards = is_backwards
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kraftsim.lab.campaign.repeat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        )

    def __enter__(self) -> "Player":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._process.kill()
        assert self._process.stdin is not None and self._process.stdout is not None, (
            "both are pipes"
        )
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def tell(self, pending_jobs: Sequence[CampaignJob]) -> None:
        """Start running seeds."""
        assert self._process.stdin is not None, "it is a pipe"
        for job in reversed(pending_jobs) if self._is_backwards else pending_jobs:
            self._process.stdin.write(msgspec.json.encode(job) + b"\n")
        self._process.stdin.flush()

    def answers(self, count: int) -> list[JobDone]:
        """Return the results in the order of the seeds. Raises RuntimeError if the process died."""
        assert self._process.stdout is not None, "it is a pipe"
        found = []
        for _ in range(count):
            line = self._process.stdout.readline()
            if not line:
                raise RuntimeError(
                    f"a process that runs seeds died ({self.name}); its output is above"
                )
            found.append(msgspec.json.decode(line, type=JobDone))
        return found[::-1] if self._is_backwards else found


@dataclass(frozen=True, kw_only=True, slots=True)
class _Compared:
    """One seed, run by all processes."""

    job: CampaignJob
    answers: Mapping[str, JobDone]

    @property
    def first(self) -> JobDone:
        return next(iter(self.answers.values()))

    @property
    def is_same(self) -> bool:
        return len({answer.result.events_sha256 for answer in self.answers.values()}) == 1


def check_identity(
    names: Sequence[str],
    *,
    seeds: Sequence[int],
    terms: Terms = USUAL,
    is_over: Callable[[], bool] = lambda: False,
    report: Report | None = None,
) -> IdentityResult:
    """Run every seed of every scenario in four processes and compare the event logs.

    `is_over` and `report` are as for a campaign.

    A run with a smaller workload costs less, and has the same faults. Raises KeyError for an
    unknown scenario or bug, ValueError for an unknown workload parameter, RuntimeError if a process
    dies.
    """
    pending_jobs = jobs_of(names, seeds, terms)
    progress = SweepProgress(total=len(pending_jobs))
    differing: list[Difference] = []
    faults: FaultCounts = {}
    found: list[RunResult] = []
    events = runs = 0
    with ExitStack() as stack:
        players = [stack.enter_context(Player(*player)) for player in PLAYERS]
        for compared in _compared(players, pending_jobs, is_over):
            answers = compared.answers.values()
            progress.seeds += 1
            progress.cpu_seconds += sum(answer.cpu_seconds for answer in answers)
            progress.simulated_seconds += sum(answer.result.seconds for answer in answers)
            progress.violated += not compared.is_same
            runs += len(answers)
            events += compared.first.result.event_count
            add_faults(faults, compared.first.result.faults)
            if not compared.first.is_clean:
                found.append(compared.first.result)
            if not compared.is_same:
                differing.append(_difference(players, compared))
            if report is not None:
                report(progress)
    return IdentityResult(
        scenarios=names_of(pending_jobs),
        seeds=progress.seeds,
        runs=runs,
        events=events,
        differing=tuple(differing),
        found=tuple(found),
        faults=dict(sorted(faults.items())),
        simulated_seconds=progress.simulated_seconds,
        cpu_seconds=progress.cpu_seconds,
    )


def _compared(
    players: Sequence[Player], pending_jobs: Sequence[CampaignJob], is_over: Callable[[], bool]
) -> Iterator[_Compared]:
    for start in range(0, len(pending_jobs), BATCH):
        if is_over():
            return
        batch = pending_jobs[start : start + BATCH]
        for player in players:
            player.tell(batch)
        results = {player.name: player.answers(len(batch)) for player in players}
        for number, job in enumerate(batch):
            yield _Compared(
                job=job, answers={name: answers[number] for name, answers in results.items()}
            )


def _difference(players: Sequence[Player], compared: _Compared) -> Difference:
    """Run the seed again in the two processes that differed, keep both runs, and find the first
    divergence.
    """
    answers = compared.answers
    one = players[0]
    other = next(
        player
        for player in players
        if answers[player.name].result.events_sha256 != answers[one.name].result.events_sha256
    )
    with tempfile.TemporaryDirectory(prefix="kraftsim-identity-") as scratch:
        kept = [Path(scratch) / name for name in ("a", "b")]
        for player, out in zip((one, other), kept, strict=True):
            player.tell([msgspec.structs.replace(compared.job, out=str(out))])
            player.answers(1)
        parting = tuple(compare(kept[0], kept[1]).lines()[2:])
    digests = {name: answer.result.events_sha256 for name, answer in answers.items()}
    return Difference(
        scenario=compared.job.name, seed=compared.job.seed, sha256=digests, parting=parting
    )
