"""OffsetCommit (8) and OffsetFetch (9): the committed offsets of a group.

Source: KIP-211, KIP-320, KIP-447, KIP-709;
kafka.coordinator.group.GroupCoordinator.handleCommitOffsets; verified against Apache Kafka 3.9.1.
"""

from kraftsim.conformance.expect import expect_equal, expect_error
from kraftsim.conformance.group_client import FETCH_VERSION, GroupClient
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

REQUIREMENTS = Requirements("consumer-groups", 3, "Committed offsets")
COORDINATOR = "kafka.coordinator.group.GroupCoordinator.handleCommitOffsets"
LEADER_EPOCH_SINCE = 6
BY_NAME_UNTIL = 9
BY_ID_SINCE = 10
MANY_SINCE = 8
AN_EPOCH = 3
METADATA_MAX = 4096


@REQUIREMENTS.that(
    1,
    "a committed offset is returned with its metadata and leader epoch; a partition without a "
    "commit returns -1",
    source="KIP-320",
)
def committed(target: Target) -> None:
    topic = target.topic(partitions=2)
    for version in target.versions(ApiKey.OFFSET_COMMIT, since=2):
        if version <= BY_NAME_UNTIL:
            group_client = GroupClient(target)
            row = OffsetCommitRequestPartition(
                partition_index=0, committed_offset=version, committed_metadata="m"
            )
            if version >= LEADER_EPOCH_SINCE:
                row.committed_leader_epoch = AN_EPOCH
            asked = OffsetCommitRequest(
                group_id=group_client.group_id,
                topics=[OffsetCommitRequestTopic(name=topic.name, partitions=[row])],
            )
            with group_client.peer() as coordinator:
                done = coordinator.ask(asked, version, OffsetCommitResponse)
                expect_equal(
                    [(row.partition_index, row.error_code) for row in done.topics[0].partitions],
                    [(0, 0)],
                    f"version {version}",
                )
                fetch = OffsetFetchRequest(
                    group_id=group_client.group_id,
                    topics=[OffsetFetchRequestTopic(name=topic.name, partition_indexes=[0, 1])],
                    require_stable=True,
                )
                found = coordinator.ask(fetch, FETCH_VERSION, OffsetFetchResponse)
            returned = [
                (row.committed_offset, row.committed_leader_epoch, row.metadata, row.error_code)
                for row in found.topics[0].partitions
            ]
            epoch = AN_EPOCH if version >= LEADER_EPOCH_SINCE else -1
            expect_equal(
                returned,
                [(version, epoch, "m", 0), (-1, -1, "", 0)],
                f"version {version}: offsets, epochs, metadata, errors",
            )


@REQUIREMENTS.that(
    2,
    "an unknown topic or partition returns UNKNOWN_TOPIC_OR_PARTITION, too long metadata "
    "OFFSET_METADATA_TOO_LARGE, and the others are committed",
    source=COORDINATOR,
)
def partly(target: Target) -> None:
    topic = target.topic()
    group_client = GroupClient(target)
    with group_client.peer() as peer:
        errors = group_client.commit(
            peer, [(topic.name, 9), (target.fresh_name("absent"), 0), (topic.name, 0)]
        )
        expect_equal(errors, [3, 3, 0], "errors")
        expect_equal(
            group_client.commit(peer, [(topic.name, 0)], metadata="m" * (METADATA_MAX + 1)),
            [12],
            "long metadata",
        )
        expect_equal(
            group_client.fetch(peer, topic.name, [0]), {0: (5, "m")}, "the committed offset"
        )


@REQUIREMENTS.that(
    3,
    "a non-empty group accepts commits only from its members with their generation: else "
    "UNKNOWN_MEMBER_ID and ILLEGAL_GENERATION",
    source=COORDINATOR,
)
def fenced(target: Target) -> None:
    topic = target.topic()
    group_client = GroupClient(target, [topic.name])
    at = [(topic.name, 0)]
    with group_client.peer() as peer:
        expect_equal(
            group_client.commit(peer, at, member_id="x", generation_id=1),
            [22],
            "a generation of no group",
        )
        joined = group_client.joined_alone(peer)
        for what, member_id, generation_id, error in (
            ("nobody", "", -1, ErrorCode.UNKNOWN_MEMBER_ID),
            ("a stranger", "x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
            (
                "a member with an older generation",
                joined.member_id,
                0,
                ErrorCode.ILLEGAL_GENERATION,
            ),
            ("a member of no generation", joined.member_id, -1, ErrorCode.ILLEGAL_GENERATION),
            ("a member", joined.member_id, 1, ErrorCode.NONE),
        ):
            expect_equal(
                group_client.commit(peer, at, member_id=member_id, generation_id=generation_id),
                [int(error)],
                what,
            )
        group_client.leave(peer, joined.member_id)
        expect_equal(
            group_client.commit(peer, at, offset=7),
            [0],
            "without a member, when the group is empty",
        )
        expect_equal(group_client.fetch(peer, topic.name, [0]), {0: (7, "m")}, "the last commit")


@REQUIREMENTS.that(
    4,
    "without topics all committed offsets of a group are returned (since version 2), or of "
    "several groups (8)",
    source="KIP-709",
    since="3.5",
)
def all_topics(target: Target) -> None:
    topic = target.topic(partitions=3)
    group_client = GroupClient(target)
    with group_client.peer() as peer:
        expect_equal(
            group_client.commit(peer, [(topic.name, 0), (topic.name, 2)]), [0, 0], "commits"
        )
        for version in target.versions(ApiKey.OFFSET_FETCH, since=2):
            if version > BY_NAME_UNTIL:
                break
            if version < MANY_SINCE:
                found = peer.ask(
                    OffsetFetchRequest(group_id=group_client.group_id, topics=None),
                    version,
                    OffsetFetchResponse,
                )
                rows = [
                    (each.name, row.partition_index, row.committed_offset)
                    for each in found.topics
                    for row in each.partitions
                ]
                expect_equal(
                    sorted(rows), [(topic.name, 0, 5), (topic.name, 2, 5)], f"version {version}"
                )
                continue
            groups = [
                OffsetFetchRequestGroup(group_id=group_client.group_id, topics=None),
                OffsetFetchRequestGroup(
                    group_id=group_client.group_id,
                    topics=[OffsetFetchRequestTopics(name=topic.name, partition_indexes=[1])],
                ),
            ]
            many = peer.ask(OffsetFetchRequest(groups=groups), version, OffsetFetchResponse)
            returned = [
                sorted(
                    (each.name, row.partition_index, row.committed_offset)
                    for each in group.topics
                    for row in each.partitions
                )
                for group in many.groups
            ]
            expect_equal(
                returned,
                [[(topic.name, 0, 5), (topic.name, 2, 5)], [(topic.name, 1, -1)]],
                f"version {version}",
            )


@REQUIREMENTS.that(
    5, "an unknown group has no offsets, and no error", source="GroupMetadataManager.getOffsets"
)
def unknown_group(target: Target) -> None:
    topic = target.topic()
    group_client = GroupClient(target)
    with group_client.peer() as peer:
        expect_equal(group_client.fetch(peer, topic.name, [0]), {0: (-1, "")}, "offsets")
        found = peer.ask(
            OffsetFetchRequest(group_id=group_client.group_id, topics=None),
            FETCH_VERSION,
            OffsetFetchResponse,
        )
        expect_error(found.error_code, ErrorCode.NONE, "all of them")
        expect_equal(found.topics, [], "all of them")


@REQUIREMENTS.that(
    6,
    "since version 10 topics are identified by id: an unknown one returns UNKNOWN_TOPIC_ID, and "
    "the others are processed",
    source="KIP-848",
    since="4.2",
)
def by_id(target: Target) -> None:
    topic, group_client, unknown_topic_id = target.topic(), GroupClient(target), b"nobody's own id."
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    asked = OffsetCommitRequest(
        group_id=group_client.group_id,
        topics=[
            OffsetCommitRequestTopic(topic_id=each, partitions=[row])
            for each in (unknown_topic_id, topic.topic_id)
        ],
    )
    unknown = int(ErrorCode.UNKNOWN_TOPIC_ID)
    with group_client.peer() as coordinator:
        done = coordinator.ask(asked, BY_ID_SINCE, OffsetCommitResponse)
        returned = {
            bytes(each.topic_id): [(row.partition_index, row.error_code) for row in each.partitions]
            for each in done.topics
        }
        expect_equal(
            returned,
            {unknown_topic_id: [(0, unknown)], topic.topic_id: [(0, 0)]},
            "committed: partitions and errors by topic id",
        )
        for ids, expected in (
            (
                (unknown_topic_id, topic.topic_id),
                {unknown_topic_id: [(0, -1, unknown)], topic.topic_id: [(0, 7, 0)]},
            ),
            (None, {topic.topic_id: [(0, 7, 0)]}),
        ):
            topics = (
                None
                if ids is None
                else [
                    OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in ids
                ]
            )
            fetch = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=group_client.group_id, topics=topics)]
            )
            found = coordinator.ask(fetch, BY_ID_SINCE, OffsetFetchResponse).groups[0].topics
            rows = {
                bytes(each.topic_id): [
                    (row.partition_index, row.committed_offset, row.error_code)
                    for row in each.partitions
                ]
                for each in found
            }
            expect_equal(rows, expected, "fetched: partitions, offsets and errors by topic id")
