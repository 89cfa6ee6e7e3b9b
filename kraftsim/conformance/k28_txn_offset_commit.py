"""TxnOffsetCommit (28), and OffsetFetch (9) with it: offsets that a group commits in transactions.

Source: KIP-98, KIP-447, KIP-890; kafka.coordinator.group.GroupCoordinator.{handleTxnCommitOffsets,
validateOffsetCommit}; verified against Apache Kafka 3.9.1 and 4.4.0.
"""

from kraftsim.conformance.consumer_group_client import ConsumerGroupClient
from kraftsim.conformance.expect import expect_equal, settled
from kraftsim.conformance.group_client import JOIN_VERSION, GroupClient
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from kraftsim.conformance.transaction_client import TransactionClient
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from protocol.messages.k11_join_group import JoinGroupResponse
from protocol.messages.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

REQUIREMENTS = Requirements("consumer-groups", 5, "Offsets in transactions")
VALIDATION = "kafka.coordinator.group.GroupCoordinator.validateOffsetCommit"
BY_NAME_UNTIL = 5
BY_NAME_FETCH_UNTIL = 9
ONE_GROUP_UNTIL = 7
STABLE_SINCE = 7
LEADER_EPOCH_SINCE = 2
MEMBER_SINCE = 3
ABORTABLE_SINCE = 4
ADDS_SINCE = 5
UNSTABLE = (-1, int(ErrorCode.UNSTABLE_OFFSET_COMMIT))


def fetched_offset(
    group: GroupClient,
    topic: str,
    partition: int = 0,
    *,
    stable: bool = True,
    version: int = STABLE_SINCE,
) -> tuple[int, int]:
    """Return the fetched offset of a partition and its error."""
    asked = OffsetFetchRequest(
        group_id=group.group_id,
        topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])],
        require_stable=stable,
    )
    if version > ONE_GROUP_UNTIL:
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])]
        asked = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group.group_id, topics=topics)],
            require_stable=stable,
        )
    with group.peer() as peer:
        answer = peer.ask(asked, version, OffsetFetchResponse)
    row = (
        answer.topics[0].partitions[0]
        if version <= ONE_GROUP_UNTIL
        else answer.groups[0].topics[0].partitions[0]
    )
    return row.committed_offset, row.error_code


def settles(group: GroupClient, topic: str, partition: int = 0) -> int:
    """Return the stable offset of a partition, as soon as no transaction is pending."""
    return settled(
        lambda: fetched_offset(group, topic, partition),
        lambda found: found[1] == 0,
        "a stable offset",
    )[0]


@REQUIREMENTS.that(
    1,
    "transactional offsets are returned after the commit, and never after an abort",
    source="KIP-98",
)
def ends(target: Target) -> None:
    topic = target.topic().name
    producer, group = TransactionClient(target), GroupClient(target)
    before = -1
    for version in target.versions(ApiKey.TXN_OFFSET_COMMIT):
        for commits in (False, True):
            if version <= BY_NAME_UNTIL:
                offset = 10 + 2 * version + commits
                producer.add_offsets(group.group_id)
                expect_equal(
                    producer.commit(group, [(topic, 0)], offset, version=version),
                    [0],
                    f"version {version}",
                )
                expect_equal(
                    fetched_offset(group, topic, stable=False),
                    (before, 0),
                    f"version {version}, before the end",
                )
                producer.end(commits=commits)
                before = offset if commits else before
                expect_equal(
                    settles(group, topic),
                    before,
                    f"version {version}, {'committed' if commits else 'aborted'}",
                )


@REQUIREMENTS.that(
    2,
    "with require_stable a pending offset returns UNSTABLE_OFFSET_COMMIT, without it the "
    "previous offset",
    source="KIP-447",
)
def stable(target: Target) -> None:
    topic = target.topic(partitions=2).name
    producer, group = TransactionClient(target), GroupClient(target)
    with group.peer() as peer:
        expect_equal(group.commit(peer, [(topic, 0)], offset=3), [0], "a commit outside")
    producer.add_offsets(group.group_id)
    expect_equal(producer.commit(group, [(topic, 0)], 4), [0], "a commit inside")
    for version in target.versions(ApiKey.OFFSET_FETCH, since=STABLE_SINCE):
        if version <= BY_NAME_FETCH_UNTIL:
            found = [
                fetched_offset(group, topic, number, stable=wants, version=version)
                for wants in (True, False)
                for number in (0, 1)
            ]
            expect_equal(
                found,
                [UNSTABLE, (-1, 0), (3, 0), (-1, 0)],
                f"version {version}: stable and any, of a pending and of another partition",
            )
    with group.peer() as peer:
        answer = peer.ask(
            OffsetFetchRequest(group_id=group.group_id, topics=None, require_stable=True),
            STABLE_SINCE,
            OffsetFetchResponse,
        )
    rows = [
        (row.partition_index, row.committed_offset, row.error_code)
        for each in answer.topics
        for row in each.partitions
    ]
    expect_equal(rows, [(0, *UNSTABLE)], "all that the group has committed")
    producer.end(commits=True)
    expect_equal(settles(group, topic), 4, "after the end")


@REQUIREMENTS.that(
    3,
    "of a pending and a later non-transactional commit the later one applies, whenever the "
    "transaction ends",
    source="KAFKA-5247",
)
def later_one(target: Target) -> None:
    topic = target.topic().name
    producer, group = TransactionClient(target), GroupClient(target)
    producer.add_offsets(group.group_id)
    expect_equal(producer.commit(group, [(topic, 0)], 5), [0], "a commit inside")
    with group.peer() as peer:
        expect_equal(group.commit(peer, [(topic, 0)], offset=7), [0], "a later one outside")
    expect_equal(fetched_offset(group, topic), UNSTABLE, "before the end")
    producer.end(commits=True)
    expect_equal(settles(group, topic), 7, "after the end")


@REQUIREMENTS.that(
    4,
    "since version 3 a given member must be in the group with its generation: else "
    "FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION",
    source=VALIDATION,
)
def fenced(target: Target) -> None:
    topic = target.topic().name
    producer, group = TransactionClient(target), GroupClient(target, [topic])
    instance = target.fresh_name("instance")
    with group.peer() as peer:
        joined = group.joined_alone(peer, instance_id=instance)
        member = joined.member_id
        producer.add_offsets(group.group_id)
        for what, member_id, generation_id, instance_id, error in (
            ("a member", member, joined.generation_id, instance, 0),
            (
                "a member that does not say which instance it is",
                member,
                joined.generation_id,
                None,
                0,
            ),
            ("of the past", member, joined.generation_id - 1, instance, 22),
            ("of the future", member, joined.generation_id + 1, instance, 22),
            ("of no generation", member, -1, instance, 22),
            ("a stranger", "x", joined.generation_id, None, 25),
            ("a non-member without a generation", "x", -1, None, 25),
            ("no member, with a generation", "", joined.generation_id, None, 25),
            ("another instance", member, joined.generation_id, "other", 25),
            ("a non-member with the instance id", "x", joined.generation_id, instance, 82),
            ("no member, with the instance id", "", -1, instance, 82),
            ("no member", "", -1, None, 0),
        ):
            found = producer.commit(
                group,
                [(topic, 0)],
                5,
                member_id=member_id,
                generation_id=generation_id,
                instance_id=instance_id,
            )
            expect_equal(found, [error], what)
        for version in target.versions(ApiKey.TXN_OFFSET_COMMIT):
            if version < MEMBER_SINCE:
                expect_equal(
                    producer.commit(group, [(topic, 0)], 6, version=version),
                    [0],
                    f"version {version}, which knows no members",
                )
        producer.end(commits=True)
        group.leave(peer, "", instance)


@REQUIREMENTS.that(
    5,
    "an empty group accepts offsets without a generation from any member id, with one only "
    "without a member id",
    source=VALIDATION,
)
def empty(target: Target) -> None:
    topic = target.topic().name
    producer, group = TransactionClient(target), GroupClient(target)
    producer.add_offsets(group.group_id)
    for what, member_id, generation_id, instance_id, may in (
        ("nobody", "", -1, None, True),
        ("anybody", "x", -1, "instance", True),
        ("no member, with a generation", "", 1, None, False),
        ("a non-member with a generation", "x", 0, None, False),
    ):
        found = producer.commit(
            group,
            [(topic, 0)],
            5,
            member_id=member_id,
            generation_id=generation_id,
            instance_id=instance_id,
        )
        expect_equal(found, [0 if may else 25], what)
    producer.end(commits=False)


@REQUIREMENTS.that(
    6,
    "with a generation an unknown group returns UNKNOWN_MEMBER_ID",
    source="GroupManager.addGroup",
    until="3.9",
)
def unknown_group(target: Target) -> None:
    _unknown_group(target, ErrorCode.UNKNOWN_MEMBER_ID)


@REQUIREMENTS.that(
    7,
    "with a generation an unknown group returns ILLEGAL_GENERATION",
    source="OffsetMetadataManager.validateTransactionalOffsetCommit",
    since="4.0",
)
def unknown_group_since_4(target: Target) -> None:
    _unknown_group(target, ErrorCode.ILLEGAL_GENERATION)


def _unknown_group(target: Target, error: ErrorCode) -> None:
    topic = target.topic().name
    producer, group = TransactionClient(target), GroupClient(target)
    producer.add_offsets(group.group_id)
    expect_equal(
        producer.commit(group, [(topic, 0)], 5, member_id="x", generation_id=1),
        [int(error)],
        "a generation of no group",
    )
    producer.end(commits=False)


@REQUIREMENTS.that(8, "a pending rebalance does not reject a member's offsets", source=VALIDATION)
def rebalancing(target: Target) -> None:
    topic = target.topic().name
    producer, group = TransactionClient(target), GroupClient(target, [topic])
    producer.add_offsets(group.group_id)
    with group.peer() as peer:
        joined = peer.ask(group.join_request(group.fresh_id(peer)), JOIN_VERSION, JoinGroupResponse)
        found = producer.commit(
            group, [(topic, 0)], 5, member_id=joined.member_id, generation_id=joined.generation_id
        )
        expect_equal(found, [0], "a member without an assignment yet")
        group.leave(peer, joined.member_id)
    producer.end(commits=False)


@REQUIREMENTS.that(
    9,
    "unknown partitions return UNKNOWN_TOPIC_OR_PARTITION, too long metadata "
    "OFFSET_METADATA_TOO_LARGE, an empty group id INVALID_GROUP_ID",
    source=VALIDATION,
)
def partly(target: Target) -> None:
    topic = target.topic().name
    producer, group = TransactionClient(target), GroupClient(target)
    producer.add_offsets(group.group_id)
    found = producer.commit(group, [(topic, 9), (target.fresh_name("absent"), 0), (topic, 0)], 5)
    expect_equal(found, [3, 3, 0], "errors")
    expect_equal(
        producer.commit(group, [(topic, 0)], 6, metadata="m" * 4097), [12], "long metadata"
    )
    nameless = producer.commit_request(group, [(topic, 0)], 7)
    nameless.group_id = ""
    expect_equal(producer.put(group, nameless), [24], "no group name")
    producer.end(commits=True)
    expect_equal(settles(group, topic), 5, "the committed offset")


@REQUIREMENTS.that(
    10,
    "offsets that were not added to the transaction return INVALID_TXN_STATE up to version 3, "
    "then TRANSACTION_ABORTABLE",
    source="KIP-890",
    since="3.7",
)
def unverified(target: Target) -> None:
    topic = target.topic().name
    producer, group = TransactionClient(target), GroupClient(target)
    for version in target.versions(ApiKey.TXN_OFFSET_COMMIT):
        if version < ADDS_SINCE:
            error = (
                ErrorCode.TRANSACTION_ABORTABLE
                if version >= ABORTABLE_SINCE
                else ErrorCode.INVALID_TXN_STATE
            )
            expect_equal(
                producer.commit(group, [(topic, 0)], 5, version=version),
                [int(error)],
                f"version {version}",
            )
    expect_equal(fetched_offset(group, topic), (-1, 0), "the pending offsets")


@REQUIREMENTS.that(
    11,
    "another producer id returns INVALID_PRODUCER_ID_MAPPING, another epoch INVALID_PRODUCER_EPOCH",
    source="KIP-890",
    since="3.7",
)
def other_producers(target: Target) -> None:
    topic = target.topic().name
    producer, group = TransactionClient(target), GroupClient(target)
    for what, transactional_id, producer_id, epoch, error in (
        ("an unknown transactional id", target.fresh_name("nobody"), 0, 0, 49),
        ("another producer id", None, 1, 0, 49),
        ("a future epoch", None, 0, 1, 47),
        ("an older epoch", None, 0, -1, 47),
    ):
        asked = producer.commit_request(group, [(topic, 0)], 5)
        asked.transactional_id = transactional_id or producer.transactional_id
        asked.producer_id += producer_id
        asked.producer_epoch += epoch
        if asked.producer_epoch >= 0:
            expect_equal(producer.put(group, asked), [error], what)


@REQUIREMENTS.that(
    12,
    "an offset that is deleted while its transaction is open never applies",
    source="GroupMetadata.removeOffsets",
)
def deleted(target: Target) -> None:
    topic = target.topic().name
    for what in ("offset", "group"):
        producer, group = TransactionClient(target), GroupClient(target)
        with group.peer() as peer:
            expect_equal(group.commit(peer, [(topic, 0)], offset=3), [0], "a commit outside")
        producer.add_offsets(group.group_id)
        expect_equal(producer.commit(group, [(topic, 0)], 5), [0], "a commit inside")
        with group.peer() as peer:
            if what == "offset":
                rows = [
                    OffsetDeleteRequestTopic(
                        name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
                    )
                ]
                done = peer.ask(
                    OffsetDeleteRequest(group_id=group.group_id, topics=rows),
                    0,
                    OffsetDeleteResponse,
                )
                expect_equal(
                    (done.error_code, done.topics[0].partitions[0].error_code),
                    (0, 0),
                    "OffsetDelete",
                )
            else:
                gone = peer.ask(
                    DeleteGroupsRequest(groups_names=[group.group_id]), 2, DeleteGroupsResponse
                )
                expect_equal(gone.results[0].error_code, 0, "DeleteGroups")
        producer.end(commits=True)
        expect_equal(settles(group, topic), -1, f"the {what} was deleted")


@REQUIREMENTS.that(
    13,
    "of two transactions with the same partition the later record applies, and both are pending",
    source="KIP-447",
)
def two(target: Target) -> None:
    topic = target.topic().name
    group = GroupClient(target)
    first, second = TransactionClient(target), TransactionClient(target)
    for offset, producer in ((5, first), (6, second)):
        producer.add_offsets(group.group_id)
        expect_equal(producer.commit(group, [(topic, 0)], offset), [0], f"offset {offset}")
    second.end(commits=True)
    settled(
        lambda: fetched_offset(group, topic, stable=False),
        lambda found: found == (6, 0),
        "the offset of the second transaction",
    )
    expect_equal(fetched_offset(group, topic), UNSTABLE, "while the first one is open")
    first.end(commits=True)
    expect_equal(settles(group, topic), 6, "when both are over")


@REQUIREMENTS.that(14, "metadata and leader epoch (since version 2) are stored", source="KIP-320")
def kept(target: Target) -> None:
    topic = target.topic().name
    producer, group = TransactionClient(target), GroupClient(target)
    for version in target.versions(ApiKey.TXN_OFFSET_COMMIT):
        if version <= BY_NAME_UNTIL:
            producer.add_offsets(group.group_id)
            asked = producer.commit_request(
                group, [(topic, 0)], version, metadata=None if version else "größer"
            )
            if version >= LEADER_EPOCH_SINCE:
                asked.topics[0].partitions[0].committed_leader_epoch = 3
            expect_equal(producer.put(group, asked, version), [0], f"version {version}")
            producer.end(commits=True)
            expect_equal(settles(group, topic), version, f"version {version}")
            fetch = OffsetFetchRequest(
                group_id=group.group_id,
                topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])],
            )
            with group.peer() as peer:
                row = peer.ask(fetch, STABLE_SINCE, OffsetFetchResponse).topics[0].partitions[0]
            epoch = 3 if version >= LEADER_EPOCH_SINCE else -1
            expect_equal(
                (row.metadata, row.committed_leader_epoch),
                ("" if version else "größer", epoch),
                f"version {version}",
            )


@REQUIREMENTS.that(
    15,
    "version 6 has topic ids (UNKNOWN_TOPIC_ID for an unknown one), and the errors "
    "GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH",
    source="KIP-1319",
    since="4.4",
)
def by_id(target: Target) -> None:
    topic = target.topic()
    producer, group = TransactionClient(target), GroupClient(target)
    producer.add_offsets(group.group_id)
    for what, topic_id, member_id, generation_id, error in (
        ("a generation of no group", topic.topic_id, "x", 1, ErrorCode.GROUP_ID_NOT_FOUND),
        ("an id that does not exist", bytes(15) + b"x", "", -1, ErrorCode.UNKNOWN_TOPIC_ID),
        ("nobody", topic.topic_id, "", -1, ErrorCode.NONE),
    ):
        asked = producer.commit_request(
            group, [("", 0)], 5, member_id=member_id, generation_id=generation_id
        )
        asked.topics[0].topic_id = topic_id
        expect_equal(producer.put(group, asked, BY_NAME_UNTIL + 1), [int(error)], what)
    producer.end(commits=True)
    expect_equal(settles(group, topic.name), 5, "the committed offset")
    with ConsumerGroupClient(target) as consumers:
        member = consumers.member("a", topic)
        member.join()
        producer.add_offsets(consumers.group_id)
        asked = producer.commit_request(
            consumers.classic, [("", 0)], 5, member_id="a", generation_id=member.epoch + 1
        )
        asked.topics[0].topic_id = topic.topic_id
        expect_equal(
            producer.put(consumers.classic, asked, BY_NAME_UNTIL + 1),
            [int(ErrorCode.STALE_MEMBER_EPOCH)],
            "another epoch",
        )
    producer.end(commits=False)


@REQUIREMENTS.that(
    16,
    "since version 5 offsets need not be added to the transaction before they are committed",
    source="KIP-890",
    since="4.0",
)
def added(target: Target) -> None:
    topic = target.topic().name
    producer, group = TransactionClient(target), GroupClient(target)
    expect_equal(producer.commit(group, [(topic, 0)], 5, version=ADDS_SINCE), [0], "a commit")
    expect_equal(fetched_offset(group, topic), UNSTABLE, "before the end")
    producer.end(commits=True)
    expect_equal(settles(group, topic), 5, "after the end")
