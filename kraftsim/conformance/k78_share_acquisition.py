"""ShareFetch (78): which records a member acquires, how many, and where a group starts.

Source: KIP-932, KIP-1206; kafka.server.share.SharePartition, org.apache.kafka.server.share.fetch;
verified against Apache Kafka 4.1.2, 4.2.2, 4.3.1 and 4.4.0.
"""

from kraftsim.conformance.expect import expect, expect_equal, expect_error, settled
from kraftsim.conformance.marker_client import TransactionAt
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.share_group_client import (
    ACCEPT,
    REJECT,
    RELEASE,
    RESET,
    SINCE,
    Partition,
    ShareGroupClient,
    ShareSession,
    fill,
)
from kraftsim.conformance.target import Target, TargetTopic
from protocol.errors import ErrorCode
from protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

REQUIREMENTS = Requirements("share-groups", 4, "Acquisition of records")
PARTITION = "kafka.server.share.SharePartition"
EXACTLY = 1
"""The share_acquire_mode of a limit in records."""
DELIVERIES_MAX = 5
"""group.share.delivery.count.limit by default."""


def _cut(target: Target, topic: TargetTopic, offset: int) -> None:
    row = DeleteRecordsPartition(partition_index=0, offset=offset)
    with target.peer(topic.leader) as peer:
        answer = peer.ask(
            DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=topic.name, partitions=[row])], timeout_ms=15000
            ),
            2,
            DeleteRecordsResponse,
        )
    expect_error(answer.topics[0].partitions[0].error_code, ErrorCode.NONE, "DeleteRecords")


@REQUIREMENTS.that(
    1,
    "records are acquired once: by one member of two, with delivery count 1",
    source=f"{PARTITION}.acquire",
    since=SINCE,
)
def once(target: Target) -> None:
    topic = target.topic()
    fill(target, topic, 3, 4)
    here = (topic.topic_id, 0)
    with ShareGroupClient(target) as group:
        first, second = group.joined(topic), group.joined(topic)
        with first.session(topic.leader) as one, second.session(topic.leader) as two:
            expect_equal(one.acquire(here, 7), dict.fromkeys(range(7), 1), "the first member")
            two.fetch(here)
            for _ in range(2):
                expect_equal(two.fetch().responses, [], "the second member")
            fill(target, topic, 2)
            expect_equal(two.acquire(here, 2), {7: 1, 8: 1}, "what is produced then")


@REQUIREMENTS.that(
    2,
    "max_records is rounded up to whole batches, and the next member gets the next ones",
    source=f"{PARTITION}.acquire",
    since=SINCE,
)
def limits(target: Target) -> None:
    topic = target.topic()
    fill(target, topic, 3, 3, 3)
    here = (topic.topic_id, 0)
    with ShareGroupClient(target) as group:
        first, second = group.joined(topic), group.joined(topic)
        with first.session(topic.leader) as one, second.session(topic.leader) as two:
            expect_equal(sorted(one.acquire(here, 3, max_records=1)), [0, 1, 2], "one record")
            expect_equal(
                sorted(two.acquire(here, 6, max_records=4)), [3, 4, 5, 6, 7, 8], "four records"
            )


@REQUIREMENTS.that(
    3,
    "with a batch size below that of the batches every batch is a range of its own",
    source="KIP-932 (BatchSize)",
    since=SINCE,
)
def ranges(target: Target) -> None:
    topic = target.topic()
    fill(target, topic, 3, 3, 3)
    here = (topic.topic_id, 0)
    with ShareGroupClient(target) as group, group.joined(topic).session(topic.leader) as session:
        row = settled(
            lambda: session.look(here, batch_size=1),
            lambda found: found is not None and bool(found.rows),
            "the records",
        )
        expect_equal(
            None if row is None else row.rows,
            [(0, 2, 1), (3, 5, 1), (6, 8, 1)],
            "the acquired ranges",
        )


@REQUIREMENTS.that(
    4,
    "with share_acquire_mode 1 no more records than max_records are acquired, and the rest of "
    "the batch by the next fetch",
    source="KIP-1206",
    since="4.2",
)
def exactly(target: Target) -> None:
    topic = target.topic()
    fill(target, topic, 5, 5)
    here = (topic.topic_id, 0)
    with ShareGroupClient(target) as group, group.joined(topic).session(topic.leader) as session:
        found: list[list[int]] = []
        while len(found) < 3:
            row = session.look(here, max_records=4, share_acquire_mode=EXACTLY)
            if row is not None and row.rows:
                found.append(sorted(row.counts))
        expect_equal(found, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]], "three fetches of four records")


@REQUIREMENTS.that(
    5,
    "a new group starts at the latest offset by default, and at the earliest if it is configured",
    source="KIP-932 (share.auto.offset.reset)",
    since=SINCE,
)
def resets(target: Target) -> None:
    topic = target.topic()
    fill(target, topic, 3)
    here = (topic.topic_id, 0)
    with (
        ShareGroupClient(target, {}) as group,
        group.joined(topic).session(topic.leader) as session,
    ):
        for _ in range(3):
            row = session.look(here)
            expect(row is None or not row.rows, "records that are older than the group")
        fill(target, topic, 2)
        expect_equal(sorted(session.acquire(here, 2)), [3, 4], "by default")
    with ShareGroupClient(target) as group, group.joined(topic).session(topic.leader) as session:
        expect_equal(sorted(session.acquire(here, 5)), [0, 1, 2, 3, 4], "from the earliest")


@REQUIREMENTS.that(
    6,
    "a group that starts by duration reads records that are not older",
    source="KIP-1106; ShareGroupAutoOffsetResetStrategy",
    since=SINCE,
)
def by_duration(target: Target) -> None:
    topic = target.topic()
    fill(target, topic, 3)
    with (
        ShareGroupClient(target, {RESET: "by_duration:PT1H"}) as group,
        group.joined(topic).session(topic.leader) as session,
    ):
        expect_equal(sorted(session.acquire((topic.topic_id, 0), 3)), [0, 1, 2], "an hour")


@REQUIREMENTS.that(
    7,
    "a released record is delivered again with a higher count, to any member",
    source=f"{PARTITION}.acknowledge",
    since=SINCE,
)
def again(target: Target) -> None:
    topic = target.topic()
    fill(target, topic, 2)
    here = (topic.topic_id, 0)
    with ShareGroupClient(target) as group:
        first, second = group.joined(topic), group.joined(topic)
        with first.session(topic.leader) as one, second.session(topic.leader) as two:
            one.acquire(here, 2)
            expect_equal(one.acknowledged(here, (0, 1, [RELEASE])), 0, "releasing")
            expect_equal(two.acquire(here, 2), {0: 2, 1: 2}, "the other member")


@REQUIREMENTS.that(
    8,
    "a record is delivered five times by default, and then archived: the start offset passes it",
    source=f"{PARTITION}.acknowledge (group.share.delivery.count.limit)",
    since=SINCE,
)
def delivery_limit(target: Target) -> None:
    topic = target.topic()
    fill(target, topic, 1)
    here = (topic.topic_id, 0)
    with ShareGroupClient(target) as group, group.joined(topic).session(topic.leader) as session:
        for count in range(1, DELIVERIES_MAX + 1):
            expect_equal(session.acquire(here, 1), {0: count}, f"delivery {count}")
            expect_equal(session.acknowledged(here, (0, 0, [RELEASE])), 0, "releasing")
        for _ in range(2):
            expect_equal(session.fetch().responses, [], "after the last delivery")
        fill(target, topic, 1)
        expect_equal(session.acquire(here, 1), {1: 1}, "the next record")


@REQUIREMENTS.that(
    9,
    "records of different states are delivered by ranges of their counts; accepted and rejected "
    "ones are left out",
    source=f"{PARTITION}.acquire",
    since=SINCE,
)
def several_states(target: Target) -> None:
    topic = target.topic()
    fill(target, topic, 6, 6)
    here = (topic.topic_id, 0)
    with ShareGroupClient(target) as group, group.joined(topic).session(topic.leader) as session:
        session.acquire(here, 12)
        types = [RELEASE, ACCEPT, RELEASE, REJECT]
        expect_equal(session.acknowledged(here, (0, 3, types)), 0, "four types")
        expect_equal(session.acknowledged(here, (8, 9, [RELEASE])), 0, "of the second batch")
        expect_equal(session.acquire(here, 4), {0: 2, 2: 2, 8: 2, 9: 2}, "the released records")


@REQUIREMENTS.that(
    10,
    "records that are deleted while they are acquired can be acknowledged, and are not delivered "
    "again",
    source=f"{PARTITION}.updateCacheAndOffsets",
    since=SINCE,
)
def deleted_records(target: Target) -> None:
    topic = target.topic()
    fill(target, topic, 3, 3)
    here = (topic.topic_id, 0)
    with ShareGroupClient(target) as group, group.joined(topic).session(topic.leader) as session:
        session.acquire(here, 6)
        _cut(target, topic, 2)
        expect_equal(session.acknowledged(here, (0, 3, [ACCEPT])), 0, "with deleted ones")
        expect_equal(session.acknowledged(here, (4, 5, [RELEASE])), 0, "the others")
        expect_equal(session.acquire(here, 2), {4: 2, 5: 2}, "what is delivered again")
        _cut(target, topic, 6)
        fill(target, topic, 2)
        expect_equal(session.acquire(here, 2), {6: 1, 7: 1}, "later records")


@REQUIREMENTS.that(
    11,
    "with read_committed, records of an open transaction wait and those of an aborted one are "
    "never acquired; with read_uncommitted all are",
    source="KIP-932 (share.isolation.level)",
    since=SINCE,
)
def isolation(target: Target) -> None:
    topic = target.topic()
    here = (topic.topic_id, 0)
    committed = {"share.isolation.level": "read_committed", RESET: "earliest"}
    with ShareGroupClient(target, committed) as group, ShareGroupClient(target) as all_group:
        for commits in (False, True):
            transaction = TransactionAt(target, topic)
            transaction.wrote(0, 2)
            transaction.ended(commits=commits)
        # offsets 0 and 1 are aborted with the marker 2, offsets 3 and 4 are committed with 5
        transaction = TransactionAt(target, topic)
        transaction.wrote(0, 2)
        with all_group.joined(topic).session(topic.leader) as session:
            found = _until(session, here, 7)
            expect(found >= {0, 1, 3, 4, 6, 7}, f"read_uncommitted: {sorted(found)}")
        with group.joined(topic).session(topic.leader) as session:
            found = _until(session, here, 4)
            expect_equal(found & {0, 1, 3, 4, 6, 7}, {3, 4}, "read_committed")
            for _ in range(2):
                expect_equal(session.fetch().responses, [], "records of an open transaction")
            transaction.ended(commits=True)
            found = _until(session, here, 7)
            expect_equal(found & {6, 7}, {6, 7}, "once it is committed")


def _until(session: ShareSession, partition: Partition, last_offset: int) -> set[int]:
    """Fetch until an offset is acquired, and return all acquired ones: a group that reads
    uncommitted records may be given the offsets of markers with them.
    """
    found: set[int] = set()

    def look() -> set[int]:
        row = session.look(partition)
        found.update({} if row is None else row.counts)
        return found

    return settled(look, lambda offsets: last_offset in offsets, f"offset {last_offset}")
