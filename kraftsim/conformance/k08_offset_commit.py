"""OffsetCommit (8) and OffsetFetch (9): how far a group has read.

Source: KIP-211, KIP-320, KIP-447, KIP-709; kafka.coordinator.group.GroupCoordinator.handleCommitOffsets; asked of Apache Kafka 3.9.1.
"""

from kraftsim.conformance.expect import expect_equal, expect_error
from kraftsim.conformance.group_talk import FETCH_VERSION, GroupTalk
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


@REQUIREMENTS.that(1, "what is committed is told, with its metadata and leader epoch; of a partition without a commit, -1", source="KIP-320")
def committed(target: Target) -> None:
    topic = target.topic(partitions=2)
    for version in target.versions(ApiKey.OFFSET_COMMIT, since=2):
        if version <= BY_NAME_UNTIL:
            talk = GroupTalk(target)
            row = OffsetCommitRequestPartition(partition_index=0, committed_offset=version, committed_metadata="m")
            if version >= LEADER_EPOCH_SINCE:
                row.committed_leader_epoch = AN_EPOCH
            asked = OffsetCommitRequest(group_id=talk.group_id, topics=[OffsetCommitRequestTopic(name=topic.name, partitions=[row])])
            with talk.peer() as coordinator:
                done = coordinator.ask(asked, version, OffsetCommitResponse)
                expect_equal([(row.partition_index, row.error_code) for row in done.topics[0].partitions], [(0, 0)], f"version {version}")
                fetch = OffsetFetchRequest(
                    group_id=talk.group_id, topics=[OffsetFetchRequestTopic(name=topic.name, partition_indexes=[0, 1])], require_stable=True
                )
                found = coordinator.ask(fetch, FETCH_VERSION, OffsetFetchResponse)
            told = [(row.committed_offset, row.committed_leader_epoch, row.metadata, row.error_code) for row in found.topics[0].partitions]
            epoch = AN_EPOCH if version >= LEADER_EPOCH_SINCE else -1
            expect_equal(told, [(version, epoch, "m", 0), (-1, -1, "", 0)], f"version {version}: offsets, epochs, metadata, errors")


@REQUIREMENTS.that(2, "an unknown topic or partition is error 3, metadata that is too long 12, and the others are committed", source=COORDINATOR)
def partly(target: Target) -> None:
    topic = target.topic()
    talk = GroupTalk(target)
    with talk.peer() as peer:
        errors = talk.commit(peer, [(topic.name, 9), (target.fresh_name("absent"), 0), (topic.name, 0)])
        expect_equal(errors, [3, 3, 0], "errors")
        expect_equal(talk.commit(peer, [(topic.name, 0)], metadata="m" * (METADATA_MAX + 1)), [12], "long metadata")
        expect_equal(talk.fetch(peer, topic.name, [0]), {0: (5, "m")}, "what is committed")


@REQUIREMENTS.that(3, "while a group has members only they commit, in their generation: errors 25 and 22", source=COORDINATOR)
def fenced(target: Target) -> None:
    topic = target.topic()
    talk = GroupTalk(target, [topic.name])
    at = [(topic.name, 0)]
    with talk.peer() as peer:
        expect_equal(talk.commit(peer, at, member_id="x", generation_id=1), [22], "a generation of no group")
        joined = talk.joined_alone(peer)
        for what, member_id, generation_id, error in (
            ("nobody", "", -1, ErrorCode.UNKNOWN_MEMBER_ID),
            ("a stranger", "x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
            ("a member of the past", joined.member_id, 0, ErrorCode.ILLEGAL_GENERATION),
            ("a member of no generation", joined.member_id, -1, ErrorCode.ILLEGAL_GENERATION),
            ("a member", joined.member_id, 1, ErrorCode.NONE),
        ):
            expect_equal(talk.commit(peer, at, member_id=member_id, generation_id=generation_id), [int(error)], what)
        talk.leave(peer, joined.member_id)
        expect_equal(talk.commit(peer, at, offset=7), [0], "nobody, when the group is empty")
        expect_equal(talk.fetch(peer, topic.name, [0]), {0: (7, "m")}, "the last commit")


@REQUIREMENTS.that(
    4, "without topics all that a group has committed is told (since version 2), also of several groups (8)", source="KIP-709", since="3.5"
)
def all_topics(target: Target) -> None:
    topic = target.topic(partitions=3)
    talk = GroupTalk(target)
    with talk.peer() as peer:
        expect_equal(talk.commit(peer, [(topic.name, 0), (topic.name, 2)]), [0, 0], "commits")
        for version in target.versions(ApiKey.OFFSET_FETCH, since=2):
            if version > BY_NAME_UNTIL:
                break
            if version < MANY_SINCE:
                found = peer.ask(OffsetFetchRequest(group_id=talk.group_id, topics=None), version, OffsetFetchResponse)
                rows = [(each.name, row.partition_index, row.committed_offset) for each in found.topics for row in each.partitions]
                expect_equal(sorted(rows), [(topic.name, 0, 5), (topic.name, 2, 5)], f"version {version}")
                continue
            groups = [
                OffsetFetchRequestGroup(group_id=talk.group_id, topics=None),
                OffsetFetchRequestGroup(group_id=talk.group_id, topics=[OffsetFetchRequestTopics(name=topic.name, partition_indexes=[1])]),
            ]
            many = peer.ask(OffsetFetchRequest(groups=groups), version, OffsetFetchResponse)
            told = [
                sorted((each.name, row.partition_index, row.committed_offset) for each in group.topics for row in each.partitions)
                for group in many.groups
            ]
            expect_equal(told, [[(topic.name, 0, 5), (topic.name, 2, 5)], [(topic.name, 1, -1)]], f"version {version}")


@REQUIREMENTS.that(5, "a group that nobody has heard of has no offsets, and no error", source="GroupMetadataManager.getOffsets")
def unheard_of(target: Target) -> None:
    topic = target.topic()
    talk = GroupTalk(target)
    with talk.peer() as peer:
        expect_equal(talk.fetch(peer, topic.name, [0]), {0: (-1, "")}, "offsets")
        found = peer.ask(OffsetFetchRequest(group_id=talk.group_id, topics=None), FETCH_VERSION, OffsetFetchResponse)
        expect_error(found.error_code, ErrorCode.NONE, "all of them")
        expect_equal(found.topics, [], "all of them")


@REQUIREMENTS.that(
    6, "since version 10 topics are named by id: one that nobody has is error 100, and the others are served", source="KIP-848", since="4.2"
)
def by_id(target: Target) -> None:
    topic, talk, nobodys = target.topic(), GroupTalk(target), b"nobody's own id."
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    asked = OffsetCommitRequest(
        group_id=talk.group_id, topics=[OffsetCommitRequestTopic(topic_id=each, partitions=[row]) for each in (nobodys, topic.topic_id)]
    )
    unknown = int(ErrorCode.UNKNOWN_TOPIC_ID)
    with talk.peer() as coordinator:
        done = coordinator.ask(asked, BY_ID_SINCE, OffsetCommitResponse)
        told = {bytes(each.topic_id): [(row.partition_index, row.error_code) for row in each.partitions] for each in done.topics}
        expect_equal(told, {nobodys: [(0, unknown)], topic.topic_id: [(0, 0)]}, "committed: partitions and errors by topic id")
        for ids, expected in (
            ((nobodys, topic.topic_id), {nobodys: [(0, -1, unknown)], topic.topic_id: [(0, 7, 0)]}),
            (None, {topic.topic_id: [(0, 7, 0)]}),
        ):
            topics = None if ids is None else [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in ids]
            fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=talk.group_id, topics=topics)])
            found = coordinator.ask(fetch, BY_ID_SINCE, OffsetFetchResponse).groups[0].topics
            rows = {bytes(each.topic_id): [(row.partition_index, row.committed_offset, row.error_code) for row in each.partitions] for each in found}
            expect_equal(rows, expected, "fetched: partitions, offsets and errors by topic id")
