"""Progress on standard error, so that the output of a verb stays clean: a bar for long work, and
live lines for a campaign; on a terminal only, but for a plain line of a campaign from time to time.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraftsim.lab.campaign.guided import SearchProgress
    from kraftsim.lab.campaign.sweep import SweepProgress


@contextmanager
def progress(label: str, total: int, *, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs; the block calls the yielded function with the number of
    steps done since the last call.

    `shown` is False for verbs that print to the same terminal meanwhile.
    """
    if not shown or not sys.stderr.isatty():
        yield lambda steps: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True, markup=False), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda steps: bar.advance(task, steps)


PLAIN_SECONDS = 30.0
KINDS_SHOWN_MAX = 60


def deadline(seconds: float | None) -> Callable[[], bool]:
    """Return a function that returns whether `seconds` have passed since now; without a number it
    always returns False.
    """
    end = None if seconds is None else time.monotonic() + seconds
    return lambda: end is not None and time.monotonic() >= end


@contextmanager
def campaign_progress(total: int) -> Iterator[Callable[["SweepProgress"], None]]:
    """Show the progress of a campaign of so many seeds while the block runs; the block calls the
    yielded function with each update.
    """
    began = time.monotonic()
    if sys.stderr.isatty() and total > 1:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(
            Text(""),
            console=Console(stderr=True, markup=False),
            transient=True,
            refresh_per_second=4,
        ) as live:
            yield lambda progress: live.update(
                Text("\n".join((line(progress, time.monotonic() - began), faults(progress))))
            )
        return
    last = began

    def now_and_then(progress: "SweepProgress") -> None:
        nonlocal last
        if time.monotonic() - last >= PLAIN_SECONDS:
            last = time.monotonic()
            print(line(progress, last - began), file=sys.stderr, flush=True)

    yield now_and_then


@contextmanager
def search_progress(cpu_seconds: float) -> Iterator[Callable[["SearchProgress"], None]]:
    """Show how much of a budget of CPU seconds a search has spent while the block runs; the block
    calls the yielded function with each update.
    """
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (BarColumn(), TextColumn("{task.description}", markup=False))
        with Progress(*columns, console=Console(stderr=True, markup=False), transient=True) as bar:
            task = bar.add_task("", total=cpu_seconds)
            yield lambda progress: bar.update(
                task, completed=progress.cpu_seconds, description=search_line(progress)
            )
        return
    last = time.monotonic()

    def now_and_then(progress: "SearchProgress") -> None:
        nonlocal last
        if time.monotonic() - last >= PLAIN_SECONDS:
            last = time.monotonic()
            print(search_line(progress), file=sys.stderr, flush=True)

    yield now_and_then


def search_line(progress: "SearchProgress") -> str:
    """Return what a search has spent, reached and found, in one line."""
    return (
        f"{progress.cpu_seconds:.0f}/{progress.budget_cpu_seconds:.0f} CPU seconds, "
        f"{progress.runs} runs, {progress.tried}/{progress.scenarios} scenarios, "
        f"{progress.features} features, {progress.found} findings"
    )


def line(progress: "SweepProgress", elapsed_seconds: float) -> str:
    """Return seeds done, both rates, the time left, and the findings, in one line."""
    finished = progress.seeds - progress.resumed
    rate = finished / elapsed_seconds if elapsed_seconds > 0 else 0.0
    per_cpu = progress.seeds / progress.cpu_seconds if progress.cpu_seconds else 0.0
    left = _duration((progress.total - progress.seeds) / rate) if rate else "unknown"
    found = f"{progress.violated} violated" + (
        f", {progress.failed} otherwise not clean" if progress.failed else ""
    )
    return (
        f"{progress.seeds}/{progress.total} seeds, {rate:.1f}/s, {per_cpu:.2f} per CPU second, "
        f"{left} left, {found}"
    )


def faults(progress: "SweepProgress") -> str:
    """Return how often every kind of fault was armed, fired and effective so far, in one line."""
    shown = sorted(progress.faults.items())[:KINDS_SHOWN_MAX]
    return "armed/fired/bit: " + ", ".join(
        f"{kind} {armed}/{fired}/{bit}" for kind, (armed, fired, bit) in shown
    )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
