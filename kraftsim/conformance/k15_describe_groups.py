"""DescribeGroups (15), ListGroups (16), DeleteGroups (42) and OffsetDelete (47): group
administration.

Source: KIP-229, KIP-430, KIP-496, KIP-518; kafka.coordinator.group.GroupCoordinator; verified
against Apache Kafka 3.9.1.
"""

from kraftsim.conformance.expect import expect, expect_equal
from kraftsim.conformance.group_client import PROTOCOL, PROTOCOL_TYPE, GroupClient
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.messages.k15_describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from protocol.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

REQUIREMENTS = Requirements("consumer-groups", 4, "Group administration")
COORDINATOR = "kafka.coordinator.group.GroupCoordinator"
DESCRIBE_VERSION = 5
STATES_SINCE = 4
SUBSCRIBED, NOT_EMPTY, NOT_FOUND = 86, 68, 69


def _describe(group: GroupClient, peer: Peer) -> DescribedGroup:
    return peer.ask(
        DescribeGroupsRequest(groups=[group.group_id]), DESCRIBE_VERSION, DescribeGroupsResponse
    ).groups[0]


def _delete(group: GroupClient, peer: Peer) -> list[int]:
    return [
        row.error_code
        for row in peer.ask(
            DeleteGroupsRequest(groups_names=[group.group_id]), 2, DeleteGroupsResponse
        ).results
    ]


def _delete_offsets(group: GroupClient, peer: Peer, topic: str) -> tuple[int, list[int]]:
    rows = [
        OffsetDeleteRequestTopic(
            name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
        )
    ]
    answer = peer.ask(
        OffsetDeleteRequest(group_id=group.group_id, topics=rows), 0, OffsetDeleteResponse
    )
    return answer.error_code, [row.error_code for each in answer.topics for row in each.partitions]


@REQUIREMENTS.that(
    1,
    "a group is Dead while it is unknown, Stable with members, and Empty without them",
    source=COORDINATOR,
)
def described(target: Target) -> None:
    group = GroupClient(target)
    with group.peer() as peer:
        unknown = _describe(group, peer)
        expect_equal(
            (unknown.error_code, unknown.group_state, unknown.members),
            (0, "Dead", []),
            "before: error, state, members",
        )
        joined = group.joined_alone(peer)
        found = _describe(group, peer)
        returned = (found.error_code, found.group_state, found.protocol_type, found.protocol_data)
        expect_equal(
            returned, (0, "Stable", PROTOCOL_TYPE, PROTOCOL), "error, state, type, protocol"
        )
        rows = [
            (row.member_id, bytes(row.member_metadata), bytes(row.member_assignment))
            for row in found.members
        ]
        expect_equal(rows, [(joined.member_id, group.subscription, b"share")], "members")
        expect(
            found.members[0].client_host.startswith("/"),
            f"the host {found.members[0].client_host!r} is no address as Java writes it",
        )
        group.leave(peer, joined.member_id)
        empty = _describe(group, peer)
        expect_equal(
            (empty.group_state, empty.protocol_type, empty.members),
            ("Empty", PROTOCOL_TYPE, []),
            "afterwards: state, type, members",
        )


@REQUIREMENTS.that(2, "groups are listed, since version 4 also filtered by state", source="KIP-518")
def listed(target: Target) -> None:
    group = GroupClient(target)
    with group.peer() as peer:
        group.joined_alone(peer)
        for version in target.versions(ApiKey.LIST_GROUPS):
            rows = peer.ask(ListGroupsRequest(), version, ListGroupsResponse).groups
            state = "Stable" if version >= STATES_SINCE else ""
            found = [
                (row.protocol_type, row.group_state)
                for row in rows
                if row.group_id == group.group_id
            ]
            expect_equal(found, [(PROTOCOL_TYPE, state)], f"version {version}: type, state")
        for version in target.versions(ApiKey.LIST_GROUPS, since=STATES_SINCE):
            for states, is_there in ((["Stable", "Dead"], True), (["Empty"], False)):
                rows = peer.ask(
                    ListGroupsRequest(states_filter=states), version, ListGroupsResponse
                ).groups
                expect_equal(
                    group.group_id in [row.group_id for row in rows],
                    is_there,
                    f"version {version}: listed for {states}",
                )


@REQUIREMENTS.that(
    3,
    "an empty group is deleted with its offsets; a non-empty one returns NON_EMPTY_GROUP, an "
    "unknown one GROUP_ID_NOT_FOUND",
    source="KIP-229",
)
def deleted(target: Target) -> None:
    topic = target.topic()
    group = GroupClient(target, [topic.name])
    with group.peer() as peer:
        expect_equal(_delete(group, peer), [NOT_FOUND], "before there is one")
        joined = group.joined_alone(peer)
        group.commit(peer, [(topic.name, 0)], member_id=joined.member_id, generation_id=1)
        expect_equal(_delete(group, peer), [NOT_EMPTY], "with a member")
        group.leave(peer, joined.member_id)
        expect_equal(_delete(group, peer), [0], "without members")
        expect_equal(group.fetch(peer, topic.name, [0]), {0: (-1, "")}, "offsets afterwards")
        expect_equal(_describe(group, peer).group_state, "Dead", "state afterwards")


@REQUIREMENTS.that(
    4,
    "an offset can be deleted unless a member is subscribed to the topic: "
    "GROUP_SUBSCRIBED_TO_TOPIC; an unknown group returns GROUP_ID_NOT_FOUND",
    source="KIP-496",
)
def deleted_offsets(target: Target) -> None:
    read, other = target.topic(), target.topic()
    group = GroupClient(target, [read.name])
    with group.peer() as peer:
        expect_equal(_delete_offsets(group, peer, read.name), (NOT_FOUND, []), "no group")
        joined = group.joined_alone(peer)
        for topic in (read, other):
            group.commit(peer, [(topic.name, 0)], member_id=joined.member_id, generation_id=1)
        expect_equal(
            _delete_offsets(group, peer, read.name), (0, [SUBSCRIBED]), "a topic that is read"
        )
        expect_equal(
            _delete_offsets(group, peer, other.name), (0, [0]), "a topic without subscriptions"
        )
        expect_equal(
            _delete_offsets(group, peer, target.fresh_name("absent")),
            (0, [3]),
            "a topic that does not exist",
        )
        offsets = group.fetch(peer, read.name, [0]) | {1: group.fetch(peer, other.name, [0])[0]}
        expect_equal(offsets, {0: (5, "m"), 1: (-1, "")}, "the remaining data")


@REQUIREMENTS.that(5, "state filters are case-insensitive", source="KAFKA-16095", since="3.8")
def caseless(target: Target) -> None:
    group = GroupClient(target)
    with group.peer() as peer:
        group.joined_alone(peer)
        rows = peer.ask(
            ListGroupsRequest(states_filter=["sTABLE"]), STATES_SINCE, ListGroupsResponse
        ).groups
        expect(
            group.group_id in [row.group_id for row in rows],
            "a stable group is not listed for sTABLE",
        )
