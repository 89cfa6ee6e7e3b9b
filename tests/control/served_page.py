"""The page of a cluster that a test makes up, on a real port, for a browser."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from kraftsim.cluster.ports import free_port_range
from kraftsim.control.application import ControlApplication
from kraftsim.control.server import HttpServer
from kraftsim.control.state.cluster_snapshot import (
    ClusterSnapshot,
    LiveCheckStatus,
    NodeCondition,
    NodeStatus,
    PartitionStatus,
    ProducerIdBlockStatus,
    ProducerStatus,
    QuorumReplicaStatus,
    QuorumStatus,
    SeenInvariantViolation,
    TopicStatus,
    TransactionStatus,
)
from kraftsim.control.state.event_logs import NodeCounters
from kraftsim.world.real.world import RealClock
from tests.control.fake_cluster import TOKEN, FakeCluster

BROKERS, CONTROLLERS = 9, 3
XSS = "<img src=x onerror=alert(1)>"
"""A name that must stay text."""


class ServedPage:
    """HTTP in a thread of its own, in front of `snapshot`, which a test may replace."""

    def __init__(self, snapshot: ClusterSnapshot, events: Path | None = None) -> None:
        self.cluster = FakeCluster(events)
        self.latest = snapshot
        self.counters: dict[str, NodeCounters] = {}
        self.asked = 0
        self._clock = RealClock(0)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server = HttpServer("127.0.0.1", free_port_range(1))
        self.url = self._server.address.url

    async def snapshot(self) -> ClusterSnapshot:
        """See Snapshots: with the present time, and what the page has injected."""
        self.asked += 1
        return self.of(
            taken_ms=self._clock.wall_ms(),
            request_faults=self.cluster.request_faults(),
            network=self.cluster.network(),
            verbs=self.cluster.verbs(),
        )

    def of(self, **changes: object) -> ClusterSnapshot:
        """Return the latest snapshot with changes."""
        return replace(self.latest, **changes)

    @contextmanager
    def serving(self) -> Iterator["ServedPage"]:
        """Serve until the end of the block."""
        self._thread.start()
        application = ControlApplication(
            self.cluster, self, address=self._server.address, token=TOKEN
        )
        asyncio.run_coroutine_threadsafe(self._server.open(application), self._loop).result(10)
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self._server.close(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()


def large_cluster() -> ClusterSnapshot:
    """Return a cluster of twelve nodes and two hundred partitions in all kinds of trouble."""
    nodes = (*_brokers(), *_controllers())
    return ClusterSnapshot(
        taken_ms=0,
        took_ms=12.5,
        name="rehearsal",
        bootstrap=",".join(f"127.0.0.1:{19000 + number}" for number in range(1, BROKERS + 1)),
        controller=102,
        metadata_version_level=26,
        nodes=nodes,
        topics=tuple(
            _topic(name, size, index)
            for index, (name, size) in enumerate(
                [("orders", 96), ("payments", 60), ("invoices", 32), (XSS, 12)]
            )
        ),
        producers=_producers(),
        transactions=_transactions(),
        blocks=_blocks(),
        quorum=QuorumStatus(
            leader=102,
            leader_epoch=7,
            high_watermark=9_120,
            replicas=tuple(
                QuorumReplicaStatus(
                    node_id=node.node_id,
                    is_voter="controller" in node.role,
                    log_end_offset=9_120 - 13 * (node.node_id == 4),
                    lag=13 * (node.node_id == 4),
                    caught_up_ms=140,
                )
                for node in nodes
            ),
        ),
        checks=CHECKS,
        missing={"topics": "broker 7 did not answer ListOffsets: it is paused"},
    )


CHECKS = LiveCheckStatus(
    violations=(
        SeenInvariantViolation(
            invariant="producer-id-unique",
            rule="No two InitProducerId responses return the same fresh producer id.",
            source="KIP-98, KIP-730",
            message="producer id 4003 was handed out more than once",
            witnesses=("broker-1.1.204", "broker-3.1.98"),
            t_ns=9_000_000_000,
        ),
    ),
    violation_count=1,
    checked=("high-watermark-monotonic", "producer-id-unique"),
    idle=("markers-match-coordinator-decisions",),
    event_count=120_411,
    behind_ms=1_004,
)


def _brokers() -> Iterator[NodeStatus]:
    conditions = {4: NodeCondition.DOWN, 7: NodeCondition.PAUSED}
    for number in range(1, BROKERS + 1):
        yield NodeStatus(
            name=f"broker-{number}",
            node_id=number,
            role="broker",
            condition=conditions.get(number, NodeCondition.UP),
            release="4.1",
            is_fenced=number == 4,
            address=f"127.0.0.1:{19000 + number}",
        )


def _controllers() -> Iterator[NodeStatus]:
    for number in range(1, CONTROLLERS + 1):
        yield NodeStatus(
            name=f"controller-{100 + number}",
            node_id=100 + number,
            role="controller",
            condition=NodeCondition.UP,
            release="4.1",
            is_active_controller=number == 2,
        )


def _producers() -> tuple[ProducerStatus, ...]:
    return tuple(
        ProducerStatus(
            topic="payments",
            partition=number % 60,
            producer_id=4000 + number,
            producer_epoch=number % 3,
            last_sequence=number * 7,
            current_transaction_start_offset=55 if number == 3 else None,
            coordinator_epoch=2,
        )
        for number in range(40)
    )


def _transactions() -> tuple[TransactionStatus, ...]:
    return tuple(
        TransactionStatus(
            transactional_id=f"payments-app-{number}",
            producer_id=4000 + number,
            producer_epoch=number % 3,
            state=("Ongoing", "CompleteCommit", "PrepareCommit", "CompleteAbort")[number % 4],
            coordinator=1 + number % BROKERS,
            timeout_ms=60_000,
            started_ms=1,
            partitions=(f"payments-{number}",),
        )
        for number in range(14)
    )


def _blocks() -> tuple[ProducerIdBlockStatus, ...]:
    return tuple(
        ProducerIdBlockStatus(
            broker_id=1 + number % BROKERS,
            first_producer_id=number * 1000,
            last_producer_id=number * 1000 + 999,
            returned_count=(number * 211) % 1000,
            highest_returned=number * 1000 + (number * 211) % 1000,
        )
        for number in range(12)
    )


def _topic(name: str, size: int, index: int) -> TopicStatus:
    return TopicStatus(
        name=name,
        is_internal=False,
        min_insync_replicas=2,
        partitions=tuple(_partition(number, index) for number in range(size)),
    )


def _partition(number: int, index: int) -> PartitionStatus:
    replicas = tuple(1 + (number + index + step) % BROKERS for step in range(3))
    in_sync = tuple(each for each in replicas if each != 4)
    leader = None if (number, index) == (17, 0) else in_sync[0]
    return PartitionStatus(
        partition=number,
        leader=leader,
        leader_epoch=3,
        replicas=replicas,
        isr=in_sync if leader is not None else (4,),
        log_start_offset=0,
        high_watermark=100 * number,
        last_stable_offset=100 * number - 5 * (number % 11 == 5),
    )
