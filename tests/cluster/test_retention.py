"""Records are deleted by retention and by DeleteRecords, on followers as on leaders, also across a
restart.
"""

import time
from collections.abc import Callable

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import DEBUGGING_REPLICA_ID
from protocol.messages.k02_list_offsets import (
    EARLIEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tests.cluster.broker_client import SECONDS, BrokerClient, batch_of, broker_client
from tests.cluster.test_replication import QUICK, address, wait_for_in_sync

PRUNED_OFTEN = {
    **QUICK,
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "100",
    "min.insync.replicas": "1",
}


def beginning(cluster: EmbeddedCluster, name: str, topic: str) -> int:
    """Return the log start offset of a replica, leader or not."""
    row = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST_TIMESTAMP)
    asked = ListOffsetsRequest(
        replica_id=DEBUGGING_REPLICA_ID, topics=[ListOffsetsTopic(name=topic, partitions=[row])]
    )
    with broker_client(address(cluster, name)) as broker:
        return broker.peer.ask(asked, 8, ListOffsetsResponse).topics[0].partitions[0].offset


def wait_until(holds: Callable[[], bool], what: str) -> None:
    give_up_at = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < give_up_at, what
        time.sleep(0.05)


def delete(leader: BrokerClient, topic: str, offset: int) -> tuple[str, int]:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    asked = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=10_000
    )
    row = leader.peer.ask(asked, 2, DeleteRecordsResponse).topics[0].partitions[0]
    return ErrorCode(row.error_code).name, row.low_watermark


@pytest.mark.kraftsim(brokers=2, settings=QUICK)
def test_deleted_records_stay_deleted_on_every_replica(embedded_cluster: EmbeddedCluster) -> None:
    """The response is sent once the follower has the new log start offset; after a kill it comes
    from the checkpoint or the leader (KIP-107).
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
    with broker_client(address(cluster, leader)) as broker:
        for number in range(10):
            assert broker.produce("t", batch_of([b"%d" % number])).base_offset == number
        assert delete(broker, "t", 6) == ("NONE", 6)
    assert [beginning(cluster, name, "t") for name in (leader, follower)] == [6, 6]
    cluster.kill(follower)
    cluster.restart(follower)
    wait_for_in_sync(cluster, leader, "t", 2)
    wait_until(
        lambda: beginning(cluster, follower, "t") == 6,
        "the follower has the log start offset of the leader",
    )


@pytest.mark.kraftsim(
    brokers=1,
    settings={
        **PRUNED_OFTEN,
        "log.segment.bytes": "1024",
        "log.retention.bytes": "2048",
        "log.retention.ms": "-1",
    },
)
def test_a_log_that_is_too_large_loses_its_oldest_segments(
    embedded_cluster: EmbeddedCluster,
) -> None:
    """At most retention.bytes and one segment remain."""
    cluster = embedded_cluster
    with broker_client(address(cluster, "broker-1")) as broker:
        broker.create_topic("t")
        producer_id = broker.fresh_producer_id()
        for number in range(30):
            batch = batch_of([b"x" * 200], producer_id=producer_id, base_sequence=number)
            assert broker.produce("t", batch).base_offset == number
    wait_until(lambda: beginning(cluster, "broker-1", "t") > 15, "old segments are deleted")
    first = beginning(cluster, "broker-1", "t")
    assert first < 30
    cluster.kill("broker-1")
    cluster.restart("broker-1")
    cluster.wait_until_ready()
    assert beginning(cluster, "broker-1", "t") == first
    with broker_client(address(cluster, "broker-1")) as broker:
        assert (
            broker.produce(
                "t", batch_of([b"30"], producer_id=producer_id, base_sequence=30)
            ).base_offset
            == 30
        )
