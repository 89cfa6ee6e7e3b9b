"""Runs a campaign over all scenarios, and keeps what its faults exercised in
docs/search-coverage.json, from which `make docs` makes reference/search-coverage.md.

The record has counts alone, which do not depend on the machine: a seed draws and runs the same
everywhere.
"""

import datetime
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import click
import msgspec

from kraftsim.cluster.scenario import Mode, Scenario, scenarios
from kraftsim.lab.campaign.summary import CampaignResult, FaultCounts, add_faults
from kraftsim.lab.campaign.sweep import campaign
from kraftsim.lab.explore.request import faults_of
from kraftsim.lab.faults.coverage import labels_of

FILE: Final = Path(__file__).parents[1] / "docs" / "search-coverage.json"
SEEDS: Final = 20
DRAWN_SEEDS: Final = 200
"""So many schedules of each scenario are drawn to see what can be drawn at all."""


class SearchCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """What the faults of a campaign exercised: label -> drawn, fired, effective; and the requests
    that were sent, by API and role of the client. `scenarios` has the seeds of each one.
    """

    command: str
    date: str
    commit: str
    scenarios: dict[str, int]
    not_clean: int
    exercised: FaultCounts
    exchanged: dict[str, int]


def read_record() -> SearchCoverage:
    """Return the kept record."""
    return msgspec.json.decode(FILE.read_bytes(), type=SearchCoverage)


def drawn_labels(searched: Iterable[Scenario], seeds: int = DRAWN_SEEDS) -> Counter[str]:
    """Count the labels of the first schedules of scenarios, without a run."""
    return Counter(
        label
        for each in searched
        for seed in range(1, 1 + seeds)
        for fault in faults_of(each, seed, Mode.SIM)
        for label in labels_of(fault)
    )


def write_record(record: SearchCoverage) -> None:
    """Write the record, one line for each label."""
    fields = msgspec.to_builtins(record)
    lines = [
        f" {json.dumps(name)}: {_rows(value) if isinstance(value, dict) else json.dumps(value)}"
        for name, value in fields.items()
    ]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _rows(value: dict[str, object]) -> str:
    rows = [f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in value.items()]
    return "{\n" + ",\n".join(rows) + "\n }"


def record_of(result: CampaignResult, command: str, commit: str) -> SearchCoverage:
    """Return the record of a campaign that was run at a commit."""
    exercised: FaultCounts = {}
    exchanged: Counter[str] = Counter()
    for each in result.sweeps:
        add_faults(exercised, each.exercised)
        exchanged.update(each.exchanged)
    return SearchCoverage(
        command=command,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        commit=commit,
        scenarios={each.scenario: each.seeds_run for each in result.sweeps},
        not_clean=sum(len(each.found) for each in result.sweeps),
        exercised=dict(sorted(exercised.items())),
        exchanged=dict(sorted(exchanged.items())),
    )


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=FILE.parent, check=True, capture_output=True, text=True
    ).stdout.strip()


@click.command()
@click.argument("names", nargs=-1)
@click.option("--seeds", default=SEEDS, show_default=True)
@click.option("--jobs", type=int, default=None)
@click.option("--resume", type=click.Path(path_type=Path), default=None, help="As for a sweep.")
def main(names: Sequence[str], seeds: int, jobs: int | None, resume: Path | None) -> None:
    """Run SEEDS seeds of the scenarios with a fault space, or of those named, and write the
    record.
    """
    commit = _git("rev-parse", "--short=9", "HEAD")
    chosen = names or [each.name for each in scenarios() if each.fault_space is not None]
    result = campaign(
        tuple(chosen), seeds=range(1, 1 + seeds), jobs=jobs, keep_going=True, journal=resume
    )
    print("\n".join(result.lines()))
    words = [*names, *([] if seeds == SEEDS else ["--seeds", str(seeds)])]
    command = f'make search-coverage ARGS="{" ".join(words)}"' if words else "make search-coverage"
    write_record(record_of(result, command, commit))
    print(f"written: {FILE.name}; make docs renders it")
    sys.exit(1 if result.has_violations else 0)


if __name__ == "__main__":
    main()
