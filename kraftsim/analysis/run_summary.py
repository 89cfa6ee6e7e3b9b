"""A run in one sentence: its nodes and releases, how many records were acknowledged, lost and
doubled, and the longest wait for an acknowledgement.

Everything is computed from the events of clients and from the final logs, in columns: a run of
millions of records needs no Python object per record.
Source: Jepsen's "lost" and "duplicate" writes (jepsen.tests.kafka).
"""

import re
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kraftsim.analysis.places import Where
from kraftsim.analysis.store import read_events

Integers = npt.NDArray[np.int64]
ROLES: Final = ("broker", "controller", "zookeeper")
_ROLE_NAMES: Final = {"zookeeper": "ZooKeeper server"}
_NUMBERS: Final = re.compile(r"\d+")
_SENT, _ACKNOWLEDGED, _FAILED = "RecordSent", "RecordAcknowledged", "RecordFailed"
_FINAL_RECORD, _FINAL_LOG, _CLEANED = "FinalRecord", "FinalLog", "SegmentsCleaned"
NO_OFFSET: Final = -1
"""An acknowledgement without an offset: the record may be anywhere in the log."""


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of the sentence.

    `lost` are acknowledged records that no final log of their partition has at their offset (null:
    an acknowledged partition's final log was not read); `deleted` are those that retention or
    compaction removed. `doubled` are records that a final log has more often than they were sent.
    """

    nodes: dict[str, int]
    releases: tuple[str, ...]
    sent: int
    acknowledged: int
    failed: int
    lost: int | None
    deleted: int
    doubled: int | None
    longest_wait_ns: int | None

    @property
    def sentence(self) -> str:
        """The run in one sentence; without records of clients, its nodes."""
        nodes = " and ".join(
            _counted(count, _ROLE_NAMES.get(role, role)) for role, count in self.nodes.items()
        )
        if len(self.releases) > 1:
            nodes += f" from {self.releases[0]} to {self.releases[-1]}"
        elif self.releases:
            nodes += f" on {self.releases[0]}"
        if not self.sent and not self.acknowledged:
            return f"{nodes or 'no nodes'}: no records sent"
        figures = [
            f"{_counted(self.acknowledged, 'record')} acknowledged",
            "lost: unknown, a final log was not read"
            if self.lost is None
            else f"{self.lost:,} lost",
            *([f"{self.deleted:,} deleted by retention or compaction"] if self.deleted else []),
            *([] if self.doubled is None else [f"{self.doubled:,} doubled"]),
            *([f"{self.failed:,} failed at the client"] if self.failed else []),
            *(
                []
                if self.longest_wait_ns is None
                else [f"longest wait {duration(self.longest_wait_ns)}"]
            ),
        ]
        return f"{nodes or 'clients'}: {', '.join(figures)}"


def duration(ns: int) -> str:
    """Return a duration with two digits or more: '3.3 s', '12 ms', '0.45 ms'."""
    if ns >= 1_000_000_000:
        return f"{ns / 1e9:,.1f} s"
    return f"{ns / 1e6:.0f} ms" if ns >= 10_000_000 else f"{ns / 1e6:.2g} ms"


def find_summary(parquet: Where, waits_ns: Integers) -> RunSummary:
    """Return the summary of a run; `waits_ns` are the waits for its acknowledgements."""
    nodes, releases = _nodes(parquet)
    records = read_events(
        parquet,
        kinds=(_SENT, _ACKNOWLEDGED),
        columns=("kind", "topic", "partition", "record_key", "offset"),
    )
    final = read_events(
        parquet,
        kinds=(_FINAL_RECORD,),
        columns=("topic", "partition", "record_key", "offset", "broker"),
    )
    logs = read_events(
        parquet,
        kinds=(_FINAL_LOG,),
        columns=("topic", "partition", "log_start_offset", "record_count"),
    )
    cleaned = read_events(parquet, kinds=(_CLEANED,), columns=("topic", "partition", "next_offset"))
    failed = read_events(parquet, kinds=(_FAILED,), columns=("t_ns",)).num_rows
    logs = logs.filter(pc.greater_equal(logs.column("record_count"), 0))
    books = _Books([records, final, logs, cleaned])
    record_partition, final_partition, log_partition, cleaned_partition = books.partitions
    is_sent = np.asarray(pc.equal(records.column("kind"), _SENT).combine_chunks())
    is_sent = is_sent.astype(bool)
    lost, deleted = _lost(
        _Records(
            record_partition[~is_sent],
            books.keys[0][~is_sent],
            _numbers(records, "offset")[~is_sent],
        ),
        _Records(final_partition, books.keys[1], _numbers(final, "offset")),
        starts=_extreme(log_partition, _numbers(logs, "log_start_offset"), books.count, np.minimum),
        cleaned=_extreme(
            cleaned_partition, _numbers(cleaned, "next_offset"), books.count, np.maximum
        ),
    )
    return RunSummary(
        nodes=nodes,
        releases=releases,
        sent=int(is_sent.sum()),
        acknowledged=int((~is_sent).sum()),
        failed=failed,
        lost=lost,
        deleted=deleted,
        doubled=_doubled(
            record_partition[is_sent],
            books.keys[0][is_sent],
            final_partition,
            books.keys[1],
            codes([final.column("broker")])[0],
        )
        if logs.num_rows
        else None,
        longest_wait_ns=int(waits_ns.max()) if len(waits_ns) else None,
    )


# --------------------------------------------------------------------------------------------------
# Columns of numbers: topic-partitions and keys of several tables, numbered alike


class _Records:
    """Records by partition, key and offset, as numbers."""

    def __init__(self, partition: Integers, key: Integers, offset: Integers) -> None:
        self.partition, self.key, self.offset = partition, key, offset


class _Books:
    """The partitions and record keys of tables, with the same number for the same one in all of
    them.
    """

    def __init__(self, tables: list[pa.Table]) -> None:
        topics = codes([table.column("topic") for table in tables])
        self.partitions, self.count = renumber(
            pairs(topics, [_numbers(table, "partition") for table in tables])
        )
        self.keys = codes([table.column("record_key") for table in tables[:2]])


def codes(columns: list[pa.ChunkedArray]) -> list[Integers]:
    """Return text columns as numbers, the same text with the same number; null is -1."""
    joined = pa.chunked_array(
        [chunk.cast(pa.string()) for column in columns for chunk in column.chunks], pa.string()
    )
    encoded = joined.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    numbers = np.asarray(encoded.indices.fill_null(-1), np.int64)
    ends = np.cumsum([len(column) for column in columns])[:-1]
    return list(np.split(numbers, ends))


def pairs(firsts: list[Integers], seconds: list[Integers]) -> list[Integers]:
    """Return one number for each pair, the same for the same pair in all columns; numbers begin at
    -1.
    """
    width = max((int(column.max(initial=0)) for column in seconds), default=0) + 2
    return [(first + 1) * width + second + 1 for first, second in zip(firsts, seconds, strict=True)]


def renumber(columns: list[Integers]) -> tuple[list[Integers], int]:
    """Return columns with their distinct values numbered from 0, and how many there are."""
    values, numbers = np.unique(np.concatenate(columns), return_inverse=True)
    ends = np.cumsum([len(column) for column in columns])[:-1]
    return list(np.split(numbers.astype(np.int64), ends)), len(values)


def _numbers(table: pa.Table, name: str) -> Integers:
    return np.asarray(table.column(name).combine_chunks().fill_null(NO_OFFSET), np.int64)


def _extreme(partition: Integers, values: Integers, count: int, which: np.ufunc) -> Integers:
    """Return the least or the greatest value of each partition; -1 for one without any."""
    is_least = which is np.minimum
    found = np.full(count, np.iinfo(np.int64).max if is_least else NO_OFFSET, np.int64)
    which.at(found, partition, values)
    return np.where(found == np.iinfo(np.int64).max, NO_OFFSET, found)


# --------------------------------------------------------------------------------------------------
# Lost and doubled records


def _lost(
    acknowledged: _Records, final: _Records, *, starts: Integers, cleaned: Integers
) -> tuple[int | None, int]:
    """Return how many acknowledged records are lost, and how many were deleted; null if the final
    log of an acknowledged partition was not read.
    """
    start = starts[acknowledged.partition]
    if bool((start < 0).any()):
        return None, 0
    named, count = renumber(
        pairs([acknowledged.partition, final.partition], [acknowledged.key, final.key])
    )
    at_offset = pairs(named, [acknowledged.offset, final.offset])
    is_there = np.where(
        acknowledged.offset == NO_OFFSET,
        np.isin(named[0], named[1]),
        np.isin(at_offset[0], at_offset[1]),
    )
    is_deleted = ~is_there & (np.maximum(acknowledged.offset, 0) < start)
    last = np.full(count, NO_OFFSET, np.int64)
    np.maximum.at(last, named[1], final.offset)
    is_deleted |= (
        ~is_there
        & (acknowledged.offset < cleaned[acknowledged.partition])
        & (last[named[0]] > acknowledged.offset)
    )
    return int((~is_there & ~is_deleted).sum()), int(is_deleted.sum())


def _doubled(
    sent_partition: Integers,
    sent_key: Integers,
    final_partition: Integers,
    final_key: Integers,
    broker: Integers,
) -> int:
    """Return how many records are in the final log of a broker more often than they were sent."""
    named, count = renumber(pairs([sent_partition, final_partition], [sent_key, final_key]))
    times_sent = np.bincount(named[0], minlength=count)
    brokers = int(broker.max(initial=0)) + 2
    in_log, times = np.unique(named[1] * brokers + broker + 1, return_counts=True)
    record = in_log // brokers
    doubled = (times > times_sent[record]) & (times_sent[record] > 0)
    return len(np.unique(record[doubled]))


# --------------------------------------------------------------------------------------------------
# Nodes and releases


def _nodes(parquet: Where) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return how many nodes of each role started, and their releases, the oldest first."""
    started = (
        read_events(parquet, kinds=("NodeStarted",), columns=("node", "role", "release"))
        .group_by(["node", "role", "release"])
        .aggregate([])
        .to_pylist()
    )
    named = {(row["role"], row["node"]) for row in started}
    releases = {row["release"] for row in started if row["release"]}
    return (
        {
            role: count
            for role in ROLES
            if (count := sum(role in each.split(",") for each, _ in named))
        },
        tuple(sorted(releases, key=lambda name: ([int(n) for n in _NUMBERS.findall(name)], name))),
    )


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
