"""The chapter on transactions: every figure of a small history, computed by hand, by DuckDB and by
Spark, and as shown in the report.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import pytest

from kraftsim.analysis.ingest import ingested
from kraftsim.analysis.queries import DuckdbQueries, SparkSqlQueries
from kraftsim.analysis.transaction_chapter import (
    TransactionChapter,
    find_chapter,
    has_transactions,
)
from kraftsim.analysis.transaction_queries import (
    ENDS,
    GROUPS,
    IDS,
    MARKERS,
    PARTITIONS,
    TURNED_AWAY,
)
from kraftsim.analysis.transaction_tables import chapter_html
from kraftsim.analysis.views import one_run
from kraftsim.clients.events_transactions import MembershipLost, TransactionErred
from kraftsim.events.event import Event
from kraftsim.groups.events import (
    OffsetMaterialised,
    OffsetReturned,
    PendingOffsetAdded,
    PendingOffsetDropped,
)
from kraftsim.partitions.events import BatchAppended, ProduceRefused
from kraftsim.partitions.events_transactions import (
    LastStableOffsetMoved,
    MarkerAppended,
    MarkerRefused,
)
from kraftsim.server.events import NodeReady
from kraftsim.transactions.events import (
    ProducerFenced,
    TransactionAbortForced,
    TransactionRefused,
    TransactionStateChanged,
)
from protocol.errors import ErrorCode
from tests.analysis.history import History

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MS = 1_000_000
HOSTILE = "<img src=x onerror=alert(1)>"
Numbers = tuple[int | None, ...]
EXPECTED: Mapping[str, Sequence[tuple[str, str, Numbers]]] = {
    # transactions, commits, aborts, timeouts, taken over, fenced requests, producer ids, epochs
    IDS: [(HOSTILE, "", (3, 2, 1, 1, 0, 2, 1, 2)), ("other", "", (1, 0, 1, 0, 1, 0, 1, 1))],
    # times, median, 90 %, 99 %, longest
    ENDS: [
        ("CompleteCommit", "", (2, 4 * MS, 10 * MS, 10 * MS, 10 * MS, None, None, None)),
        ("CompleteAbort", "", (1, 6 * MS, 6 * MS, 6 * MS, 6 * MS, None, None, None)),
    ],
    MARKERS: [
        ("commit", "", (2, 2 * MS, 7 * MS, 7 * MS, 7 * MS, None, None, None)),
        ("abort", "", (1, 5 * MS, 5 * MS, 5 * MS, 5 * MS, None, None, None)),
    ],
    # ended, committed, aborted, still open, open in the median, longest, records, logged
    PARTITIONS: [("out", "0", (3, 2, 1, 1, 7 * MS, 17 * MS, 5, 5))],
    # count, error code, of how many
    TURNED_AWAY: [
        (
            "a coordinator, of a fenced producer",
            "END_TXN",
            (2, None, 1, None, None, None, None, None),
        ),
        ("a coordinator", "ADD_PARTITIONS_TO_TXN", (1, 51, 1, None, None, None, None, None)),
        ("a group, of a member that was one", "g", (1, 22, 1, None, None, None, None, None)),
        ("the leader of a partition", "Produce", (1, 47, 1, None, None, None, None, None)),
        ("the leader of a partition", "WriteTxnMarkers", (1, 52, 1, None, None, None, None, None)),
        ("what ended a producer", "", (1, 90, 1, None, None, None, None, None)),
    ],
    # pending, materialised, dropped, left pending, median pending time, longest, requests answered
    # UNSTABLE_OFFSET_COMMIT, requests
    GROUPS: [("g", "", (3, 1, 1, 1, 3 * MS, 8 * MS, 1, 2))],
}


def changed(state: str, *, name: str = HOSTILE, producer_id: int = 7, epoch: int = 0) -> Event:
    return TransactionStateChanged(
        transactional_id=name,
        producer_id=producer_id,
        producer_epoch=epoch,
        state=state,
        partitions="",
        coordinator_epoch=0,
        partition=0,
        offset=0,
    )


def appended(first: int, *, is_transactional: bool = True, producer_id: int = 7) -> Event:
    return BatchAppended(
        topic="out",
        partition=0,
        leader_epoch=0,
        first_offset=first,
        last_offset=first,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=first,
        last_sequence=first,
        record_count=1,
        size_bytes=1,
        crc=1,
        is_transactional=is_transactional,
    )


def marked(offset: int, *, is_commit: bool = True, on_leader: bool = True) -> Event:
    return MarkerAppended(
        topic="out",
        partition=0,
        producer_id=7,
        producer_epoch=0,
        coordinator_epoch=0,
        is_commit=is_commit,
        offset=offset,
        on_leader=on_leader,
    )


def pending(record_offset: int) -> Event:
    return PendingOffsetAdded(
        coordinator_partition=0,
        group_id="g",
        topic="in",
        partition=0,
        offset=5,
        record_offset=record_offset,
        producer_id=7,
        producer_epoch=0,
    )


def offset_returned(error_code: int, *, require_stable: bool = True) -> Event:
    return OffsetReturned(
        coordinator_partition=0,
        group_id="g",
        topic="in",
        partition=0,
        offset=5,
        record_offset=1,
        require_stable=require_stable,
        error_code=error_code,
    )


class Place(TypedDict):
    """Where the events of a pending offset belong."""

    coordinator_partition: int
    group_id: str
    topic: str
    partition: int
    offset: int
    producer_id: int
    producer_epoch: int


def history() -> History:
    """Three transactions of one id, two of them committed; one of another; one left open; offsets
    of one group; and refused requests.
    """
    found = History()
    place = Place(
        coordinator_partition=0,
        group_id="g",
        topic="in",
        partition=0,
        offset=5,
        producer_id=7,
        producer_epoch=0,
    )

    def emit(event: Event, ms: int = 0) -> None:
        found.emit("broker-1", event, after_ns=ms * MS)

    emit(changed("Ongoing"))
    emit(appended(0), 1)
    emit(pending(10))
    emit(changed("PrepareCommit"), 5)
    emit(
        LastStableOffsetMoved(topic="out", partition=0, leader_epoch=0, offset=0, high_watermark=5)
    )
    emit(marked(5), 2)
    emit(marked(5, on_leader=False), 1)
    emit(OffsetMaterialised(**place, record_offset=10, marker_offset=11, is_current=True))
    emit(changed("CompleteCommit"), 1)
    emit(appended(6, is_transactional=False))
    emit(appended(7))
    emit(pending(12))
    emit(PendingOffsetDropped(**place, record_offset=12, marker_offset=13), 3)
    emit(changed("PrepareCommit"), 7)
    emit(marked(9), 7)
    emit(marked(10, is_commit=False, on_leader=False), 3)
    emit(changed("CompleteCommit"))
    emit(appended(11))
    emit(
        TransactionAbortForced(
            transactional_id=HOSTILE, producer_id=7, producer_epoch=0, reason="timeout"
        )
    )
    emit(changed("PrepareAbort", epoch=1), 1)
    emit(marked(12, is_commit=False), 5)
    emit(changed("CompleteAbort", epoch=1), 1)
    emit(pending(14))
    emit(appended(13))
    emit(
        TransactionAbortForced(
            transactional_id="other", producer_id=8, producer_epoch=0, reason="initialised"
        )
    )
    emit(changed("PrepareAbort", name="other", producer_id=8))
    for _ in range(2):
        emit(
            ProducerFenced(transactional_id=HOSTILE, producer_id=7, producer_epoch=0, api="END_TXN")
        )
    emit(
        TransactionRefused(
            api="ADD_PARTITIONS_TO_TXN",
            transactional_id="other",
            error_code=51,
            producer_id=8,
            producer_epoch=0,
        )
    )
    for error in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        emit(
            ProduceRefused(
                topic="out",
                partition=0,
                error_code=int(error),
                reason="",
                producer_id=7,
                producer_epoch=0,
                base_sequence=0,
            )
        )
    emit(
        MarkerRefused(
            topic="out",
            partition=0,
            producer_id=7,
            producer_epoch=0,
            coordinator_epoch=0,
            is_commit=True,
            error_code=52,
            reason="",
        )
    )
    emit(MembershipLost(client_id="c", group_id="g", generation_id=1, error_code=22))
    emit(
        TransactionErred(
            client_id="c", transactional_id=HOSTILE, transaction="c/1", error_code=90, is_fatal=True
        )
    )
    for each in (offset_returned(88), offset_returned(0), offset_returned(0, require_stable=False)):
        emit(each)
    return found


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    history().write(tmp_path)
    return Path(ingested(tmp_path).parquet)


def by_duckdb(parquet: Path) -> TransactionChapter:
    return find_chapter(DuckdbQueries(one_run(parquet)))


def rows_of(chapter: TransactionChapter) -> dict[str, list[tuple[str, str, Numbers]]]:
    return {part.name: [(row.a, row.b, row.numbers) for row in part.rows] for part in chapter.parts}


def test_every_figure_of_the_chapter_matches_the_history(parquet: Path) -> None:
    """Computed by hand: batches replicated by followers and batches outside transactions do not
    count.
    """
    assert rows_of(by_duckdb(parquet)) == {name: list(rows) for name, rows in EXPECTED.items()}


@pytest.mark.spark
def test_spark_gives_the_same_chapter(spark: "SparkSession", parquet: Path) -> None:
    """The report uses Spark."""
    assert rows_of(find_chapter(SparkSqlQueries(spark, one_run(parquet)))) == {
        name: list(rows) for name, rows in EXPECTED.items()
    }


def test_the_report_shows_the_chapter_as_text_only(parquet: Path) -> None:
    """Clients choose transactional ids, so they are escaped; error codes are shown by name."""
    page = chapter_html(by_duckdb(parquet))
    assert HOSTILE not in page and "&lt;img src=x onerror=alert(1)&gt;" in page
    for words in (
        "<td>47 INVALID_PRODUCER_EPOCH</td>",
        "<td>out-0</td><td>3</td><td>2</td><td>1</td><td>1</td><td>7.0</td><td>17.0</td>",
        "Pending offsets",
    ):
        assert words in page, words
    assert page.count("<table>") == len(EXPECTED)


def test_a_run_without_transactions_has_no_transaction_chapter(tmp_path: Path) -> None:
    """Its report has no such section."""
    found = History()
    found.emit("broker-1", NodeReady())
    found.write(tmp_path)
    assert not has_transactions(one_run(ingested(tmp_path).parquet))
    assert chapter_html(None) == ""
