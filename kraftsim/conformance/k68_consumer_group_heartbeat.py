"""ConsumerGroupHeartbeat (68), and what commits, fetches, descriptions and lists tell of the groups that speak it.

Source: KIP-848, KIP-1082; org.apache.kafka.coordinator.group.GroupMetadataManager; asked of Apache Kafka 4.1.2 and 4.4.0.
"""

import time

from kraftsim.conformance.consumer_talk import REBALANCE_MS, ConsumerTalk, rows_of
from kraftsim.conformance.expect import expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.settle import settled
from kraftsim.conformance.target import Target
from kraftsim.conformance.transaction_talk import TransactionTalk
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
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from protocol.messages.k15_describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic
from protocol.messages.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from protocol.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, DescribedGroup

REQUIREMENTS = Requirements("consumer-groups", 6, "Consumer groups of KIP-848")
SINCE = "4.0"
MANAGER = "org.apache.kafka.coordinator.group.GroupMetadataManager"
COMMIT_VERSION, FETCH_VERSION = 9, 9
STALE, UNKNOWN, FENCED = 113, 25, 110
INVALID_REGULAR_EXPRESSION = 128
REFUSED_BY_RE2 = {
    "a(?=b)": "invalid or unsupported Perl syntax",
    "(?<=a)b": "invalid named capture",
    "(a)\\1": "invalid escape sequence",
    "\\C": "invalid escape sequence",
    "a**": "invalid nested repetition operator",
    "*": "missing argument to repetition operator",
    "a{1001}": "invalid repeat count",
    "(a": "missing closing )",
    "a)": "regexp/syntax: internal error",
    "[a": "missing closing ]",
    "[b-a]": "invalid character class range",
    "\\p{Nobody}": "invalid character class range",
    "a\\": "trailing backslash at end of expression",
    "(?P<n>a)(?P<n>b)": "duplicate capture group name",
    "(?P<n a)": "invalid named capture",
}
"""Expression -> what RE2/J says of it."""


def described(talk: ConsumerTalk) -> DescribedGroup:
    """Return the group as it is described."""
    return talk.peer.ask(ConsumerGroupDescribeRequest(group_ids=[talk.group_id]), 1, ConsumerGroupDescribeResponse).groups[0]


def commit(talk: ConsumerTalk, topic: str, member_id: str, epoch: int, *, offset: int = 5, version: int = COMMIT_VERSION) -> int:
    """Commit an offset as a member, and return the error."""
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    asked = OffsetCommitRequest(
        group_id=talk.group_id,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])],
    )
    return talk.peer.ask(asked, version, OffsetCommitResponse).topics[0].partitions[0].error_code


def fetch(talk: ConsumerTalk, topic: str, member_id: str | None, epoch: int) -> tuple[int, int]:
    """Return error and offset that a member is told."""
    rows = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    group = OffsetFetchRequestGroup(group_id=talk.group_id, member_id=member_id, member_epoch=epoch, topics=rows)
    told = talk.peer.ask(OffsetFetchRequest(groups=[group]), FETCH_VERSION, OffsetFetchResponse).groups[0]
    return told.error_code, told.topics[0].partitions[0].committed_offset if told.topics else -1


@REQUIREMENTS.that(1, "the only member has everything, and is told so once", source="KIP-848", since=SINCE)
def alone(target: Target) -> None:
    topic = target.topic(partitions=3)
    with ConsumerTalk(target) as talk:
        member = talk.member("a", topic)
        joined = member.join()
        expect_equal((joined.member_id, joined.heartbeat_interval_ms), ("a", 5000), "member id and interval")
        talk.settle(member, wanted=[{topic.topic_id: (0, 1, 2)}])
        quiet = member.ask()
        expect_equal((quiet.error_code, quiet.member_epoch, quiet.assignment), (0, member.epoch, None), "the next heartbeat")
        full = member.ask(rebalance_timeout_ms=REBALANCE_MS, subscribed_topic_names=[topic.name], topic_partitions=rows_of(member.owned))
        told = None if full.assignment is None else [(row.topic_id, row.partitions) for row in full.assignment.topic_partitions]
        expect_equal(told, [(topic.topic_id, [0, 1, 2])], "a heartbeat that says everything is told everything")


@REQUIREMENTS.that(
    2, "members share evenly, each gets what another has given up, and who goes leaves all to the others", source="KIP-848", since=SINCE
)
def shared(target: Target) -> None:
    topic = target.topic(partitions=4)
    with ConsumerTalk(target) as talk:
        first, second, third = (talk.member(name, topic) for name in ("a", "b", "c"))
        first.join()
        talk.settle(first, wanted=[{topic.topic_id: (0, 1, 2, 3)}])
        second.join()
        talk.settle(first, second, wanted=[{topic.topic_id: (0, 1)}, {topic.topic_id: (2, 3)}])
        third.join()
        talk.settle(first, second, third, wanted=[{topic.topic_id: (0, 1)}, {topic.topic_id: (2,)}, {topic.topic_id: (3,)}])
        expect_equal((first.leave().error_code, first.leave().error_code), (0, UNKNOWN), "leaving, and leaving again")
        talk.settle(second, third, wanted=[{topic.topic_id: (0, 2)}, {topic.topic_id: (1, 3)}])


@REQUIREMENTS.that(3, "range gives runs of every topic in the order of the members, to those that ask for it", source="RangeAssignor", since=SINCE)
def ranges(target: Target) -> None:
    one, other = target.topic(partitions=3), target.topic(partitions=2)
    with ConsumerTalk(target) as talk:
        members = [talk.member(name, one, other, server_assignor="range") for name in ("a", "b")]
        for member in members:
            member.join()
        talk.settle(*members, wanted=[{one.topic_id: (0, 1), other.topic_id: (0,)}, {one.topic_id: (2,), other.topic_id: (1,)}])
        expect_equal(described(talk).assignor_name, "range", "the assignor")


@REQUIREMENTS.that(4, "a member of another epoch is fenced (110), but for the one before with no more than it was given", source=MANAGER, since=SINCE)
def epochs(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerTalk(target) as talk:
        first, second = talk.member("a", topic), talk.member("b", topic)
        first.join()
        talk.settle(first, wanted=[{topic.topic_id: (0, 1)}])
        before = first.epoch
        second.join()
        talk.settle(first, second, wanted=[{topic.topic_id: (0,)}, {topic.topic_id: (1,)}])
        for what, epoch, owned, error in (
            ("an epoch of the future", first.epoch + 1, rows_of(first.owned), FENCED),
            ("the epoch before, all given up", before, rows_of(first.owned), 0),
            ("the epoch before, with what another has", before, rows_of({topic.topic_id: (0, 1)}), FENCED),
            ("the epoch before, not saying what it has", before, None, FENCED),
            ("a distant epoch", first.epoch - 2, rows_of(first.owned), FENCED if first.epoch > 2 else 0),
        ):
            if epoch > 0:
                found = talk.ask(member_id="a", member_epoch=epoch, topic_partitions=owned)
                expect_equal(found.error_code, error, what)
        expect_equal(talk.ask(member_id="x", member_epoch=1).error_code, UNKNOWN, "a stranger")
    with ConsumerTalk(target) as empty:
        for epoch in (1, -1):
            expect_error(empty.ask(member_id="x", member_epoch=epoch).error_code, ErrorCode.GROUP_ID_NOT_FOUND, f"no group, epoch {epoch}")


@REQUIREMENTS.that(5, "requests that make no sense are error 42, unknown assignors 112", source=MANAGER, since=SINCE)
def senseless(target: Target) -> None:
    topic = target.topic()
    with ConsumerTalk(target) as talk:
        join: dict[str, object] = {
            "member_id": "a",
            "member_epoch": 0,
            "rebalance_timeout_ms": 1000,
            "subscribed_topic_names": [topic.name],
            "topic_partitions": [],
        }
        for what, changed, error in (
            ("no group", {"group_id": ""}, 42),
            ("no member id", {"member_id": ""}, 42),
            ("an empty instance id", {"instance_id": ""}, 42),
            ("an empty rack", {"rack_id": ""}, 42),
            ("no time-out", {"rebalance_timeout_ms": -1}, 42),
            ("partitions not told", {"topic_partitions": None}, 42),
            ("partitions already", {"topic_partitions": rows_of({topic.topic_id: (0,)})}, 42),
            ("no topics told", {"subscribed_topic_names": None}, 42),
            ("to leave for a while without an instance", {"member_epoch": -2}, 42),
            ("an epoch below all", {"member_epoch": -3}, 42),
            ("an unknown assignor", {"server_assignor": "nobody"}, 112),
            ("a bad expression", {"subscribed_topic_regex": "("}, 128),
        ):
            expect_equal(talk.ask(**{**join, **changed}).error_code, error, what)
        expect_error(described(talk).error_code, ErrorCode.GROUP_ID_NOT_FOUND, "the group that nobody has made")


@REQUIREMENTS.that(
    6, "a static member keeps its place for whoever comes with its instance id: 111 until it has gone, then 82", source="KIP-848", since=SINCE
)
def static(target: Target) -> None:
    topic = target.topic(partitions=4)
    instance = target.fresh_name("instance")
    with ConsumerTalk(target) as talk:
        first, other = talk.member("a", topic, instance_id=instance), talk.member("b", topic)
        heir = talk.member("c", topic, instance_id=instance)
        first.join()
        talk.settle(first, wanted=[{topic.topic_id: (0, 1, 2, 3)}])
        other.join()
        talk.settle(first, other, wanted=[{topic.topic_id: (0, 1)}, {topic.topic_id: (2, 3)}])
        early = heir.ask(rebalance_timeout_ms=1000, subscribed_topic_names=[topic.name], topic_partitions=[], instance_id=instance)
        expect_error(early.error_code, ErrorCode.UNRELEASED_INSTANCE_ID, "another member while the first one is there")
        gone = first.leave(-2)
        expect_equal((gone.error_code, gone.member_epoch), (0, -2), "leaving for a while")
        heir.join()
        expect_equal(heir.owned, {topic.topic_id: (0, 1)}, "what the next one gets at once")
        talk.settle(heir, other, wanted=[{topic.topic_id: (0, 1)}, {topic.topic_id: (2, 3)}])
        expect_error(talk.ask(member_id="a", member_epoch=heir.epoch, instance_id=instance).error_code, ErrorCode.FENCED_INSTANCE_ID, "the first one")
        expect_equal(talk.ask(member_id="x", member_epoch=1, instance_id="nobody").error_code, UNKNOWN, "an unknown instance")


@REQUIREMENTS.that(
    7, "a member commits and fetches in its present epoch: 113, 25, in old versions 35; inside transactions 22", source=MANAGER, since=SINCE
)
def offsets(target: Target) -> None:
    topic = target.topic()
    producer = TransactionTalk(target)
    with ConsumerTalk(target) as talk:
        member = talk.member("a", topic)
        member.join()
        talk.settle(member, wanted=[{topic.topic_id: (0,)}])
        for what, member_id, epoch, error in (
            ("the member", "a", member.epoch, 0),
            ("of another epoch", "a", member.epoch + 1, STALE),
            ("of no epoch", "a", -1, STALE),
            ("a stranger", "x", member.epoch, UNKNOWN),
            ("nobody", "", -1, UNKNOWN),
        ):
            expect_equal(commit(talk, topic.name, member_id, epoch), error, f"commit: {what}")
        expect_equal(commit(talk, topic.name, "a", member.epoch, version=8), 35, "commit in version 8")
        for what, name, epoch, told in (
            ("the member", "a", member.epoch, (0, 5)),
            ("of another epoch", "a", member.epoch + 1, (STALE, -1)),
            ("a stranger", "x", member.epoch, (UNKNOWN, -1)),
            ("nobody", None, -1, (0, 5)),
        ):
            expect_equal(fetch(talk, topic.name, name, epoch), told, f"fetch: {what}")
        producer.add_offsets(talk.group_id)
        for what, member_id, epoch, error in (
            ("the member", "a", member.epoch, 0),
            ("of another epoch", "a", member.epoch + 1, 22),
            ("a stranger", "x", member.epoch, UNKNOWN),
            ("nobody", "", -1, 0),
        ):
            found = producer.commit(talk.classic, [(topic.name, 0)], 9, member_id=member_id, generation_id=epoch)
            expect_equal(found, [error], f"in a transaction: {what}")
        producer.end(commits=True)
        settled(lambda: fetch(talk, topic.name, None, -1), lambda told: told == (0, 9), "the offset of the transaction")
        member.leave()
        expect_equal(commit(talk, topic.name, "", -1, offset=7), 0, "nobody, when the group is empty")


@REQUIREMENTS.that(8, "groups are described with epochs, members and both assignments, and listed as consumer groups", source="KIP-848", since=SINCE)
def told(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerTalk(target) as talk:
        member = talk.member("a", topic, rack_id="r")
        member.join()
        talk.settle(member, wanted=[{topic.topic_id: (0, 1)}])
        group = described(talk)
        expect_equal((group.group_state, group.group_epoch, group.assignment_epoch), ("Stable", member.epoch, member.epoch), "state and epochs")
        expect_equal(group.assignor_name, "uniform", "the assignor")
        row = group.members[0]
        expect_equal((row.member_id, row.rack_id, row.member_epoch, row.member_type), ("a", "r", member.epoch, 1), "the member")
        expect_equal((row.subscribed_topic_names, row.subscribed_topic_regex), ([topic.name], ""), "what it reads")
        for shares in (row.assignment, row.target_assignment):
            expect_equal([(each.topic_name, each.partitions) for each in shares.topic_partitions], [(topic.name, [0, 1])], "its partitions")
        classic = talk.peer.ask(DescribeGroupsRequest(groups=[talk.group_id]), 6, DescribeGroupsResponse).groups[0]
        expect_equal((classic.error_code, classic.group_state), (69, "Dead"), "DescribeGroups")
        for filters, is_told in (({}, True), ({"types_filter": ["consumer"]}, True), ({"types_filter": ["classic"]}, False)):
            listed = talk.peer.ask(ListGroupsRequest(**filters), 5, ListGroupsResponse)
            rows = [(each.group_type, each.group_state, each.protocol_type) for each in listed.groups if each.group_id == talk.group_id]
            expect_equal(rows, [("consumer", "Stable", "consumer")] if is_told else [], f"ListGroups {filters}")


@REQUIREMENTS.that(9, "an empty group changes its kind with whoever joins, and keeps its offsets", source="KIP-848", since=SINCE)
def converted(target: Target) -> None:
    topic = target.topic()
    with ConsumerTalk(target) as talk, talk.classic.peer() as peer:
        joined = talk.classic.joined_alone(peer)
        talk.classic.leave(peer, joined.member_id)
        expect_equal(talk.classic.commit(peer, [(topic.name, 0)], offset=3), [0], "a commit for the classic group")
        member = talk.member("a", topic)
        member.join()
        talk.settle(member, wanted=[{topic.topic_id: (0,)}])
        expect_equal(fetch(talk, topic.name, None, -1), (0, 3), "the offset of the consumer group")
        member.leave()
        back = talk.classic.joined_alone(peer)
        expect_equal(talk.classic.fetch(peer, topic.name, [0]), {0: (3, "m")}, "the offset of the classic group")
        talk.classic.leave(peer, back.member_id)


@REQUIREMENTS.that(10, "a group with members is not deleted (68), nor are offsets of what it reads (86)", source="KIP-848", since=SINCE)
def deleted(target: Target) -> None:
    topic = target.topic()
    with ConsumerTalk(target) as talk:
        member = talk.member("a", topic)
        member.join()
        expect_equal(commit(talk, topic.name, "a", member.epoch), 0, "a commit")
        rows = [OffsetDeleteRequestTopic(name=topic.name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])]
        for error in (86, 0):
            done = talk.peer.ask(OffsetDeleteRequest(group_id=talk.group_id, topics=rows), 0, OffsetDeleteResponse)
            expect_equal(done.topics[0].partitions[0].error_code, error, "OffsetDelete")
            gone = talk.peer.ask(DeleteGroupsRequest(groups_names=[talk.group_id]), 2, DeleteGroupsResponse).results[0].error_code
            expect_equal(gone, 68 if error else 0, "DeleteGroups")
            member.leave()
        expect_error(described(talk).error_code, ErrorCode.GROUP_ID_NOT_FOUND, "the group")


@REQUIREMENTS.that(11, "partitions that are added are shared out", source="KIP-848", since=SINCE)
def grown(target: Target) -> None:
    topic = target.topic(partitions=1)
    with ConsumerTalk(target) as talk:
        member = talk.member("a", topic)
        member.join()
        talk.settle(member, wanted=[{topic.topic_id: (0,)}])
        with target.peer() as peer:
            asked = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=topic.name, count=3, assignments=None)], timeout_ms=15000)
            expect_equal(peer.ask(asked, 3, CreatePartitionsResponse).results[0].error_code, 0, "CreatePartitions")
        talk.settle(member, wanted=[{topic.topic_id: (0, 1, 2)}])


@REQUIREMENTS.that(12, "a member that gives nothing up within its rebalance time-out is out, and the others go on", source="KIP-848", since=SINCE)
def stubborn(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerTalk(target) as talk:
        first, second = talk.member("a", topic, rebalance_timeout_ms=1500), talk.member("b", topic)
        first.join()
        talk.settle(first, wanted=[{topic.topic_id: (0, 1)}])
        second.join()
        kept = rows_of(first.owned)

        def beat_without_giving_up() -> int:
            second.beat()
            time.sleep(0.1)
            return first.ask(topic_partitions=kept).error_code

        settled(beat_without_giving_up, lambda error: error == UNKNOWN, "the end of the member")
        talk.settle(second, wanted=[{topic.topic_id: (0, 1)}])


@REQUIREMENTS.that(
    13, "a regular expression means the topics that it matches, also those that come later (since version 1)", source="KIP-848", since=SINCE
)
def expressions(target: Target) -> None:
    prefix = target.fresh_name("expression")
    one = target.topic(name=f"{prefix}-1")
    target.topic(name=f"not-{prefix}-1")
    with ConsumerTalk(target) as talk:
        member = talk.member("a", subscribed_topic_regex=f"{prefix}.*")
        member.join()
        talk.settle(member, wanted=[{one.topic_id: (0,)}])
        expect_equal(described(talk).members[0].subscribed_topic_regex, f"{prefix}.*", "what it reads")


@REQUIREMENTS.that(14, "before version 1 a member that has no id is given one", source="KIP-1082", since=SINCE)
def nameless(target: Target) -> None:
    topic = target.topic()
    with ConsumerTalk(target) as talk:
        join: dict[str, object] = {
            "member_id": "",
            "member_epoch": 0,
            "rebalance_timeout_ms": 1000,
            "subscribed_topic_names": [topic.name],
            "topic_partitions": [],
        }
        found = talk.ask_in(0, join)
        expect_equal((found.error_code, len(found.member_id or "")), (0, 22), "error, and how long the id is")


@REQUIREMENTS.that(15, "a member that comes anew without having left has its partitions again", source=MANAGER, since="4.2")
def anew(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerTalk(target) as talk:
        first, second = talk.member("a", topic), talk.member("b", topic)
        first.join()
        talk.settle(first, wanted=[{topic.topic_id: (0, 1)}])
        second.join()
        talk.settle(first, second, wanted=[{topic.topic_id: (0,)}, {topic.topic_id: (1,)}])
        first.join()
        expect_equal(first.owned, {topic.topic_id: (0,)}, "what it is told")


@REQUIREMENTS.that(16, "a member that comes anew without having left is fenced (110)", source=MANAGER, since=SINCE, until="4.1")
def not_anew(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerTalk(target) as talk:
        first, second = talk.member("a", topic), talk.member("b", topic)
        first.join()
        talk.settle(first, wanted=[{topic.topic_id: (0, 1)}])
        second.join()
        talk.settle(first, second, wanted=[{topic.topic_id: (0,)}, {topic.topic_id: (1,)}])
        found = talk.ask(member_id="a", member_epoch=0, rebalance_timeout_ms=REBALANCE_MS, subscribed_topic_names=[topic.name], topic_partitions=[])
        expect_equal(found.error_code, FENCED, "what it is told")


@REQUIREMENTS.that(17, "expressions are RE2's: what RE2 refuses is error 128, in its words", source="KIP-848, com.google.re2j.Pattern", since="4.1")
def expressions_of_re2(target: Target) -> None:
    join: dict[str, object] = {"member_id": "a", "member_epoch": 0, "rebalance_timeout_ms": 1000, "topic_partitions": []}
    with ConsumerTalk(target) as talk:
        for expression, mistake in REFUSED_BY_RE2.items():
            found = talk.ask(**{**join, "subscribed_topic_regex": expression})
            why = f"SubscribedTopicRegex `{expression}` is not a valid regular expression: {mistake}."
            expect_equal((found.error_code, found.error_message), (INVALID_REGULAR_EXPRESSION, why), expression)
