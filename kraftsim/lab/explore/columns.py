"""Lays rows of a trace out in columns of a given width, as plain text whose segments have
styles.
"""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from kraftsim.lab.explore.trace import TraceRow

TIME_WIDTH: Final = 9
COLUMN_MIN: Final = 18
COLUMN_MAX: Final = 34
HEADER_EVERY: Final = 40
DOWN: Final = "."
Piece = tuple[str, str]
"""Text, and its style: '' for none, else 'time', 'head', 'fault', 'bad', 'good', 'news', 'dim'."""
STYLES: Final = (
    ("KILLED", "bad"),
    ("DIED", "bad"),
    ("FAILED", "bad"),
    ("RESTARTED", "good"),
    ("ELECTED", "good"),
    ("RESUMED", "good"),
    ("PAUSED", "bad"),
    ("TRUNCATED", "news"),
    ("REVERTED", "news"),
    ("LOADED", "news"),
    ("BLOCK", "news"),
)


def fitting(names: Sequence[str], width: int) -> int:
    """Return how many columns fit."""
    return max(1, min(len(names), (width - TIME_WIDTH) // COLUMN_MIN))


def laid_out(rows: Sequence[TraceRow], names: Sequence[str], width: int) -> Iterator[list[Piece]]:
    """Yield the lines: times on the left, then one column per name; rows without a column span the
    whole width.
    """
    room = min((width - TIME_WIDTH) // max(len(names), 1), COLUMN_MAX)
    heading = [
        ("seconds".ljust(TIME_WIDTH), "head"),
        *((name[: room - 1].ljust(room), "head") for name in names),
    ]
    lines = 0
    for row in rows:
        if lines % HEADER_EVERY == 0:
            yield heading
        if row.across is not None:
            yield from _across(row, min(width, TIME_WIDTH + room * len(names)))
            lines += 1
        elif any(name in row.cells for name in names):
            for line in _cells(row, names, room):
                yield line
                lines += 1


def _across(row: TraceRow, width: int) -> Iterator[list[Piece]]:
    assert row.across is not None, "it stands across"
    style = "bad" if row.across.startswith("VIOLATED") else "fault"
    ahead = " " * (len(row.across) - len(row.across.lstrip()))
    for number, text in enumerate(
        textwrap.wrap(row.across.strip(), max(width - TIME_WIDTH - 4 - len(ahead), 20)) or [""]
    ):
        time = _time(row) if number == 0 else ""
        label = f"-- {ahead}{text} " if number == 0 and not ahead else f"   {ahead}{text} "
        yield [
            (time.ljust(TIME_WIDTH), "time"),
            (
                label.ljust(width - TIME_WIDTH, "-" if number == 0 and not ahead else " ").rstrip(),
                style,
            ),
        ]


def _cells(row: TraceRow, names: Sequence[str], room: int) -> Iterator[list[Piece]]:
    wrapped = {
        name: [line for word in row.cells.get(name, ()) for line in textwrap.wrap(word, room - 1)]
        for name in names
    }
    for number in range(max(map(len, wrapped.values()), default=0)):
        line: list[Piece] = [((_time(row) if number == 0 else "").ljust(TIME_WIDTH), "time")]
        for name in names:
            words = wrapped[name]
            if number < len(words):
                line.append((words[number].ljust(room), _style(words[number])))
            else:
                line.append(((DOWN if name in row.down and not words else "").ljust(room), "dim"))
        yield line


def _style(word: str) -> str:
    return next((style for start, style in STYLES if start in word), "")


def _time(row: TraceRow) -> str:
    return f"{row.at_ns / 1e9:.3f}"
