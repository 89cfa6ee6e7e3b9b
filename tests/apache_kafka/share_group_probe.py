"""One conversation about share groups, held with any broker: what it answers, and what it writes to
`__consumer_offsets`.

Ids and hashes of topics and times differ between clusters: the transcript has names of topics
instead, and leaves times out.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from kraftsim.conformance.expect import settled
from kraftsim.conformance.k01_fetch import fetched_records
from kraftsim.conformance.target import Target
from kraftsim.groups.rules_assignors import uuid_hash
from protocol.api_keys import ApiKey
from protocol.coordinator.registry import CoordinatorTopic, parse_record
from protocol.coordinator.share_groups import ShareGroupMetadataValue
from protocol.errors import ErrorCode
from protocol.messages import k90_describe_share_group_offsets as k90
from protocol.messages import k91_alter_share_group_offsets as k91
from protocol.messages import k92_delete_share_group_offsets as k92
from protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.k11_join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from protocol.messages.k15_describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from protocol.messages.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from protocol.messages.k76_share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from protocol.messages.k77_share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from protocol.records.batches import split_batches
from protocol.schema import Message
from tests.apache_kafka.named_hashes import HashedTopics

GROUP: Final = "shares"
SIMPLE: Final = "simple"
TOPIC: Final = "share-topic"
OTHER: Final = "share-other"
ANSWER_SECONDS: Final = 60.0
"""The persister of Apache Kafka tries again for a while."""
INTERVAL_SECONDS: Final = 1.1
"""Longer than group.share.assignment.interval.ms."""
A, B = "a" * 22, "b" * 22
Answer = TypeVar("Answer", bound=Message)


class ShareGroupProbe:
    """Asks one broker, with one partition of `__consumer_offsets`; `lines` is the transcript."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._peer = target.peer(timeout_seconds=ANSWER_SECONDS)
        self._names: dict[bytes, str] = {}
        self._real: dict[str, str] = {}
        self.lines: list[str] = []

    def hold(self) -> None:
        """Hold the whole conversation."""
        self._make_topics()
        self._hear_refusals()
        self._join_and_move()
        self._meet_other_types()
        self._alter_and_delete_offsets()
        self._delete()
        self.lines += self._records()
        self._peer.close()

    def _make_topics(self) -> None:
        """Create topics whose ids have the same order in Java's hash maps on every cluster."""
        while True:
            made = [self._target.topic(partitions=count) for count in (3, 1)]
            if _are_in_order(*(topic.topic_id for topic in made)):
                break
        self._names = {
            topic.topic_id: name for topic, name in zip(made, (TOPIC, OTHER), strict=True)
        }
        self._real = {name: topic.name for topic, name in zip(made, (TOPIC, OTHER), strict=True)}

    # What is asked
    # ----------------------------------------------------------------------------------------------

    def _hear_refusals(self) -> None:
        settled(
            self._coordinator_error,
            lambda code: code == ErrorCode.NONE,
            "an address of the coordinator",
        )
        settled(
            lambda: self.beat(A, 1, shown=False).error_code,
            lambda code: code == ErrorCode.GROUP_ID_NOT_FOUND,
            "a group coordinator",
        )
        self.beat(A, 1)
        self.beat(A, -1)
        self.beat(A, -2, TOPIC)
        self.beat(A, 0)
        self.beat("", 0, TOPIC)
        self.beat("x" * 37, 0, TOPIC)
        self.beat(A, 0, TOPIC, group_id="")
        self.beat(A, 0, TOPIC, rack_id="")
        self.describe(GROUP, "", include=True)
        self.offsets(None)
        self.offsets({TOPIC: (0, 9), "missing": (0,)})
        self.delete_offsets(TOPIC)
        self.delete(GROUP)

    def _coordinator_error(self) -> int:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
        return self._peer.ask(request, 4, FindCoordinatorResponse).coordinators[0].error_code

    def _join_and_move(self) -> None:
        epoch = self.beat(A, 0, TOPIC, rack_id="r").member_epoch
        self.describe(GROUP)
        self.settle(A, epoch)
        epoch = self.beat(A, 0, TOPIC).member_epoch
        self.beat(A, epoch)
        self.beat(A, epoch + 1)
        self.beat(A, 1)
        self.beat(B, epoch)
        time.sleep(INTERVAL_SECONDS)
        self.beat(B, 0, TOPIC)
        self.beat(A, epoch)
        self.describe(GROUP, include=True)
        self.list_groups()
        self.offsets(None)
        self.offsets({TOPIC: (2, 0)})
        self.beat(B, -1)
        self.beat(B, -1)

    def _meet_other_types(self) -> None:
        commit = OffsetCommitRequest(
            group_id=SIMPLE,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[
                OffsetCommitRequestTopic(
                    name=self._real[TOPIC],
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=0,
                            committed_offset=1,
                            committed_leader_epoch=-1,
                            committed_metadata="",
                        )
                    ],
                )
            ],
        )
        self.ask(commit, 8, OffsetCommitResponse)
        self.beat(A, 0, TOPIC, group_id=SIMPLE)
        self.beat(A, 5, group_id=SIMPLE)
        self.beat(A, -1, group_id=SIMPLE)
        self.describe(SIMPLE)
        self.alter({TOPIC: {0: 3}}, group_id=SIMPLE)
        self.delete_offsets(TOPIC, group_id=SIMPLE)
        self.offsets(None, group_id=SIMPLE)
        commit.group_id = GROUP
        self.ask(commit, 8, OffsetCommitResponse)
        self.ask(commit, 9, OffsetCommitResponse)
        join = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        self.ask(join, 5, JoinGroupResponse)
        join.member_id = A
        self.ask(join, 5, JoinGroupResponse)
        heartbeat = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=A,
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=self._named([TOPIC]),
            topic_partitions=[],
        )
        self.ask(heartbeat, 1, ConsumerGroupHeartbeatResponse)
        self.ask(ConsumerGroupDescribeRequest(group_ids=[GROUP]), 1, ConsumerGroupDescribeResponse)
        self.ask(DescribeGroupsRequest(groups=[GROUP]), 6, DescribeGroupsResponse)

    def _alter_and_delete_offsets(self) -> None:
        self.alter({TOPIC: {0: 5}})
        self.delete_offsets(TOPIC)
        self.delete(GROUP)
        epoch = self.beat(A, 0, TOPIC).member_epoch
        time.sleep(INTERVAL_SECONDS)
        self.beat(A, epoch, OTHER)
        time.sleep(INTERVAL_SECONDS)
        self.beat(A, -1)
        self.describe(GROUP)
        self.list_groups()
        self.alter({TOPIC: {0: 5, 2: 7, 9: 1}})
        time.sleep(INTERVAL_SECONDS)
        self.offsets(None)
        self.delete_offsets(TOPIC, "missing")
        self.offsets({TOPIC: (0,)})
        self.delete_offsets(TOPIC)
        self.alter({TOPIC: {1: 2}}, group_id="fresh")
        time.sleep(INTERVAL_SECONDS)
        self.offsets(None, group_id="fresh")

    def _delete(self) -> None:
        self.delete(GROUP, "fresh", SIMPLE, "unknown")
        self.describe(GROUP, "fresh")
        self.list_groups()

    # Requests
    # ----------------------------------------------------------------------------------------------

    def beat(
        self,
        member_id: str,
        epoch: int,
        *names: str,
        group_id: str = GROUP,
        rack_id: str | None = None,
        shown: bool = True,
    ) -> ShareGroupHeartbeatResponse:
        """Send a ShareGroupHeartbeat."""
        request = ShareGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            rack_id=rack_id,
            subscribed_topic_names=self._named(names) or None,
        )
        if not shown:
            return self._peer.ask(request, 1, ShareGroupHeartbeatResponse)
        return self.ask(request, 1, ShareGroupHeartbeatResponse)

    def settle(self, member_id: str, epoch: int) -> None:
        """Send heartbeats until the member has a new assignment, which alone is shown."""

        def look() -> ShareGroupHeartbeatResponse:
            nonlocal epoch
            answer = self.beat(member_id, epoch, shown=False)
            epoch = answer.member_epoch
            return answer

        self.show(settled(look, lambda answer: answer.assignment is not None, "an assignment"))

    def describe(self, *group_ids: str, include: bool = False) -> None:
        """Send a ShareGroupDescribe."""
        request = ShareGroupDescribeRequest(
            group_ids=list(group_ids), include_authorized_operations=include
        )
        self.ask(request, 1, ShareGroupDescribeResponse)

    def offsets(
        self, topics: Mapping[str, tuple[int, ...]] | None, *, group_id: str = GROUP
    ) -> None:
        """Send a DescribeShareGroupOffsets."""
        rows = (
            None
            if topics is None
            else [
                k90.RequestedTopic(topic_name=self._real.get(name, name), partitions=list(numbers))
                for name, numbers in topics.items()
            ]
        )
        group = k90.RequestedGroup(group_id=group_id, topics=rows)
        self.ask(
            k90.DescribeShareGroupOffsetsRequest(groups=[group]),
            self._target.newest(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS),
            k90.DescribeShareGroupOffsetsResponse,
        )

    def alter(self, topics: Mapping[str, Mapping[int, int]], *, group_id: str = GROUP) -> None:
        """Send an AlterShareGroupOffsets."""
        rows = [
            k91.RequestedTopic(
                topic_name=self._real.get(name, name),
                partitions=[
                    k91.RequestedPartition(partition_index=number, start_offset=offset)
                    for number, offset in offsets.items()
                ],
            )
            for name, offsets in topics.items()
        ]
        self.ask(
            k91.AlterShareGroupOffsetsRequest(group_id=group_id, topics=rows),
            0,
            k91.AlterShareGroupOffsetsResponse,
        )

    def delete_offsets(self, *topics: str, group_id: str = GROUP) -> None:
        """Send a DeleteShareGroupOffsets."""
        rows = [k92.RequestedTopic(topic_name=name) for name in self._named(topics)]
        self.ask(
            k92.DeleteShareGroupOffsetsRequest(group_id=group_id, topics=rows),
            0,
            k92.DeleteShareGroupOffsetsResponse,
        )

    def delete(self, *group_ids: str) -> None:
        """Send a DeleteGroups; its rows are shown by name."""
        answer = self._peer.ask(
            DeleteGroupsRequest(groups_names=list(group_ids)), 2, DeleteGroupsResponse
        )
        answer.results.sort(key=lambda row: row.group_id)
        self.show(answer)

    def list_groups(self) -> None:
        """Send a ListGroups; its rows are shown by name."""
        for types, states in (([], []), (["Share"], ["empty"]), (["share"], ["Stable"])):
            answer = self._peer.ask(
                ListGroupsRequest(types_filter=types, states_filter=states), 5, ListGroupsResponse
            )
            answer.groups.sort(key=lambda row: row.group_id)
            self.show(answer)

    # What is shown
    # ----------------------------------------------------------------------------------------------

    def ask(self, request: Message, version: int, expected: type[Answer]) -> Answer:
        """Send a request, and show the response."""
        answer = self._peer.ask(request, version, expected)
        self.show(answer)
        return answer

    def _named(self, names: Iterable[str]) -> list[str]:
        return [self._real.get(name, name) for name in names]

    def show(self, message: Message) -> None:
        """Add a message to the transcript."""
        self.lines.append(self._text(message))

    def _text(self, message: Message | None) -> str:
        text = repr(message)
        for topic_id, name in self._names.items():
            text = text.replace(repr(topic_id), f"id of {name}").replace(self._real[name], name)
        return text.replace("/127.0.0.1", "host")

    def _records(self) -> list[str]:
        """Return the records of share groups in `__consumer_offsets`."""
        topic = self._target.led_topic(CoordinatorTopic.CONSUMER_OFFSETS.value, 1)
        topics = HashedTopics(self._peer, self._real.values())
        shown = {real: name for name, real in self._real.items()}
        found = []
        for batch in split_batches(fetched_records(self._target, topic)):
            for record in () if batch.is_control else batch.records():
                assert record.key is not None
                parsed = parse_record(CoordinatorTopic.CONSUMER_OFFSETS, record.key, record.value)
                assert parsed is not None
                key, value = parsed
                if "Share" not in type(key).__name__:
                    continue
                names: tuple[str, ...] = ()
                if isinstance(value, ShareGroupMetadataValue):
                    names = topics.named(value.metadata_hash)
                    value.metadata_hash = 0
                for name in ("assignment_timestamp",):
                    if getattr(value, name, 0):
                        setattr(value, name, 1)
                text = f"{self._text(key)} -> {self._text(value)}"
                found.append(f"{text} of {sorted(shown[name] for name in names)}")
        return found


def _are_in_order(topic_id: bytes, other_id: bytes) -> bool:
    """Return whether the first topic comes before the second, and its partitions in their order, in
    small hash maps.
    """
    places = [_place(uuid_hash(each)) for each in (topic_id, other_id)]
    partitions = [_place(31 * uuid_hash(topic_id) + number) for number in range(3)]
    return places[0] < places[1] and partitions == sorted(partitions)


def _place(hashed: int) -> int:
    unsigned = hashed & 0xFFFF_FFFF
    return (unsigned ^ unsigned >> 16) & 15
