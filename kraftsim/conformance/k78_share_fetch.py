"""ShareFetch (78): share sessions.

Source: KIP-932; org.apache.kafka.server.share.session.ShareSessionCache,
kafka.server.share.SharePartitionManager; verified against Apache Kafka 4.1.2, 4.2.2, 4.3.1 and
4.4.0.
"""

from kraftsim.conformance.expect import expect_equal, expect_error, settled
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.share_group_client import (
    ACCEPT,
    RELEASE,
    SINCE,
    Partition,
    ShareGroupClient,
    ShareSession,
    fill,
    fresh_member_id,
    partition_of,
    row_of,
)
from kraftsim.conformance.target import Target
from protocol.errors import ErrorCode

REQUIREMENTS = Requirements("share-groups", 3, "Share sessions")
MANAGER = "SharePartitionManager.newContext"
UNKNOWN_TOPIC = bytes(15) + b"\x07"


def _opened(target: Target, group: ShareGroupClient) -> tuple[ShareSession, Partition]:
    """Return a session that has acquired the four records of a topic, at epoch 1 or later."""
    topic = target.topic()
    fill(target, topic, 4)
    session = group.joined(topic).session(topic.leader)
    here = (topic.topic_id, 0)
    session.acquire(here, 4)
    return session, here


@REQUIREMENTS.that(
    1,
    "without a session, epochs other than 0 return SHARE_SESSION_NOT_FOUND, without rows",
    source=MANAGER,
    since=SINCE,
)
def no_session(target: Target) -> None:
    topic = target.topic()
    here = (topic.topic_id, 0)
    with ShareGroupClient(target) as group, group.joined(topic).session(topic.leader) as session:
        for epoch in (1, 7, -1):
            fetched = session.fetch(share_session_epoch=epoch)
            expect_equal(
                (fetched.error_code, fetched.error_message, fetched.responses),
                (int(ErrorCode.SHARE_SESSION_NOT_FOUND), None, []),
                f"ShareFetch with epoch {epoch}",
            )
        for epoch in (1, -1):
            answer = session.acknowledge({here: [(0, 0, [ACCEPT])]}, share_session_epoch=epoch)
            expect_equal(
                (answer.error_code, answer.responses),
                (int(ErrorCode.SHARE_SESSION_NOT_FOUND), []),
                f"ShareAcknowledge with epoch {epoch}",
            )


@REQUIREMENTS.that(
    2,
    "an epoch that is not the next one returns INVALID_SHARE_SESSION_EPOCH, and the session "
    "goes on",
    source=MANAGER,
    since=SINCE,
)
def wrong_epoch(target: Target) -> None:
    with ShareGroupClient(target) as group:
        session, here = _opened(target, group)
        with session:
            due = session.epoch
            for epoch in (due + 1, due - 1 or 9):
                answer = session.fetch(share_session_epoch=epoch)
                expect_equal(
                    (answer.error_code, answer.error_message, answer.responses),
                    (int(ErrorCode.INVALID_SHARE_SESSION_EPOCH), None, []),
                    f"ShareFetch with epoch {epoch} instead of {due}",
                )
            refused = session.acknowledge({here: [(0, 0, [ACCEPT])]}, share_session_epoch=due + 1)
            expect_error(
                refused.error_code, ErrorCode.INVALID_SHARE_SESSION_EPOCH, "ShareAcknowledge"
            )
            expect_error(session.fetch().error_code, ErrorCode.NONE, "the epoch that is due")


@REQUIREMENTS.that(
    3,
    "ShareAcknowledge cannot open a session (INVALID_SHARE_SESSION_EPOCH), and a ShareFetch that "
    "opens one cannot acknowledge (INVALID_REQUEST)",
    source="SharePartitionManager.acknowledgeSessionUpdate, KafkaApis.handleShareFetchRequest",
    since=SINCE,
)
def opening(target: Target) -> None:
    topic = target.topic()
    here = (topic.topic_id, 0)
    with ShareGroupClient(target) as group, group.joined(topic).session(topic.leader) as session:
        acks = {here: [(0, 0, [ACCEPT])]}
        expect_error(
            session.acknowledge(acks, share_session_epoch=0).error_code,
            ErrorCode.INVALID_SHARE_SESSION_EPOCH,
            "ShareAcknowledge with epoch 0",
        )
        session.epoch = 0
        expect_error(
            session.fetch(here, acks=acks).error_code,
            ErrorCode.INVALID_REQUEST,
            "ShareFetch with epoch 0 and acknowledgements",
        )


@REQUIREMENTS.that(
    4,
    "the first response has a row for each partition, later ones only for those with records or "
    "acknowledgements",
    source="ShareSessionContext.updateAndGenerateResponseData",
    since=SINCE,
)
def rows(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ShareGroupClient(target) as group:
        member = group.joined(topic, 2)
        zero, one = (topic.topic_id, 0), (topic.topic_id, 1)
        with member.session(topic.leader) as session:
            first = session.fetch(zero, one)
            expect_equal(
                sorted(row.partition_index for row in first.responses[0].partitions),
                [0, 1],
                "the partitions of the first response",
            )
            found = partition_of(first, zero)
            assert found is not None, "a row of partition 0"
            expect_equal(
                (found.error_code, len(found.records or b""), found.acquired_records),
                (0, 0, []),
                "an empty partition",
            )
            expect_equal(session.fetch().responses, [], "the next response without records")
            fill(target, topic, 2)
            settled(
                lambda: [
                    row.partition_index
                    for each in session.fetch().responses
                    for row in each.partitions
                ],
                lambda numbers: numbers == [0],
                "the response with records of partition 0",
            )


@REQUIREMENTS.that(
    5,
    "a session with epoch 0 replaces the member's former one, whose epochs are refused",
    source=MANAGER,
    since=SINCE,
)
def replaced(target: Target) -> None:
    with ShareGroupClient(target) as group:
        session, here = _opened(target, group)
        with session:
            for _ in range(3):
                expect_error(session.fetch().error_code, ErrorCode.NONE, "the former session")
            old = session.epoch
            session.epoch = 0
            expect_error(session.fetch(here).error_code, ErrorCode.NONE, "a new session")
            expect_error(
                session.fetch(share_session_epoch=old).error_code,
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                "the former epoch",
            )
            expect_error(session.fetch().error_code, ErrorCode.NONE, "the new epoch")


@REQUIREMENTS.that(
    6,
    "the final epoch ends the session, after the acknowledgements that it carries, and what was "
    "acquired is available to others",
    source="SharePartitionManager.releaseSession",
    since=SINCE,
)
def final_epoch(target: Target) -> None:
    with ShareGroupClient(target) as group:
        session, here = _opened(target, group)
        with session, ShareSession(session.peer, group, fresh_member_id()) as other:
            answer = session.finish({here: [(0, 1, [ACCEPT])]})
            expect_equal(
                [row.error_code for row in answer.responses[0].partitions], [0], "the last answer"
            )
            session.epoch = 5
            expect_error(
                session.fetch().error_code, ErrorCode.SHARE_SESSION_NOT_FOUND, "afterwards"
            )
            expect_equal(sorted(other.acquire(here, 2)), [2, 3], "what another member acquires")


@REQUIREMENTS.that(
    7,
    "records that a member has when its session ends have been delivered: the next delivery "
    "counts 2",
    source="SharePartition.releaseAcquiredRecords",
    since="4.2",
)
def counts_after_the_end(target: Target) -> None:
    with ShareGroupClient(target) as group:
        session, here = _opened(target, group)
        with session:
            session.finish()
            session.epoch = 0
            expect_equal(
                session.acquire(here, 4), dict.fromkeys(range(4), 2), "after the final epoch"
            )


@REQUIREMENTS.that(
    8,
    "a forgotten partition is not fetched, its records stay acquired and may be acknowledged, and "
    "forgetting what is not in the session succeeds",
    source="ShareSession.update",
    since=SINCE,
)
def forgotten(target: Target) -> None:
    with ShareGroupClient(target) as group:
        session, here = _opened(target, group)
        with session, ShareSession(session.peer, group, fresh_member_id()) as other:
            answer = session.fetch(forgotten=[here, (here[0], 5)])
            expect_error(answer.error_code, ErrorCode.NONE, "forgetting")
            expect_equal(session.fetch(max_wait_ms=0).responses, [], "the next response")
            other.fetch(here)
            expect_equal(other.fetch().responses, [], "what another member acquires")
            expect_equal(session.acknowledged(here, (0, 3, [RELEASE])), 0, "releasing")
            expect_equal(sorted(other.acquire(here, 4)), [0, 1, 2, 3], "what it acquires then")


@REQUIREMENTS.that(
    9,
    "closing the connection ends the sessions that were opened on it, and releases their records",
    source="SharePartitionManager.ShareGroupListener",
    since=SINCE,
)
def closed_connection(target: Target) -> None:
    with ShareGroupClient(target) as group:
        topic = target.topic()
        fill(target, topic, 4)
        here = (topic.topic_id, 0)
        gone, member = group.joined(topic), group.member(topic)
        with gone.session(topic.leader) as session:
            session.acquire(here, 4)
        with member.session(topic.leader) as other:
            expect_equal(sorted(other.acquire(here, 4)), [0, 1, 2, 3], "what another acquires")


@REQUIREMENTS.that(
    10,
    "a session needs no membership: any member id may fetch",
    source="KafkaApis.handleShareFetchRequest",
    since=SINCE,
)
def no_membership(target: Target) -> None:
    topic = target.topic()
    fill(target, topic, 2)
    with ShareGroupClient(target) as group:
        group.joined(topic)
        with group.member(topic).session(topic.leader) as session:
            expect_equal(
                session.acquire((topic.topic_id, 0), 2), {0: 1, 1: 1}, "what a stranger acquires"
            )


@REQUIREMENTS.that(
    11,
    "an empty member id, and one of more than 36 characters, returns INVALID_REQUEST",
    source="KafkaApis.handleShareFetchRequest",
    since="4.2",
)
def member_ids(target: Target) -> None:
    topic = target.topic()
    with ShareGroupClient(target) as group:
        group.joined(topic)
        for member_id in ("", "a" * 37):
            with group.member(topic).session(topic.leader) as session:
                answer = session.fetch((topic.topic_id, 0), member_id=member_id)
                expect_error(
                    answer.error_code, ErrorCode.INVALID_REQUEST, f"member id {member_id!r}"
                )


@REQUIREMENTS.that(
    12,
    "an unknown topic id has UNKNOWN_TOPIC_ID in its row of every response, an unknown partition "
    "UNKNOWN_TOPIC_OR_PARTITION",
    source="ErroneousAndValidPartitionData",
    since="4.4",
)
def unknown_topics(target: Target) -> None:
    # 4.2.2 does it, too; 4.1.2 and 4.3.1 return UNKNOWN_SERVER_ERROR for the whole request
    with ShareGroupClient(target) as group:
        session, here = _opened(target, group)
        topic, number = (UNKNOWN_TOPIC, 0), (here[0], 9)
        with session:
            for answer in (session.fetch(topic, number), session.fetch()):
                expect_error(answer.error_code, ErrorCode.NONE, "the whole response")
                errors = [
                    None if row is None else row.error_code
                    for row in (row_of(answer, topic), row_of(answer, number))
                ]
                expect_equal(
                    errors,
                    [
                        int(ErrorCode.UNKNOWN_TOPIC_ID),
                        int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                    ],
                    "the errors of both",
                )


@REQUIREMENTS.that(
    13,
    "ShareFetch waits for records no longer than max_wait_ms, and returns those that arrive",
    source="DelayedShareFetch",
    since=SINCE,
)
def waiting(target: Target) -> None:
    topic = target.topic()
    here = (topic.topic_id, 0)
    with ShareGroupClient(target) as group, group.joined(topic).session(topic.leader) as session:
        session.fetch(here)
        expect_equal(session.fetch(max_wait_ms=0).responses, [], "a fetch that does not wait")
        fill(target, topic, 1)
        row = None
        for _ in range(10):
            row = row_of(session.fetch(max_wait_ms=5000), here)
            if row is not None:
                break
        expect_equal(None if row is None else row.counts, {0: 1}, "the records that arrive")
