"""The chapter on transactions in the report: six tables with a sentence each.

Text from clients reaches the page as text only.
"""

import html
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kraftsim.analysis.sentences import printable
from kraftsim.analysis.transaction_chapter import ChapterRow, TransactionChapter
from kraftsim.analysis.transaction_queries import (
    ENDS,
    GROUPS,
    IDS,
    MARKERS,
    PARTITIONS,
    TURNED_AWAY,
)
from protocol.errors import ErrorCode

ERRORS: Final = {int(error): error.name for error in ErrorCode}
Cells = Callable[[ChapterRow], Sequence[str]]


class _Table(NamedTuple):
    """One table: the part of the chapter that it shows, its texts, and how a row becomes cells."""

    part: str
    title: str
    sentence: str
    columns: Sequence[str]
    cells: Cells


def chapter_html(chapter: TransactionChapter | None) -> str:
    """Return the chapter, or nothing if a run has none."""
    if chapter is None:
        return ""
    return (
        '<section class="chapter" '
        'id="transactions"><h2>Transactions</h2>'
        f"{''.join(_part(chapter, table) for table in TABLES)}</section>"
    )


def _part(chapter: TransactionChapter, table: _Table) -> str:
    rows = chapter.rows(table.part)
    if not rows:
        return ""
    left_out = chapter.total(table.part) - len(rows)
    more = f'<p class="quiet">and {left_out:,} more</p>' if left_out else ""
    head = "".join(f'<th scope="col">{column}</th>' for column in table.columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{cell}</td>' for cell in table.cells(row))}</tr>" for row in rows
    )
    shown = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return (
        f'<div class="part"><h3>{table.title}</h3><p class="quiet">{table.sentence}</p><div '
        f'class="scroll">{shown}</div>{more}</div>'
    )


def _text(value: str) -> str:
    return html.escape(printable(value), quote=True)


def _count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _ms(nanoseconds: int | None) -> str:
    return "" if nanoseconds is None else f"{nanoseconds / 1e6:,.1f}"


def _error(code: int | None) -> str:
    return "its epoch" if code is None else f"{code} {ERRORS.get(code, '')}"


TABLES: Final = (
    _Table(
        IDS,
        "Transactional ids",
        "Decisions in the transaction log, and why coordinators aborted by themselves: a "
        "time-out, or an InitProducerId of another producer.",
        (
            "transactional id",
            "transactions",
            "committed",
            "aborted",
            "timed out",
            "taken over",
            "fenced requests",
            "producer ids",
            "epochs",
        ),
        lambda row: (_text(row.a), *(_count(number) for number in row.numbers)),
    ),
    _Table(
        ENDS,
        "From the decision to the completion",
        "Milliseconds from PrepareCommit or PrepareAbort to CompleteCommit or CompleteAbort.",
        ("end", "times", "median", "90 %", "99 %", "longest"),
        lambda row: (
            _text(row.a),
            _count(row.numbers[0]),
            *(_ms(number) for number in row.numbers[1:5]),
        ),
    ),
    _Table(
        MARKERS,
        "From the decision to each marker",
        "Milliseconds until the marker is in the log of the partition's leader.",
        ("marker", "times", "median", "90 %", "99 %", "longest"),
        lambda row: (
            _text(row.a),
            _count(row.numbers[0]),
            *(_ms(number) for number in row.numbers[1:5]),
        ),
    ),
    _Table(
        PARTITIONS,
        "How long read_committed consumers were blocked",
        "A transaction is open in a partition from its first record to its marker. Records: how "
        "many the last stable offset was behind at most, from the first record of a transaction "
        "to its marker; logged: high watermark less last stable offset, where it was logged.",
        (
            "partition",
            "ended",
            "committed",
            "aborted",
            "still open",
            "open ms, median",
            "longest",
            "records",
            "logged",
        ),
        lambda row: (
            _text(f"{row.a}-{row.b}"),
            *(_count(number) for number in row.numbers[:4]),
            *(_ms(number) for number in row.numbers[4:6]),
            *(_count(number) for number in row.numbers[6:]),
        ),
    ),
    _Table(
        TURNED_AWAY,
        "Rejected requests",
        "Zombies and others: rejected by, request, error, how often, and the number of affected "
        "producers, ids or members.",
        ("by", "request or group", "error", "times", "of"),
        lambda row: (
            _text(row.a),
            _text(row.b),
            _error(row.numbers[1]),
            _count(row.numbers[0]),
            _count(row.numbers[2]),
        ),
    ),
    _Table(
        GROUPS,
        "Pending offsets",
        "Offsets that were committed in transactions, their outcome, and how often a fetch of "
        "stable offsets got UNSTABLE_OFFSET_COMMIT (88).",
        (
            "group",
            "pending",
            "counted",
            "dropped",
            "left pending",
            "pending ms, median",
            "longest",
            "unstable (88)",
            "fetches",
        ),
        lambda row: (
            _text(row.a),
            *(_count(number) for number in row.numbers[:4]),
            *(_ms(number) for number in row.numbers[4:6]),
            *(_count(number) for number in row.numbers[6:]),
        ),
    ),
)
