"""The display of `kraftsim watch` on a terminal: violations scroll, and a table with throughput and
lags stays below them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.table import Table

from kraftsim.analysis.live.display import Lines
from kraftsim.analysis.live.figures import Status
from kraftsim.analysis.live.live_run import Found
from kraftsim.analysis.sentences import printable

NODES_SHOWN_MAX: Final = 20


class LiveTable:
    """Writes violations as lines, and replaces the table."""

    def __init__(self, write: Callable[[str], None], update: Callable[[Table], None]) -> None:
        self._lines = Lines(write)
        self._update = update

    def found(self, found: Found) -> None:
        """Write a violation and its events above the table."""
        self._lines.found(found)

    def status(self, status: Status) -> None:
        """Replace the table."""
        self._update(_table(status))

    def message(self, text: str) -> None:
        """Write a line above the table."""
        self._lines.message(text)


@contextmanager
def live_table() -> Iterator[LiveTable]:
    """Show a table on the terminal while the block runs."""
    console = Console(markup=False, highlight=False)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield LiveTable(
            lambda line: console.print(line, soft_wrap=True),
            lambda table: live.update(table, refresh=True),
        )


def _table(status: Status) -> Table:
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("events", f"{status.event_count:,}, {status.events_per_second:,.0f}/s")
    table.add_row("acknowledged", f"{status.acknowledged_per_second:,.0f} records/s")
    table.add_row(
        "unread", f"{status.bytes_behind:,} bytes, oldest {status.oldest_unread_seconds:.1f} s"
    )
    behind = status.checked_behind_seconds
    table.add_row("checks", "-" if behind is None else f"{behind:.1f} s behind")
    lag = status.high_watermark_lag
    table.add_row(
        "high watermark lag", "-" if lag is None else f"{lag:,} {status.high_watermark_lag_of}"
    )
    table.add_row("violations", f"{status.violation_count}")
    lags = sorted(status.node_lag_seconds.items(), key=lambda each: (-each[1], each[0]))
    for node, seconds in lags[:NODES_SHOWN_MAX]:
        table.add_row(printable(node), f"last event {seconds:.1f} s ago")
    return table
