"""What the event logs of a running cluster say: read while they grow, counted once, and checked in
the order of time.
"""

from collections.abc import Sequence
from pathlib import Path

from kraftsim.analysis.live.ordering import EventOrder, Line
from kraftsim.control.state.cluster_snapshot import NodeCondition
from kraftsim.control.state.event_logs import EventFacts, EventLogs
from kraftsim.control.state.live_checks import LiveInvariantChecks
from kraftsim.control.state.snapshot_reader import EventReader
from kraftsim.events.event import Event, LineEncoder, event_file_name
from kraftsim.metadata.events import PartitionChanged
from kraftsim.partitions.events import (
    BatchAppended,
    BatchReplicated,
    IsrChangeAsked,
    IsrChanged,
    ProduceRefused,
)
from kraftsim.partitions.events_transactions import MarkerAppended
from kraftsim.producer_ids.events import ProducerIdBlockAllocated, ProducerIdReturned
from kraftsim.producer_ids.invariants.blocks import INVARIANTS as BLOCK_INVARIANTS
from kraftsim.server.events import NodeReady, NodeStarted, NodeStopped
from kraftsim.world.real.world import RealClock

SECOND_NS = 1_000_000_000


class Log:
    """The event log of one incarnation, written line by line."""

    def __init__(self, directory: Path, node: str, incarnation: int = 1) -> None:
        self._encoder = LineEncoder("run", node, incarnation)
        self._path = directory / event_file_name(node, incarnation)
        self._n = 0

    def line(self, event: Event, t_ns: int = 0) -> bytes:
        """Return the next line."""
        self._n += 1
        return self._encoder.line(self._n - 1, t_ns, 1_000 + t_ns // 1_000_000, event)

    def write(self, *events: Event, t_ns: int = 0) -> None:
        """Append lines."""
        self.append(b"".join(self.line(event, t_ns) for event in events))

    def append(self, content: bytes) -> None:
        """Append bytes."""
        with self._path.open("ab") as log:
            log.write(content)


def taken(directory: Path) -> EventFacts:
    """Return the facts of all lines."""
    facts = EventFacts()
    for part in EventLogs(directory).read():
        for envelope, line in part.lines:
            facts.take(envelope, line)
    return facts


def appended(last_offset: int, records: int = 1, topic: str = "orders") -> BatchAppended:
    """Return the event of an append."""
    return BatchAppended(
        topic=topic,
        partition=0,
        leader_epoch=0,
        first_offset=last_offset - records + 1,
        last_offset=last_offset,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        last_sequence=-1,
        record_count=records,
        size_bytes=100,
        crc=0,
    )


def block(broker_id: int, first: int) -> ProducerIdBlockAllocated:
    """Return the event of an allocation of a thousand ids."""
    return ProducerIdBlockAllocated(
        broker_id=broker_id,
        broker_epoch=1,
        first_producer_id=first,
        next_producer_id=first + 1000,
        offset=first,
    )


def returned(producer_id: int) -> ProducerIdReturned:
    """Return the event of a fresh id."""
    return ProducerIdReturned(producer_id=producer_id, producer_epoch=0, fresh=True)


def kinds(logs: EventLogs, bytes_max: int = 1 << 20) -> list[str]:
    """Read on, and return the kinds of the new lines."""
    return [envelope.kind for part in logs.read(bytes_max) for envelope, _ in part.lines]


def test_a_part_of_a_line_waits_for_its_rest(tmp_path: Path) -> None:
    log, logs = Log(tmp_path, "broker-1"), EventLogs(tmp_path)
    log.write(NodeReady())
    line = log.line(NodeStopped(reason="signal"))
    log.append(line[:20])
    assert kinds(logs) == ["NodeReady"]
    assert logs.bytes_behind == 0
    assert kinds(logs) == []
    log.append(line[20:])
    assert kinds(logs) == ["NodeStopped"]
    assert logs.unreadable_count == 0


def test_a_call_reads_so_many_bytes_and_says_what_is_left(tmp_path: Path) -> None:
    log, logs = Log(tmp_path, "broker-1"), EventLogs(tmp_path)
    log.write(*(appended(offset) for offset in range(4_000)))
    first = kinds(logs, 1)
    assert 0 < len(first) < 4_000
    assert logs.bytes_behind > 0
    rest = []
    while logs.bytes_behind:
        rest += kinds(logs, 1)
    assert len(first) + len(rest) == 4_000


def test_lines_that_are_no_event_are_counted(tmp_path: Path) -> None:
    log, logs = Log(tmp_path, "broker-1"), EventLogs(tmp_path)
    log.append(b"{broken\n\n\xff\xfe\n")
    log.write(NodeReady())
    assert kinds(logs) == ["NodeReady"]
    assert logs.unreadable_count == 2


def test_a_directory_with_another_run_is_read_from_its_beginning(tmp_path: Path) -> None:
    log, logs = Log(tmp_path, "broker-1"), EventLogs(tmp_path)
    log.write(NodeReady(), NodeReady())
    assert len(kinds(logs)) == 2
    (tmp_path / event_file_name("broker-1", 1)).unlink()
    Log(tmp_path, "broker-1").write(NodeReady())
    assert kinds(logs) == ["NodeReady"]
    assert logs.generation == 1


def test_lines_that_are_read_again_count_once(tmp_path: Path) -> None:
    Log(tmp_path, "broker-1").write(appended(0), appended(1))
    facts, logs = EventFacts(), EventLogs(tmp_path)
    for _ in range(2):
        for part in logs.read():
            for envelope, line in part.lines:
                facts.take(envelope, line)
        logs.rewind()
    assert facts.counters["broker-1"].messages_in == {"orders": 2}


def test_counters_of_a_broker(tmp_path: Path) -> None:
    Log(tmp_path, "broker-1").write(
        appended(4, records=5),
        MarkerAppended(
            topic="orders",
            partition=0,
            producer_id=1,
            producer_epoch=0,
            coordinator_epoch=0,
            is_commit=True,
            offset=5,
            on_leader=True,
        ),
        ProduceRefused(
            topic="orders",
            partition=0,
            error_code=45,
            reason="gap",
            producer_id=1,
            producer_epoch=0,
            base_sequence=9,
        ),
        BatchReplicated(
            topic="payments", partition=3, leader_epoch=0, first_offset=0, last_offset=7, crc=0
        ),
    )
    counters = taken(tmp_path).counters["broker-1"]
    assert counters.messages_in == {"orders": 6}
    assert counters.bytes_in == {"orders": 100}
    assert counters.produce_requests == {"orders": 2}
    assert counters.failed_produce_requests == {"orders": 1}
    assert counters.log_ends == {("orders", 0): 6, ("payments", 3): 8}


def isr_change(isr: str, *, asked: bool) -> list[Event]:
    """Return the events of a leader whose ISR changes."""
    change = IsrChanged(topic="orders", partition=0, leader_epoch=0, partition_epoch=1, isr=isr)
    request = IsrChangeAsked(
        topic="orders", partition=0, leader_epoch=0, partition_epoch=0, isr=isr
    )
    return [request, change] if asked else [change]


def test_only_isr_changes_that_the_leader_asked_for_count(tmp_path: Path) -> None:
    """Kafka marks shrinks and expands in Partition.alterIsr, not when the controller removes a
    fenced broker.
    """
    Log(tmp_path, "broker-1").write(
        *isr_change("1,2,3", asked=False),
        *isr_change("1,2", asked=True),
        *isr_change("1", asked=False),
        *isr_change("1,2", asked=True),
        *isr_change("1,2,3", asked=True),
    )
    counters = taken(tmp_path).counters["broker-1"]
    assert (counters.isr_shrinks, counters.isr_expands) == (1, 2)


def test_an_unclean_election_counts_once(tmp_path: Path) -> None:
    """leader_recovery_state is 1 until the new leader has reported its log end (KIP-704)."""

    def change(leader: int, partition_epoch: int, state: int) -> PartitionChanged:
        return PartitionChanged(
            topic="orders",
            topic_id="x",
            partition=0,
            leader=leader,
            leader_epoch=partition_epoch,
            partition_epoch=partition_epoch,
            leader_recovery_state=state,
            isr=str(leader),
            replicas="1,2",
            adding_replicas="",
            removing_replicas="",
        )

    Log(tmp_path, "controller-101").write(
        change(1, 1, 0), change(2, 2, 1), change(2, 3, 1), change(2, 4, 0), change(1, 5, 0)
    )
    assert taken(tmp_path).counters["controller-101"].unclean_elections == 1


def test_an_id_counts_in_its_block_whichever_log_is_read_first(tmp_path: Path) -> None:
    Log(tmp_path, "broker-1").write(returned(1000), returned(1004))
    Log(tmp_path, "broker-2").write(returned(1001))
    Log(tmp_path, "controller-101").write(block(1, 1000), block(2, 1000), block(1, 2000))
    blocks = taken(tmp_path).blocks()
    assert [
        (each.broker_id, each.first_producer_id, each.returned_count, each.highest_returned)
        for each in blocks
    ] == [(1, 1000, 2, 1004), (2, 1000, 1, 1001), (1, 2000, 0, None)]


def test_the_latest_incarnation_is_that_of_the_node(tmp_path: Path) -> None:
    started = NodeStarted(role="broker", node_id=1, release="3.9", cluster_id="x")
    Log(tmp_path, "broker-1", 2).write(started, NodeReady(), t_ns=5 * SECOND_NS)
    Log(tmp_path, "broker-1", 1).write(started, NodeStopped(reason="signal"))
    node = taken(tmp_path).nodes["broker-1"]
    assert (node.incarnation, node.condition, node.since_ms) == (2, NodeCondition.UP, 6_000)
    (former,) = taken(tmp_path).former("broker-1")
    assert (former.incarnation, former.started_ms, former.ended_ms) == (1, 1_000, 1_000)


# --------------------------------------------------------------------------------------------------
# Invariants


def checked(checks: LiveInvariantChecks, logs: EventLogs, seconds: Sequence[float]) -> list[bool]:
    """Read and check at some times of the machine's clock."""
    results = []
    for now in seconds:
        results.append(checks.take(logs.read(), int(now * SECOND_NS)))
        if not results[-1]:
            logs.rewind()
    return results


def test_a_violation_is_found_while_the_logs_grow(tmp_path: Path) -> None:
    log, logs = Log(tmp_path, "controller-101"), EventLogs(tmp_path)
    checks = LiveInvariantChecks(BLOCK_INVARIANTS)
    log.write(block(1, 1000), t_ns=SECOND_NS)
    checked(checks, logs, [101.0, 101.1])
    assert checks.status(102 * SECOND_NS, 0).violations == ()
    log.write(block(2, 1000), t_ns=2 * SECOND_NS)
    checked(checks, logs, [102.0, 103.0, 104.0])
    status = checks.status(104 * SECOND_NS, 0)
    found = {each.invariant: each for each in status.violations}
    assert "producer-id-blocks-disjoint" in found
    violation = found["producer-id-blocks-disjoint"]
    assert violation.witnesses == ("controller-101.1.0", "controller-101.1.1")
    assert violation.rule
    assert violation.source
    assert "producer-id-blocks-disjoint" in status.checked
    assert status.event_count == 2
    assert status.behind_ms is not None
    assert status.behind_ms <= 2_000


def test_events_that_come_late_make_everything_be_checked_again(tmp_path: Path) -> None:
    """The order of time decides: 1000, 2000, 3000 grows, although 2000 arrives last."""
    one, other = Log(tmp_path, "controller-101"), Log(tmp_path, "controller-102")
    growing = [each for each in BLOCK_INVARIANTS if each.name == "next-producer-id-monotonic"]
    logs, checks = EventLogs(tmp_path), LiveInvariantChecks(growing)
    one.write(block(1, 1000), t_ns=1 * SECOND_NS)
    one.write(block(1, 3000), t_ns=3 * SECOND_NS)
    one.write(block(1, 4000), t_ns=6 * SECOND_NS)
    assert checked(checks, logs, [106.0, 109.0]) == [True, True]
    other.write(block(2, 2000), t_ns=2 * SECOND_NS)
    assert checked(checks, logs, [109.1]) == [False]
    assert checks.late_count == 1
    assert checked(checks, logs, [109.2, 120.0]) == [True, True]
    assert checks.status(120 * SECOND_NS, 0).violations == ()


def test_backlog_is_passed_on_while_it_is_read(tmp_path: Path) -> None:
    """The log that is the furthest behind in time is read next, and one that was not read yet keeps
    back nothing from before its first line: no line waits for all the files of a long run.
    """
    incarnations, lines = 30, 20
    for number in range(1, incarnations + 1):
        log = Log(tmp_path, f"broker-{number % 3}", number)
        log.write(*map(appended, range(lines)), t_ns=number * SECOND_NS)
    logs, order = EventLogs(tmp_path), EventOrder(origin_ns=0)
    waiting_max = 0
    passed: list[Line] = []
    now_ns = 100 * SECOND_NS
    for _ in range(incarnations):
        parts = logs.read(bytes_max=1)
        order.scanned(now_ns, {part.file: part.readable for part in parts})
        for part in parts:
            order.add(
                part.file,
                [Line(e.t_ns, e.node, e.incarnation, e.n, line) for e, line in part.lines],
                position=part.position,
                last_t_ns=part.lines[-1][0].t_ns if part.lines else -1,
                now_ns=now_ns,
                not_before_ns=part.not_before_ns,
            )
        waiting_max = max(waiting_max, order.waiting_count)
        passed += order.ready()
    assert (logs.bytes_behind, order.late_count) == (0, 0)
    assert len(passed) == incarnations * lines
    assert passed == sorted(passed)
    assert waiting_max <= 2 * lines


class SetClock(RealClock):
    """A clock that a test sets."""

    def __init__(self) -> None:
        super().__init__(0)
        self.now_s = 0.0

    def monotonic_ns(self) -> int:
        """Return the time that was set."""
        return int(self.now_s * SECOND_NS)


def test_violations_stay_until_everything_was_checked_again(tmp_path: Path) -> None:
    log, other = Log(tmp_path, "controller-101"), Log(tmp_path, "controller-102")
    reader, clock = EventReader(tmp_path, BLOCK_INVARIANTS), SetClock()

    def shown_at(now_s: float) -> list[str]:
        clock.now_s = now_s
        reader.read_on(clock)
        assert reader.status is not None
        return [each.invariant for each in reader.status.violations]

    log.write(block(1, 1000), block(2, 1000), t_ns=SECOND_NS)
    log.write(block(1, 5000), t_ns=4 * SECOND_NS)
    shown_at(104.0)
    found = shown_at(107.0)
    assert "producer-id-blocks-disjoint" in found
    other.write(block(1, 500), t_ns=SECOND_NS // 2)
    assert shown_at(107.1) == found  # late: the checks begin again
    assert shown_at(107.2) == found
    assert "producer-id-blocks-disjoint" in shown_at(130.0)
    assert reader.status is not None
    assert reader.status.late_count == 1
    assert reader.status.event_count == 4


def test_another_run_in_the_directory_begins_everything_again(tmp_path: Path) -> None:
    log = Log(tmp_path, "controller-101")
    log.write(block(1, 1000), block(2, 1000), block(3, 4000))
    reader, clock = EventReader(tmp_path, BLOCK_INVARIANTS), SetClock()
    reader.read_on(clock)
    assert len(reader.facts.blocks()) == 3
    (tmp_path / event_file_name("controller-101", 1)).unlink()
    Log(tmp_path, "controller-101").write(block(1, 7000))
    reader.read_on(clock)
    assert [each.first_producer_id for each in reader.facts.blocks()] == [7000]
    assert reader.status is not None
    assert reader.status.violations == ()


def test_without_invariants_facts_are_read_all_the_same(tmp_path: Path) -> None:
    Log(tmp_path, "controller-101").write(block(1, 1000), block(2, 1000))
    reader = EventReader(tmp_path, ())
    reader.read_on(SetClock())
    assert len(reader.facts.blocks()) == 2
    assert reader.status is not None
    assert (reader.status.checked, reader.status.violation_count) == ((), 0)
    assert reader.status.event_count == 2
