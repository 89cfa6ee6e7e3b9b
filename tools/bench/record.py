"""The record of speed: all benches in a row, with the machine and its load, as one file per commit.

The files are kept in `history/`; `page.py` writes docs/performance.md from them. A record names the
machine by what it is made of, and never by its name.
"""

import datetime
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import psutil

from tools.bench.catalogue import BENCHES, MINUTE
from tools.bench.result import Figure
from tools.bench.running import ROOT, BenchResult, Status, run_bench

SCHEMA: Final = 1
HISTORY: Final = Path(__file__).with_name("history")
COMMIT_DIGITS: Final = 12
MEASURED: Final = ("kraftsim", "protocol", "scenarios", "tools", "pyproject.toml")
"""What figures depend on. A record and its page do not make the tree dirty for the next one."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What the figures were measured on; '' where a part is not installed."""

    cpu: str
    cores: int
    memory_mib: int
    kernel: str
    python: str
    uvloop: str
    librdkafka: str
    java: str


class SpeedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All benches at one commit. `commit_date` is its time, `date` the day of the measurement in
    UTC; `is_dirty`: files of the
    tree differed from the commit; `is_quick`: the short set, with fewer rounds.
    """

    schema: int
    commit: str
    commit_date: str
    is_dirty: bool
    is_quick: bool
    date: str
    machine: Machine
    benches: dict[str, BenchResult]

    @property
    def figures(self) -> list[Figure]:
        """All figures, in the order of the benches."""
        return [figure for name in BENCHES for figure in self.figures_of(name)]

    @property
    def load(self) -> tuple[float, float]:
        """The least and the most load before a bench: that of other work, and what remains of the
        bench before it.
        """
        loads = [each.load_before for each in self.benches.values() if each.seconds]
        return (min(loads), max(loads)) if loads else (0.0, 0.0)

    def figures_of(self, name: str) -> Sequence[Figure]:
        """The figures of one bench."""
        return self.benches[name].figures if name in self.benches else ()


def make_record(
    names: Sequence[str], options: Sequence[str], directory: Path, *, is_quick: bool
) -> Path:
    """Run the benches and write the record; return its file. After each bench the file has what
    was measured so far. Benches of the same commit that are not run again keep their figures.
    """
    directory.mkdir(parents=True, exist_ok=True)
    commit, commit_date = _git("log", "-1", "--format=%H %cI").split()
    file = directory / f"{commit[:COMMIT_DIGITS]}.json"
    benches = _kept_benches(file, is_quick=is_quick)
    record = SpeedRecord(
        schema=SCHEMA,
        commit=commit[:COMMIT_DIGITS],
        commit_date=commit_date,
        is_dirty=bool(_git("status", "--porcelain", "--untracked-files=no", "--", *MEASURED)),
        is_quick=is_quick,
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        machine=this_machine(),
        benches=benches,
    )
    began = time.monotonic()
    for number, name in enumerate(names, 1):
        bench = BENCHES[name]
        words = [*((bench.quick or ()) if is_quick else ()), *options]
        minutes = (time.monotonic() - began) / MINUTE
        print(
            f"\n== [{number}/{len(names)}, {minutes:.0f} min so far, load "
            f"{os.getloadavg()[0]:.1f}] {name}: {bench.about}",
            file=sys.stderr,
            flush=True,
        )
        benches[name] = (
            BenchResult(status=Status.TEXT_ONLY, reason=bench.prints_only)
            if bench.prints_only
            else run_bench(name, words)
        )
        write_record(record, file)
    for line in outcome_lines(record):
        print(line, file=sys.stderr)
    print(f"written: {file}", file=sys.stderr)
    return file


def _kept_benches(file: Path, *, is_quick: bool) -> dict[str, BenchResult]:
    """Return what is on record for the commit, if it was measured in the same way."""
    if not file.exists():
        return {}
    before = read_speed_record(file)
    is_same = before.is_quick is is_quick and before.machine == this_machine()
    return dict(before.benches) if is_same else {}


def outcome_lines(record: SpeedRecord) -> list[str]:
    """Return what is not in the record and why, and which goals are missed."""
    lines = [
        f"{name}: {result.status.value}{': ' + result.reason if result.reason else ''}"
        for name, result in record.benches.items()
        if result.status is not Status.OK or result.reason
    ]
    goals = [(each, each.meets_goal) for each in record.figures]
    lines += [f"goal missed: {each.line()}" for each, is_met in goals if is_met is False]
    met = sum(is_met is True for _, is_met in goals)
    return [*lines, f"{len(record.figures)} figures, {met} goals met"]


def write_record(record: SpeedRecord, file: Path) -> None:
    """Write a record: a line for each figure, so that differences can be read."""
    text = msgspec.json.format(msgspec.json.encode(msgspec.structs.replace(record, benches={})))
    head = text.decode().removesuffix('"benches": {}\n}')
    assert head != text.decode(), "the benches come last"
    parts = []
    for name, result in record.benches.items():
        facts = msgspec.json.encode(msgspec.structs.replace(result, figures=())).decode()
        figures = ",\n      ".join(msgspec.json.encode(each).decode() for each in result.figures)
        if result.figures:
            facts = f'{facts[:-1]}, "figures": [\n      {figures}\n    ]}}'
        parts.append(f'    "{name}": {facts}')
    benches = ",\n".join(parts)
    file.write_text(f'{head}"benches": {{\n{benches}\n  }}\n}}\n')


def read_speed_record(file: Path) -> SpeedRecord:
    """Read one record."""
    return msgspec.json.decode(file.read_bytes(), type=SpeedRecord)


def read_history(directory: Path = HISTORY) -> list[SpeedRecord]:
    """Return all records, the oldest commit first."""
    found = [read_speed_record(file) for file in sorted(directory.glob("*.json"))]
    return sorted(found, key=lambda each: (each.commit_date, each.date, each.commit))


def this_machine() -> Machine:
    """Describe this machine."""
    return Machine(
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        memory_mib=psutil.virtual_memory().total >> 20,
        kernel=f"{platform.system()} {platform.release().partition('-')[0]} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        uvloop=_version("uvloop"),
        librdkafka=_version("confluent-kafka"),
        java=_java(),
    )


def _cpu_model() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _java() -> str:
    if not shutil.which("java"):
        return ""
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return next(iter(done.stderr.splitlines()), "")


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
