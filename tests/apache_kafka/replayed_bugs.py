"""Bugs of Apache Kafka that a small run shows on a release that has them, and not on one that does
not: how their replay files are made, and what they show.

    python -m tests.apache_kafka.replayed_bugs make [NAME ...]
    python -m tests.apache_kafka.replayed_bugs measure [NAME ...]

`make` searches the seeds of a scenario in simulation for the first that violates the invariant,
with the bug in kraftsim's nodes or with a release that has it, shrinks that run without changing a
parameter of a fault, and writes tests/apache_kafka/replays/NAME.json. `measure` replays the files
on nodes of Apache Kafka, and writes docs/replayed-bugs.json and the table of docs/replayed-bugs.md.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
from msgspec import structs

from kraftsim.cluster.apache_kafka.target import apache_target
from kraftsim.lab.campaign.worker_pool import CampaignJob, Terms, run_job_safely
from kraftsim.lab.explore.description import keep
from kraftsim.lab.explore.record import REPLAY_FILE, RunResult
from kraftsim.lab.explore.replay import Replay, read_replay
from kraftsim.lab.explore.run import rerun
from kraftsim.lab.explore.shrink import shrink
from kraftsim.lab.faults.fault import Fault, OnFrame
from kraftsim.lab.workloads.one_node import END_TXN, WRITE_TXN_MARKERS

ROOT: Final = Path(__file__).parents[2]
REPLAYS: Final = Path(__file__).parent / "replays"
RESULTS: Final = ROOT / "docs" / "replayed-bugs.json"
PAGE: Final = ROOT / "docs" / "replayed-bugs.md"
SEEDS_MAX: Final = 200
BEGIN, END = "<!-- table -->\n", "Measured: "
"""What stands before and behind the table of the page."""
HEAD: Final = (
    "| bug | scenario | late request | releases that show it | invariants violated there | "
    "releases that do not |\n|---|---|---|---|---|---|"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayedBug:
    """A bug, the run that shows it, and the releases of Apache Kafka to run that on.

    `release` is that of the simulated nodes, `injects` whether the bug is injected into them: a
    release line of which only an early patch release has the bug does not show it by itself. The
    last of `affected` and the first of `fixed` are the closest to each other. `fault` says in words
    what the fault of the run does; with `api_key` all faults of the seed are of that API.
    """

    name: str
    scenario: str
    invariant: str
    release: str
    affected: tuple[str, ...]
    fixed: tuple[str, ...]
    fault: str
    api_key: int | None = None
    injects: bool = False
    workload: Mapping[str, int] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        """Its replay file."""
        return REPLAYS / f"{self.name}.json"

    def terms(self) -> Terms:
        """Return the options of its runs in simulation."""
        return Terms(
            release=self.release,
            bugs=(self.name,) if self.injects else (),
            workload=dict(self.workload),
        )

    def has_its_faults(self, faults: Sequence[Fault]) -> bool:
        """Return whether a schedule has only faults of the API."""
        return self.api_key is None or all(
            isinstance(each.trigger, OnFrame) and each.trigger.api_key == self.api_key
            for each in faults
        )

    def replay(self) -> Replay:
        """Read its replay file."""
        return read_replay(self.file)


BUGS: Final = (
    ReplayedBug(
        name="KAFKA-14402",
        scenario="late_batch_after_abort",
        invariant="recovers-after-heal",
        release="3.5",
        affected=("3.5.2",),
        fixed=("3.6.2",),
        fault="Produce, after the abort",
    ),
    ReplayedBug(
        name="KAFKA-17754",
        scenario="late_copy_of_transaction_end",
        invariant="read-committed-isolation",
        release="3.9",
        affected=("3.9.1",),
        fixed=("4.0.0",),
        fault="a copy of EndTxn, in the next transaction",
        api_key=END_TXN,
    ),
    ReplayedBug(
        name="KAFKA-19163",
        scenario="transaction_of_group_without_members",
        invariant="committed-offsets-returned",
        release="4.0",
        affected=("4.0.0",),
        fixed=("4.0.1",),
        fault="EndTxn, after the check for expired offsets",
        injects=True,
    ),
    ReplayedBug(
        name="KAFKA-19367",
        scenario="exhausted_producer_epochs",
        invariant="recovers-after-heal",
        release="4.0",
        affected=("4.0.0",),
        fixed=("4.0.1",),
        fault="none: the application restarts",
        injects=True,
        workload={"aborting": 0},
    ),
    ReplayedBug(
        name="KAFKA-19446",
        scenario="late_copy_of_transaction_end",
        invariant="transactions-atomic",
        release="4.1",
        affected=("4.0.0", "4.0.2", "4.1.2"),
        fixed=("4.2.0", "4.4.0"),
        fault="a copy of WriteTxnMarkers, in the next transaction",
        api_key=WRITE_TXN_MARKERS,
    ),
    ReplayedBug(
        name="KAFKA-19690",
        scenario="transaction_timeout_during_verification",
        invariant="timed-out-producers-fenced-by-epoch",
        release="4.1",
        affected=("4.0.0", "4.0.1", "4.1.0"),
        fixed=("4.1.1", "4.0.2", "4.4.0"),
        fault="the answer to AddPartitionsToTxn, after the time-out",
        injects=True,
    ),
    ReplayedBug(
        name="KAFKA-20090",
        scenario="exhausted_producer_epochs",
        invariant="recovers-after-heal",
        release="4.2",
        affected=("4.0.2", "4.1.2", "4.2.2"),
        fixed=("4.3.1", "4.4.0"),
        fault="EndTxn of an abort, after the time-out",
        workload={"restarting": 0},
    ),
)


# --------------------------------------------------------------------------------------------------
# Replay files, from the search of seeds in simulation


def make(bug: ReplayedBug) -> Replay:
    """Search, shrink, and write the replay file. Raises RuntimeError if no seed shows the bug."""
    for seed in range(1, SEEDS_MAX + 1):
        job = CampaignJob(name=bug.scenario, seed=seed, terms=bug.terms())
        if not bug.has_its_faults(job.request().schedule()):
            continue
        if bug.invariant in run_job_safely(job).result.invariants_violated:
            break
    else:
        raise RuntimeError(f"{bug.name}: no seed up to {SEEDS_MAX} violates {bug.invariant}")
    request = job.request()
    shrunken = shrink(request, invariant=bug.invariant, keeps_parameters=True)
    with tempfile.TemporaryDirectory() as temporary:
        keep(shrunken, request, Path(temporary) / "small")
        found = read_replay(Path(temporary) / "small" / REPLAY_FILE)
    environment = structs.replace(found.environment, platform=sys.platform)
    found = structs.replace(found, environment=environment)
    REPLAYS.mkdir(exist_ok=True)
    bug.file.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    return found


# --------------------------------------------------------------------------------------------------
# What they show on nodes of Apache Kafka


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What the replay of a bug showed on a release. `faults` and `effective` count faults."""

    bug: str
    release: str
    violated: tuple[str, ...]
    trouble: str | None
    faults: int
    effective: int


def replay_on(bug: ReplayedBug, release: str, out: Path) -> RunResult:
    """Run the replay of a bug on nodes of a release of Apache Kafka.

    Raises ApacheKafkaMissing.
    """
    return rerun(bug.replay(), out, apache_target(f"apache:{release}"))


def shown(bug: ReplayedBug, release: str, result: RunResult) -> Shown:
    """Return the outcome of a run."""
    counts = result.faults.values()
    return Shown(
        bug=bug.name,
        release=release,
        violated=tuple(sorted(result.invariants_violated)),
        trouble=result.trouble,
        faults=sum(armed for armed, _, _ in counts),
        effective=sum(effective for _, _, effective in counts),
    )


def read_results(file: Path = RESULTS) -> dict[tuple[str, str], Shown]:
    """Return what was measured, by bug and release."""
    rows = msgspec.json.decode(file.read_bytes(), type=list[Shown]) if file.exists() else []
    return {(row.bug, row.release): row for row in rows}


def write_results(rows: Iterable[Shown], file: Path = RESULTS) -> None:
    """Write what was measured, one line each, sorted."""
    lines = sorted(msgspec.json.encode(row).decode() for row in rows)
    file.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def table(found: Mapping[tuple[str, str], Shown]) -> str:
    """Return the table of the page."""
    lines = [HEAD]
    for bug in BUGS:
        rows = [row for (name, _), row in sorted(found.items()) if name == bug.name]
        there = [row for row in rows if bug.invariant in row.violated]
        absent = [row.release for row in rows if not row.violated and row.trouble is None]
        violated = sorted({name for row in there for name in row.violated})
        lines.append(
            f"| {bug.name} | `{bug.scenario}` | {bug.fault} | "
            f"{', '.join(row.release for row in there)} | {', '.join(violated)} | "
            f"{', '.join(absent)} |"
        )
    return "\n".join(lines) + "\n"


def page_with(text: str, rows: str) -> str:
    """Return the page with a table in the place of its former one."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{rows}\n{END}{after}"


def _measure(bugs: Sequence[ReplayedBug]) -> int:
    is_as_expected = True
    for bug in bugs:
        for release in (*bug.affected, *bug.fixed):
            with tempfile.TemporaryDirectory() as temporary:
                row = shown(bug, release, replay_on(bug, release, Path(temporary) / "run"))
            is_expected = (bug.invariant in row.violated) == (release in bug.affected)
            is_as_expected = is_as_expected and is_expected
            found = {**read_results(), (bug.name, release): row}
            write_results(found.values())
            print(
                f"{bug.name} on {release}: {', '.join(row.violated) or 'ok'}, {row.effective} of "
                f"{row.faults} faults took effect{'' if is_expected else ' - NOT AS EXPECTED'}",
                flush=True,
            )
    PAGE.write_text(page_with(PAGE.read_text(), table(read_results())))
    return 0 if is_as_expected else 1


def main(words: list[str]) -> int:
    """Make or measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("make", "measure"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="some of the bugs")
    options = parser.parse_args(words)
    chosen = [bug for bug in BUGS if not options.names or bug.name in options.names]
    if options.what == "measure":
        return _measure(chosen)
    for bug in chosen:
        found = make(bug)
        print(f"{bug.name}: seed {found.seed}, {len(found.faults)} faults, {dict(found.workload)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
