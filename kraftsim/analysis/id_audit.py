"""The audit trail of producer ids, with Spark: the owner of an id, which owners are lost with the
log, unused ids, and agreement with the events.

Source: KIP-730 (audit trail), KIP-630 (what snapshots keep).
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from kraftsim.analysis.id_trail import TrailExtent, TrailRow, metadata_directories, read_trail
from kraftsim.analysis.ingest import EVENTS_DIRECTORY, ingested
from kraftsim.analysis.session import SparkOptions, spark_session
from kraftsim.analysis.views import make_views, one_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T", bound=msgspec.Struct)
KINDS: Final = ("ProducerIdBlockAllocated", "ProducerIdBlockReceived", "ProducerIdReturned")
BLOCKS: Final = """
    WITH start AS (
        SELECT coalesce(max(s.next_producer_id), 0) AS first_producer_id FROM trail AS s CROSS
            JOIN extent AS e
        WHERE s.is_snapshot AND s.offset <= e.first_offset
    )
    SELECT
        t.offset, t.leader_epoch, t.time_ms, t.broker_id, t.broker_epoch,
        coalesce(lag(t.next_producer_id) OVER (ORDER BY t.offset),
            start.first_producer_id) AS first_producer_id,
        t.next_producer_id
    FROM trail AS t CROSS JOIN start WHERE NOT t.is_snapshot
"""
"""A record contains the end of its block; the block starts at the end of the previous one, or at
the value in the snapshot before the log.
"""
OWNERS: Final = """
    SELECT broker_id, count(DISTINCT broker_epoch) AS incarnations, count(*) AS blocks,
        sum(next_producer_id - first_producer_id) AS ids,
        min(first_producer_id) AS first_producer_id, max(next_producer_id) AS next_producer_id,
            min(time_ms) AS first_ms, max(time_ms) AS last_ms
    FROM block GROUP BY broker_id ORDER BY broker_id
"""
SNAPSHOTS: Final = """
    SELECT file, broker_id, broker_epoch, next_producer_id, value_bytes, file_bytes FROM trail
        WHERE is_snapshot ORDER BY offset
"""
COMPARED: Final = """
    SELECT
        count(*) FILTER (WHERE b.offset IS NOT NULL AND a.offset IS NOT NULL) AS same,
        count(*) FILTER (WHERE a.offset IS NULL) AS unanswered,
        count(*) FILTER (WHERE b.offset IS NULL AND a.offset < e.first_offset) AS lost,
        count(*) FILTER (WHERE b.offset IS NULL AND a.offset >= e.first_offset) AS contradicted
    FROM block AS b
    FULL OUTER JOIN (
        SELECT offset, broker_id, broker_epoch, first_producer_id, next_producer_id
            FROM producer_id_block_allocated
        WHERE coalesce(given_by, 'quorum') = 'quorum'
    ) AS a ON a.offset = b.offset AND a.broker_id = b.broker_id AND a.broker_epoch = b.broker_epoch
        AND a.first_producer_id = b.first_producer_id AND a.next_producer_id = b.next_producer_id
    CROSS JOIN extent AS e
"""
HOLES: Final = """
    WITH used AS (
        SELECT b.offset, count(DISTINCT r.producer_id) AS ids FROM block AS b
        LEFT JOIN producer_id_returned AS r
            ON r.fresh AND r.producer_id >= b.first_producer_id
                AND r.producer_id < b.next_producer_id
        GROUP BY b.offset
    )
    SELECT
        count(*) FILTER (WHERE NOT received) AS never_received,
        count(*) FILTER (WHERE ids = 0) AS never_used,
        coalesce(sum(ids), 0) AS ids_used,
        coalesce(sum(size - ids), 0) AS ids_burned
    FROM (
        SELECT b.next_producer_id - b.first_producer_id AS size, u.ids,
            b.first_producer_id IN (SELECT first_producer_id
                FROM producer_id_block_received) AS received
        FROM block AS b JOIN used AS u ON u.offset = b.offset
    )
"""


class IdOwner(msgspec.Struct, frozen=True, kw_only=True):
    """The blocks of a broker, over all its `incarnations` (epochs)."""

    broker_id: int
    incarnations: int
    blocks: int
    ids: int
    first_producer_id: int
    next_producer_id: int
    first_ms: int
    last_ms: int


class OwnerOfId(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of one id, and the record that allocated it; None: unknown."""

    producer_id: int
    broker_id: int | None = None
    broker_epoch: int | None = None
    offset: int | None = None


class SnapshotCost(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a snapshot: the end of the last block, and no owners."""

    file: str
    broker_id: int
    broker_epoch: int
    next_producer_id: int
    value_bytes: int
    file_bytes: int


class ComparedIds(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks of the log compared with the events of a run.

    `unanswered`: in the log, without an event of a response; `lost`: no longer in the log.
    """

    same: int
    unanswered: int
    lost: int
    contradicted: int


class Holes(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks in the log that no broker received, or of which no client has an id."""

    never_received: int
    never_used: int
    ids_used: int
    ids_burned: int


class IdAudit(msgspec.Struct, frozen=True, kw_only=True):
    """The trail of one node. `lost_ids`: the owners of ids below it are no longer in the log."""

    extent: TrailExtent
    blocks: int
    lost_ids: int
    owners: tuple[IdOwner, ...]
    snapshots: tuple[SnapshotCost, ...]
    asked: tuple[OwnerOfId, ...] = ()
    compared: ComparedIds | None = None
    holes: Holes | None = None

    def lines(self) -> list[str]:
        """Return the human-readable lines."""
        extent = self.extent
        text = [
            (
                f"{extent.node}: offsets {extent.first_offset} to {extent.next_offset - 1} in "
                f"{extent.segments} segments, {self.blocks} blocks"
            )
        ]
        text += [f"  not read to its end: {extent.trouble}"] if extent.trouble else []
        text += (
            [
                (
                    f"  ids 0 to {self.lost_ids - 1}: owners unknown, a snapshot replaced their "
                    "part of the log"
                )
            ]
            if self.lost_ids
            else []
        )
        for each in self.owners:
            span = f"ids {each.first_producer_id} to {each.next_producer_id - 1}"
            text.append(
                f"  broker {each.broker_id}: {each.blocks} blocks in {each.incarnations} "
                f"incarnations, {each.ids} ids, {span}"
            )
        for kept in self.snapshots:
            cost = f"{kept.value_bytes} of {kept.file_bytes} bytes"
            text.append(
                f"  {kept.file}: next id {kept.next_producer_id}, broker {kept.broker_id}, epoch "
                f"{kept.broker_epoch}; {cost}"
            )
        for asked in self.asked:
            known = (
                f"broker {asked.broker_id} in epoch {asked.broker_epoch}, offset {asked.offset}"
                if asked.offset is not None
                else "unknown"
            )
            text.append(f"  id {asked.producer_id}: {known}")
        return text + self._beside_events()

    def _beside_events(self) -> list[str]:
        text = []
        if self.compared is not None:
            with_events = self.compared
            text.append(
                f"  compared with the events: {with_events.same} blocks equal, "
                f"{with_events.unanswered} only in the log, {with_events.lost} only in events "
                f"and no longer in the log, {with_events.contradicted} missing in the log"
            )
        if self.holes is not None:
            unused = self.holes
            text.append(
                f"  holes: {unused.never_received} blocks that no broker took, "
                f"{unused.never_used} without an id in use; {unused.ids_used} ids in use, "
                f"{unused.ids_burned} burned"
            )
        return text


def audit(
    place: Path,
    *,
    node: str | None = None,
    asked: Sequence[int] = (),
    options: SparkOptions | None = None,
    spark: "SparkSession | None" = None,
) -> IdAudit:
    """Read the trail of a node (default: the one with the longest log), and compare it with the
    events of the run, if any.

    Raises NoMetadataLog, KeyError for a node that has none, JavaMissing.
    """
    directories = metadata_directories(place)
    if node is not None and node not in directories:
        raise KeyError(f"{node} has no metadata log here; these have: {', '.join(directories)}")
    read = [
        read_trail(name, directory)
        for name, directory in directories.items()
        if node in (None, name)
    ]
    extent, rows = max(read, key=lambda each: (each[0].next_offset, each[0].node))
    if spark is not None:
        return _asked(spark, place, extent, rows, asked)
    with spark_session(options) as session:
        return _asked(session, place, extent, rows, asked)


def _asked(
    spark: "SparkSession",
    place: Path,
    extent: TrailExtent,
    rows: Sequence[TrailRow],
    asked: Sequence[int],
) -> IdAudit:
    with tempfile.TemporaryDirectory() as scratch:
        _view(spark, Path(scratch), "trail", rows, TrailRow)
        _view(spark, Path(scratch), "extent", [extent], TrailExtent)
        _view_of_ids(spark, Path(scratch), asked)
        spark.sql(BLOCKS).createOrReplaceTempView("block")
        compared = holes = None
        if (place / EVENTS_DIRECTORY).is_dir():
            make_views(spark, one_run(ingested(place).parquet), KINDS)
            compared = _rows(spark, COMPARED, ComparedIds)[0]
            holes = _rows(spark, HOLES, Holes)[0]
        first = spark.sql("SELECT min(first_producer_id), count(*) FROM block").collect()[0]
        kept = _rows(spark, SNAPSHOTS, SnapshotCost)
        lost_ids = (
            first[0]
            if first[0] is not None
            else max((each.next_producer_id for each in kept), default=0)
        )
        return IdAudit(
            extent=extent,
            blocks=first[1],
            lost_ids=lost_ids,
            owners=_rows(spark, OWNERS, IdOwner),
            snapshots=kept,
            asked=_rows(spark, ASKED, OwnerOfId),
            compared=compared,
            holes=holes,
        )


ASKED: Final = """
    SELECT a.producer_id, b.broker_id, b.broker_epoch, b.offset FROM asked AS a
    LEFT JOIN block AS b ON a.producer_id >= b.first_producer_id
        AND a.producer_id < b.next_producer_id ORDER BY a.producer_id
"""
_ARROW: Final = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}


def _view(
    spark: "SparkSession",
    scratch: Path,
    name: str,
    rows: Sequence[msgspec.Struct],
    kind: type[msgspec.Struct],
) -> None:
    schema = pa.schema([(field.name, _ARROW[field.type]) for field in msgspec.structs.fields(kind)])
    pq.write_table(
        pa.Table.from_pylist([msgspec.structs.asdict(row) for row in rows], schema),
        scratch / f"{name}.parquet",
    )
    spark.read.parquet(str(scratch / f"{name}.parquet")).createOrReplaceTempView(name)


def _view_of_ids(spark: "SparkSession", scratch: Path, asked: Sequence[int]) -> None:
    table = pa.table({"producer_id": pa.array(asked, pa.int64())})
    pq.write_table(table, scratch / "asked.parquet")
    spark.read.parquet(str(scratch / "asked.parquet")).createOrReplaceTempView("asked")


def _rows(spark: "SparkSession", query: str, kind: type[T]) -> tuple[T, ...]:
    return tuple(msgspec.convert(row.asDict(), kind) for row in spark.sql(query).collect())
