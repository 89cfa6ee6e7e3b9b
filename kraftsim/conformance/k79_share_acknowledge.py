"""ShareAcknowledge (79), and acknowledgements in ShareFetch: accept, release, reject, renew, and
locks that expire.

Source: KIP-932, KIP-1222; kafka.server.share.SharePartition; verified against Apache Kafka 4.1.2,
4.2.2, 4.3.1 and 4.4.0.
"""

import time
from typing import Final

from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.share_group_client import (
    ACCEPT,
    GAP,
    LOCK,
    REJECT,
    RELEASE,
    RENEW,
    RESET,
    SINCE,
    Acks,
    Partition,
    ShareGroupClient,
    ShareSession,
    fill,
    fresh_member_id,
    lock_ms,
    row_of,
)
from kraftsim.conformance.target import Target
from protocol.errors import ErrorCode

REQUIREMENTS = Requirements("share-groups", 5, "Acknowledgements of share groups")
PARTITION = "kafka.server.share.SharePartition"
RENEWS_SINCE = "4.2"
LOCK_SINCE = "4.2"
NOT_OWNER = "Member is not the owner of batch record"
UNHOSTED = "This server does not host this topic-partition."
DEFAULT_LOCK_MS: Final = 30_000


def _acquired(
    target: Target, group: ShareGroupClient, *counts: int
) -> tuple[ShareSession, Partition]:
    """Return a session that has acquired all records of a topic with batches of such sizes."""
    topic = target.topic()
    fill(target, topic, *counts)
    session = group.joined(topic).session(topic.leader)
    here = (topic.topic_id, 0)
    session.acquire(here, sum(counts))
    return session, here


def _answers(session: ShareSession, partition: Partition, acks: Acks) -> tuple[int, str | None]:
    """Acknowledge and return error and message of the partition."""
    answer = session.acknowledge({partition: acks})
    expect_error(answer.error_code, ErrorCode.NONE, "the whole response")
    row = answer.responses[0].partitions[0]
    return row.error_code, row.error_message


@REQUIREMENTS.that(
    1,
    "accepted and rejected records are not delivered again, released ones are; one type may "
    "stand for all offsets of a batch, or each has its own",
    source=f"{PARTITION}.acknowledge",
    since=SINCE,
)
def types(target: Target) -> None:
    with ShareGroupClient(target) as group:
        session, here = _acquired(target, group, 9)
        with session:
            expect_equal(session.acknowledged(here, (0, 1, [ACCEPT])), 0, "accepting two")
            expect_equal(session.acknowledged(here, (2, 3, [REJECT])), 0, "rejecting two")
            each = [ACCEPT, RELEASE, REJECT, RELEASE]
            expect_equal(session.acknowledged(here, (4, 7, each)), 0, "four types")
            expect_equal(session.acquire(here, 2), {5: 2, 7: 2}, "what is delivered again")


@REQUIREMENTS.that(
    2,
    "acknowledgements in a ShareFetch come before its fetch: what they release is in its response",
    source="KafkaApis.handleShareFetchRequest",
    since=SINCE,
)
def in_fetches(target: Target) -> None:
    with ShareGroupClient(target) as group:
        session, here = _acquired(target, group, 4)
        with session:
            answer = session.fetch(acks={here: [(0, 1, [ACCEPT]), (2, 3, [RELEASE])]})
            row = row_of(answer, here)
            expect(row is not None, "a row of the partition")
            assert row is not None, "the line before"
            expect_error(row.acknowledge_error_code, ErrorCode.NONE, "the acknowledgement")
            found = row.counts or session.acquire(here, 2)
            expect_equal(found, {2: 2, 3: 2}, "what is delivered again")


@REQUIREMENTS.that(
    3,
    "acknowledgements that are malformed return INVALID_REQUEST in the partition's row, without a "
    "message, and change nothing",
    source="KafkaApis.validateAcknowledgementBatches",
    since=SINCE,
)
def malformed(target: Target) -> None:
    requests: list[tuple[str, Acks]] = [
        ("an unknown type", [(0, 0, [5])]),
        ("a negative type", [(0, 0, [-1])]),
        ("more types than offsets", [(0, 1, [ACCEPT] * 3)]),
        ("fewer types than offsets", [(0, 3, [ACCEPT] * 2)]),
        ("no types", [(0, 0, [])]),
        ("an inverted batch", [(1, 0, [ACCEPT])]),
        ("overlapping batches", [(0, 2, [ACCEPT]), (1, 3, [ACCEPT])]),
        ("descending batches", [(2, 3, [ACCEPT]), (0, 1, [ACCEPT])]),
    ]
    with ShareGroupClient(target) as group:
        session, here = _acquired(target, group, 4)
        with session:
            for what, acks in requests:
                expect_equal(
                    _answers(session, here, acks), (int(ErrorCode.INVALID_REQUEST), None), what
                )
                row = row_of(session.fetch(acks={here: acks}, max_wait_ms=0), here)
                expect_equal(
                    None if row is None else (row.error_code, row.acknowledge_error_code),
                    (0, int(ErrorCode.INVALID_REQUEST)),
                    f"{what} in a ShareFetch",
                )
            expect_equal(session.acknowledged(here, (0, 3, [RELEASE])), 0, "all of them")
            expect_equal(session.acquire(here, 4), dict.fromkeys(range(4), 2), "all again")


@REQUIREMENTS.that(
    4,
    "offsets that were never fetched return INVALID_REQUEST",
    source=f"{PARTITION}.acknowledge",
    since=SINCE,
)
def beyond(target: Target) -> None:
    with ShareGroupClient(target) as group:
        session, here = _acquired(target, group, 4)
        with session:
            invalid, words = int(ErrorCode.INVALID_REQUEST), "Batch record not found."
            expect_equal(
                _answers(session, here, [(3, 20, [ACCEPT])]),
                (invalid, f"{words} The last offset in request is past acquired records."),
                "a batch that ends behind them",
            )
            expect_equal(
                _answers(session, here, [(100, 100, [ACCEPT])]),
                (invalid, f"{words} The first offset in request is past acquired records."),
                "a batch behind them",
            )


@REQUIREMENTS.that(
    5,
    "only the member that has acquired a record may acknowledge it (INVALID_RECORD_STATE)",
    source=f"{PARTITION}.acknowledge",
    since=SINCE,
)
def of_others(target: Target) -> None:
    with ShareGroupClient(target) as group:
        session, here = _acquired(target, group, 4)
        with session, ShareSession(session.peer, group, fresh_member_id()) as other:
            other.fetch(here, max_wait_ms=0)
            expect_equal(
                _answers(other, here, [(0, 3, [ACCEPT])]),
                (int(ErrorCode.INVALID_RECORD_STATE), NOT_OWNER),
                "another member",
            )
            expect_equal(session.acknowledged(here, (0, 3, [ACCEPT])), 0, "the owner")


@REQUIREMENTS.that(
    6,
    "a record is acknowledged once: a second acknowledgement above the start offset returns "
    "INVALID_RECORD_STATE, one below it is ignored",
    source=f"{PARTITION}.acknowledge",
    since=SINCE,
)
def twice(target: Target) -> None:
    with ShareGroupClient(target) as group:
        session, here = _acquired(target, group, 3, 3)
        with session:
            expect_equal(session.acknowledged(here, (3, 5, [ACCEPT])), 0, "the second batch")
            expect_equal(
                session.acknowledged(here, (3, 5, [ACCEPT])),
                int(ErrorCode.INVALID_RECORD_STATE),
                "the second batch again",
            )
            expect_equal(session.acknowledged(here, (0, 2, [ACCEPT])), 0, "the first batch")
            expect_equal(session.acknowledged(here, (0, 2, [RELEASE])), 0, "below the start")


@REQUIREMENTS.that(
    7,
    "of a request with one offset that cannot be acknowledged nothing is applied in its partition",
    source=f"{PARTITION}.acknowledge (rollback)",
    since=SINCE,
)
def all_or_nothing(target: Target) -> None:
    with ShareGroupClient(target) as group:
        session, here = _acquired(target, group, 6)
        with session:
            expect_equal(session.acknowledged(here, (3, 3, [ACCEPT])), 0, "one offset")
            expect_equal(
                _answers(session, here, [(1, 2, [ACCEPT]), (3, 5, [ACCEPT])])[0],
                int(ErrorCode.INVALID_RECORD_STATE),
                "a request with that offset",
            )
            expect_equal(session.acknowledged(here, (0, 2, [RELEASE])), 0, "the first three")
            expect_equal(
                session.acquire(here, 3), {0: 2, 1: 2, 2: 2}, "what was not accepted before"
            )


@REQUIREMENTS.that(
    8,
    "gaps are acknowledged like accepted records",
    source=f"{PARTITION} (AcknowledgeType 0)",
    since=SINCE,
)
def gaps(target: Target) -> None:
    with ShareGroupClient(target) as group:
        session, here = _acquired(target, group, 4)
        with session:
            each = [GAP, ACCEPT, RELEASE, GAP]
            expect_equal(session.acknowledged(here, (0, 3, each)), 0, "with gaps")
            expect_equal(session.acquire(here, 1), {2: 2}, "what is delivered again")


@REQUIREMENTS.that(
    9,
    "unknown topics, unknown partitions and those that were not fetched have an error in their "
    "row, a partition without batches has no row",
    source="KafkaApis.handleShareAcknowledgeRequest",
    since=SINCE,
)
def unknown(target: Target) -> None:
    topic = target.topic(partitions=2)
    fill(target, topic, 1)
    acks: Acks = [(0, 0, [ACCEPT])]
    with ShareGroupClient(target) as group, group.joined(topic, 2).session(topic.leader) as session:
        session.acquire((topic.topic_id, 0), 1)
        asked: list[tuple[Partition, Acks, tuple[int, str | None]]] = [
            (
                (topic.topic_id, 1),
                acks,
                (int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), UNHOSTED),
            ),
            ((topic.topic_id, 9), acks, (int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), None)),
            ((bytes(15) + b"\x07", 0), acks, (int(ErrorCode.UNKNOWN_TOPIC_ID), None)),
        ]
        for partition, rows, expected in asked:
            expect_equal(_answers(session, partition, rows), expected, f"{partition}")
        expect_equal(
            session.acknowledge({(topic.topic_id, 0): []}).responses, [], "without batches"
        )


@REQUIREMENTS.that(
    10,
    "ShareAcknowledge returns the lock duration of the group, 0 if it is refused as a whole",
    source="KIP-1222",
    since=LOCK_SINCE,
)
def lock_duration(target: Target) -> None:
    with ShareGroupClient(target) as group:
        session, here = _acquired(target, group, 1)
        with session:
            found = session.acknowledge({here: [(0, 0, [ACCEPT])]})
            expect_equal(found.acquisition_lock_timeout_ms, DEFAULT_LOCK_MS, "the lock")
            refused = session.acknowledge({}, share_session_epoch=99)
            expect_equal(refused.acquisition_lock_timeout_ms, 0, "of a refused request")
            answer = session.fetch(max_wait_ms=0)
            expect_equal(answer.acquisition_lock_timeout_ms, DEFAULT_LOCK_MS, "of ShareFetch")


@REQUIREMENTS.that(
    11,
    "renewing needs the flag (INVALID_REQUEST without it), and may stand beside other types",
    source="KIP-1222",
    since=RENEWS_SINCE,
)
def renewing(target: Target) -> None:
    with ShareGroupClient(target) as group:
        session, here = _acquired(target, group, 4)
        with session:
            expect_equal(
                _answers(session, here, [(0, 1, [RENEW])]),
                (int(ErrorCode.INVALID_REQUEST), None),
                "without the flag",
            )
            old = session.acknowledge({here: [(0, 1, [RENEW])]}, version=1)
            expect_equal(
                old.responses[0].partitions[0].error_code,
                int(ErrorCode.INVALID_REQUEST),
                "in version 1",
            )
            expect_equal(session.acknowledged(here, (0, 1, [RENEW]), renews=True), 0, "renewing")
            expect_equal(
                session.acknowledged(here, (0, 1, [RENEW, ACCEPT]), renews=True),
                0,
                "renewing one and accepting one",
            )
            expect_equal(session.acknowledged(here, (0, 0, [RELEASE])), 0, "releasing it then")
            expect_equal(session.acquire(here, 1), {0: 2}, "renewing is no delivery")


@REQUIREMENTS.that(
    12,
    "a ShareFetch that renews must not fetch: with limits above 0 it returns INVALID_REQUEST",
    source="KIP-1222",
    since=RENEWS_SINCE,
)
def renewing_in_fetches(target: Target) -> None:
    with ShareGroupClient(target) as group:
        session, here = _acquired(target, group, 2)
        with session:
            acks = {here: [(0, 1, [RENEW])]}
            expect_error(
                session.fetch(acks=acks, is_renew_ack=True).error_code,
                ErrorCode.INVALID_REQUEST,
                "with limits",
            )
            answer = session.fetch(
                acks=acks,
                is_renew_ack=True,
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=0,
                max_records=0,
                batch_size=0,
            )
            row = row_of(answer, here)
            expect_equal(
                None if row is None else (row.acknowledge_error_code, row.rows),
                (0, []),
                "without limits",
            )


@REQUIREMENTS.that(
    13,
    "a lock expires after the group's share.record.lock.duration.ms: the record is delivered again "
    "with a higher count, and its former owner may not acknowledge it",
    source=f"{PARTITION}.releaseAcquisitionLockOnTimeout",
    since=SINCE,
)
def expiry(target: Target) -> None:
    lock = lock_ms(target)
    with ShareGroupClient(target, {RESET: "earliest", LOCK: str(lock)}) as group:
        topic = target.topic()
        fill(target, topic, 3)
        here = (topic.topic_id, 0)
        first, second = group.joined(topic), group.joined(topic)
        with first.session(topic.leader) as one, second.session(topic.leader) as two:
            one.acquire(here, 3)
            started = time.monotonic()
            expect_equal(one.acknowledged(here, (0, 0, [ACCEPT])), 0, "accepting in time")
            two.fetch(here, max_wait_ms=0)
            expect_equal(two.fetch(max_wait_ms=0).responses, [], "before the lock expires")
            found: dict[int, int] = {}
            while len(found) < 2 and time.monotonic() - started < lock / 1000 * 2 + 5:
                row = row_of(two.fetch(), here)
                found.update({} if row is None else row.counts)
            elapsed_ms = (time.monotonic() - started) * 1000
            expect_equal(found, {1: 2, 2: 2}, "after the lock has expired")
            expect(elapsed_ms > lock * 0.8, f"it expired after {elapsed_ms:.0f} of {lock} ms")
            expect_error(
                _answers(one, here, [(1, 2, [ACCEPT])])[0],
                ErrorCode.INVALID_RECORD_STATE,
                "the former owner",
            )


@REQUIREMENTS.that(
    14,
    "a renewed lock lasts as long again: its record stays while others expire",
    source="KIP-1222",
    since=RENEWS_SINCE,
)
def renewed_lock(target: Target) -> None:
    lock = lock_ms(target)
    with ShareGroupClient(target, {RESET: "earliest", LOCK: str(lock)}) as group:
        topic = target.topic()
        fill(target, topic, 2)
        here = (topic.topic_id, 0)
        first, second = group.joined(topic), group.joined(topic)
        with first.session(topic.leader) as one, second.session(topic.leader) as two:
            one.acquire(here, 2)
            two.fetch(here, max_wait_ms=0)
            time.sleep(lock / 1000 * 0.6)
            expect_equal(one.acknowledged(here, (0, 0, [RENEW]), renews=True), 0, "renewing")
            found: dict[int, int] = {}
            give_up_at = time.monotonic() + lock / 1000 * 0.55
            while not found and time.monotonic() < give_up_at:
                row = row_of(two.fetch(max_wait_ms=50), here)
                found.update({} if row is None else row.counts)
            expect_equal(found, {1: 2}, "what expires first")
            expect_equal(one.acknowledged(here, (0, 0, [ACCEPT])), 0, "the renewed one")
