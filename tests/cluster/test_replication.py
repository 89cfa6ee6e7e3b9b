"""Partitions with three replicas on three brokers that are killed: acknowledged records are on all
in-sync replicas, and producer state is kept.
"""

import time

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.k03_metadata import MetadataResponsePartition
from protocol.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.cluster.broker_client import SECONDS, batch_of, broker_client

QUICK = {
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "200",
    "min.insync.replicas": "2",
    "replica.fetch.backoff.ms": "100",
}
BROKERS = ("broker-1", "broker-2", "broker-3")
ANY_REPLICA = 11


def address(cluster: EmbeddedCluster, name: str) -> str:
    node = cluster.spec.node(name)
    return f"{node.host}:{node.port}"


def known(cluster: EmbeddedCluster, asked: str, topic: str) -> MetadataResponsePartition:
    with broker_client(address(cluster, asked)) as broker:
        return broker.metadata(topic).topics[0].partitions[0]


def wait_for_in_sync(
    cluster: EmbeddedCluster, asked: str, topic: str, count: int
) -> MetadataResponsePartition:
    give_up_at = time.monotonic() + SECONDS
    while len((found := known(cluster, asked, topic)).isr_nodes) != count or found.leader_id < 0:
        assert time.monotonic() < give_up_at, found
        time.sleep(0.02)
    return found


@pytest.mark.kraftsim(brokers=3, settings=QUICK)
def test_a_new_leader_has_the_producer_state_of_the_old_one(
    embedded_cluster: EmbeddedCluster,
) -> None:
    """A batch is retried on the next leader: it returns the original offset, and appends nothing
    (KIP-98).
    """
    cluster = embedded_cluster
    with broker_client(address(cluster, "broker-1")) as broker:
        broker.create_topic("t", replicas=3)
        producer_id = broker.fresh_producer_id()
    first = f"broker-{wait_for_in_sync(cluster, 'broker-1', 't', 3).leader_id}"
    batches = [
        batch_of([b"%d" % number], producer_id=producer_id, base_sequence=number)
        for number in range(6)
    ]
    with broker_client(address(cluster, first)) as leader:
        assert [leader.produce("t", batch).base_offset for batch in batches] == [0, 1, 2, 3, 4, 5]
    cluster.kill(first)
    survivor = next(name for name in BROKERS if name != first)
    second = f"broker-{wait_for_in_sync(cluster, survivor, 't', 2).leader_id}"
    assert second != first
    with broker_client(address(cluster, second)) as leader:
        answers = [leader.produce("t", batch) for batch in batches]
        found = [(ErrorCode(answer.error_code).name, answer.base_offset) for answer in answers]
        assert found == [
            ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1),
            *[("NONE", number) for number in range(1, 6)],
        ], "five batches are in the producer state"
        assert (
            leader.produce(
                "t", batch_of([b"6"], producer_id=producer_id, base_sequence=6)
            ).base_offset
            == 6
        )
    cluster.restart(first)
    wait_for_in_sync(cluster, survivor, "t", 3)
    with broker_client(address(cluster, second)) as leader:
        assert leader.values("t") == [b"%d" % number for number in range(7)]


@pytest.mark.kraftsim(brokers=3, settings=QUICK)
def test_too_few_in_sync_replicas_refuse_acks_all_but_not_acks_1(
    embedded_cluster: EmbeddedCluster,
) -> None:
    """min.insync.replicas: acks=all is refused; acks=1 is appended, but the high watermark does not
    advance (KIP-966).
    """
    cluster = embedded_cluster
    with broker_client(address(cluster, "broker-1")) as broker:
        broker.create_topic("t", replicas=3)
    leader = f"broker-{wait_for_in_sync(cluster, 'broker-1', 't', 3).leader_id}"
    for name in BROKERS:
        if name != leader:
            cluster.kill(name)
    wait_for_in_sync(cluster, leader, "t", 1)
    with broker_client(address(cluster, leader)) as broker:
        answer = broker.produce("t", batch_of([b"refused"]))
        assert (ErrorCode(answer.error_code).name, answer.base_offset) == (
            "NOT_ENOUGH_REPLICAS",
            -1,
        )
        assert broker.produce("t", batch_of([b"taken"]), acks=1).base_offset == 0
        assert broker.values("t") == [], "the high watermark does not advance"
    other = next(name for name in BROKERS if name != leader)
    cluster.restart(other)
    wait_for_in_sync(cluster, leader, "t", 2)
    with broker_client(address(cluster, leader)) as broker:
        assert broker.produce("t", batch_of([b"on two"])).base_offset == 1
        assert broker.values("t") == [b"taken", b"on two"]


@pytest.mark.kraftsim(
    brokers=3, settings={**QUICK, "broker.session.timeout.ms": "3000", "min.insync.replicas": "1"}
)
def test_an_append_not_replicated_in_time_times_out_and_stays_in_the_log(
    embedded_cluster: EmbeddedCluster,
) -> None:
    """The follower is dead and still in the ISR: acks=all waits for it until timeout.ms of the
    client, then until it is fenced.
    """
    cluster = embedded_cluster
    with broker_client(address(cluster, "broker-1")) as broker:
        broker.create_topic("t", replicas=2)
    found = wait_for_in_sync(cluster, "broker-1", "t", 2)
    leader, follower = (
        f"broker-{number}"
        for number in (
            found.leader_id,
            *(each for each in found.replica_nodes if each != found.leader_id),
        )
    )
    cluster.kill(follower)
    with broker_client(address(cluster, leader)) as broker:
        answer = broker.produce("t", batch_of([b"slow"]), timeout_ms=300)
        assert (ErrorCode(answer.error_code).name, answer.base_offset) == ("REQUEST_TIMED_OUT", 0)
        assert broker.values("t") == []
        assert broker.produce("t", batch_of([b"next"])).base_offset == 1
        assert broker.values("t") == [b"slow", b"next"]


@pytest.mark.kraftsim(brokers=2, settings=QUICK)
def test_a_follower_serves_consumers_and_offsets_for_leader_epoch(
    embedded_cluster: EmbeddedCluster,
) -> None:
    """Since Fetch 11 consumers may fetch from any replica, up to its high watermark (KIP-392);
    producers may not.
    """
    cluster = embedded_cluster
    with broker_client(address(cluster, "broker-1")) as broker:
        broker.create_topic("t", replicas=2)
    found = wait_for_in_sync(cluster, "broker-1", "t", 2)
    follower = f"broker-{next(each for each in found.replica_nodes if each != found.leader_id)}"
    with broker_client(address(cluster, f"broker-{found.leader_id}")) as leader:
        assert leader.produce("t", batch_of([b"one", b"two"])).base_offset == 0
        asked = OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                OffsetForLeaderTopic(
                    topic="t",
                    partitions=[
                        OffsetForLeaderPartition(partition=0, leader_epoch=found.leader_epoch)
                    ],
                )
            ],
        )
        epoch = leader.peer.ask(asked, 4, OffsetForLeaderEpochResponse).topics[0].partitions[0]
        assert (epoch.error_code, epoch.leader_epoch, epoch.end_offset) == (
            ErrorCode.NONE,
            found.leader_epoch,
            2,
        )
    fetch = FetchRequest(
        max_wait_ms=0,
        topics=[
            FetchTopic(
                topic="t",
                partitions=[
                    FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
                ],
            )
        ],
    )
    with broker_client(address(cluster, follower)) as broker:
        give_up_at = time.monotonic() + SECONDS
        while not (
            answer := broker.peer.ask(fetch, ANY_REPLICA, FetchResponse).responses[0].partitions[0]
        ).records:
            assert answer.error_code == ErrorCode.NONE and time.monotonic() < give_up_at
            time.sleep(0.02)
        assert answer.high_watermark == 2
        refused = broker.peer.ask(fetch, ANY_REPLICA - 1, FetchResponse).responses[0].partitions[0]
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        asked.topics[0].partitions[0].leader_epoch = 0
        assert (
            broker.peer.ask(asked, 4, OffsetForLeaderEpochResponse)
            .topics[0]
            .partitions[0]
            .error_code
            == ErrorCode.NOT_LEADER_OR_FOLLOWER
        )
