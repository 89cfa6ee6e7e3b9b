"""Writes the event logs of a run of any size, in the mix of kinds that a simulated run of
`partition_leader_failover_idempotent` has: two fifths frames, a quarter final logs of three
replicas, the rest appends, replication, high watermarks, clients and producer ids.

The run is sound but for one producer id that is returned twice.
"""

from pathlib import Path
from typing import Final, TypedDict

from kraftsim.clients.events import RecordAcknowledged, RecordRead, RecordSent
from kraftsim.events.event import Event, LineEncoder, event_file_name
from kraftsim.events.runs import RunEnded, RunStarted
from kraftsim.partitions.events import (
    BatchAppended,
    BatchReplicated,
    FinalBatch,
    FinalLog,
    FinalRecord,
    IsrChanged,
    LeaderElected,
    PartitionHighWatermarkMoved,
)
from kraftsim.producer_ids.events import (
    ProducerIdBlockAllocated,
    ProducerIdBlockReceived,
    ProducerIdReturned,
)
from kraftsim.server.events_connections import FrameReceived, FrameSent

BROKERS: Final = 3
PARTITIONS: Final = 12
BLOCK_SIZE: Final = 1000
STEP_NS: Final = 100_000
EVENTS_OF_RECORD: Final = 27
RECORDS_OF_ID: Final = 5
BUFFERED_LINES: Final = 50_000
TOPIC: Final = "lines-of-a-text"
_PLACE: Final = 900_000_001
"""Numbers from here on, and texts `@name@`, stand for what differs from event to event."""


class PartitionOfLog(TypedDict):
    """The fields that all events of a log have."""

    topic: str
    partition: int


class Batch(TypedDict):
    """The fields that all events of a batch have."""

    first_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


class Frame(TypedDict):
    """The fields that both ends of a frame log alike, but for the peer."""

    connection: int
    api_key: int
    api_version: int
    correlation_id: int
    is_response: bool
    size_bytes: int
    link: str


class Template:
    """Writes lines of one kind on one node a few times faster than encoding each event."""

    def __init__(self, log: "Log", event: Event, places: int) -> None:
        line = log.encoder.line(_PLACE, _PLACE + 1, 0, event).replace(b"%", b"%%")
        for number in range(places + 2):
            line = line.replace(b"%d" % (_PLACE + number), b"%d")
        self._line, self._log = line, log

    def emit(self, t_ns: int, *values: int) -> None:
        """Write a line: the values are put into the places, in their order in the line."""
        log = self._log
        log.lines.append(self._line % (log.n, t_ns, *values))
        log.n += 1
        if len(log.lines) >= BUFFERED_LINES:
            log.flush()


class Log:
    """The event log of one node."""

    def __init__(self, events: Path, node: str) -> None:
        self.encoder = LineEncoder("bench", node, 1)
        self.node = node
        self.lines: list[bytes] = []
        self.n = 0
        self._file = open(events / event_file_name(node, 1), "wb")  # noqa: SIM115 (closed by close)

    def template(self, event: Event, places: int) -> Template:
        """Return a template: the values of `event` from 900,000,003 on are its places."""
        return Template(self, event, places)

    def once(self, t_ns: int, event: Event) -> None:
        """Write one event."""
        self.lines.append(self.encoder.line(self.n, t_ns, 0, event))
        self.n += 1

    def flush(self) -> None:
        """Write what is buffered."""
        self._file.write(b"".join(self.lines))
        self.lines.clear()

    def close(self) -> None:
        """Write the rest."""
        self.flush()
        self._file.close()


def write_run(run: Path, event_count: int) -> int:
    """Write the event logs of a run of about `event_count` events, and return their number."""
    (run / "events").mkdir(parents=True)
    brokers = [Log(run / "events", f"broker-{number + 1}") for number in range(BROKERS)]
    controller, producer, consumer, final, harness = (
        Log(run / "events", name)
        for name in ("controller-101", "producer-1", "consumer-1", "final", "harness")
    )
    logs = (*brokers, controller, producer, consumer, final, harness)
    harness.once(0, RunStarted(scenario="bench", mode="sim", seed=1))
    for partition in range(PARTITIONS):
        place = PartitionOfLog(topic=TOPIC, partition=partition)
        leader = brokers[partition % BROKERS]
        leader.once(10, LeaderElected(leader_epoch=0, next_offset=0, **place))
        leader.once(20, IsrChanged(leader_epoch=0, partition_epoch=0, isr="1,2,3", **place))
    records = max(PARTITIONS, event_count // EVENTS_OF_RECORD)
    writers = [_Partition(brokers, producer, consumer, final, each) for each in range(PARTITIONS)]
    ids = _Ids(brokers, controller)
    repeated = records // RECORDS_OF_ID // 2 // BROKERS * BROKERS  # by the broker that had it first
    for index in range(records):
        t_ns = 1_000 + index * STEP_NS
        writers[index % PARTITIONS].write(t_ns, index, index // PARTITIONS)
        if index % RECORDS_OF_ID == 0:
            ids.hand_out(t_ns + 20_000, is_repeated=index // RECORDS_OF_ID == repeated)
    end_ns = 2_000 + records * STEP_NS
    for partition, writer in enumerate(writers):
        writer.finish(end_ns, (records - partition + PARTITIONS - 1) // PARTITIONS)
    harness.once(end_ns, RunEnded(outcome="ok"))
    for log in logs:
        log.close()
    return sum(log.n for log in logs)


class _Partition:
    """Writes the events of one record after the other of a partition."""

    def __init__(
        self, brokers: list[Log], producer: Log, consumer: Log, final: Log, partition: int
    ) -> None:
        self._place = PartitionOfLog(topic=TOPIC, partition=partition)
        self._partition, self._final, self._brokers = partition, final, brokers
        leader = brokers[partition % BROKERS]
        followers = [broker for broker in brokers if broker is not leader]
        first = _PLACE + 2
        batch = Batch(
            first_offset=first,
            last_offset=first,
            producer_id=partition,
            producer_epoch=0,
            base_sequence=first,
        )
        key = f"line-{first}"
        self._sent = producer.template(
            RecordSent(client_id="bench", record_key=key, **self._place), 1
        )
        self._acknowledged = producer.template(
            RecordAcknowledged(client_id="bench", record_key=key, offset=first + 1, **self._place),
            2,
        )
        self._read = consumer.template(
            RecordRead(client_id="reader", record_key=key, offset=first + 1, **self._place), 2
        )
        self._appended = leader.template(
            BatchAppended(
                leader_epoch=0,
                last_sequence=first,
                record_count=1,
                size_bytes=120,
                crc=first + 1,
                **batch,
                **self._place,
            ),
            2,
        )
        self._replicated = [
            follower.template(
                BatchReplicated(leader_epoch=0, crc=first + 1, **batch, **self._place), 2
            )
            for follower in followers
        ]
        self._moved = [
            broker.template(
                PartitionHighWatermarkMoved(
                    leader_epoch=0,
                    high_watermark=first,
                    is_leader=broker is leader,
                    **self._place,
                ),
                1,
            )
            for broker in (leader, *followers)
        ]
        self._produce = _Exchange(producer, leader, 0)
        self._fetches = [_Exchange(follower, leader, 1) for follower in followers]
        self._consume = _Exchange(consumer, leader, 1)

    def write(self, t_ns: int, index: int, offset: int) -> None:
        """Write the events of a record: sent, appended, replicated, acknowledged, read."""
        self._sent.emit(t_ns, index)
        self._produce.request(t_ns + 100, index)
        self._appended.emit(t_ns + 1_000, offset, offset, offset, offset, index)
        for number, (fetch, replicated) in enumerate(
            zip(self._fetches, self._replicated, strict=True)
        ):
            at_ns = t_ns + 2_000 + number * 1_000
            if index % 2 == number:
                fetch.request(at_ns, index)
                fetch.respond(at_ns + 200, index)
            replicated.emit(at_ns + 500, offset, offset, index, offset)
        for number, moved in enumerate(self._moved):
            moved.emit(t_ns + 5_000 + number * 300, offset + 1)
        self._produce.respond(t_ns + 6_000, index)
        self._acknowledged.emit(t_ns + 7_000, index, offset)
        self._consume.request(t_ns + 8_000, index)
        self._consume.respond(t_ns + 8_500, index)
        self._read.emit(t_ns + 9_000, index, offset)

    def finish(self, t_ns: int, end_offset: int) -> None:
        """Write the final log of each replica."""
        first = _PLACE + 2
        for broker in self._brokers:
            record = self._final.template(
                FinalRecord(
                    offset=first, record_key=f"line-{first + 1}", broker=broker.node, **self._place
                ),
                2,
            )
            batch = self._final.template(
                FinalBatch(
                    first_offset=first,
                    last_offset=first,
                    producer_id=self._partition,
                    producer_epoch=0,
                    base_sequence=first,
                    last_sequence=first,
                    record_count=1,
                    is_control=False,
                    crc=first + 1,
                    broker=broker.node,
                    **self._place,
                ),
                2,
            )
            for offset in range(end_offset):
                index = offset * PARTITIONS + self._partition
                record.emit(t_ns, offset, index)
                batch.emit(t_ns, offset, offset, offset, offset, index)
            self._final.once(
                t_ns,
                FinalLog(
                    log_start_offset=0,
                    next_offset=end_offset,
                    batch_count=end_offset,
                    record_count=end_offset,
                    broker=broker.node,
                    **self._place,
                ),
            )


class _Exchange:
    """Requests and responses on one connection."""

    def __init__(self, client: Log, server: Log, api_key: int) -> None:
        link = f"{client.node}:40001>{server.node}:9092"
        self._steps = [
            (
                sender.template(
                    FrameSent(peer=receiver.node, **_frame(api_key, link, is_response)), 1
                ),
                receiver.template(
                    FrameReceived(peer=sender.node, **_frame(api_key, link, is_response)), 1
                ),
            )
            for sender, receiver, is_response in ((client, server, False), (server, client, True))
        ]

    def request(self, t_ns: int, correlation_id: int) -> None:
        """Write a request as sent and received."""
        self._write(0, t_ns, correlation_id)

    def respond(self, t_ns: int, correlation_id: int) -> None:
        """Write its response as sent and received."""
        self._write(1, t_ns, correlation_id)

    def _write(self, step: int, t_ns: int, correlation_id: int) -> None:
        sent, received = self._steps[step]
        sent.emit(t_ns, correlation_id)
        received.emit(t_ns + 50, correlation_id)


def _frame(api_key: int, link: str, is_response: bool) -> Frame:
    return Frame(
        connection=1,
        api_key=api_key,
        api_version=9,
        correlation_id=_PLACE + 2,
        is_response=is_response,
        size_bytes=150,
        link=link,
    )


class _Ids:
    """Hands out producer ids from blocks."""

    def __init__(self, brokers: list[Log], controller: Log) -> None:
        self._brokers, self._controller = brokers, controller
        first = _PLACE + 2
        self._returned = [
            broker.template(
                ProducerIdReturned(
                    producer_id=first, producer_epoch=0, fresh=True, client_id="bench"
                ),
                1,
            )
            for broker in brokers
        ]
        self._left = [range(0) for _ in brokers]
        self._next_block, self._turn = 0, 0

    def hand_out(self, t_ns: int, *, is_repeated: bool) -> None:
        """Return the next id of the next broker; with `is_repeated`, the first id of all again."""
        number = self._turn % BROKERS
        self._turn += 1
        if not self._left[number]:
            first, self._next_block = self._next_block, self._next_block + BLOCK_SIZE
            self._controller.once(
                t_ns,
                ProducerIdBlockAllocated(
                    broker_id=number + 1,
                    broker_epoch=1,
                    offset=first,
                    first_producer_id=first,
                    next_producer_id=first + BLOCK_SIZE,
                    given_by="controller",
                ),
            )
            self._brokers[number].once(
                t_ns + 10,
                ProducerIdBlockReceived(
                    first_producer_id=first, next_producer_id=first + BLOCK_SIZE
                ),
            )
            self._left[number] = range(first, first + BLOCK_SIZE)
        producer_id, self._left[number] = self._left[number][0], self._left[number][1:]
        self._returned[number].emit(t_ns + 20, 0 if is_repeated else producer_id)
