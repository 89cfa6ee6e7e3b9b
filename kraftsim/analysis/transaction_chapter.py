"""The report's chapter on transactions: what became of each transactional id, how long readers were held back, and who was turned away by what error.

A run without any transaction has no such chapter.   Source: KIP-98, KIP-447, KIP-890.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kraftsim.analysis.transaction_queries import KINDS, NUMBERS, chapter_query
from kraftsim.analysis.views import make_views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MADE_OF: Final = "TransactionStateChanged"
FIRST_NUMBER: Final = 3
"""Where the numbers begin in a row of the query."""


class ChapterRow(msgspec.Struct, frozen=True):
    """One line of one part: up to two texts, and numbers as the part's SQL says; spans of time are in nanoseconds."""

    a: str
    b: str
    numbers: tuple[int | None, ...]


class ChapterPart(msgspec.Struct, frozen=True):
    """One part: its rows, the greatest first, and how many there are in all."""

    name: str
    rows: tuple[ChapterRow, ...]
    total: int


class TransactionChapter(msgspec.Struct, frozen=True):
    """What is told of the transactions of a run, by part."""

    parts: tuple[ChapterPart, ...]

    def rows(self, name: str) -> Sequence[ChapterRow]:
        """Return the rows of a part; none if there is nothing to tell."""
        return next((part.rows for part in self.parts if part.name == name), ())

    def total(self, name: str) -> int:
        """Return how many rows a part has in all."""
        return next((part.total for part in self.parts if part.name == name), 0)


def has_transactions(parquet: Path) -> bool:
    """Tell whether the chapter has anything to tell of a run."""
    kinds = pq.read_table(parquet, columns=["kind"]).column("kind")
    return bool(pc.any(pc.equal(kinds, MADE_OF)).as_py())


def find_chapter(spark: "SparkSession", parquet: str) -> TransactionChapter:
    """Ask Spark for the chapter of the run in a Parquet file."""
    make_views(spark, parquet, KINDS)
    return chapter_of(tuple(row) for row in spark.sql(chapter_query()).collect())


def chapter_of(found: Iterable[tuple[str | int | None, ...]]) -> TransactionChapter:
    """Return the rows of the query by part, in the order of the greatest first number."""
    parts: dict[str, list[ChapterRow]] = {}
    totals: dict[str, int] = {}
    for row in found:
        name, a, b = (str(text) for text in row[:FIRST_NUMBER])
        numbers = tuple(None if value is None else int(value) for value in row[FIRST_NUMBER : FIRST_NUMBER + NUMBERS])
        parts.setdefault(name, []).append(ChapterRow(a, b, numbers))
        totals[name] = int(row[FIRST_NUMBER + NUMBERS] or 0)
    for rows in parts.values():
        rows.sort(key=lambda row: (-(row.numbers[0] or 0), row.a, row.b, row.numbers[1] or 0))
    return TransactionChapter(tuple(ChapterPart(name, tuple(rows), totals[name]) for name, rows in sorted(parts.items())))
