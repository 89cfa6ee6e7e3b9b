"""The transaction coordinator on brokers, in virtual time: its durable state, failover, and
timeouts.

Source: KIP-98; TransactionCoordinator, TransactionStateManager, TransactionMarkerChannelManager.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kraftsim.partitions.events_transactions import MarkerAppended
from kraftsim.transactions.events import (
    ProducerFenced,
    TransactionalIdExpired,
    TransactionsLoaded,
    TransactionStateChanged,
    TransactionsUnloaded,
)
from protocol.errors import ErrorCode
from protocol.messages.k10_find_coordinator import TRANSACTION, FindCoordinatorRequest
from protocol.messages.k22_init_producer_id import InitProducerIdRequest
from protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from protocol.messages.k26_end_txn import EndTxnRequest
from protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.k65_describe_transactions import DescribeTransactionsRequest
from tests.node.brokers import Client, Cluster, running_cluster

ID = "x"
ALONE = {
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "transaction_state_log_num_partitions": "4",
}
THREE = {
    "transaction_state_log_num_partitions": "4",
    "broker_session_timeout_ms": "3000",
    "broker_heartbeat_interval_ms": "500",
}
NOT_READY = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
TOPIC_RESOURCE, SET = 2, 0


async def with_retries(ask: Callable[[], Awaitable[Any]], *may_pass: ErrorCode) -> Any:
    """Retry while the error is one of the transient ones."""
    while ErrorCode((answer := await ask()).error_code) in (*NOT_READY, *may_pass):
        await asyncio.sleep(0.05)
    return answer


@dataclass(slots=True)
class Producer:
    """A producer with a transactional id, as seen by its coordinator."""

    client: Client
    producer_id: int = -1
    epoch: int = -1

    async def init(self, *may_pass: ErrorCode, timeout_ms: int = 60_000) -> int:
        """Request the next epoch, and return the error."""
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=timeout_ms)
        answer = await with_retries(lambda: self.client.ask(request, 4), *may_pass)
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return int(answer.error_code)

    async def add(self, *partitions: int, topic: str = "t") -> int:
        """Add partitions, and return the error."""

        async def ask() -> Any:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=ID,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))
                ],
            )
            answer = await self.client.ask(request, 3)
            answer.error_code = (
                answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            )
            return answer

        return int((await with_retries(ask, BUSY)).error_code)

    async def end(self, *, commits: bool) -> int:
        """Commit or abort, and return the error."""
        request = EndTxnRequest(
            transactional_id=ID,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commits,
        )
        return int((await self.client.ask(request, 3)).error_code)

    async def state(self) -> tuple[str, int, int]:
        """Return state, producer id and epoch, once a coordinator answers for the id."""

        async def ask() -> Any:
            return (
                await self.client.ask(DescribeTransactionsRequest(transactional_ids=[ID]), 0)
            ).transaction_states[0]

        found = await with_retries(ask)
        assert found.error_code == 0, ErrorCode(found.error_code)
        return found.transaction_state, found.producer_id, found.producer_epoch

    async def reaches(self, state: str) -> None:
        """Wait for a state."""
        while (await self.state())[0] != state:
            await asyncio.sleep(0.05)


async def coordinator_of(client: Client) -> int:
    """Retry until there is one."""
    return int(
        (
            await with_retries(
                lambda: client.ask(FindCoordinatorRequest(key=ID, key_type=TRANSACTION), 3)
            )
        ).node_id
    )


def found(cluster: Cluster, broker: str = "broker-1") -> str:
    """The name of the coordinator."""
    return f"broker-{cluster.run(coordinator_of, broker)}"


def states(cluster: Cluster) -> list[tuple[str, int]]:
    """The committed records of the id: state and epoch, of any coordinator."""
    return [
        (event.state, event.producer_epoch) for event in cluster.emitted(TransactionStateChanged)
    ]


def alone(work: Callable[[Producer], Awaitable[None]], **settings: str) -> Cluster:
    """Run a producer with a single broker, which is its coordinator."""
    with running_cluster(1, settings={**ALONE, **settings}) as cluster:

        async def begin(client: Client) -> None:
            await client.create_topic("t", 3)
            await coordinator_of(client)
            await work(Producer(client))

        cluster.run(begin)
        return cluster


# A single broker
# --------------------------------------------------------------------------------------------------


def test_find_coordinator_creates_the_transaction_log_with_kafkas_settings() -> None:
    with running_cluster(1, settings=ALONE) as cluster:
        assert found(cluster) == "broker-1"
        image = cluster.brokers["broker-1"].image
        topic = image.topic("__transaction_state")
        assert topic is not None and len(topic.partitions) == 4
        assert image.topic_configs("__transaction_state") == {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "1",
            "segment.bytes": "104857600",
            "unclean.leader.election.enable": "false",
        }
        assert sorted(
            (event.partition, event.coordinator_epoch)
            for event in cluster.emitted(TransactionsLoaded)
        ) == [(each, 0) for each in range(4)]


def test_transaction_writes_its_markers_before_it_completes() -> None:
    async def work(producer: Producer) -> None:
        assert [
            await producer.init(),
            await producer.add(0, 2),
            await producer.end(commits=True),
        ] == [0, 0, 0]
        await producer.reaches("CompleteCommit")
        assert [await producer.add(1), await producer.end(commits=False)] == [0, 0]
        await producer.reaches("CompleteAbort")

    cluster = alone(work)
    wanted = [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "CompleteCommit",
        "Ongoing",
        "PrepareAbort",
        "CompleteAbort",
    ]
    assert states(cluster) == [(state, 0) for state in wanted]
    kinds = [
        type(event).__name__
        for _, event in cluster.events
        if type(event) in (TransactionStateChanged, MarkerAppended)
    ]
    assert kinds[2:6] == [
        "TransactionStateChanged",
        "MarkerAppended",
        "MarkerAppended",
        "TransactionStateChanged",
    ]


def test_timed_out_transaction_is_aborted_and_its_producer_fenced() -> None:
    async def work(producer: Producer) -> None:
        assert [await producer.init(timeout_ms=500), await producer.add(0)] == [0, 0]
        await asyncio.sleep(0.4)
        assert (await producer.state())[0] == "Ongoing"
        await producer.reaches("CompleteAbort")
        assert [await producer.add(0), await producer.end(commits=True)] == [
            ErrorCode.PRODUCER_FENCED
        ] * 2
        assert await producer.init() == 0

    cluster = alone(work, transaction_abort_timed_out_transaction_cleanup_interval_ms="1000")
    assert states(cluster) == [
        ("Empty", 0),
        ("Ongoing", 0),
        ("PrepareAbort", 1),
        ("CompleteAbort", 1),
        ("Empty", 2),
    ]
    assert [(event.api, event.producer_epoch) for event in cluster.emitted(ProducerFenced)] == [
        ("ADD_PARTITIONS_TO_TXN", 0),
        ("END_TXN", 0),
    ]


def test_unused_transactional_id_expires_and_starts_over() -> None:
    async def work(producer: Producer) -> None:
        assert [await producer.init(), await producer.init()] == [0, 0]
        first = producer.producer_id
        await asyncio.sleep(8)
        assert await producer.add(0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert (await producer.init(), producer.producer_id == first, producer.epoch) == (
            0,
            False,
            0,
        )

    settings = {
        "transactional_id_expiration_ms": "5000",
        "transaction_remove_expired_transaction_cleanup_interval_ms": "1000",
    }
    cluster = alone(work, **settings)
    assert [
        (event.transactional_id, event.producer_epoch)
        for event in cluster.emitted(TransactionalIdExpired)
    ] == [(ID, 1)]


def test_open_transaction_does_not_expire() -> None:
    async def work(producer: Producer) -> None:
        assert [await producer.init(), await producer.add(0)] == [0, 0]
        await asyncio.sleep(8)
        assert (await producer.state())[0] == "Ongoing"

    settings = {
        "transactional_id_expiration_ms": "5000",
        "transaction_remove_expired_transaction_cleanup_interval_ms": "1000",
    }
    assert alone(work, **settings).emitted(TransactionalIdExpired) == []


def test_expired_id_stays_expired_after_a_restart() -> None:
    settings = {
        "transactional_id_expiration_ms": "5000",
        "transaction_remove_expired_transaction_cleanup_interval_ms": "1000",
    }
    with running_cluster(1, settings={**ALONE, **settings}) as cluster:
        found(cluster)

        async def use(client: Client) -> int:
            producer = Producer(client)
            assert await producer.init() == 0
            await asyncio.sleep(8)
            return producer.producer_id

        cluster.run(use)
        cluster.kill("broker-1")
        cluster.simulation.restart("broker-1")
        cluster.wait_ready("broker-1")

        async def look(client: Client) -> int:
            async def ask() -> Any:
                return (
                    await client.ask(DescribeTransactionsRequest(transactional_ids=[ID]), 0)
                ).transaction_states[0]

            return int((await with_retries(ask)).error_code)

        assert cluster.run(look) == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def set_min_isr(client: Client, count: int) -> None:
    """Set min.insync.replicas of the coordinator's log."""
    rows = [AlterableConfig(name="min.insync.replicas", config_operation=SET, value=str(count))]
    resource = AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name="__transaction_state", configs=rows
    )
    answer = await client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0
    await asyncio.sleep(1)


def test_failed_fencing_write_does_not_bump_the_epoch() -> None:
    """KAFKA-9666: of five attempts only the written one bumps the epoch; 3.5 then rejects writes
    with too few in-sync replicas.
    """
    with running_cluster(1, release_name="3.5", settings=ALONE) as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t", 1)
            await coordinator_of(client)
            producer = Producer(client)
            assert [await producer.init(), await producer.add(0)] == [0, 0]
            await set_min_isr(client, 2)
            request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1000)
            for _ in range(5):
                assert (
                    await client.ask(request, 4)
                ).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            await set_min_isr(client, 1)
            assert await producer.init(BUSY) == 0
            assert producer.epoch == 2

        cluster.run(work)
        assert states(cluster) == [
            ("Empty", 0),
            ("Ongoing", 0),
            ("PrepareAbort", 1),
            ("CompleteAbort", 1),
            ("Empty", 2),
        ]


def test_failed_completion_is_retried() -> None:
    with running_cluster(1, release_name="3.5", settings=ALONE) as cluster:

        async def work(client: Client) -> None:
            await client.create_topic("t", 1)
            await coordinator_of(client)
            producer = Producer(client)
            assert [await producer.init(), await producer.add(0)] == [0, 0]
            await set_min_isr(client, 2)
            assert await producer.end(commits=True) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert (await producer.state())[0] == "Ongoing", "an unwritten change has no effect"
            await set_min_isr(client, 1)
            assert await producer.end(commits=True) == 0
            await producer.reaches("CompleteCommit")

        cluster.run(work)


# Three brokers
# --------------------------------------------------------------------------------------------------


def running_three() -> Any:
    """Three brokers that detect a failure quickly."""
    return running_cluster(3, settings=THREE)


def leader_of(cluster: Cluster, topic: str = "t") -> str:
    """The leader of the first partition of a topic."""
    registered = next(iter(cluster.brokers.values())).image.partition(topic, 0)
    assert registered is not None
    return f"broker-{registered.leader}"


def test_only_the_leader_of_its_partition_serves_an_id() -> None:
    with running_three() as cluster:
        first = found(cluster)

        async def ask(client: Client) -> int:
            return int(
                (
                    await client.ask(
                        InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1000), 4
                    )
                ).error_code
            )

        for name in cluster.broker_names:
            if name != first:
                assert cluster.run(ask, name) == ErrorCode.NOT_COORDINATOR


def test_two_concurrent_initialisations_get_different_epochs() -> None:
    with running_three() as cluster:

        async def work(client: Client) -> list[tuple[int, int]]:
            one, two = Producer(client), Producer(client)
            codes = await asyncio.gather(one.init(BUSY), two.init(BUSY))
            assert list(codes) == [0, 0]
            return sorted([(one.producer_id, one.epoch), (two.producer_id, two.epoch)])

        (first_id, first_epoch), (second_id, second_epoch) = cluster.run(work, found(cluster))
        assert (first_id, first_epoch, second_epoch) == (second_id, 0, 1)


@pytest.mark.parametrize("state", ["Empty", "Ongoing", "CompleteCommit", "CompleteAbort"])
def test_new_coordinator_continues_where_the_former_one_stopped(state: str) -> None:
    with running_three() as cluster:
        cluster.run(lambda client: client.create_topic("t"))
        first = found(cluster)

        async def until(client: Client) -> tuple[int, int]:
            producer = Producer(client)
            assert await producer.init() == 0
            if state != "Empty":
                assert await producer.add(0) == 0
            if state.startswith("Complete"):
                assert await producer.end(commits=state == "CompleteCommit") == 0
                await producer.reaches(state)
            return producer.producer_id, producer.epoch

        producer_id, epoch = cluster.run(until, first)
        cluster.kill(first)
        other = next(name for name in cluster.broker_names if name != first)
        cluster.simulation.run_for(8)
        second = found(cluster, other)
        assert second != first

        async def after(client: Client) -> None:
            producer = Producer(client, producer_id, epoch)
            assert await producer.state() == (state, producer_id, epoch)
            if state == "Ongoing" and leader_of(cluster) in cluster.brokers:
                assert await producer.end(commits=True) == 0
                await producer.reaches("CompleteCommit")

        cluster.run(after, second)
        assert not cluster.emitted(TransactionsUnloaded, second)


@pytest.mark.parametrize("commits", [True, False])
def test_decided_transaction_is_completed_by_the_next_coordinator(commits: bool) -> None:
    """The partition's leader is down, so the markers are not written when the coordinator fails;
    both happen later.
    """
    with running_three() as cluster:
        first = found(cluster)
        elsewhere = None
        for index in range(12):  # until there is a topic that the coordinator does not lead
            name = f"t{index}"
            cluster.run(lambda client, name=name: client.create_topic(name))
            if leader_of(cluster, name) != first:
                elsewhere = name
                break
        assert elsewhere is not None
        leader = leader_of(cluster, elsewhere)

        async def begin(client: Client) -> tuple[int, int]:
            producer = Producer(client)
            assert [await producer.init(), await producer.add(0, topic=elsewhere)] == [0, 0]
            return producer.producer_id, producer.epoch

        identity = cluster.run(begin, first)
        cluster.kill(leader)

        async def decide(client: Client) -> None:
            producer = Producer(client, *identity)
            assert await producer.end(commits=commits) == 0
            for again in (commits, not commits):
                assert await producer.end(commits=again) == BUSY
            assert await producer.init() == BUSY

        cluster.run(decide, first)
        cluster.simulation.run_for(2)
        prepared, over = (
            ("PrepareCommit", "CompleteCommit") if commits else ("PrepareAbort", "CompleteAbort")
        )
        assert states(cluster)[-1][0] == prepared
        cluster.stop(first)
        third = next(name for name in cluster.broker_names if name not in (first, leader))
        cluster.simulation.run_for(4)
        cluster.simulation.restart(leader)
        cluster.wait_ready(leader)
        second = found(cluster, third)
        cluster.run(lambda client: Producer(client).reaches(over), second)
        assert [state for state, _ in states(cluster)].count(over) == 1
        markers = [
            event for event in cluster.emitted(MarkerAppended, leader) if event.topic == elsewhere
        ]
        assert [event.is_commit for event in markers] == [commits] * len(markers) and markers
        assert markers[-1].coordinator_epoch > 0, "written by the new coordinator"
