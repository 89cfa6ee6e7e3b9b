"""ShareGroupDescribe (77), and lists, deletions and the types of groups beside share groups.

Source: KIP-932; org.apache.kafka.coordinator.group.GroupMetadataManager; verified against Apache
Kafka 4.1.2, 4.2.2, 4.3.1 and 4.4.0.
"""

from kraftsim.conformance.consumer_group_client import ConsumerGroupClient
from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.group_client import JOIN_VERSION, GroupClient
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.share_group_client import SINCE, ShareGroupClient, describe_groups
from kraftsim.conformance.target import Target
from protocol.errors import ErrorCode
from protocol.messages.k11_join_group import JoinGroupResponse
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
from protocol.messages.k77_share_group_describe import OPERATIONS_NOT_ASKED_FOR

REQUIREMENTS = Requirements("share-groups", 2, "Descriptions and types of share groups")
MANAGER = "org.apache.kafka.coordinator.group.GroupMetadataManager"
LIST_VERSION = 5
READ_DELETE_DESCRIBE = 1 << 3 | 1 << 6 | 1 << 8


def listed(group: ShareGroupClient, **filters: object) -> list[tuple[str, str, str]]:
    """Return protocol type, state and type of the group in a list, or nothing."""
    # arg-type: a dict of values of several types
    asked = ListGroupsRequest(**filters)  # type: ignore[arg-type]
    return [
        (row.protocol_type, row.group_state, row.group_type)
        for row in group.peer.ask(asked, LIST_VERSION, ListGroupsResponse).groups
        if row.group_id == group.group_id
    ]


def deleted(group: ShareGroupClient) -> int:
    """Delete the group and return the error."""
    asked = DeleteGroupsRequest(groups_names=[group.group_id])
    return group.peer.ask(asked, 2, DeleteGroupsResponse).results[0].error_code


@REQUIREMENTS.that(
    1,
    "a description has the state, the simple assignor, and each member with its assignment",
    source="ShareGroup.asDescribedGroup",
    since=SINCE,
)
def described(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ShareGroupClient(target) as group:
        member = group.joined(topic, 2)
        found = group.described()
        expect_equal(
            (found.error_code, found.error_message, found.group_state, found.assignor_name),
            (0, None, "Stable", "simple"),
            "error, state and assignor",
        )
        expect_equal(
            (found.group_epoch, found.assignment_epoch),
            (member.epoch, member.epoch),
            "the epochs of group and assignment",
        )
        row = found.members[0]
        expect_equal(
            (len(found.members), row.member_id, row.member_epoch, row.rack_id, row.client_id),
            (1, member.member_id, member.epoch, None, "kraftsim-conformance"),
            "the member",
        )
        expect(row.client_host.startswith("/"), f"the member's host: {row.client_host}")
        expect_equal(row.subscribed_topic_names, [topic.name], "its subscription")
        expect_equal(
            [
                (each.topic_id, each.topic_name, each.partitions)
                for each in row.assignment.topic_partitions
            ],
            [(topic.topic_id, topic.name, [0, 1])],
            "its assignment",
        )


@REQUIREMENTS.that(
    2,
    "an unknown group is described with GROUP_ID_NOT_FOUND and its message, an empty name with "
    "INVALID_GROUP_ID and none",
    source="GroupCoordinatorService.shareGroupDescribe",
    since=SINCE,
)
def unknown(target: Target) -> None:
    with ShareGroupClient(target) as group:
        found = describe_groups(target, group.peer, [group.group_id, ""])
        expect_equal(
            {row.group_id: (row.error_code, row.error_message, row.group_state) for row in found},
            {
                group.group_id: (
                    int(ErrorCode.GROUP_ID_NOT_FOUND),
                    f"Group {group.group_id} not found.",
                    "",
                ),
                "": (int(ErrorCode.INVALID_GROUP_ID), None, ""),
            },
            "unknown groups",
        )


@REQUIREMENTS.that(
    3,
    "permitted operations are described only if they are requested",
    source="KafkaApis.handleShareGroupDescribe",
    since=SINCE,
)
def operations(target: Target) -> None:
    topic = target.topic()
    with ShareGroupClient(target) as group:
        group.joined(topic)
        expect_equal(
            group.described().authorized_operations, OPERATIONS_NOT_ASKED_FOR, "operations"
        )
        expect_equal(
            group.described(include_authorized_operations=True).authorized_operations
            & READ_DELETE_DESCRIBE,
            READ_DELETE_DESCRIBE,
            "read, delete and describe among the requested operations",
        )


@REQUIREMENTS.that(
    4,
    "a group whose last member left is Empty, at a higher epoch, and remains",
    source="ShareGroup.ShareGroupState",
    since=SINCE,
)
def emptied(target: Target) -> None:
    topic = target.topic()
    with ShareGroupClient(target) as group:
        member = group.joined(topic)
        member.leave()
        found = group.described()
        expect_equal((found.group_state, found.members), ("Empty", []), "state and members")
        expect(found.group_epoch > member.epoch, f"the epoch: {found.group_epoch}")


@REQUIREMENTS.that(
    5,
    "the list has protocol type and type share, and filters by type in any case and by state",
    source="KIP-932, KIP-848",
    since=SINCE,
)
def in_lists(target: Target) -> None:
    topic = target.topic()
    with ShareGroupClient(target) as group:
        member = group.joined(topic)
        row = ("share", "Stable", "share")
        expect_equal(listed(group), [row], "the list")
        for kind in ("share", "SHARE"):
            expect_equal(listed(group, types_filter=[kind]), [row], f"those of type {kind}")
        for kind in ("consumer", "classic"):
            expect_equal(listed(group, types_filter=[kind]), [], f"those of type {kind}")
        expect_equal(listed(group, states_filter=["Empty"]), [], "the empty ones")
        member.leave()
        expect_equal(
            listed(group, states_filter=["Empty"]), [("share", "Empty", "share")], "once empty"
        )


@REQUIREMENTS.that(
    6,
    "a share heartbeat to a classic or consumer group returns GROUP_ID_NOT_FOUND",
    source=f"{MANAGER}.shareGroup",
    since=SINCE,
)
def share_member_elsewhere(target: Target) -> None:
    topic = target.topic()
    with ShareGroupClient(target) as group, ConsumerGroupClient(target) as consumers:
        consumers.member("a", topic).join()
        classic = GroupClient(target, [topic.name])
        with classic.peer() as peer:
            classic.joined_alone(peer)
        for group_id in (consumers.group_id, classic.group_id):
            answer = group.ask(
                group_id=group_id,
                member_id="b",
                member_epoch=0,
                subscribed_topic_names=[topic.name],
            )
            expect_equal(
                (answer.error_code, answer.error_message),
                (int(ErrorCode.GROUP_ID_NOT_FOUND), f"Group {group_id} is not a share group."),
                "a share heartbeat",
            )
            found = describe_groups(target, group.peer, [group_id])[0]
            expect_equal(
                (found.error_code, found.error_message),
                (int(ErrorCode.GROUP_ID_NOT_FOUND), f"Group {group_id} is not a share group."),
                "a share description",
            )


@REQUIREMENTS.that(
    7,
    "members of other protocols are refused by a share group, also when it is empty: "
    "INCONSISTENT_GROUP_PROTOCOL for JoinGroup, GROUP_ID_NOT_FOUND for consumer heartbeats and "
    "commits",
    source=MANAGER,
    since=SINCE,
)
def others_here(target: Target) -> None:
    topic = target.topic()
    with ShareGroupClient(target) as group:
        member = group.joined(topic)
        for state in ("a group with a member", "an empty group"):
            joined = group.peer.ask(group.classic.join_request(), JOIN_VERSION, JoinGroupResponse)
            expect_error(
                joined.error_code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"JoinGroup to {state}"
            )
            beat = group.peer.ask(
                ConsumerGroupHeartbeatRequest(
                    group_id=group.group_id,
                    member_id="a",
                    member_epoch=0,
                    rebalance_timeout_ms=60_000,
                    subscribed_topic_names=[topic.name],
                    topic_partitions=[],
                ),
                1,
                ConsumerGroupHeartbeatResponse,
            )
            expect_equal(
                (beat.error_code, beat.error_message),
                (
                    int(ErrorCode.GROUP_ID_NOT_FOUND),
                    f"Group {group.group_id} is not a consumer group.",
                ),
                f"a consumer heartbeat to {state}",
            )
            expect_equal(
                group.classic.commit(group.peer, [(topic.name, 0)]),
                [int(ErrorCode.GROUP_ID_NOT_FOUND)],
                f"a commit to {state}",
            )
            if group.described().members:
                expect_error(member.leave().error_code, ErrorCode.NONE, "leaving")


@REQUIREMENTS.that(
    8,
    "other protocols describe a share group as unknown, the classic one as Dead",
    source=MANAGER,
    since=SINCE,
)
def described_elsewhere(target: Target) -> None:
    topic = target.topic()
    with ShareGroupClient(target) as group:
        group.joined(topic)
        consumer = group.peer.ask(
            ConsumerGroupDescribeRequest(group_ids=[group.group_id]),
            1,
            ConsumerGroupDescribeResponse,
        ).groups[0]
        expect_equal(
            (consumer.error_code, consumer.error_message),
            (
                int(ErrorCode.GROUP_ID_NOT_FOUND),
                f"Group {group.group_id} is not a consumer group.",
            ),
            "as a consumer group",
        )
        classic = group.peer.ask(
            DescribeGroupsRequest(groups=[group.group_id]), 6, DescribeGroupsResponse
        ).groups[0]
        expect_equal(
            (classic.error_code, classic.error_message, classic.group_state),
            (
                int(ErrorCode.GROUP_ID_NOT_FOUND),
                f"Group {group.group_id} is not a classic group.",
                "Dead",
            ),
            "as a classic group",
        )


@REQUIREMENTS.that(
    9,
    "DeleteGroups returns NON_EMPTY_GROUP while there are members, and removes an empty group",
    source="GroupCoordinatorService.deleteGroups",
    since=SINCE,
)
def deleting(target: Target) -> None:
    topic = target.topic()
    with ShareGroupClient(target) as group:
        member = group.joined(topic)
        expect_error(deleted(group), ErrorCode.NON_EMPTY_GROUP, "with a member")
        member.leave()
        expect_error(deleted(group), ErrorCode.NONE, "without members")
        expect_error(group.described().error_code, ErrorCode.GROUP_ID_NOT_FOUND, "afterwards")
        expect_error(deleted(group), ErrorCode.GROUP_ID_NOT_FOUND, "again")
        expect_equal(listed(group), [], "the list")
