"""ShareFetch and ShareAcknowledge of a broker.   Source: KIP-932, KIP-1222; KafkaApis."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kraftsim.invariants.invariant import Envelope, Oracle
from kraftsim.invariants.verdict import Outcome, Violation
from kraftsim.server.call import Call, Connection, Deferred
from kraftsim.server.rules_authentication import ANONYMOUS
from kraftsim.share_groups.events import (
    SharePartitionDropped,
    ShareSessionClosed,
    ShareStateStored,
)
from kraftsim.share_groups.invariants.leaders import INVARIANTS
from kraftsim.share_groups.state_persister import StatePersister
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.messages.k78_share_fetch import (
    AcknowledgementBatch,
    AcknowledgeType,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from protocol.records.batches import split_batches
from protocol.requests import RequestHead
from tests.apache_kafka.share_steps import begin_group
from tests.node.brokers import Client, Cluster, batch, running_cluster
from tests.node.share_member import Member
from tests.node.stored_share_states import StoredShareStates

ACCEPT, RELEASE, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW
TOPIC_FAILED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
UNKNOWN_ID = b"0123456789abcdef"


@contextmanager
def sharing_cluster(
    settings: Mapping[str, str] | None = None,
) -> Iterator[tuple[Cluster, StoredShareStates]]:
    """A cluster whose broker keeps the states of share-partitions in memory."""
    with running_cluster(1, settings, release_name="4.2") as cluster:
        stored = StoredShareStates()
        for broker in cluster.brokers.values():
            broker._persister = cast(StatePersister, stored)
        yield cluster, stored


async def prepared(cluster: Cluster, client: Client, records: int = 10) -> bytes:
    """Create a topic, and have a group begin in front of its records: the default is latest."""
    topic_id = await client.create_topic("t")
    first = Member(client, topic_id, "first")
    assert await first.acquired(max_wait_ms=0) == []
    await asyncio.sleep(1)
    await first.fetch(epoch=-1)
    if records:
        await client.produce(batch(records))
    return topic_id


def test_members_acquire_acknowledge_and_move_on() -> None:
    """The records that were acquired are delivered, and acknowledgements ride on the next fetch."""
    with sharing_cluster() as (cluster, stored):

        async def work(client: Client) -> None:
            topic_id = await prepared(cluster, client)
            member = Member(client, topic_id)
            answer = await member.fetch()
            (topic,) = answer.responses
            (row,) = topic.partitions
            assert (answer.error_code, answer.acquisition_lock_timeout_ms) == (0, 30_000)
            assert (topic.topic_id, row.partition_index, row.error_code) == (topic_id, 0, 0)
            assert [each.base_offset for each in split_batches(bytes(row.records))] == [0]
            (acquired,) = row.acquired_records
            assert (acquired.first_offset, acquired.last_offset, acquired.delivery_count) == (
                0,
                9,
                1,
            )
            await client.produce(batch(2))
            answer = await member.fetch((0, 3, ACCEPT), (4, 9, RELEASE))
            (row,) = answer.responses[0].partitions
            assert row.acknowledge_error_code == 0
            found = [(each.first_offset, each.delivery_count) for each in row.acquired_records]
            assert found in ([(4, 2), (10, 1)], [(10, 1)])

        cluster.run(work)
        assert stored.writes[0][0] == 0
        assert {(each.first_offset, each.delivery_state) for each in stored.writes[0][1]} == {
            (0, 2),
            (1, 2),
            (2, 2),
            (3, 2),
            (4, 0),
            (5, 0),
            (6, 0),
            (7, 0),
            (8, 0),
            (9, 0),
        }
        assert len(cluster.emitted(ShareStateStored)) == 10


def test_the_broker_has_settings_for_groups_without_their_own() -> None:
    """Locks, deliveries, locked records, and the number of sessions."""
    settings = {
        "group.share.record.lock.duration.ms": "1000",
        "group.share.delivery.count.limit": "2",
        "group.share.partition.max.record.locks": "100",
        "group.share.max.share.sessions": "1",
    }
    with sharing_cluster(settings) as (cluster, _):

        async def work(client: Client) -> None:
            topic_id = await prepared(cluster, client, records=150)
            await client.produce(batch(10))
            member = Member(client, topic_id)
            answer = await member.fetch(max_records=1)
            assert answer.acquisition_lock_timeout_ms == 1000
            assert await member.acquired(max_wait_ms=0) == []
            await asyncio.sleep(1.5)
            assert await member.acquired(max_records=1) == [(0, 149, 2)]
            await asyncio.sleep(1.5)
            assert await member.acquired() == [(150, 159, 1)]
            began = asyncio.get_running_loop().time()
            other = await Member(await cluster.connect(), topic_id, "m-2").fetch(max_wait_ms=700)
            assert other.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
            assert asyncio.get_running_loop().time() - began >= 0.7

        cluster.run(work)


def test_only_batches_with_acquired_records_are_delivered() -> None:
    """The record limit ends inside the second batch."""
    with sharing_cluster() as (cluster, _):

        async def work(client: Client) -> None:
            topic_id = await prepared(cluster, client, records=0)
            for _ in range(3):
                await client.produce(batch(4))
            member = Member(client, topic_id)
            answer = await member.fetch(max_records=6, share_acquire_mode=1)
            (row,) = answer.responses[0].partitions
            assert [each.base_offset for each in split_batches(bytes(row.records))] == [0, 4]
            assert row.acquired_records[0].last_offset == 5
            assert await member.acquired() == [(6, 7, 1), (8, 11, 1)]

        cluster.run(work)


def test_fetches_wait_for_records_and_for_released_ones() -> None:
    """A fetch with nothing to acquire waits; an acknowledgement that releases completes it."""
    with sharing_cluster() as (cluster, _):

        async def work(client: Client) -> None:
            topic_id = await prepared(cluster, client, records=0)
            one = Member(client, topic_id)
            other = Member(await cluster.connect(), topic_id, "m-2")
            assert await one.acquired(max_wait_ms=0) == []
            waiting = asyncio.ensure_future(one.acquired(max_wait_ms=10_000))
            await asyncio.sleep(1)
            assert not waiting.done()
            await Client((await cluster.connect()).connection).produce(batch(3))
            assert await waiting == [(0, 2, 1)]
            assert await other.acquired(max_wait_ms=0) == []
            waiting = asyncio.ensure_future(other.acquired(max_wait_ms=10_000))
            await asyncio.sleep(1)
            await one.acknowledge((0, 2, RELEASE))
            assert await waiting == [(0, 2, 2)]

        cluster.run(work)


def test_locks_that_end_complete_a_waiting_fetch() -> None:
    """After group.share.record.lock.duration.ms the records are another member's."""
    with sharing_cluster() as (cluster, stored):

        async def work(client: Client) -> None:
            topic_id = await prepared(cluster, client)
            assert await Member(client, topic_id).acquired() == [(0, 9, 1)]
            other = Member(await cluster.connect(), topic_id, "m-2")
            assert await other.acquired(max_wait_ms=35_000) == [(0, 9, 2)]
            refused = await Member(client, topic_id).fetch((0, 9, ACCEPT), epoch=1)
            (row,) = refused.responses[0].partitions
            assert row.acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE

        cluster.run(work)
        assert [each.delivery_state for _, batches in stored.writes for each in batches] == [0]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"epoch": 3}, ErrorCode.SHARE_SESSION_NOT_FOUND),
        ({"epoch": -1}, ErrorCode.SHARE_SESSION_NOT_FOUND),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "m" * 37}, ErrorCode.INVALID_REQUEST),
        ({"group_id": None}, ErrorCode.INVALID_REQUEST),
        ({"is_renew_ack": True}, ErrorCode.INVALID_REQUEST),
        ({"share_acquire_mode": 2}, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_invalid_fetches_are_refused(changes: dict[str, Any], error: ErrorCode) -> None:
    """The whole request fails."""
    with sharing_cluster() as (cluster, _):

        async def work(client: Client) -> None:
            topic_id = await prepared(cluster, client)
            answer = await Member(client, topic_id).fetch(**changes)
            assert (answer.error_code, answer.responses) == (error, [])

        cluster.run(work)


def test_epochs_count_the_requests_of_a_session() -> None:
    """Both kinds of requests count; -1 ends the session, and releases what it has acquired."""
    with sharing_cluster() as (cluster, stored):

        async def work(client: Client) -> None:
            topic_id = await prepared(cluster, client)
            member = Member(client, topic_id)
            first = await member.fetch((0, 0, ACCEPT), epoch=0, names=True)
            assert first.error_code == ErrorCode.INVALID_REQUEST
            answer = await member.acknowledge((0, 0, ACCEPT), epoch=0)
            assert answer.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
            answer = await member.acknowledge((0, 0, ACCEPT), epoch=1)
            assert answer.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
            assert await member.acquired() == [(0, 9, 1)]
            answer = await member.acknowledge((0, 0, ACCEPT), epoch=7)
            assert answer.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
            answer = await member.acknowledge((0, 0, ACCEPT))
            assert [row.error_code for row in answer.responses[0].partitions] == [0]
            assert (await member.fetch(epoch=1)).error_code == (
                ErrorCode.INVALID_SHARE_SESSION_EPOCH
            )
            answer = await member.fetch((1, 1, ACCEPT), epoch=-1)
            assert answer.error_code == 0
            assert (await member.fetch(epoch=3)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
            await asyncio.sleep(0.1)

        cluster.run(work)
        states = {
            offset: state for kept in stored.states.values() for offset, state in kept.items()
        }
        assert states == {0: (2, 1), 1: (2, 1), **dict.fromkeys(range(2, 10), (0, 1))}


def test_lost_connections_end_sessions() -> None:
    """What the member has acquired is released; without members the share-partition is dropped,
    and the next member loads it again.
    """
    with sharing_cluster() as (cluster, _):

        async def work(client: Client) -> None:
            topic_id = await prepared(cluster, client)
            lost = await cluster.connect()
            assert await Member(lost, topic_id, "lost").acquired() == [(0, 9, 1)]
            member = Member(client, topic_id)
            assert await member.acquired(max_wait_ms=0) == []
            lost.connection.close()
            await asyncio.sleep(1)
            assert len(cluster.emitted(ShareSessionClosed)) == 2
            assert cluster.emitted(SharePartitionDropped) == []
            assert await member.acquired() == [(0, 9, 2)]
            client.connection.close()
            await asyncio.sleep(1)
            assert len(cluster.emitted(SharePartitionDropped)) == 1
            other = Member(await cluster.connect(), topic_id, "m-3")
            assert await other.acquired() == [(0, 9, 3)]

        cluster.run(work)


def test_partitions_are_refused_one_by_one() -> None:
    """An unknown id or number is an error of its row, and does not end the session."""
    with sharing_cluster() as (cluster, _):

        async def work(client: Client) -> None:
            topic_id = await prepared(cluster, client)
            member = Member(client, topic_id)
            topics = [
                FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition_index=5)]),
                FetchTopic(topic_id=UNKNOWN_ID, partitions=[FetchPartition(partition_index=0)]),
                FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition_index=0)]),
            ]
            answer = await member.fetch(topics=topics)
            errors = {
                (topic.topic_id, row.partition_index): row.error_code
                for topic in answer.responses
                for row in topic.partitions
            }
            assert errors == {
                (topic_id, 0): 0,
                (topic_id, 5): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                (UNKNOWN_ID, 0): ErrorCode.UNKNOWN_TOPIC_ID,
            }
            forgotten = [
                ForgottenTopic(topic_id=topic_id, partitions=[5]),
                ForgottenTopic(topic_id=UNKNOWN_ID, partitions=[0]),
            ]
            answer = await member.fetch(forgotten_topics_data=forgotten, max_wait_ms=0)
            assert (answer.error_code, answer.responses) == (0, [])

        cluster.run(work)


def test_unreadable_topics_are_refused_in_their_rows() -> None:
    """READ on each topic, for records and for acknowledgements."""
    with sharing_cluster() as (cluster, _):

        async def work(client: Client) -> None:
            topic_id = await prepared(cluster, client)
            requests = cluster.brokers["broker-1"].share_requests
            connection = SimpleNamespace(
                number=99, listener="PLAINTEXT", principal=ANONYMOUS, when_lost=lambda _: None
            )

            def call_with(epoch: int, *given: AcknowledgementBatch) -> Call:
                row = FetchPartition(partition_index=0, acknowledgement_batches=list(given))
                request = ShareFetchRequest(
                    group_id="g",
                    member_id="m-9",
                    share_session_epoch=epoch,
                    max_bytes=1000,
                    max_records=10,
                    batch_size=10,
                    topics=[FetchTopic(topic_id=topic_id, partitions=[row])],
                )
                head = RequestHead(int(ApiKey.SHARE_FETCH), 2, 1, "test", 0)
                return Call(head, request, cast(Connection, connection))

            given = AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
            for epoch, batches, error in ((0, (), 0), (1, (given,), TOPIC_FAILED)):
                answer = requests.fetch(call_with(epoch, *batches), lambda name: name != "t")
                assert isinstance(answer, Deferred)
                assert isinstance(answer.answer, ShareFetchResponse)
                (row,) = answer.answer.responses[0].partitions
                assert (row.error_code, row.acknowledge_error_code) == (TOPIC_FAILED, error)

        cluster.run(work)


def test_share_groups_are_off_in_a_new_cluster_of_4_1() -> None:
    """share.version is 0 there: a preview."""
    with running_cluster(1, release_name="4.1") as cluster:

        async def work(client: Client) -> None:
            topic_id = await client.create_topic("t")
            member = Member(client, topic_id)
            answer = await member.fetch(version=1)
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            answer = await member.acknowledge(epoch=1, version=1)
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION

        cluster.run(work)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ([(3, 2, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(4, 5, ACCEPT), (2, 3, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(0, 0, 9)], ErrorCode.INVALID_REQUEST),
        ([(0, 0, -1)], ErrorCode.INVALID_REQUEST),
        ([(0, 0, RENEW)], ErrorCode.INVALID_REQUEST),
        ([(0, 50, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(0, 9, ACCEPT)], ErrorCode.NONE),
    ],
)
def test_acknowledgements_are_validated(
    given: list[tuple[int, int, int]], error: ErrorCode
) -> None:
    """Ranges ascend, and have known types."""
    with sharing_cluster() as (cluster, _):

        async def work(client: Client) -> None:
            topic_id = await prepared(cluster, client)
            member = Member(client, topic_id)
            assert await member.acquired() == [(0, 9, 1)]
            answer = await member.acknowledge(*given)
            assert [row.error_code for row in answer.responses[0].partitions] == [error]

        cluster.run(work)


def test_renewals_keep_records_and_fetch_nothing() -> None:
    """A request that renews asks for no records (KIP-1222)."""
    with sharing_cluster() as (cluster, _):

        async def work(client: Client) -> None:
            topic_id = await prepared(cluster, client)
            member = Member(client, topic_id)
            assert await member.acquired() == [(0, 9, 1)]
            await asyncio.sleep(20)
            nothing: dict[str, Any] = {
                "max_bytes": 0,
                "min_bytes": 0,
                "max_records": 0,
                "max_wait_ms": 0,
            }
            answer = await member.fetch((0, 9, RENEW), is_renew_ack=True, **nothing)
            (row,) = answer.responses[0].partitions
            assert (row.acknowledge_error_code, bytes(row.records)) == (0, b"")
            await asyncio.sleep(20)
            answer = await member.acknowledge((0, 4, RENEW), is_renew_ack=True)
            assert answer.acquisition_lock_timeout_ms == 30_000
            await asyncio.sleep(20)
            answer = await member.acknowledge((0, 4, ACCEPT))
            assert [row.error_code for row in answer.responses[0].partitions] == [0]
            answer = await member.acknowledge((5, 9, ACCEPT))
            assert [row.error_code for row in answer.responses[0].partitions] == [
                ErrorCode.INVALID_RECORD_STATE
            ]

        cluster.run(work)


def test_a_refused_write_is_an_error_of_the_acknowledgement() -> None:
    """The member may try again."""
    with sharing_cluster() as (cluster, stored):

        async def work(client: Client) -> None:
            topic_id = await prepared(cluster, client)
            member = Member(client, topic_id)
            assert await member.acquired() == [(0, 9, 1)]
            stored.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            answer = await member.acknowledge((0, 9, ACCEPT))
            (row,) = answer.responses[0].partitions
            assert row.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            stored.error = ErrorCode.NONE
            answer = await member.acknowledge((0, 9, ACCEPT))
            assert [row.error_code for row in answer.responses[0].partitions] == [0]
            stored.error = ErrorCode.FENCED_STATE_EPOCH
            await client.produce(batch(2))
            assert await member.acquired() == [(10, 11, 1)]
            answer = await member.acknowledge((10, 11, ACCEPT))
            (row,) = answer.responses[0].partitions
            assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (row.current_leader.leader_id, len(answer.node_endpoints)) == (1, 1)
            answer = await member.acknowledge((10, 11, ACCEPT))
            (row,) = answer.responses[0].partitions
            assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        cluster.run(work)


def test_an_unreadable_state_is_an_error_of_the_fetch() -> None:
    """The share-partition is loaded again by the next fetch."""
    with sharing_cluster() as (cluster, stored):

        async def work(client: Client) -> None:
            topic_id = await client.create_topic("t")
            stored.error = ErrorCode.GROUP_ID_NOT_FOUND
            member = Member(client, topic_id)
            answer = await member.fetch()
            (row,) = answer.responses[0].partitions
            assert (row.error_code, row.error_message) == (
                ErrorCode.GROUP_ID_NOT_FOUND,
                "refused by the test",
            )
            stored.error = ErrorCode.NONE
            assert await member.acquired(max_wait_ms=0) == []
            await asyncio.sleep(1)
            await client.produce(batch(2))
            assert await member.acquired() == [(0, 1, 1)]

        cluster.run(work)


@pytest.mark.parametrize("is_clean", [False, True], ids=["killed", "stopped"])
def test_a_restarted_leader_continues_from_the_stored_state(is_clean: bool) -> None:
    """What was accepted is not delivered again, and what was released has its delivery count; what
    was acquired is available.
    """
    settings = {
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }
    with running_cluster(1, settings, release_name="4.4") as cluster:
        oracle = Oracle(invariants=INVARIANTS)
        found: list[Violation] = []
        cluster.simulation.observe(
            lambda node, incarnation, n, t_ns, event: found.extend(
                oracle.examine(Envelope(node, incarnation, n, t_ns), event)
            )
        )

        async def before(client: Client) -> bytes:
            topic_id = await client.create_topic("t")
            await begin_group(client, topic_id)
            await client.produce(batch(10))
            member = Member(client, topic_id)
            assert await member.acquired() == [(0, 9, 1)]
            await member.acknowledge((0, 3, ACCEPT))
            answer = await member.acknowledge((4, 5, RELEASE))
            assert [row.error_code for row in answer.responses[0].partitions] == [0]
            return topic_id

        topic_id = cluster.run(before)
        if is_clean:
            cluster.stop("broker-1")
        else:
            cluster.kill("broker-1")
        cluster.simulation.restart("broker-1")
        cluster.wait_ready("broker-1")

        async def after(client: Client) -> None:
            member = Member(client, topic_id)
            for _ in range(20):
                acquired = await member.acquired()
                if acquired:
                    break
                await asyncio.sleep(1)
            # a clean stop waits for the release of what the member had acquired
            assert acquired == ([(4, 9, 2)] if is_clean else [(4, 5, 2), (6, 9, 1)])

        cluster.run(after)
        assert found == []
        verdicts = {verdict.invariant: verdict.outcome for verdict in oracle.finish()}
        assert verdicts["share-records-done-stay-done"] is Outcome.OK
        assert verdicts["share-deliveries-are-counted"] is Outcome.OK


def test_deleted_records_and_topics_end_their_share() -> None:
    """The start offset follows the log; with the topic the share-partition is dropped."""
    with sharing_cluster() as (cluster, _):

        async def work(client: Client) -> None:
            topic_id = await prepared(cluster, client)
            await client.produce(batch(2))
            partition = DeleteRecordsPartition(partition_index=0, offset=10)
            topics = [DeleteRecordsTopic(name="t", partitions=[partition])]
            await client.ask(DeleteRecordsRequest(topics=topics, timeout_ms=5000))
            member = Member(client, topic_id)
            assert await member.acquired(max_wait_ms=0) == []
            assert await member.acquired() == [(10, 11, 1)]
            request = DeleteTopicsRequest(
                topics=[DeleteTopicState(name="t")], topic_names=["t"], timeout_ms=5000
            )
            await client.ask(request)
            await asyncio.sleep(2)
            assert len(cluster.emitted(SharePartitionDropped)) == 1
            answer = await member.acknowledge((10, 11, ACCEPT))
            (row,) = answer.responses[0].partitions
            assert row.error_code == ErrorCode.UNKNOWN_TOPIC_ID

        cluster.run(work)
