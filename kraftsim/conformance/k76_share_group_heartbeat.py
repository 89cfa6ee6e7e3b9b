"""ShareGroupHeartbeat (76): members of a share group join, get partitions that they share, and
leave.

Source: KIP-932; org.apache.kafka.coordinator.group.GroupMetadataManager; verified against Apache
Kafka 4.1.2, 4.2.2, 4.3.1 and 4.4.0.
"""

from kraftsim.conformance.expect import expect, expect_equal, expect_error, settled
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.share_group_client import SINCE, ShareGroupClient, ShareMember
from kraftsim.conformance.target import Target, TargetTopic
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)

REQUIREMENTS = Requirements("share-groups", 1, "Heartbeats of share groups")
MANAGER = "GroupMetadataManager.shareGroupHeartbeat"
SERVICE = "GroupCoordinatorService.throwIfShareGroupHeartbeatRequestIsInvalid"
HEARTBEAT_MS = 5000
GROUPS = 5


@REQUIREMENTS.that(
    1,
    "a member that joins gets an epoch above 0, its own id and the interval of the group's "
    "heartbeats",
    source=MANAGER,
    since=SINCE,
)
def joining(target: Target) -> None:
    topic = target.topic()
    with ShareGroupClient(target) as group:
        member = group.member(topic)
        answer = member.join()
        expect(answer.member_epoch > 0, f"the epoch of a join: {answer.member_epoch}")
        expect_equal(
            (answer.member_id, answer.heartbeat_interval_ms, answer.error_message),
            (member.member_id, HEARTBEAT_MS, None),
            "what a join returns",
        )


@REQUIREMENTS.that(
    2, "all members share a partition if there is only one", source="KIP-932", since=SINCE
)
def one_partition(target: Target) -> None:
    topic = target.topic()
    with ShareGroupClient(target) as group:
        members = [group.member(topic) for _ in range(3)]
        for member in members:
            member.join()
        for member in members:
            member.settle({topic.topic_id: (0,)})


@REQUIREMENTS.that(
    3,
    "an assignment is sent once, and again with a heartbeat that has every field",
    source=MANAGER,
    since=SINCE,
)
def assignment_once(target: Target) -> None:
    topic = target.topic()
    with ShareGroupClient(target) as group:
        member = group.joined(topic)
        quiet = member.ask()
        expect_equal(
            (quiet.error_code, quiet.member_epoch, quiet.assignment),
            (0, member.epoch, None),
            "the next heartbeat",
        )
        full = member.ask(subscribed_topic_names=[topic.name])
        expect_equal(
            None
            if full.assignment is None
            else [(row.topic_id, row.partitions) for row in full.assignment.topic_partitions],
            [(topic.topic_id, [0])],
            "the assignment after a full heartbeat",
        )


@REQUIREMENTS.that(
    4, "a heartbeat without a group id returns INVALID_REQUEST", source=SERVICE, since=SINCE
)
def no_group(target: Target) -> None:
    with ShareGroupClient(target) as group:
        answer = group.ask(group_id="", member_id="a", member_epoch=0, subscribed_topic_names=["t"])
        expect_equal(
            (answer.error_code, answer.error_message),
            (int(ErrorCode.INVALID_REQUEST), "GroupId can't be empty."),
            "a heartbeat without a group",
        )


@REQUIREMENTS.that(
    5,
    "a heartbeat with a blank member id, a join without topics and an epoch below -1 return "
    "INVALID_REQUEST",
    source=SERVICE,
    since=SINCE,
)
def invalid_heartbeats(target: Target) -> None:
    requests: list[tuple[dict[str, object], str]] = [
        (
            {"member_id": " ", "member_epoch": 0, "subscribed_topic_names": ["t"]},
            "MemberId can't be empty.",
        ),
        ({"member_id": "a", "member_epoch": -2}, "MemberEpoch is invalid."),
        (
            {"member_id": "a", "member_epoch": 0},
            "SubscribedTopicNames must be set in first request.",
        ),
        (
            {"member_id": "a", "member_epoch": 0, "subscribed_topic_names": []},
            "SubscribedTopicNames must be set in first request.",
        ),
        (
            {
                "member_id": "a",
                "member_epoch": 0,
                "rack_id": "",
                "subscribed_topic_names": ["t"],
            },
            "RackId can't be empty.",
        ),
    ]
    with ShareGroupClient(target) as group:
        for fields, message in requests:
            answer = group.ask(**fields)
            expect_equal(
                (answer.error_code, answer.error_message),
                (int(ErrorCode.INVALID_REQUEST), message),
                f"a heartbeat with {fields}",
            )


@REQUIREMENTS.that(
    6,
    "a heartbeat to an unknown group returns GROUP_ID_NOT_FOUND, one of an unknown member "
    "UNKNOWN_MEMBER_ID",
    source=MANAGER,
    since=SINCE,
)
def unknown(target: Target) -> None:
    topic = target.topic()
    with ShareGroupClient(target) as group:
        for epoch in (1, -1):
            expect_error(
                group.ask(member_id="a", member_epoch=epoch).error_code,
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"epoch {epoch} in an unknown group",
            )
        group.joined(topic)
        for epoch in (1, -1):
            answer = group.ask(member_id="b", member_epoch=epoch)
            expect_equal(
                (answer.error_code, answer.error_message),
                (
                    int(ErrorCode.UNKNOWN_MEMBER_ID),
                    f"Member b is not a member of group {group.group_id}.",
                ),
                f"epoch {epoch} of an unknown member",
            )


@REQUIREMENTS.that(
    7,
    "an epoch above the member's, or below its previous one, is fenced; the previous one is "
    "accepted",
    source="GroupMetadataManager.throwIfShareGroupMemberEpochIsInvalid",
    since=SINCE,
)
def fencing(target: Target) -> None:
    topic = target.topic()
    with ShareGroupClient(target) as group:
        member = group.joined(topic)
        answer = member.ask(member_epoch=member.epoch + 1)
        expect_equal(
            (answer.error_code, answer.error_message),
            (
                int(ErrorCode.FENCED_MEMBER_EPOCH),
                f"The share group member has a greater member epoch ({member.epoch + 1}) than the "
                f"one known by the group coordinator ({member.epoch}). The member must abandon all "
                "its partitions and rejoin.",
            ),
            "a later epoch",
        )
        first = member.epoch
        for _ in range(2):
            group.member(topic).join()
            _expect_epoch_above(member, member.epoch)
        stale = member.ask(member_epoch=first)
        expect_error(stale.error_code, ErrorCode.FENCED_MEMBER_EPOCH, "an epoch two changes ago")


def _expect_epoch_above(member: ShareMember, epoch: int) -> None:
    settled(
        lambda: member.beat().member_epoch,
        lambda found: found > epoch,
        "the epoch after another's join",
    )


@REQUIREMENTS.that(
    8,
    "leaving returns epoch -1, the member is unknown afterwards, and what it had goes to others",
    source=MANAGER,
    since=SINCE,
)
def leaving(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ShareGroupClient(target) as group:
        first, second = group.member(topic), group.member(topic)
        first.join()
        second.join()

        def look() -> int:
            first.beat()
            second.beat()
            return len(first.assigned.get(topic.topic_id, ()))

        settled(look, lambda found: found == 1, "a partition for each")
        gone = first.leave()
        expect_equal((gone.error_code, gone.member_epoch), (0, -1), "leaving")
        expect_error(first.leave().error_code, ErrorCode.UNKNOWN_MEMBER_ID, "leaving again")
        second.settle({topic.topic_id: (0, 1)})


@REQUIREMENTS.that(
    9,
    "a join with the id of a member is a rejoin: the group keeps one member, with its epoch",
    source=MANAGER,
    since="4.2",
)
def rejoining(target: Target) -> None:
    topic = target.topic()
    with ShareGroupClient(target) as group:
        member = group.joined(topic)
        again = member.ask(member_epoch=0, subscribed_topic_names=[topic.name])
        expect_equal((again.error_code, again.member_epoch), (0, member.epoch), "a rejoin")
        expect_equal(
            [(row.member_id, row.member_epoch) for row in group.described().members],
            [(member.member_id, member.epoch)],
            "the members",
        )


@REQUIREMENTS.that(
    10,
    "a changed subscription raises the epoch and changes the assignment",
    source="KIP-932",
    since=SINCE,
)
def subscriptions(target: Target) -> None:
    first, second = target.topic(), target.topic()
    with ShareGroupClient(target) as group:
        member = group.joined(first)
        before = member.epoch
        member.beat(subscribed_topic_names=[first.name, second.name])
        member.settle({first.topic_id: (0,), second.topic_id: (0,)})
        expect(member.epoch > before, f"the epoch after a subscription: {member.epoch}")
        member.beat(subscribed_topic_names=[second.name])
        member.settle({second.topic_id: (0,)})
        expect_equal(
            group.described().members[0].subscribed_topic_names,
            [second.name],
            "the described subscription",
        )


@REQUIREMENTS.that(
    11,
    "a topic that is created later, and partitions that are added, are assigned to the members "
    "that read them",
    source="KIP-932, KIP-1101",
    since=SINCE,
)
def later_topics(target: Target) -> None:
    name = target.fresh_name()
    with ShareGroupClient(target) as group:
        member = group.member(name)
        member.join()
        member.beat()
        expect_equal(member.assigned, {}, "the assignment without the topic")
        topic = target.topic(name=name)
        member.settle({topic.topic_id: (0,)})
        with target.peer() as peer:
            added = CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=name, count=3, assignments=None)],
                timeout_ms=15000,
            )
            result = peer.ask(
                added, target.newest(ApiKey.CREATE_PARTITIONS), CreatePartitionsResponse
            ).results[0]
            expect_error(result.error_code, ErrorCode.NONE, "more partitions")
        member.settle({topic.topic_id: (0, 1, 2)})


@REQUIREMENTS.that(
    12,
    "each of two members gets one of two partitions",
    source="SimpleAssignor",
    since="4.2",
)
def two_partitions(target: Target) -> None:
    topic = target.topic(partitions=2)
    for _ in range(GROUPS):  # in 4.1 it depends on the order of the member ids
        with ShareGroupClient(target) as group:
            members = [group.member(topic) for _ in range(2)]
            for member in members:
                member.join()
            _expect_halves(members, topic)


def _expect_halves(members: list[ShareMember], topic: TargetTopic) -> None:
    settled(
        lambda: _shares(members, topic),
        lambda found: found == [(0,), (1,)],
        "two members of two partitions",
    )


def _shares(members: list[ShareMember], topic: TargetTopic) -> list[tuple[int, ...]]:
    for member in members:
        member.beat()
    return sorted(member.assigned.get(topic.topic_id, ()) for member in members)


@REQUIREMENTS.that(
    13,
    "an empty member id, and one of more than 36 characters, returns INVALID_REQUEST",
    source="KafkaApis.handleShareGroupHeartbeat",
    since="4.2",
)
def member_ids(target: Target) -> None:
    with ShareGroupClient(target) as group:
        for member_id in ("", "a" * 37):
            answer = group.ask(member_id=member_id, member_epoch=0, subscribed_topic_names=["t"])
            expect_error(answer.error_code, ErrorCode.INVALID_REQUEST, f"id {member_id!r}")
