"""StreamsGroupDescribe (89), StreamsGroupTopologyDescriptionUpdate (93), and how streams groups go
with requests for other groups: lists, commits, deletions, members of other protocols.

Source: KIP-1071, KIP-1331; verified against Apache Kafka 4.2.2, 4.3.1 and 4.4.0.
"""

from kraftsim.conformance.consumer_group_client import ConsumerGroupClient
from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.k88_streams_group_heartbeat import lone
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.streams_group_client import StreamsGroupClient, tasks_of
from kraftsim.conformance.target import Target
from kraftsim.conformance.transaction_client import TransactionClient
from protocol.errors import ErrorCode
from protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from protocol.messages.k11_join_group import JoinGroupResponse
from protocol.messages.k15_describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from protocol.messages.k93_streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
    TopologyDescription,
)

REQUIREMENTS = Requirements(
    "streams-groups", 2, "Streams groups in descriptions and other requests"
)
SINCE = "4.2"
GROUP = "org.apache.kafka.coordinator.group.streams.StreamsGroup"
JOIN_VERSION, LIST_VERSION, DELETE_VERSION, DESCRIBE_VERSION = 7, 5, 2, 6
COMMIT_VERSION, FETCH_VERSION = 9, 9


def commit(
    group: StreamsGroupClient,
    topic: str,
    member_id: str,
    epoch: int,
    *numbers: int,
    version: int = COMMIT_VERSION,
) -> list[int]:
    """Commit an offset for each partition, and return the errors."""
    rows = [
        OffsetCommitRequestPartition(
            partition_index=each, committed_offset=5, committed_metadata=""
        )
        for each in numbers
    ]
    asked = OffsetCommitRequest(
        group_id=group.group_id,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=rows)],
    )
    answer = group.peer.ask(asked, version, OffsetCommitResponse)
    return [row.error_code for row in answer.topics[0].partitions]


@REQUIREMENTS.that(
    1,
    "a group is described with its topology, epochs, members and tasks",
    source=f"{GROUP}.asDescribedGroup",
    since=SINCE,
)
def described(target: Target) -> None:
    with StreamsGroupClient(target) as group:
        member = lone(group, 2, rack_id="r")
        topic = member.topology.subtopologies[0].source_topics[0]
        member.join()
        found = group.describe()
        expect_equal(
            (found.error_code, found.group_state, found.group_epoch),
            (0, "Assigning", 2),
            "while it waits",
        )
        group.settle(member, wanted=[{"0": (0, 1)}])
        found = group.describe(include_authorized_operations=True)
        expect_equal(
            (found.group_state, found.group_epoch, found.assignment_epoch),
            ("Stable", 2, 2),
            "state and epochs",
        )
        expect_equal(found.authorized_operations & (1 << 3 | 1 << 6 | 1 << 8), 328, "operations")
        topology = found.topology
        expect(topology is not None and topology.subtopologies is not None, "a topology")
        assert topology is not None and topology.subtopologies is not None
        expect_equal(
            (
                topology.epoch,
                [(each.subtopology_id, each.source_topics) for each in topology.subtopologies],
            ),
            (1, [("0", [topic])]),
            "the topology",
        )
        row = found.members[0]
        expect_equal(
            (row.member_id, row.member_epoch, row.rack_id, row.process_id, row.topology_epoch),
            ("a", 2, "r", "process-a", 1),
            "the member",
        )
        for what, assignment in (("current", row.assignment), ("target", row.target_assignment)):
            expect_equal(tasks_of(assignment.active_tasks), {"0": (0, 1)}, f"{what} tasks")
            expect_equal(assignment.standby_tasks, [], f"{what} standby tasks")
        expect_equal(row.is_classic, False, "its protocol")


@REQUIREMENTS.that(
    2,
    "an unknown group, and one of another type, is GROUP_ID_NOT_FOUND; an empty name "
    "INVALID_GROUP_ID",
    source="GroupMetadataManager.streamsGroupDescribe",
    since=SINCE,
)
def not_described(target: Target) -> None:
    with StreamsGroupClient(target) as group:
        found = group.describe()
        expect_error(found.error_code, ErrorCode.GROUP_ID_NOT_FOUND, "an unknown group")
        expect_equal(found.error_message, f"Group {group.group_id} not found.", "the reason")
        commit(group, target.topic().name, "", -1, 0)
        found = group.describe()
        expect_error(found.error_code, ErrorCode.GROUP_ID_NOT_FOUND, "a classic group")
        why = f"Group {group.group_id} is not a streams group."
        expect_equal(found.error_message, why, "the reason")
        group.group_id = ""
        expect_error(group.describe().error_code, ErrorCode.INVALID_GROUP_ID, "an empty name")


@REQUIREMENTS.that(
    3,
    "the topology description is not stored, and its update UNSUPPORTED_VERSION, without a plugin",
    source="KIP-1331, StreamsGroupTopologyDescriptionManager",
    since="4.4",
)
def descriptions(target: Target) -> None:
    with StreamsGroupClient(target) as group:
        lone(group, 1).join()
        found = group.describe(1, include_topology_description=True)
        expect_equal(
            (found.topology_description_status, found.topology_description, found.assignor_name),
            (1, None, "sticky"),
            "status, description and assignor",
        )
        expect_equal(group.describe(1).topology_description_status, 0, "if it is not asked for")
        asked = StreamsGroupTopologyDescriptionUpdateRequest(
            group_id=group.group_id,
            member_id="a",
            topology_epoch=1,
            topology_description=TopologyDescription(),
        )
        answer = group.peer.ask(asked, 0, StreamsGroupTopologyDescriptionUpdateResponse)
        expect_error(answer.error_code, ErrorCode.UNSUPPORTED_VERSION, "the update")
        expect_equal(
            answer.error_message,
            "The broker has no streams group topology description plugin configured.",
            "the reason",
        )


@REQUIREMENTS.that(
    4,
    "ListGroups has the type streams, DescribeGroups does not know the group",
    source=f"{GROUP}.asListedGroup",
    since=SINCE,
)
def listed(target: Target) -> None:
    with StreamsGroupClient(target) as group:
        member = lone(group, 1)
        member.join()
        group.settle(member, wanted=[{"0": (0,)}])
        for types, states, is_there in (
            (["streams"], [], True),
            (["Streams"], ["stable"], True),
            (["consumer"], [], False),
            ([], ["Empty"], False),
        ):
            asked = ListGroupsRequest(types_filter=types, states_filter=states)
            rows = group.peer.ask(asked, LIST_VERSION, ListGroupsResponse).groups
            found = [
                (row.protocol_type, row.group_state, row.group_type)
                for row in rows
                if row.group_id == group.group_id
            ]
            wanted = [("streams", "Stable", "streams")] if is_there else []
            expect_equal(found, wanted, f"{types} {states}")
        request = DescribeGroupsRequest(groups=[group.group_id])
        row = group.peer.ask(request, DESCRIBE_VERSION, DescribeGroupsResponse).groups[0]
        expect_error(row.error_code, ErrorCode.GROUP_ID_NOT_FOUND, "DescribeGroups")


@REQUIREMENTS.that(
    5,
    "members of other protocols are refused; a streams member converts an empty classic group, "
    "whose offsets stay",
    source="GroupMetadataManager.getOrCreateStreamsGroup",
    since=SINCE,
)
def other_types(target: Target) -> None:
    with StreamsGroupClient(target) as group:
        member = lone(group, 1)
        topic = member.topology.subtopologies[0].source_topics[0]
        expect_equal(commit(group, topic, "", -1, 0), [0], "a commit that makes a classic group")
        member.join()
        fetched = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=group.group_id,
                    member_id="a",
                    member_epoch=member.epoch,
                    topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])],
                )
            ]
        )
        row = group.peer.ask(fetched, FETCH_VERSION, OffsetFetchResponse).groups[0]
        expect_equal(row.topics[0].partitions[0].committed_offset, 5, "the offset")
        joined = group.peer.ask(group.classic.join_request(), JOIN_VERSION, JoinGroupResponse)
        expect_error(joined.error_code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "JoinGroup")
        with ConsumerGroupClient(target) as consumers:
            consumers.group_id = group.group_id
            answer = consumers.ask(
                member_id="c",
                member_epoch=0,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=[topic],
                topic_partitions=[],
            )
            expect_error(answer.error_code, ErrorCode.GROUP_ID_NOT_FOUND, "a consumer")
            why = f"Group {group.group_id} is not a consumer group."
            expect_equal(answer.error_message, why, "the reason")


@REQUIREMENTS.that(
    6, "a streams member is refused by a consumer group", source="castToStreamsGroup", since=SINCE
)
def not_streams(target: Target) -> None:
    topic = target.topic()
    with ConsumerGroupClient(target) as consumers, StreamsGroupClient(target) as group:
        consumers.member("c", topic).join()
        group.group_id = consumers.group_id
        member = lone(group, 1)
        for fields in (member.joining(), {"member_id": "a", "member_epoch": 1}):
            answer = group.ask(**fields)
            expect_error(answer.error_code, ErrorCode.GROUP_ID_NOT_FOUND, "a heartbeat")
            why = f"Group {group.group_id} is not a streams group."
            expect_equal(answer.error_message, why, "the reason")


@REQUIREMENTS.that(
    7,
    "a group with members cannot be deleted, and the offsets of its sources cannot either; an "
    "empty one can",
    source=f"{GROUP}.{{validateDeleteGroup, isSubscribedToTopic}}",
    since=SINCE,
)
def deletions(target: Target) -> None:
    other = target.topic()
    with StreamsGroupClient(target) as group:
        member = lone(group, 1)
        topic = member.topology.subtopologies[0].source_topics[0]
        member.join()
        for name in (topic, other.name):
            expect_equal(commit(group, name, "a", member.epoch, 0), [0], "a commit")
        asked = OffsetDeleteRequest(
            group_id=group.group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
                )
                for name in (topic, other.name)
            ],
        )
        answer = group.peer.ask(asked, 0, OffsetDeleteResponse)
        expect_equal(
            {row.name: row.partitions[0].error_code for row in answer.topics},
            {topic: int(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC), other.name: 0},
            "OffsetDelete",
        )
        deletion = DeleteGroupsRequest(groups_names=[group.group_id])
        row = group.peer.ask(deletion, DELETE_VERSION, DeleteGroupsResponse).results[0]
        expect_error(row.error_code, ErrorCode.NON_EMPTY_GROUP, "a group with a member")
        member.leave()
        expect_equal(group.describe().group_state, "Empty", "the state")
        row = group.peer.ask(deletion, DELETE_VERSION, DeleteGroupsResponse).results[0]
        expect_error(row.error_code, ErrorCode.NONE, "an empty group")
        found = group.describe()
        expect_error(found.error_code, ErrorCode.GROUP_ID_NOT_FOUND, "after the deletion")


@REQUIREMENTS.that(
    8,
    "a member commits in its epoch, or in an earlier one for tasks that it has had since; else "
    "STALE_MEMBER_EPOCH",
    source=f"{GROUP}.validateOffsetCommit",
    since=SINCE,
)
def commits(target: Target) -> None:
    other = target.topic()
    with StreamsGroupClient(target) as group:
        first = lone(group, 4)
        topic = first.topology.subtopologies[0].source_topics[0]
        second = group.member("b", *first.topology.subtopologies)
        first.join()
        group.settle(first, wanted=[{"0": (0, 1, 2, 3)}])
        alone = first.epoch
        second.join()
        group.settle_evenly(first, second, count=4)
        kept, lost = first.active["0"][0], second.active["0"][0]
        stale, unknown = int(ErrorCode.STALE_MEMBER_EPOCH), int(ErrorCode.UNKNOWN_MEMBER_ID)
        for what, name, member_id, epoch, number, error in (
            ("its epoch", topic, "a", first.epoch, kept, 0),
            ("its epoch, another member's task", topic, "a", first.epoch, lost, 0),
            ("an earlier epoch, a task that it kept", topic, "a", alone, kept, 0),
            ("an earlier epoch, a task that it lost", topic, "a", alone, lost, stale),
            ("an earlier epoch, another topic", other.name, "a", alone, 0, stale),
            ("an epoch before the task", topic, "b", alone, lost, stale),
            ("a later epoch", topic, "a", first.epoch + 1, kept, stale),
            ("an unknown member", topic, "z", first.epoch, kept, unknown),
        ):
            expect_equal(commit(group, name, member_id, epoch, number), [error], what)
        unsupported = [int(ErrorCode.UNSUPPORTED_VERSION)]
        found = commit(group, topic, "a", first.epoch, kept, version=8)
        expect_equal(found, unsupported, "OffsetCommit 8")


@REQUIREMENTS.that(
    9, "the same applies in a transaction", source=f"{GROUP}.validateOffsetCommit", since=SINCE
)
def transactional_commits(target: Target) -> None:
    producer = TransactionClient(target)
    with StreamsGroupClient(target) as group:
        member = lone(group, 1)
        topic = member.topology.subtopologies[0].source_topics[0]
        member.join()
        group.settle(member, wanted=[{"0": (0,)}])
        producer.add_offsets(group.group_id)
        for what, member_id, epoch, error in (
            ("its epoch", "a", member.epoch, ErrorCode.NONE),
            ("a later epoch", "a", member.epoch + 1, ErrorCode.ILLEGAL_GENERATION),
            ("before the task", "a", 1, ErrorCode.ILLEGAL_GENERATION),
            ("an unknown member", "z", member.epoch, ErrorCode.UNKNOWN_MEMBER_ID),
            ("no member", "", -1, ErrorCode.NONE),
        ):
            found = producer.commit(
                group.classic, [(topic, 0)], 9, member_id=member_id, generation_id=epoch
            )
            expect_equal(found, [int(error)], what)
        producer.end(commits=True)
