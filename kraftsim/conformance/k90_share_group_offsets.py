"""DescribeShareGroupOffsets (90), AlterShareGroupOffsets (91), DeleteShareGroupOffsets (92): the
start offsets of share groups.

Source: KIP-932, KIP-1226; org.apache.kafka.coordinator.group.GroupCoordinatorService; verified
against Apache Kafka 4.1.2, 4.2.2, 4.3.1 and 4.4.0.
"""

from collections.abc import Sequence

from kraftsim.conformance.consumer_group_client import ConsumerGroupClient
from kraftsim.conformance.expect import expect_equal, expect_error, settled
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.share_group_client import ACCEPT, SINCE, ShareGroupClient, fill
from kraftsim.conformance.target import Target, TargetTopic
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k90_describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from protocol.messages.k90_describe_share_group_offsets import RequestedGroup as DescribedGroup
from protocol.messages.k90_describe_share_group_offsets import RequestedTopic as DescribedTopic
from protocol.messages.k91_alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    RequestedPartition,
)
from protocol.messages.k91_alter_share_group_offsets import RequestedTopic as AlteredTopic
from protocol.messages.k92_delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from protocol.messages.k92_delete_share_group_offsets import RequestedTopic as DeletedTopic

REQUIREMENTS = Requirements("share-groups", 7, "Offsets of share groups")
SERVICE = "org.apache.kafka.coordinator.group.GroupCoordinatorService"
ALTERS_SINCE = "4.2"
"""4.1 answers AlterShareGroupOffsets without doing anything."""
UNHOSTED = "This server does not host this topic-partition."


def starts(
    group: ShareGroupClient, topics: Sequence[tuple[str, list[int]]] | None, group_id: str = ""
) -> dict[tuple[str, int], tuple[int, int]]:
    """Describe offsets: topic and partition -> start offset and lag."""
    rows = (
        None
        if topics is None
        else [DescribedTopic(topic_name=name, partitions=numbers) for name, numbers in topics]
    )
    answer = group.peer.ask(
        DescribeShareGroupOffsetsRequest(
            groups=[DescribedGroup(group_id=group_id or group.group_id, topics=rows)]
        ),
        group.target.newest(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS),
        DescribeShareGroupOffsetsResponse,
    ).groups[0]
    expect_error(answer.error_code, ErrorCode.NONE, "describing offsets")
    return {
        (topic.topic_name, row.partition_index): (row.start_offset, row.lag)
        for topic in answer.topics
        for row in topic.partitions
    }


def alter(
    group: ShareGroupClient, topic: str, *rows: tuple[int, int], group_id: str | None = None
) -> AlterShareGroupOffsetsResponse:
    """Set start offsets of partitions of a topic."""
    asked = [RequestedPartition(partition_index=number, start_offset=at) for number, at in rows]
    return group.peer.ask(
        AlterShareGroupOffsetsRequest(
            group_id=group.group_id if group_id is None else group_id,
            topics=[AlteredTopic(topic_name=topic, partitions=asked)],
        ),
        0,
        AlterShareGroupOffsetsResponse,
    )


def delete(
    group: ShareGroupClient, *topics: str, group_id: str | None = None
) -> DeleteShareGroupOffsetsResponse:
    """Delete the offsets of topics."""
    return group.peer.ask(
        DeleteShareGroupOffsetsRequest(
            group_id=group.group_id if group_id is None else group_id,
            topics=[DeletedTopic(topic_name=name) for name in topics],
        ),
        0,
        DeleteShareGroupOffsetsResponse,
    )


def _read(target: Target, group: ShareGroupClient) -> TargetTopic:
    """Return a topic of five records, of which the group, now empty, has accepted two."""
    topic = target.topic()
    fill(target, topic, 5)
    member = group.joined(topic)
    here = (topic.topic_id, 0)
    with member.session(topic.leader) as session:
        session.acquire(here, 5)
        expect_error(session.acknowledged(here, (0, 1, [ACCEPT])), ErrorCode.NONE, "accepting")
        session.finish()
    expect_error(member.leave().error_code, ErrorCode.NONE, "leaving")
    return topic


@REQUIREMENTS.that(
    1,
    "an unknown group, and one of another type, is described with the requested partitions and "
    "start offset -1",
    source=f"{SERVICE}.describeShareGroupOffsets",
    since=SINCE,
)
def unknown_groups(target: Target) -> None:
    topic = target.topic()
    with ShareGroupClient(target) as group, ConsumerGroupClient(target) as consumers:
        consumers.member("a", topic).join()
        for group_id in (group.group_id, consumers.group_id):
            expect_equal(starts(group, None, group_id), {}, "all partitions")
            expect_equal(
                starts(group, [(topic.name, [0])], group_id),
                {(topic.name, 0): (-1, -1)},
                "a requested partition",
            )


@REQUIREMENTS.that(
    2,
    "all partitions that members were assigned are described if none are named, with -1 until "
    "something is acknowledged; named topics that do not exist have -1, too",
    source=f"{SERVICE}.describeShareGroupAllOffsets",
    since=SINCE,
)
def assigned(target: Target) -> None:
    topic, other = target.topic(partitions=2), target.topic()
    fill(target, topic, 2)
    with ShareGroupClient(target) as group:
        member = group.joined(topic, 2)
        expected = {(topic.name, 0): (-1, -1), (topic.name, 1): (-1, -1)}
        expect_equal(starts(group, None), expected, "all")
        expect_equal(starts(group, []), {}, "none of its topics")
        with member.session(topic.leader) as session:
            session.acquire((topic.topic_id, 0), 2)
            expect_equal(starts(group, None), expected, "after records were acquired")
            asked = [(topic.name, [0]), (other.name, [0]), ("no-such-topic", [0])]
            expect_equal(
                starts(group, asked),
                {(name, 0): (-1, -1) for name, _ in asked},
                "a topic of another group and an unknown one",
            )


@REQUIREMENTS.that(
    3,
    "the start offset is behind what was accepted in order, once more was acknowledged",
    source="SharePartition.maybeUpdateCachedStateAndOffsets",
    since=SINCE,
)
def start_offset(target: Target) -> None:
    topic = target.topic()
    fill(target, topic, 5)
    here = (topic.topic_id, 0)
    with ShareGroupClient(target) as group:
        member = group.joined(topic)
        with member.session(topic.leader) as session:
            session.acquire(here, 5)
            for offset in (0, 1, 3, 2):
                expect_error(
                    session.acknowledged(here, (offset, offset, [ACCEPT])),
                    ErrorCode.NONE,
                    "accepting",
                )
            expect_error(session.acknowledged(here, (4, 4, [ACCEPT])), ErrorCode.NONE, "the last")
            expect_equal(starts(group, None)[topic.name, 0][0], 4, "the start offset")


@REQUIREMENTS.that(
    4,
    "the lag is what lies between the start offset and the end, without what is completed",
    source="KIP-1226",
    since="4.2",
)
def lag(target: Target) -> None:
    topic = target.topic()
    fill(target, topic, 5)
    here = (topic.topic_id, 0)
    with ShareGroupClient(target) as group:
        member = group.joined(topic)
        with member.session(topic.leader) as session:
            session.acquire(here, 5)
            session.acknowledged(here, (0, 1, [ACCEPT]))
            expect_equal(starts(group, None)[topic.name, 0][1], 3, "the lag after two of five")
            session.acknowledged(here, (3, 3, [ACCEPT]))
            expect_equal(starts(group, None)[topic.name, 0][1], 2, "the lag after three of five")
            fill(target, topic, 4)
            settled(
                lambda: starts(group, None)[topic.name, 0][1],
                lambda found: found == 6,
                "the lag after four more records",
            )


@REQUIREMENTS.that(
    5,
    "AlterShareGroupOffsets of an empty group sets the start offset, from which its next member "
    "reads with count 1",
    source=f"{SERVICE}.alterShareGroupOffsets",
    since=ALTERS_SINCE,
)
def altering(target: Target) -> None:
    with ShareGroupClient(target) as group:
        topic = _read(target, group)
        answer = alter(group, topic.name, (0, 1))
        expect_equal(
            (
                answer.error_code,
                [
                    (row.topic_name, row.topic_id, [p.error_code for p in row.partitions])
                    for row in answer.responses
                ],
            ),
            (0, [(topic.name, topic.topic_id, [0])]),
            "altering",
        )
        expect_equal(starts(group, None)[topic.name, 0], (1, 4), "start offset and lag")
        member = group.joined(topic)
        with member.session(topic.leader) as session:
            expect_equal(
                session.acquire((topic.topic_id, 0), 4),
                dict.fromkeys(range(1, 5), 1),
                "what the next member reads",
            )


@REQUIREMENTS.that(
    6,
    "AlterShareGroupOffsets makes a group that did not exist",
    source=f"{SERVICE}.alterShareGroupOffsets",
    since=ALTERS_SINCE,
)
def altering_unknown(target: Target) -> None:
    topic = target.topic()
    fill(target, topic, 5)
    with ShareGroupClient(target) as group:
        expect_error(alter(group, topic.name, (0, 3)).error_code, ErrorCode.NONE, "altering")
        expect_equal(starts(group, None), {(topic.name, 0): (3, 2)}, "its offsets")
        expect_equal(group.described().group_state, "Empty", "its state")


@REQUIREMENTS.that(
    7,
    "AlterShareGroupOffsets returns UNKNOWN_TOPIC_OR_PARTITION for topics and partitions that do "
    "not exist, and alters the others",
    source=f"{SERVICE}.alterShareGroupOffsets",
    since=ALTERS_SINCE,
)
def altering_unknown_partitions(target: Target) -> None:
    topic = target.topic()
    with ShareGroupClient(target) as group:
        answer = alter(group, topic.name, (0, 0), (7, 0))
        expect_equal(
            [
                (p.partition_index, p.error_code, p.error_message)
                for p in answer.responses[0].partitions
            ],
            [(0, 0, None), (7, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), UNHOSTED)],
            "partitions 0 and 7 of one",
        )
        expect_equal(starts(group, None), {(topic.name, 0): (0, 0)}, "the offsets")
        answer = alter(group, "no-such-topic", (0, 0))
        expect_equal(
            [(p.error_code, p.error_message) for p in answer.responses[0].partitions],
            [(int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), UNHOSTED)],
            "an unknown topic",
        )


@REQUIREMENTS.that(
    8,
    "altering and deleting offsets of a group with members returns NON_EMPTY_GROUP",
    source=SERVICE,
    since=ALTERS_SINCE,
)
def with_members(target: Target) -> None:
    topic = target.topic()
    with ShareGroupClient(target) as group:
        group.joined(topic)
        refused: tuple[int, str, list[object]] = (
            int(ErrorCode.NON_EMPTY_GROUP),
            "The group is not empty.",
            [],
        )
        altered, removed = alter(group, topic.name, (0, 0)), delete(group, topic.name)
        expect_equal(
            (altered.error_code, altered.error_message, altered.responses), refused, "altering"
        )
        expect_equal(
            (removed.error_code, removed.error_message, removed.responses), refused, "deleting"
        )


@REQUIREMENTS.that(
    9,
    "altering and deleting offsets of a group of another type returns GROUP_ID_NOT_FOUND, of one "
    "without a name INVALID_GROUP_ID",
    source=SERVICE,
    since=ALTERS_SINCE,
)
def of_other_groups(target: Target) -> None:
    topic = target.topic()
    with ShareGroupClient(target) as group, ConsumerGroupClient(target) as consumers:
        consumers.member("a", topic).join()
        expected = [
            (
                consumers.group_id,
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Group {consumers.group_id} is not a share group.",
            ),
            ("", ErrorCode.INVALID_GROUP_ID, "The group id is invalid."),
        ]
        for group_id, code, message in expected:
            altered = alter(group, topic.name, (0, 0), group_id=group_id)
            expect_equal(
                (altered.error_code, altered.error_message), (int(code), message), "altering"
            )
            removed = delete(group, topic.name, group_id=group_id)
            expect_equal(
                (removed.error_code, removed.error_message), (int(code), message), "deleting"
            )


@REQUIREMENTS.that(
    10,
    "DeleteShareGroupOffsets removes a topic's offsets once, and says which topics have none",
    source=f"{SERVICE}.deleteShareGroupOffsets",
    since=SINCE,
)
def deleting(target: Target) -> None:
    with ShareGroupClient(target) as group:
        topic = _read(target, group)
        answer = delete(group, topic.name, "no-such-topic")
        unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        expect_equal(
            (
                answer.error_code,
                {row.topic_name: (row.error_code, row.error_message) for row in answer.responses},
            ),
            (0, {topic.name: (0, None), "no-such-topic": (unknown, UNHOSTED)}),
            "deleting",
        )
        expect_equal(starts(group, None), {}, "the offsets afterwards")
        again = delete(group, topic.name).responses[0]
        expect_equal(
            (again.error_code, again.error_message),
            (unknown, "There is no offset information to delete."),
            "deleting again",
        )
        member = group.joined(topic)
        with member.session(topic.leader) as session:
            expect_equal(
                session.acquire((topic.topic_id, 0), 5),
                dict.fromkeys(range(5), 1),
                "what the next member reads",
            )
