"""Offset commits of a consumer group member with a previous member epoch.

Source: KIP-1251; ConsumerGroup.{validateOffsetCommit, createAssignmentEpochValidator}; verified
against Apache Kafka 4.2.0, 4.3.0 and 4.4.0.
"""

from kraftsim.conformance.consumer_group_client import (
    ConsumerGroupClient,
    ConsumerGroupMember,
    rows_of,
)
from kraftsim.conformance.expect import expect_equal, settled
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target, TargetTopic
from kraftsim.conformance.transaction_client import TransactionClient
from protocol.errors import ErrorCode
from protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

REQUIREMENTS = Requirements("consumer-groups", 8, "Offset commits with a previous member epoch")
SINCE, UNTIL = "4.3", "4.2"
SOURCE = "KIP-1251"
BY_NAME, BY_ID = 9, 10
IDS_SINCE = 6
ACCEPTED, STALE, ILLEGAL = 0, int(ErrorCode.STALE_MEMBER_EPOCH), int(ErrorCode.ILLEGAL_GENERATION)


def commit(
    group: ConsumerGroupClient,
    topic: TargetTopic,
    member: ConsumerGroupMember,
    epoch: int,
    *numbers: int,
    version: int = BY_NAME,
    metadata: str = "",
) -> list[int]:
    """Commit an offset for each partition as a member in an epoch, and return the errors;
    `metadata` goes with the first partition.
    """
    rows = [
        OffsetCommitRequestPartition(
            partition_index=each, committed_offset=5, committed_metadata=""
        )
        for each in numbers
    ]
    rows[0].committed_metadata = metadata
    which = {"topic_id": topic.topic_id} if version >= BY_ID else {"name": topic.name}
    asked = OffsetCommitRequest(
        group_id=group.group_id,
        generation_id_or_member_epoch=epoch,
        member_id=member.member_id,
        topics=[OffsetCommitRequestTopic(**which, partitions=rows)],
    )
    answer = group.peer.ask(asked, version, OffsetCommitResponse)
    return [row.error_code for row in answer.topics[0].partitions]


def shared(
    group: ConsumerGroupClient, topic: TargetTopic
) -> tuple[ConsumerGroupMember, ConsumerGroupMember, int]:
    """Let two members share four partitions; the second one joins later.

    Return them and the epoch in which the first one was alone.
    """
    first, second = group.member("a", topic), group.member("b", topic)
    first.join()
    group.settle(first, wanted=[{topic.topic_id: (0, 1, 2, 3)}])
    alone = first.epoch
    second.join()
    group.settle(first, second, wanted=[{topic.topic_id: (0, 1)}, {topic.topic_id: (2, 3)}])
    return first, second, alone


@REQUIREMENTS.that(
    1,
    "a previous epoch may commit partitions that the member has owned since then, else "
    "STALE_MEMBER_EPOCH for the whole request",
    source=SOURCE,
    since=SINCE,
)
def kept(target: Target) -> None:
    topic = target.topic(partitions=4)
    with ConsumerGroupClient(target) as group:
        first, second, alone = shared(group, topic)
        for what, member, epoch, numbers, errors in (
            ("partitions that it kept", first, alone, (0, 1), [ACCEPTED, ACCEPTED]),
            ("revoked partitions", first, alone, (2,), [STALE]),
            ("both", first, alone, (0, 2), [STALE, STALE]),
            ("an epoch before it joined", first, alone - 1, (0,), [STALE]),
            ("a future epoch", first, first.epoch + 1, (0,), [STALE]),
            (
                "partitions of another member, in the current epoch",
                first,
                first.epoch,
                (2,),
                [ACCEPTED],
            ),
            ("an epoch before it got them", second, alone, (2,), [STALE]),
            (
                "a partition that does not exist",
                first,
                alone,
                (9,),
                [int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
            ),
        ):
            expect_equal(commit(group, topic, member, epoch, *numbers), errors, what)
            if what != "a partition that does not exist":
                expect_equal(
                    commit(group, topic, member, epoch, *numbers, version=BY_ID),
                    errors,
                    f"{what}, by the id of the topic",
                )
        too_long = "x" * 5000
        expect_equal(
            commit(group, topic, first, alone, 0, 1, metadata=too_long),
            [int(ErrorCode.OFFSET_METADATA_TOO_LARGE), ACCEPTED],
            "metadata",
        )
        expect_equal(
            commit(group, topic, first, alone, 0, 2, metadata=too_long),
            [STALE, STALE],
            "metadata, and a revoked one",
        )
        refused = [int(ErrorCode.OFFSET_METADATA_TOO_LARGE), ACCEPTED]
        expect_equal(
            commit(group, topic, first, alone, 2, 0, metadata=too_long),
            refused,
            "metadata of a revoked one",
        )


@REQUIREMENTS.that(
    2,
    "a previous epoch may commit partitions that the member has to revoke, until it has revoked "
    "them",
    source=SOURCE,
    since=SINCE,
)
def pending(target: Target) -> None:
    topic, other = target.topic(partitions=2), target.topic()
    with ConsumerGroupClient(target) as group:
        first, stranger, second = (
            group.member("a", topic),
            group.member("c", other),
            group.member("b", topic),
        )
        first.join()
        group.settle(first, wanted=[{topic.topic_id: (0, 1)}])
        alone = first.epoch
        stranger.join()
        group.settle(first, stranger, wanted=[{topic.topic_id: (0, 1)}, {other.topic_id: (0,)}])
        expect_equal(first.epoch > alone, True, "the next epoch")
        second.join()
        everything = rows_of({topic.topic_id: (0, 1)})
        settled(
            lambda: first.ask(topic_partitions=everything).assignment,
            lambda returned: returned is not None,
            "the partitions that it keeps",
        )
        expect_equal(
            commit(group, topic, first, alone, 0, 1), [ACCEPTED, ACCEPTED], "before the revocation"
        )
        first.owned = {topic.topic_id: (0,)}
        group.settle(
            first,
            stranger,
            second,
            wanted=[{topic.topic_id: (0,)}, {other.topic_id: (0,)}, {topic.topic_id: (1,)}],
        )
        expect_equal(commit(group, topic, first, alone, 1), [STALE], "revoked partitions")
        expect_equal(commit(group, topic, first, alone, 0), [ACCEPTED], "partitions that it kept")


@REQUIREMENTS.that(
    3, "the same applies in a transaction, with ILLEGAL_GENERATION", source=SOURCE, since=SINCE
)
def in_transactions(target: Target) -> None:
    topic = target.topic(partitions=4)
    producer = TransactionClient(target)
    with ConsumerGroupClient(target) as group:
        _, _, alone = shared(group, topic)
        producer.add_offsets(group.group_id)
        for what, numbers, errors in (
            ("partitions that it kept", (0,), [ACCEPTED]),
            ("revoked partitions", (2,), [ILLEGAL]),
            ("both", (0, 2), [ILLEGAL, ILLEGAL]),
        ):
            rows = [(topic.name, number) for number in numbers]
            found = producer.commit(group.classic, rows, 9, member_id="a", generation_id=alone)
            expect_equal(found, errors, what)
        producer.end(commits=True)


@REQUIREMENTS.that(
    4,
    "a previous epoch may commit nothing: STALE_MEMBER_EPOCH, in a transaction ILLEGAL_GENERATION",
    source=SOURCE,
    since="4.0",
    until=UNTIL,
)
def not_kept(target: Target) -> None:
    topic = target.topic(partitions=4)
    producer = TransactionClient(target)
    with ConsumerGroupClient(target) as group:
        first, _, alone = shared(group, topic)
        expect_equal(commit(group, topic, first, alone, 0), [STALE], "partitions that it kept")
        producer.add_offsets(group.group_id)
        found = producer.commit(
            group.classic, [(topic.name, 0)], 9, member_id="a", generation_id=alone
        )
        expect_equal(found, [ILLEGAL], "partitions that it kept, in a transaction")
        producer.end(commits=False)
