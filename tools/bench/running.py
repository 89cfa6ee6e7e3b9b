"""Runs one bench in its own process, with a time limit, and collects the figures that it reports.

A bench that fails, exceeds its limit or lacks Java gives a result all the same, with the reason;
the next one runs.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import IO, Final

import msgspec
import psutil

from tools.bench.catalogue import BENCHES, Java, has_java
from tools.bench.result import FILE_VARIABLE, Figure, read_reported

ROOT: Final = Path(__file__).parents[2]
END_SECONDS: Final = 5.0
REASON_LINES: Final = 40
REASON_CHARACTERS: Final = 300


class Status(Enum):
    """How a bench ended."""

    OK = "ok"
    FAILED = "failed"
    ABSENT = "absent"
    """It cannot run on this machine."""
    TEXT_ONLY = "text only"
    """It ran, or was left out, and reports no figures."""


class BenchResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run of a bench. `load_before`, `load_after`: the load average of one minute."""

    status: Status
    reason: str = ""
    seconds: float = 0.0
    load_before: float = 0.0
    load_after: float = 0.0
    figures: tuple[Figure, ...] = ()


def run_bench(
    name: str,
    options: Sequence[str],
    *,
    tree: Path = ROOT,
    environment: Mapping[str, str] | None = None,
    limit_s: float | None = None,
    is_quiet: bool = False,
) -> BenchResult:
    """Run a bench with the code of a tree; return what it found, however it ended."""
    bench = BENCHES[name]
    if bench.missing():
        return BenchResult(status=Status.ABSENT, reason=bench.missing())
    load_before, began = os.getloadavg()[0], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kraftsim-bench-") as scratch:
        file = Path(scratch) / "figures.jsonl"
        reason = _run(
            [sys.executable, "-m", f"tools.bench.bench_{name}", *options],
            tree,
            {**os.environ, **(environment or {}), FILE_VARIABLE: str(file)},
            bench.limit_s if limit_s is None else limit_s,
            is_quiet,
        )
        figures = tuple(read_reported(file))
    strange = [each.name for each in figures if not each.name.startswith(f"{name}.")]
    if strange:
        reason = reason or f"the figure {strange[0]} is not named {name}.FIGURE"
    status = Status.FAILED if reason else Status.OK if figures else Status.TEXT_ONLY
    if status is Status.OK and bench.java is Java.PEER and not has_java():
        reason = "without Apache Kafka: there is no Java with Maven"
    if status is Status.TEXT_ONLY:
        reason = bench.prints_only or "it reported no figures"
    return BenchResult(
        status=status,
        reason=reason,
        seconds=round(time.monotonic() - began, 1),
        load_before=round(load_before, 2),
        load_after=round(os.getloadavg()[0], 2),
        figures=figures,
    )


def _run(
    command: Sequence[str],
    tree: Path,
    environment: Mapping[str, str],
    limit_s: float,
    is_quiet: bool,
) -> str:
    """Run the command; return '' if it succeeded, or why not."""
    last_lines: list[str] = []
    with subprocess.Popen(
        command,
        cwd=tree,
        env={**environment, "PYTHONPATH": str(tree)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if is_quiet else None,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        assert process.stderr is not None, "it is a pipe"
        reader = threading.Thread(
            target=_follow, args=(process.stderr, last_lines, is_quiet), daemon=True
        )
        reader.start()
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            _end_family(process.pid)
            return f"took longer than {limit_s:g} s and was ended"
        except BaseException:
            _end_family(process.pid)
            raise
        reader.join(END_SECONDS)
    if code == 0:
        return ""
    said = next((line for line in reversed(last_lines) if line.strip()), "no message")
    return f"exit code {code}: {said.strip()[:REASON_CHARACTERS]}"


def _follow(lines: IO[str], last_lines: list[str], is_quiet: bool) -> None:
    for line in lines:
        if not is_quiet:
            sys.stderr.write(line)
        last_lines.append(line)
        del last_lines[:-REASON_LINES]


def _end_family(pid: int) -> None:
    """Kill a process and all that descend from it."""
    try:
        parent = psutil.Process(pid)
        family = [*parent.children(recursive=True), parent]
    except psutil.NoSuchProcess:
        return
    for each in family:
        try:
            each.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(family, END_SECONDS)
