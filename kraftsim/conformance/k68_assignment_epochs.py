"""Commits of a member of a consumer group in an epoch before its present one: which partitions it still may commit.

Source: KIP-1251; ConsumerGroup.{validateOffsetCommit, createAssignmentEpochValidator}; asked of Apache Kafka 4.2.0, 4.3.0 and 4.4.0.
"""

from kraftsim.conformance.consumer_talk import ConsumerTalk, TalkingMember, rows_of
from kraftsim.conformance.expect import expect_equal
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.settle import settled
from kraftsim.conformance.target import Target, Topic
from kraftsim.conformance.transaction_talk import TransactionTalk
from protocol.errors import ErrorCode
from protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

REQUIREMENTS = Requirements("consumer-groups", 8, "Commits of a member whose epoch has gone on")
SINCE, UNTIL = "4.3", "4.2"
SOURCE = "KIP-1251"
BY_NAME, BY_ID = 9, 10
IDS_SINCE = 6
ACCEPTED, STALE, ILLEGAL = 0, int(ErrorCode.STALE_MEMBER_EPOCH), int(ErrorCode.ILLEGAL_GENERATION)


def commit(
    talk: ConsumerTalk, topic: Topic, member: TalkingMember, epoch: int, *numbers: int, version: int = BY_NAME, metadata: str = ""
) -> list[int]:
    """Commit an offset for each partition as a member in an epoch, and return the errors; `metadata` goes with the first partition."""
    rows = [OffsetCommitRequestPartition(partition_index=each, committed_offset=5, committed_metadata="") for each in numbers]
    rows[0].committed_metadata = metadata
    which = {"topic_id": topic.topic_id} if version >= BY_ID else {"name": topic.name}
    asked = OffsetCommitRequest(
        group_id=talk.group_id,
        generation_id_or_member_epoch=epoch,
        member_id=member.member_id,
        topics=[OffsetCommitRequestTopic(**which, partitions=rows)],
    )
    answer = talk.peer.ask(asked, version, OffsetCommitResponse)
    return [row.error_code for row in answer.topics[0].partitions]


def shared(talk: ConsumerTalk, topic: Topic) -> tuple[TalkingMember, TalkingMember, int]:
    """Let two members share four partitions, the second one having come later; return them and the epoch in which the first one was alone."""
    first, second = talk.member("a", topic), talk.member("b", topic)
    first.join()
    talk.settle(first, wanted=[{topic.topic_id: (0, 1, 2, 3)}])
    alone = first.epoch
    second.join()
    talk.settle(first, second, wanted=[{topic.topic_id: (0, 1)}, {topic.topic_id: (2, 3)}])
    return first, second, alone


@REQUIREMENTS.that(
    1,
    "an epoch of the past may commit what the member has had since then (else 113, for all partitions of the request)",
    source=SOURCE,
    since=SINCE,
)
def kept(target: Target) -> None:
    topic = target.topic(partitions=4)
    with ConsumerTalk(target) as talk:
        first, second, alone = shared(talk, topic)
        for what, member, epoch, numbers, errors in (
            ("what it kept", first, alone, (0, 1), [ACCEPTED, ACCEPTED]),
            ("what it gave up", first, alone, (2,), [STALE]),
            ("both", first, alone, (0, 2), [STALE, STALE]),
            ("an epoch before it came", first, alone - 1, (0,), [STALE]),
            ("an epoch of the future", first, first.epoch + 1, (0,), [STALE]),
            ("what another has, in its present epoch", first, first.epoch, (2,), [ACCEPTED]),
            ("an epoch before it got them", second, alone, (2,), [STALE]),
            ("a partition that is not there", first, alone, (9,), [int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]),
        ):
            expect_equal(commit(talk, topic, member, epoch, *numbers), errors, what)
            if what != "a partition that is not there":
                expect_equal(commit(talk, topic, member, epoch, *numbers, version=BY_ID), errors, f"{what}, by the id of the topic")
        too_long = "x" * 5000
        expect_equal(commit(talk, topic, first, alone, 0, 1, metadata=too_long), [int(ErrorCode.OFFSET_METADATA_TOO_LARGE), ACCEPTED], "metadata")
        expect_equal(commit(talk, topic, first, alone, 0, 2, metadata=too_long), [STALE, STALE], "metadata, and one that it gave up")
        refused = [int(ErrorCode.OFFSET_METADATA_TOO_LARGE), ACCEPTED]
        expect_equal(commit(talk, topic, first, alone, 2, 0, metadata=too_long), refused, "metadata of one that it gave up")


@REQUIREMENTS.that(2, "an epoch of the past may commit what the member is asked to give up, until it has", source=SOURCE, since=SINCE)
def pending(target: Target) -> None:
    topic, other = target.topic(partitions=2), target.topic()
    with ConsumerTalk(target) as talk:
        first, stranger, second = talk.member("a", topic), talk.member("c", other), talk.member("b", topic)
        first.join()
        talk.settle(first, wanted=[{topic.topic_id: (0, 1)}])
        alone = first.epoch
        stranger.join()
        talk.settle(first, stranger, wanted=[{topic.topic_id: (0, 1)}, {other.topic_id: (0,)}])
        expect_equal(first.epoch > alone, True, "the next epoch")
        second.join()
        everything = rows_of({topic.topic_id: (0, 1)})
        settled(lambda: first.ask(topic_partitions=everything).assignment, lambda told: told is not None, "what it is to keep")
        expect_equal(commit(talk, topic, first, alone, 0, 1), [ACCEPTED, ACCEPTED], "before it has let go")
        first.owned = {topic.topic_id: (0,)}
        talk.settle(first, stranger, second, wanted=[{topic.topic_id: (0,)}, {other.topic_id: (0,)}, {topic.topic_id: (1,)}])
        expect_equal(commit(talk, topic, first, alone, 1), [STALE], "what it has let go of")
        expect_equal(commit(talk, topic, first, alone, 0), [ACCEPTED], "what it has kept all the time")


@REQUIREMENTS.that(3, "so it is inside a transaction, with error 22", source=SOURCE, since=SINCE)
def in_transactions(target: Target) -> None:
    topic = target.topic(partitions=4)
    producer = TransactionTalk(target)
    with ConsumerTalk(target) as talk:
        _, _, alone = shared(talk, topic)
        producer.add_offsets(talk.group_id)
        for what, numbers, errors in (
            ("what it kept", (0,), [ACCEPTED]),
            ("what it gave up", (2,), [ILLEGAL]),
            ("both", (0, 2), [ILLEGAL, ILLEGAL]),
        ):
            rows = [(topic.name, number) for number in numbers]
            found = producer.commit(talk.classic, rows, 9, member_id="a", generation_id=alone)
            expect_equal(found, errors, what)
        producer.end(commits=True)


@REQUIREMENTS.that(4, "an epoch of the past may commit nothing: 113, and 22 inside a transaction", source=SOURCE, since="4.0", until=UNTIL)
def not_kept(target: Target) -> None:
    topic = target.topic(partitions=4)
    producer = TransactionTalk(target)
    with ConsumerTalk(target) as talk:
        first, _, alone = shared(talk, topic)
        expect_equal(commit(talk, topic, first, alone, 0), [STALE], "what it kept")
        producer.add_offsets(talk.group_id)
        found = producer.commit(talk.classic, [(topic.name, 0)], 9, member_id="a", generation_id=alone)
        expect_equal(found, [ILLEGAL], "what it kept, in a transaction")
        producer.end(commits=False)
