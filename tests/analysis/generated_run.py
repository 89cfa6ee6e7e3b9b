"""A generated run that looks like a real one: frames, blocks, ids, appends, two faults, and a block
that is allocated twice.
"""

import heapq
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TypedDict

from kraftsim.clients.events import ClientInitialized, ClientStarted, RecordAcknowledged, RecordSent
from kraftsim.events.event import Event
from kraftsim.events.runs import (
    FaultArmed,
    FaultEnded,
    FaultInjected,
    PhaseBegan,
    RunEnded,
    RunStarted,
)
from kraftsim.metadata.events import ControllerElected, MetadataAppended, MetadataCommitted
from kraftsim.partitions.events import DuplicateAnswered
from kraftsim.producer_ids.events import (
    ProducerIdBlockAllocated,
    ProducerIdBlockReceived,
    ProducerIdReturned,
)
from kraftsim.server.events import ListenerOpened, NodeReady, NodeStarted, NodeStopped
from kraftsim.server.events_connections import FrameReceived, FrameSent
from tests.analysis.event_factories import appended, final_batch, final_log, final_record
from tests.analysis.history import History

MS = 1_000_000


class Frame(TypedDict):
    """The fields that both ends of a frame log alike."""

    connection: int
    api_key: int
    api_version: int
    correlation_id: int
    is_response: bool
    size_bytes: int
    link: str


CONTROLLER = "controller-101"
BROKERS = ("broker-1", "broker-2", "broker-3")


class GeneratedRun:
    """Executes a queue of (time, action)."""

    def __init__(
        self, *, seed: int, seconds: float, topic: str, clients: tuple[str, ...], violated: bool
    ) -> None:
        self.random = Random(seed)
        self.topic, self.clients, self.violated = topic, clients, violated
        self.end_ns = int(seconds * 1e9)
        self.history = History()
        self.now_ns = 0
        self.incarnation = dict.fromkeys((CONTROLLER, *BROKERS), 1)
        self.down: dict[str, bool] = dict.fromkeys((CONTROLLER, *BROKERS), False)
        self.next_block = 0
        self.correlation_id = 0
        self.metadata_offset = 0
        self.end_offsets = [0, 0, 0]
        self.records: list[list[str]] = [[], [], []]
        self.left: dict[str, list[int]] = {broker: [] for broker in BROKERS}
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0

    def at(self, t_ns: int, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._queue, (t_ns, self._number, action))

    def after(self, ns: float, action: Callable[[], None]) -> None:
        self.at(self.now_ns + int(ns), action)

    def emit(self, node: str, event: Event) -> None:
        self.history.emit(
            node,
            event,
            incarnation=self.incarnation.get(node, 1),
            after_ns=self.now_ns - self.history.events[-1][0].t_ns if self.history.events else 0,
        )

    def send(
        self,
        source: str,
        target: str,
        api_key: int,
        then: Callable[[], None],
        *,
        is_response: bool = False,
        correlation_id: int | None = None,
    ) -> int:
        """Log a frame as sent, and a little later as received if both ends are up."""
        if correlation_id is None:
            self.correlation_id += 1
            correlation_id = self.correlation_id
        ends = (target, source) if is_response else (source, target)
        frame = Frame(
            connection=1,
            api_key=api_key,
            api_version=4,
            correlation_id=correlation_id,
            is_response=is_response,
            size_bytes=90,
            link=f"{ends[0]}:40001>{ends[1]}:9092",
        )
        self.emit(source, FrameSent(peer=target, **frame))

        def arrive() -> None:
            if not self.down.get(target, False):
                self.emit(target, FrameReceived(peer=source, **frame))
                then()

        self.after(self.random.expovariate(1 / 4e5) + 1e5, arrive)
        return correlation_id

    def run(self) -> History:
        """Run all actions and return the history."""
        self.emit(
            "harness", RunStarted(scenario="producer_ids_survive_failover", mode="sim", seed=1729)
        )
        self.at(0, lambda: self.start(CONTROLLER, "controller"))
        for number, broker in enumerate(BROKERS):
            self.at((3 + number) * MS, partial(self.start, broker, "broker"))
        for number, client in enumerate(self.clients):
            self.at(
                (40 + 5 * number) * MS,
                partial(self.emit, client, ClientStarted(client_id=client, library="kraftsim")),
            )
            for turn in range(int(self.end_ns / (12 * MS))):
                t_ns = int((60 + 12 * turn + self.random.random() * 9) * MS)
                self.at(t_ns, partial(self.produce, client, number % 3))
            self.at((50 + number) * MS, partial(self.initialize, client))
            for turn in range(int(self.end_ns / (90 * MS))):
                self.at(
                    int((80 + 90 * turn + self.random.random() * 60) * MS),
                    partial(self.initialize, client),
                )
        self.at(55 * MS, lambda: self.emit("harness", PhaseBegan(phase="faults")))
        self.fault("broker-2", int(self.end_ns * 0.28), int(self.end_ns * 0.12), "restart")
        self.fault(
            CONTROLLER, int(self.end_ns * 0.55), int(self.end_ns * 0.08), "restart", power_loss=True
        )
        self.at(int(self.end_ns * 0.8), lambda: self.emit("harness", PhaseBegan(phase="liveness")))
        while self._queue and self._queue[0][0] <= self.end_ns:
            self.now_ns, _, action = heapq.heappop(self._queue)
            action()
        self.now_ns = self.end_ns
        for node in (*BROKERS, CONTROLLER):
            self.emit(node, NodeStopped(reason="asked"))
        self.emit("harness", RunEnded(outcome="ok"))
        for partition, keys in enumerate(self.records):
            topic = f"{self.topic}-{partition}"
            self.emit("final", final_log(len(keys), len(keys), topic=topic))
            for offset, key in enumerate(keys):
                self.emit("final", final_record(offset, key, topic=topic))
            self.emit("final", final_batch(0, max(0, len(keys) - 1), topic=topic))
        return self.history

    def start(self, node: str, role: str) -> None:
        self.down[node] = False
        self.emit(
            node,
            NodeStarted(
                role=role, node_id=int(node.rpartition("-")[2]), release="3.9", cluster_id="x"
            ),
        )
        self.emit(node, ListenerOpened(listener="PLAINTEXT", host=node, port=9092))
        if role == "controller":
            self.emit(
                node,
                ControllerElected(
                    leader_epoch=self.incarnation[node], epoch_start_offset=self.metadata_offset
                ),
            )
        self.after(8 * MS, lambda: None if self.down[node] else self.emit(node, NodeReady()))

    def fault(
        self, node: str, at_ns: int, down_ns: int, kind: str, *, power_loss: bool = False
    ) -> None:
        trigger = "after the flush of metadata-log" if power_loss else "at a time"

        def inject() -> None:
            self.emit("harness", FaultInjected(fault=kind, target=node, trigger=trigger))
            self.down[node] = True
            self.left[node] = []
            if power_loss and self.violated:
                self.next_block = max(0, self.next_block - 20)

        def heal() -> None:
            self.incarnation[node] += 1
            self.emit("harness", FaultEnded(fault=kind, target=node))
            self.start(node, "controller" if node == CONTROLLER else "broker")

        self.at(
            30 * MS,
            lambda: self.emit("harness", FaultArmed(fault=kind, target=node, trigger=trigger)),
        )
        self.at(at_ns, inject)
        self.at(at_ns + down_ns, heal)

    def initialize(self, client: str) -> None:
        broker = self.random.choice(BROKERS)
        if self.down[broker]:
            return
        self.correlation_id += 1
        correlation_id = self.correlation_id
        self.send(
            client,
            broker,
            22,
            lambda: self.answer_id(client, broker, correlation_id),
            correlation_id=correlation_id,
        )

    def answer_id(self, client: str, broker: str, correlation_id: int) -> None:
        if not self.left[broker]:
            if not self.down[CONTROLLER]:
                self.correlation_id += 1
                asked = self.correlation_id
                self.send(
                    broker,
                    CONTROLLER,
                    67,
                    lambda: self.allocate(broker, asked),
                    correlation_id=asked,
                )
            return
        producer_id = self.left[broker].pop(0)
        self.emit(
            broker,
            ProducerIdReturned(
                producer_id=producer_id, producer_epoch=0, fresh=True, client_id=client
            ),
        )

        def held() -> None:
            self.emit(
                client,
                ClientInitialized(client_id=client, producer_id=producer_id, producer_epoch=0),
            )

        self.send(broker, client, 22, held, is_response=True, correlation_id=correlation_id)

    def allocate(self, broker: str, correlation_id: int) -> None:
        first, self.next_block = self.next_block, self.next_block + 10
        self.metadata_offset += 1
        self.emit(
            CONTROLLER,
            MetadataAppended(
                leader_epoch=1,
                first_offset=self.metadata_offset,
                last_offset=self.metadata_offset,
                record_kinds="ProducerIdsRecord",
            ),
        )
        self.emit(
            CONTROLLER, MetadataCommitted(leader_epoch=1, high_watermark=self.metadata_offset + 1)
        )
        number = int(broker.rpartition("-")[2])
        block = {"first_producer_id": first, "next_producer_id": first + 10}
        given = ProducerIdBlockAllocated(
            broker_id=number,
            broker_epoch=1,
            offset=self.metadata_offset,
            given_by="controller",
            **block,
        )
        self.emit(CONTROLLER, given)

        def take() -> None:
            self.emit(broker, ProducerIdBlockReceived(**block))
            self.left[broker] = list(range(first, first + 10))

        self.send(CONTROLLER, broker, 67, take, is_response=True, correlation_id=correlation_id)

    def produce(self, client: str, partition: int) -> None:
        broker = BROKERS[partition]
        key = f"{client}-{len(self.records[partition])}"
        topic = f"{self.topic}-{partition}"
        self.emit(client, RecordSent(client_id=client, topic=topic, partition=0, record_key=key))
        if self.down[broker]:
            return
        self.correlation_id += 1
        correlation_id = self.correlation_id

        def append() -> None:
            offset = len(self.records[partition])
            self.records[partition].append(key)
            sequence = (partition, 0, offset)
            self.emit(broker, appended(offset, offset, sequence, topic=topic))
            if self.random.random() < 0.02:
                ends = {
                    "first_offset": offset,
                    "base_sequence": offset,
                    "last_sequence": offset,
                    "producer_id": partition,
                    "producer_epoch": 0,
                }
                self.emit(broker, DuplicateAnswered(topic=topic, partition=0, **ends))

            def respond() -> None:
                self.emit(
                    client,
                    RecordAcknowledged(
                        client_id=client, topic=topic, partition=0, record_key=key, offset=offset
                    ),
                )

            self.send(broker, client, 0, respond, is_response=True, correlation_id=correlation_id)

        self.send(client, broker, 0, append, correlation_id=correlation_id)


def generated_run(
    *,
    seed: int = 7,
    seconds: float = 3.0,
    topic: str = "ledger",
    clients: tuple[str, ...] = ("writer-1", "writer-2", "asker-1"),
    violated: bool = True,
) -> History:
    """Return the history of a run of this many seconds."""
    return GeneratedRun(
        seed=seed, seconds=seconds, topic=topic, clients=clients, violated=violated
    ).run()
