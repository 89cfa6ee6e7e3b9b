"""A progress bar for long work: on a terminal only, and on standard error, so that the output of a
verb stays clean.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
