"""The report's chapter on transactions: the outcome of each transactional id, how long consumers
were blocked, and which errors producers got.

A run without any transaction has no such chapter.   Source: KIP-98, KIP-447, KIP-890.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from kraftsim.analysis.queries import Queries, Query
from kraftsim.analysis.transaction_queries import KINDS, NUMBERS, chapter_query
from kraftsim.analysis.views import Runs

MADE_OF: Final = "TransactionStateChanged"
FIRST_NUMBER: Final = 3
"""The position of the first number in a row of the query."""


class ChapterRow(msgspec.Struct, frozen=True):
    """One row of one part: up to two texts, and numbers as defined by the part's SQL; durations are
    in nanoseconds.
    """

    a: str
    b: str
    numbers: tuple[int | None, ...]


class ChapterPart(msgspec.Struct, frozen=True):
    """One part: its rows, the greatest first, and the total number of rows."""

    name: str
    rows: tuple[ChapterRow, ...]
    total: int


class TransactionChapter(msgspec.Struct, frozen=True):
    """The content of the chapter on the transactions of a run, by part."""

    parts: tuple[ChapterPart, ...]

    def rows(self, name: str) -> Sequence[ChapterRow]:
        """Return the rows of a part; none if it is empty."""
        return next((part.rows for part in self.parts if part.name == name), ())

    def total(self, name: str) -> int:
        """Return the total number of rows of a part."""
        return next((part.total for part in self.parts if part.name == name), 0)


def has_transactions(runs: Runs) -> bool:
    """Return whether the chapter of a run has any content."""
    return MADE_OF in runs.kinds


def find_chapter(queries: Queries) -> TransactionChapter:
    """Query the chapter of a run."""
    return chapter_of(queries.ask([Query(chapter_query(), KINDS)]))


def chapter_of(found: Iterable[tuple[str | int | None, ...]]) -> TransactionChapter:
    """Return the rows of the query by part, in descending order of the first number."""
    parts: dict[str, list[ChapterRow]] = {}
    totals: dict[str, int] = {}
    for row in found:
        name, a, b = (str(text) for text in row[:FIRST_NUMBER])
        numbers = tuple(
            None if value is None else int(value)
            for value in row[FIRST_NUMBER : FIRST_NUMBER + NUMBERS]
        )
        parts.setdefault(name, []).append(ChapterRow(a, b, numbers))
        totals[name] = int(row[FIRST_NUMBER + NUMBERS] or 0)
    for rows in parts.values():
        rows.sort(key=lambda row: (-(row.numbers[0] or 0), row.a, row.b, row.numbers[1] or 0))
    return TransactionChapter(
        tuple(ChapterPart(name, tuple(rows), totals[name]) for name, rows in sorted(parts.items()))
    )
