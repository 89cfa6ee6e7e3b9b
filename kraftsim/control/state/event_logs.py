"""Reads the event logs of a cluster while its nodes write them, and keeps what a snapshot and the
metrics need of them: incarnations, blocks of producer ids, and counters.

Each call reads a bounded number of bytes, in the order of time, and only whole lines. A file that
became shorter belongs to a new run: everything begins again.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Final

import msgspec

from kraftsim.analysis.live.checking import decoder_of
from kraftsim.clients.events import RecordAcknowledged
from kraftsim.control.state.cluster_snapshot import (
    FormerIncarnation,
    NodeCondition,
    ProducerIdBlockStatus,
)
from kraftsim.events.event import LINE_SUFFIX, Event
from kraftsim.metadata.events import (
    BrokerFenced,
    ControllerElected,
    ControllerResigned,
    PartitionChanged,
)
from kraftsim.partitions.events import (
    BatchAppended,
    BatchReplicated,
    DuplicateAnswered,
    IsrChangeAsked,
    IsrChanged,
    PartitionTruncated,
    ProduceRefused,
)
from kraftsim.partitions.events_transactions import MarkerAppended
from kraftsim.producer_ids.events import ProducerIdBlockAllocated, ProducerIdReturned
from kraftsim.server.events import (
    LogDirectoryFailed,
    LogRecovered,
    NodeFailed,
    NodeReady,
    NodeStarted,
    NodeStopped,
)
from kraftsim.server.events_connections import FrameReceived

CHUNK_BYTES: Final = 256 * 1024
READ_BYTES: Final = 1024 * 1024
BLOCKS_MAX: Final = 500
FORMER_MAX: Final = 50
Place = tuple[str, int]

FACT_KINDS: Final[tuple[type[Event], ...]] = (
    BatchAppended,
    BatchReplicated,
    BrokerFenced,
    ControllerElected,
    ControllerResigned,
    DuplicateAnswered,
    FrameReceived,
    IsrChangeAsked,
    IsrChanged,
    LogDirectoryFailed,
    LogRecovered,
    MarkerAppended,
    NodeFailed,
    NodeReady,
    NodeStarted,
    NodeStopped,
    PartitionChanged,
    PartitionTruncated,
    ProduceRefused,
    ProducerIdBlockAllocated,
    ProducerIdReturned,
    RecordAcknowledged,
)


class EventEnvelope(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What every line of an event log has."""

    node: str
    incarnation: int
    n: int
    t_ns: int
    wall_ms: int
    kind: str


@dataclass(frozen=True, slots=True)
class LogPart:
    """New whole lines of one file: `position` is the byte after them, `readable` how far a reader
    could have read, and `not_before_ns` a time before which none of the next lines is.
    """

    file: str
    lines: tuple[tuple[EventEnvelope, bytes], ...]
    position: int
    readable: int
    not_before_ns: int = -1


class EventLogs:
    """The event logs below a directory, from the beginning."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._positions: dict[str, int] = {}
        self._first_ns: dict[str, int] = {}
        """The time of the first line of each file."""
        self._last_ns: dict[str, int] = {}
        """The time of the last line of each file that was read."""
        self._decode = msgspec.json.Decoder(EventEnvelope).decode
        self.unreadable_count = 0
        self.bytes_behind = 0
        self.generation = 0
        """Goes up when a file became shorter: the directory has another run."""

    def read(self, bytes_max: int = READ_BYTES) -> list[LogPart]:
        """Return the next lines, a part per file that there is.

        Of all files the one that is the furthest behind in time is read next: the reader of the
        lines can pass them on soon, and need not keep the rest of a long backlog.
        """
        sizes = self._sizes()
        if any(size < self._positions.get(file, 0) for file, size in sizes.items()):
            self.rewind()
            self._first_ns.clear()
            self.generation += 1
        lines: dict[str, list[tuple[EventEnvelope, bytes]]] = {}
        at_end: set[str] = set()
        behind = [
            (self._not_before_ns(file), file)
            for file, size in sizes.items()
            if self._positions.get(file, 0) < size
        ]
        heapify(behind)
        left = bytes_max
        while left > 0 and behind:
            _, file = heappop(behind)
            chunk = self._chunk(file, sizes[file])
            if not chunk:
                at_end.add(file)
                continue
            left -= len(chunk)
            self._positions[file] = self._positions.get(file, 0) + len(chunk)
            found = self._lines(chunk)
            lines.setdefault(file, []).extend(found)
            if found:
                self._last_ns[file] = found[-1][0].t_ns
            if self._positions[file] < sizes[file]:
                heappush(behind, (self._not_before_ns(file), file))
        self.bytes_behind = sum(sizes[file] - self._positions.get(file, 0) for _, file in behind)
        return [
            LogPart(
                file,
                tuple(lines.get(file, ())),
                self._positions.get(file, 0),
                self._positions.get(file, 0) if file in at_end else size,
                self._not_before_ns(file),
            )
            for file, size in sizes.items()
        ]

    def rewind(self) -> None:
        """Read everything again from the beginning."""
        self._positions.clear()
        self._last_ns.clear()

    def _not_before_ns(self, file: str) -> int:
        """Return a time before which no further line of a file is; -1 if none is known."""
        last_ns = self._last_ns.get(file)
        if last_ns is not None:
            return last_ns
        if file not in self._first_ns:
            with (self._directory / file).open("rb") as log:
                line = log.readline(CHUNK_BYTES)
            if not line.endswith(b"\n"):
                return -1
            try:
                self._first_ns[file] = self._decode(line).t_ns
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self._first_ns[file] = -1
        return self._first_ns[file]

    def _sizes(self) -> dict[str, int]:
        found = {}
        for path in sorted(self._directory.rglob(f"*{LINE_SUFFIX}")):
            try:
                found[path.relative_to(self._directory).as_posix()] = path.stat().st_size
            except FileNotFoundError:
                continue
        return found

    def _chunk(self, file: str, size: int) -> bytes:
        """Return whole lines from the position on; none if the rest is a part of a line."""
        position = self._positions.get(file, 0)
        if position >= size:
            return b""
        wanted = CHUNK_BYTES
        with (self._directory / file).open("rb") as log:
            log.seek(position)
            content = log.read(min(wanted, size - position))
            while b"\n" not in content and position + len(content) < size:
                content += log.read(min(wanted, size - position - len(content)))
        return content[: content.rfind(b"\n") + 1]

    def _lines(self, content: bytes) -> list[tuple[EventEnvelope, bytes]]:
        found = []
        for line in content.split(b"\n"):
            if not line:
                continue
            try:
                found.append((self._decode(line), line))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self.unreadable_count += 1
        return found


@dataclass(slots=True)
class LoggedNode:
    """The latest incarnation of a node."""

    incarnation: int = 0
    role: str = ""
    node_id: int = -1
    release: str | None = None
    condition: NodeCondition = NodeCondition.UNKNOWN
    since_ms: int | None = None


@dataclass(slots=True)
class NodeCounters:
    """What a node has counted, over all its incarnations: by topic, by API and version, or in
    all.
    """

    messages_in: Counter[str] = field(default_factory=Counter)
    bytes_in: Counter[str] = field(default_factory=Counter)
    produce_requests: Counter[str] = field(default_factory=Counter)
    failed_produce_requests: Counter[str] = field(default_factory=Counter)
    requests: Counter[tuple[int, int]] = field(default_factory=Counter)
    isr_shrinks: int = 0
    isr_expands: int = 0
    unclean_elections: int = 0
    timed_out_heartbeats: int = 0
    offline_directories: int = 0
    log_ends: dict[Place, int] = field(default_factory=dict)
    _isr: dict[Place, int] = field(default_factory=dict)
    _asked: set[Place] = field(default_factory=set)


@dataclass(slots=True)
class _Block:
    broker_id: int
    first: int
    last: int
    allocated_by: str
    returned: int = 0
    highest: int | None = None


class EventFacts:
    """What the event logs say, apart from invariants."""

    def __init__(self) -> None:
        self.nodes: dict[str, LoggedNode] = {}
        self.counters: dict[str, NodeCounters] = {}
        self.acknowledged_count = 0
        self.event_count = 0
        self._blocks: dict[tuple[int, int], _Block] = {}
        self._latest: dict[str, _Block] = {}
        self._last: dict[tuple[str, int], int] = {}
        self._lives: dict[str, dict[int, tuple[int, int]]] = {}
        self._unplaced: list[tuple[str, int]] = []
        self._leaders: dict[Place, tuple[int, int]] = {}
        self._decode = decoder_of(FACT_KINDS).decode
        self._kinds = frozenset(kind.__name__ for kind in FACT_KINDS)

    def take(self, envelope: EventEnvelope, line: bytes) -> None:
        """Process one line; those of one incarnation come in their order, and count once."""
        place = (envelope.node, envelope.incarnation)
        if envelope.n <= self._last.get(place, -1):
            return
        self._last[place] = envelope.n
        self.event_count += 1
        lives = self._lives.setdefault(envelope.node, {})
        first, _ = lives.get(envelope.incarnation, (envelope.wall_ms, 0))
        lives[envelope.incarnation] = first, envelope.wall_ms
        if envelope.kind not in self._kinds:
            return
        try:
            event = self._decode(line)
        except msgspec.DecodeError:
            return
        match event:
            case NodeStarted() | NodeReady() | NodeStopped() | NodeFailed():
                self._take_life(envelope, event)
            case ProducerIdBlockAllocated():
                self._take_block(event)
            case ProducerIdReturned():
                self._take_id(envelope.node, event)
            case RecordAcknowledged():
                self.acknowledged_count += 1
            case _:
                self._count(self.counters.setdefault(envelope.node, NodeCounters()), event)

    def former(self, node: str) -> tuple[FormerIncarnation, ...]:
        """Return the former lives of a node, the latest ones, in their order."""
        lives = sorted(self._lives.get(node, {}).items())[:-1]
        return tuple(
            FormerIncarnation(incarnation=number, started_ms=first, ended_ms=last)
            for number, (first, last) in lives[-FORMER_MAX:]
        )

    def blocks(self) -> tuple[ProducerIdBlockStatus, ...]:
        """Return the newest blocks, in the order of their first ids."""
        self._unplaced = [each for each in self._unplaced if not self._is_counted(*each)]
        newest = sorted(self._blocks.values(), key=lambda block: (block.first, block.broker_id))
        return tuple(
            ProducerIdBlockStatus(
                broker_id=block.broker_id,
                first_producer_id=block.first,
                last_producer_id=block.last,
                returned_count=block.returned,
                highest_returned=block.highest,
                allocated_by=block.allocated_by,
            )
            for block in newest[-BLOCKS_MAX:]
        )

    def _take_life(
        self, envelope: EventEnvelope, event: NodeStarted | NodeReady | NodeStopped | NodeFailed
    ) -> None:
        known = self.nodes.setdefault(envelope.node, LoggedNode())
        if envelope.incarnation < known.incarnation:
            return
        known.incarnation = envelope.incarnation
        known.since_ms = envelope.wall_ms
        match event:
            case NodeStarted():
                known.role, known.node_id, known.release = event.role, event.node_id, event.release
                known.condition = NodeCondition.STARTING
            case NodeReady():
                known.condition = NodeCondition.UP
            case NodeStopped() | NodeFailed():
                known.condition = NodeCondition.DOWN

    def _take_block(self, event: ProducerIdBlockAllocated) -> None:
        block = _Block(
            event.broker_id, event.first_producer_id, event.next_producer_id - 1, event.given_by
        )
        self._blocks.setdefault((event.first_producer_id, event.broker_id), block)

    def _take_id(self, node: str, event: ProducerIdReturned) -> None:
        """Count a fresh id in its block; it waits if the controller's log was not read so far."""
        if event.fresh and not self._is_counted(node, event.producer_id):
            self._unplaced.append((node, event.producer_id))

    def _is_counted(self, node: str, producer_id: int) -> bool:
        block = self._latest.get(node)
        if block is None or not block.first <= producer_id <= block.last:
            block = self._block_of(node, producer_id)
            if block is None:
                return False
            self._latest[node] = block
        block.returned += 1
        block.highest = max(producer_id, producer_id if block.highest is None else block.highest)
        return True

    def _block_of(self, node: str, producer_id: int) -> _Block | None:
        """Return the block of an id, of the broker itself if a defect allocated it to several."""
        found = [
            block for block in self._blocks.values() if block.first <= producer_id <= block.last
        ]
        own = [block for block in found if node == f"broker-{block.broker_id}"]
        return next(iter([*own, *found]), None)

    def _count(self, node: NodeCounters, event: Event) -> None:
        match event:
            case BatchAppended():
                node.messages_in[event.topic] += event.record_count
                node.bytes_in[event.topic] += event.size_bytes
                node.produce_requests[event.topic] += 1
                node.log_ends[event.topic, event.partition] = event.last_offset + 1
            case BatchReplicated():
                node.log_ends[event.topic, event.partition] = event.last_offset + 1
            case MarkerAppended():
                node.messages_in[event.topic] += event.on_leader
                node.log_ends[event.topic, event.partition] = event.offset + 1
            case LogRecovered():
                node.log_ends[event.topic, event.partition] = event.next_offset
            case PartitionTruncated():
                node.log_ends[event.topic, event.partition] = event.log_end_offset
            case DuplicateAnswered():
                node.produce_requests[event.topic] += 1
            case ProduceRefused():
                node.produce_requests[event.topic] += 1
                node.failed_produce_requests[event.topic] += 1
            case FrameReceived() if not event.is_response:
                node.requests[event.api_key, event.api_version] += 1
            case IsrChangeAsked():
                node._asked.add((event.topic, event.partition))
            case IsrChanged():
                self._count_isr(node, event)
            case PartitionChanged():
                self._count_election(node, event)
            case BrokerFenced():
                node.timed_out_heartbeats += event.session_timeout_ms > 0
            case LogDirectoryFailed():
                node.offline_directories += 1
            case _:
                pass

    def _count_isr(self, node: NodeCounters, event: IsrChanged) -> None:
        """Count a change that the leader itself asked for, as Kafka does (Partition.shrinkIsr and
        expandIsr), and not one that the controller made.
        """
        place = (event.topic, event.partition)
        size = len([each for each in event.isr.split(",") if each])
        before = node._isr.get(place, size)
        if place in node._asked:
            node._asked.discard(place)
            node.isr_shrinks += size < before
            node.isr_expands += size > before
        node._isr[place] = size

    def _count_election(self, node: NodeCounters, event: PartitionChanged) -> None:
        place = (event.topic, event.partition)
        epoch, leader = self._leaders.get(place, (-1, -1))
        if event.partition_epoch <= epoch:
            return
        self._leaders[place] = event.partition_epoch, event.leader
        if event.leader_recovery_state == 1 and event.leader >= 0 and event.leader != leader:
            node.unclean_elections += 1


def total(counter: Mapping[str, int]) -> int:
    """Return the sum over all topics."""
    return sum(counter.values())
