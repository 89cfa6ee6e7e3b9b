"""Logs of group coordinators are interchangeable: ours loads what Apache Kafka's coordinator wrote,
and vice versa.

Plain and transactional commits, of which one is aborted, one is superseded by a later plain one,
and one is pending; since 4.0 also a consumer group.
Source: KIP-98, KIP-447, KIP-848.
"""

import shutil
from pathlib import Path

import pytest

from kraftsim.conformance.consumer_group_client import ConsumerGroupClient
from kraftsim.conformance.expect import settled
from kraftsim.conformance.group_client import GroupClient
from kraftsim.conformance.k28_txn_offset_commit import fetched_offset, settles
from kraftsim.conformance.target import Target
from kraftsim.conformance.transaction_client import TransactionClient
from kraftsim.groups.rules_shard import GroupShard
from kraftsim.groups.rules_timing import GroupMoment, GroupSettings
from protocol.errors import ErrorCode
from protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from protocol.messages.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from protocol.records.batches import split_batches
from tests.apache_kafka.class_path import DEFAULT_RELEASE, NEWEST_RELEASE
from tests.apache_kafka.harness import ApacheKafka
from tests.cluster.running import QUICK_SESSIONS, running_processes

pytestmark = pytest.mark.interop
ONE_PARTITION = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    **QUICK_SESSIONS,
}
LOG = "__consumer_offsets-0"
LINES = {DEFAULT_RELEASE: "3.9", NEWEST_RELEASE: "4.4"}
PENDING = (-1, int(ErrorCode.UNSTABLE_OFFSET_COMMIT))
EXPECTED = {0: (3, 0), 1: (5, 0), 2: (8, 0), 3: (4, 0), 4: PENDING}
"""The committed offset and the error of each partition."""


class WrittenGroups:
    """The written groups: a classic group with offsets of five partitions, and optionally a
    consumer group with one member.
    """

    def __init__(self, target: Target, *, has_consumers: bool) -> None:
        self.topic = target.topic(partitions=5)
        self.talk = GroupClient(target)
        name, talk = self.topic.name, self.talk
        committing, aborting, open_one = (TransactionClient(target) for _ in range(3))
        for producer in (committing, aborting, open_one):
            producer.add_offsets(talk.group_id)
        with talk.peer() as peer:
            assert talk.commit(peer, [(name, 0)], offset=3) == [0]
            assert talk.commit(peer, [(name, 3)], offset=4) == [0]
            assert committing.commit(talk, [(name, 1), (name, 2)], 5) == [0, 0]
            assert talk.commit(peer, [(name, 2)], offset=8) == [0]
            assert aborting.commit(talk, [(name, 3)], 6) == [0]
            assert open_one.commit(talk, [(name, 4)], 7) == [0]
        committing.end(commits=True)
        aborting.end(commits=False)
        assert (settles(talk, name, 1), settles(talk, name, 3)) == (5, 4)
        self.consumers = ""
        if has_consumers:
            with ConsumerGroupClient(target) as consumers:
                member = consumers.member("a", self.topic)
                member.join()
                consumers.settle(member, wanted=[{self.topic.topic_id: (0, 1, 2, 3, 4)}])
                self.consumers, self.epoch = consumers.group_id, member.epoch

    def offsets_at(self, target: Target) -> dict[int, tuple[int, int]]:
        """What a node returns about the group."""
        self.talk.target, self.talk.address = target, target.address
        return {number: fetched_offset(self.talk, self.topic.name, number) for number in EXPECTED}


@pytest.mark.parametrize("release", [DEFAULT_RELEASE, NEWEST_RELEASE])
def test_our_coordinator_loads_groups_that_apache_kafka_wrote(release: str) -> None:
    with ApacheKafka(release, ONE_PARTITION) as kafka:
        target = Target(kafka.bootstrap)
        groups = WrittenGroups(target, has_consumers=release == NEWEST_RELEASE)
        assert groups.offsets_at(target) == EXPECTED
        kafka.stop(cleanly=False)
        written = b"".join(file.read_bytes() for file in sorted((kafka.data / LOG).glob("*.log")))
    shard = GroupShard(GroupSettings())
    for batch in split_batches(written):
        shard.replay(batch)
    shard.begin(GroupMoment(0, 0))
    found = shard.fetch_offsets(
        groups.talk.group_id,
        [(groups.topic.name, number) for number in EXPECTED],
        require_stable=True,
    )
    assert {
        each.partition[1]: (-1 if each.offset is None else each.offset.offset, int(each.error))
        for each in found
    } == EXPECTED
    if groups.consumers:
        group = shard.consumer_groups[groups.consumers]
        assert (group.state.value, group.group_epoch, group.assignment_epoch) == (
            "Stable",
            groups.epoch,
            groups.epoch,
        )
        assert {name: dict(member.assigned) for name, member in group.members.items()} == {
            "a": {groups.topic.topic_id: (0, 1, 2, 3, 4)}
        }


@pytest.mark.parametrize("release", [DEFAULT_RELEASE, NEWEST_RELEASE])
def test_apache_kafka_loads_groups_that_our_coordinator_wrote(release: str, tmp_path: Path) -> None:
    with running_processes(
        tmp_path / "run", release=LINES[release], settings=ONE_PARTITION
    ) as cluster:
        target = Target(cluster.bootstrap)
        groups = WrittenGroups(target, has_consumers=release == NEWEST_RELEASE)
        assert groups.offsets_at(target) == EXPECTED
    ours = tmp_path / "run" / "data" / "broker-1" / LOG
    with ApacheKafka(release, ONE_PARTITION) as kafka:
        GroupClient(Target(kafka.bootstrap))
        kafka.stop()
        theirs = kafka.data / LOG
        for file in [file for file in theirs.iterdir() if file.name != "partition.metadata"]:
            file.unlink()
        for log in ours.glob("*.log"):
            shutil.copy(log, theirs)
        kafka.start()
        target = Target(kafka.bootstrap)
        again = GroupClient(target)
        wait_until_loaded(again)
        assert groups.offsets_at(target) == EXPECTED
        if groups.consumers:
            asked = ConsumerGroupDescribeRequest(group_ids=[groups.consumers])
            with again.peer() as peer:
                group = peer.ask(asked, 1, ConsumerGroupDescribeResponse).groups[0]
            assert [(member.member_id, member.member_epoch) for member in group.members] == [
                ("a", groups.epoch)
            ]
            assert (group.error_code, group.group_epoch, group.assignment_epoch) == (
                0,
                groups.epoch,
                groups.epoch,
            )


def wait_until_loaded(client: GroupClient) -> None:
    """Retry until the coordinator has loaded its log: heartbeats are answered before."""
    asked = OffsetFetchRequest(group_id=client.group_id, topics=None)

    def error() -> int:
        with client.peer() as peer:
            return peer.ask(asked, 7, OffsetFetchResponse).error_code

    settled(error, lambda code: code == 0, "the end of the loading")
