"""ConsumerGroupHeartbeat (68), and OffsetCommit, OffsetFetch, descriptions and lists for groups of
this protocol.

Source: KIP-848, KIP-1082; org.apache.kafka.coordinator.group.GroupMetadataManager; verified against
Apache Kafka 4.1.2 and 4.4.0.
"""

import time

from kraftsim.conformance.consumer_group_client import REBALANCE_MS, ConsumerGroupClient, rows_of
from kraftsim.conformance.expect import expect_equal, expect_error, settled
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from kraftsim.conformance.transaction_client import TransactionClient
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
from protocol.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from protocol.messages.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from protocol.messages.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

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
"""Expression -> RE2/J's error message."""


def described(group_client: ConsumerGroupClient) -> DescribedGroup:
    """Return the description of the group."""
    return group_client.peer.ask(
        ConsumerGroupDescribeRequest(group_ids=[group_client.group_id]),
        1,
        ConsumerGroupDescribeResponse,
    ).groups[0]


def commit(
    group_client: ConsumerGroupClient,
    topic: str,
    member_id: str,
    epoch: int,
    *,
    offset: int = 5,
    version: int = COMMIT_VERSION,
) -> int:
    """Commit an offset as a member, and return the error."""
    row = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    asked = OffsetCommitRequest(
        group_id=group_client.group_id,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])],
    )
    return (
        group_client.peer.ask(asked, version, OffsetCommitResponse)
        .topics[0]
        .partitions[0]
        .error_code
    )


def fetch(
    group_client: ConsumerGroupClient, topic: str, member_id: str | None, epoch: int
) -> tuple[int, int]:
    """Return error and offset that a member fetches."""
    rows = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    group = OffsetFetchRequestGroup(
        group_id=group_client.group_id, member_id=member_id, member_epoch=epoch, topics=rows
    )
    described_groups = group_client.peer.ask(
        OffsetFetchRequest(groups=[group]), FETCH_VERSION, OffsetFetchResponse
    ).groups[0]
    return described_groups.error_code, described_groups.topics[0].partitions[
        0
    ].committed_offset if described_groups.topics else -1


@REQUIREMENTS.that(
    1,
    "the only member gets all partitions, and the assignment is sent once",
    source="KIP-848",
    since=SINCE,
)
def alone(target: Target) -> None:
    topic = target.topic(partitions=3)
    with ConsumerGroupClient(target) as group_client:
        member = group_client.member("a", topic)
        joined = member.join()
        expect_equal(
            (joined.member_id, joined.heartbeat_interval_ms), ("a", 5000), "member id and interval"
        )
        group_client.settle(member, wanted=[{topic.topic_id: (0, 1, 2)}])
        quiet = member.ask()
        expect_equal(
            (quiet.error_code, quiet.member_epoch, quiet.assignment),
            (0, member.epoch, None),
            "the next heartbeat",
        )
        full = member.ask(
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=[topic.name],
            topic_partitions=rows_of(member.owned),
        )
        described_groups = (
            None
            if full.assignment is None
            else [(row.topic_id, row.partitions) for row in full.assignment.topic_partitions]
        )
        expect_equal(
            described_groups,
            [(topic.topic_id, [0, 1, 2])],
            "a full heartbeat returns the full assignment",
        )


@REQUIREMENTS.that(
    2,
    "members share evenly, each gets partitions once another has revoked them, and a leaving "
    "member's go to the others",
    source="KIP-848",
    since=SINCE,
)
def shared(target: Target) -> None:
    topic = target.topic(partitions=4)
    with ConsumerGroupClient(target) as group_client:
        first, second, third = (group_client.member(name, topic) for name in ("a", "b", "c"))
        first.join()
        group_client.settle(first, wanted=[{topic.topic_id: (0, 1, 2, 3)}])
        second.join()
        group_client.settle(
            first, second, wanted=[{topic.topic_id: (0, 1)}, {topic.topic_id: (2, 3)}]
        )
        third.join()
        group_client.settle(
            first,
            second,
            third,
            wanted=[{topic.topic_id: (0, 1)}, {topic.topic_id: (2,)}, {topic.topic_id: (3,)}],
        )
        expect_equal(
            (first.leave().error_code, first.leave().error_code),
            (0, UNKNOWN),
            "leaving, and leaving again",
        )
        group_client.settle(
            second, third, wanted=[{topic.topic_id: (0, 2)}, {topic.topic_id: (1, 3)}]
        )


@REQUIREMENTS.that(
    3,
    "the range assignor gives ranges of every topic in the order of the members, if they select it",
    source="RangeAssignor",
    since=SINCE,
)
def ranges(target: Target) -> None:
    one, other = target.topic(partitions=3), target.topic(partitions=2)
    with ConsumerGroupClient(target) as group_client:
        members = [
            group_client.member(name, one, other, server_assignor="range") for name in ("a", "b")
        ]
        for member in members:
            member.join()
        group_client.settle(
            *members,
            wanted=[
                {one.topic_id: (0, 1), other.topic_id: (0,)},
                {one.topic_id: (2,), other.topic_id: (1,)},
            ],
        )
        expect_equal(described(group_client).assignor_name, "range", "the assignor")


@REQUIREMENTS.that(
    4,
    "a member with another epoch gets FENCED_MEMBER_EPOCH, except for the previous one with a "
    "subset of its assignment",
    source=MANAGER,
    since=SINCE,
)
def epochs(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerGroupClient(target) as group_client:
        first, second = group_client.member("a", topic), group_client.member("b", topic)
        first.join()
        group_client.settle(first, wanted=[{topic.topic_id: (0, 1)}])
        before = first.epoch
        second.join()
        group_client.settle(first, second, wanted=[{topic.topic_id: (0,)}, {topic.topic_id: (1,)}])
        for what, epoch, owned, error in (
            ("a future epoch", first.epoch + 1, rows_of(first.owned), FENCED),
            ("the epoch before, all revoked", before, rows_of(first.owned), 0),
            (
                "the epoch before, with another member's partitions",
                before,
                rows_of({topic.topic_id: (0, 1)}),
                FENCED,
            ),
            ("the epoch before, without its partitions", before, None, FENCED),
            (
                "a distant epoch",
                first.epoch - 2,
                rows_of(first.owned),
                FENCED if first.epoch > 2 else 0,
            ),
        ):
            if epoch > 0:
                found = group_client.ask(member_id="a", member_epoch=epoch, topic_partitions=owned)
                expect_equal(found.error_code, error, what)
        expect_equal(
            group_client.ask(member_id="x", member_epoch=1).error_code, UNKNOWN, "a stranger"
        )
    with ConsumerGroupClient(target) as empty:
        for epoch in (1, -1):
            expect_error(
                empty.ask(member_id="x", member_epoch=epoch).error_code,
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"no group, epoch {epoch}",
            )


@REQUIREMENTS.that(
    5,
    "invalid requests return INVALID_REQUEST, unknown assignors UNSUPPORTED_ASSIGNOR",
    source=MANAGER,
    since=SINCE,
)
def invalid_requests(target: Target) -> None:
    topic = target.topic()
    with ConsumerGroupClient(target) as group_client:
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
            ("null partitions", {"topic_partitions": None}, 42),
            ("partitions already", {"topic_partitions": rows_of({topic.topic_id: (0,)})}, 42),
            ("null topics and no expression", {"subscribed_topic_names": None}, 42),
            ("temporary leave without an instance id", {"member_epoch": -2}, 42),
            ("an epoch below all", {"member_epoch": -3}, 42),
            ("an unknown assignor", {"server_assignor": "nobody"}, 112),
            ("a bad expression", {"subscribed_topic_regex": "("}, 128),
        ):
            expect_equal(group_client.ask(**{**join, **changed}).error_code, error, what)
        expect_error(
            described(group_client).error_code, ErrorCode.GROUP_ID_NOT_FOUND, "the unknown group"
        )


@REQUIREMENTS.that(
    6,
    "a static member keeps its place for its instance id: UNRELEASED_INSTANCE_ID until it has "
    "left, then FENCED_INSTANCE_ID",
    source="KIP-848",
    since=SINCE,
)
def static(target: Target) -> None:
    topic = target.topic(partitions=4)
    instance = target.fresh_name("instance")
    with ConsumerGroupClient(target) as group_client:
        first, other = (
            group_client.member("a", topic, instance_id=instance),
            group_client.member("b", topic),
        )
        heir = group_client.member("c", topic, instance_id=instance)
        first.join()
        group_client.settle(first, wanted=[{topic.topic_id: (0, 1, 2, 3)}])
        other.join()
        group_client.settle(
            first, other, wanted=[{topic.topic_id: (0, 1)}, {topic.topic_id: (2, 3)}]
        )
        early = heir.ask(
            rebalance_timeout_ms=1000,
            subscribed_topic_names=[topic.name],
            topic_partitions=[],
            instance_id=instance,
        )
        expect_error(
            early.error_code,
            ErrorCode.UNRELEASED_INSTANCE_ID,
            "another member while the first one is there",
        )
        gone = first.leave(-2)
        expect_equal((gone.error_code, gone.member_epoch), (0, -2), "leaving temporarily")
        heir.join()
        expect_equal(heir.owned, {topic.topic_id: (0, 1)}, "the partitions of the next one")
        group_client.settle(
            heir, other, wanted=[{topic.topic_id: (0, 1)}, {topic.topic_id: (2, 3)}]
        )
        expect_error(
            group_client.ask(
                member_id="a", member_epoch=heir.epoch, instance_id=instance
            ).error_code,
            ErrorCode.FENCED_INSTANCE_ID,
            "the first one",
        )
        expect_equal(
            group_client.ask(member_id="x", member_epoch=1, instance_id="nobody").error_code,
            UNKNOWN,
            "an unknown instance",
        )


@REQUIREMENTS.that(
    7,
    "a member commits and fetches in its current epoch: else STALE_MEMBER_EPOCH, "
    "UNKNOWN_MEMBER_ID, in old versions UNSUPPORTED_VERSION",
    source=MANAGER,
    since=SINCE,
)
def offsets(target: Target) -> None:
    topic = target.topic()
    producer = TransactionClient(target)
    with ConsumerGroupClient(target) as group_client:
        member = group_client.member("a", topic)
        member.join()
        group_client.settle(member, wanted=[{topic.topic_id: (0,)}])
        for what, member_id, epoch, error in (
            ("the member", "a", member.epoch, 0),
            ("of another epoch", "a", member.epoch + 1, STALE),
            ("of no epoch", "a", -1, STALE),
            ("a stranger", "x", member.epoch, UNKNOWN),
            ("nobody", "", -1, UNKNOWN),
        ):
            expect_equal(
                commit(group_client, topic.name, member_id, epoch), error, f"commit: {what}"
            )
        expect_equal(
            commit(group_client, topic.name, "a", member.epoch, version=8),
            35,
            "commit in version 8",
        )
        for what, name, epoch, described_groups in (
            ("the member", "a", member.epoch, (0, 5)),
            ("of another epoch", "a", member.epoch + 1, (STALE, -1)),
            ("a stranger", "x", member.epoch, (UNKNOWN, -1)),
            ("nobody", None, -1, (0, 5)),
        ):
            expect_equal(
                fetch(group_client, topic.name, name, epoch), described_groups, f"fetch: {what}"
            )
        producer.add_offsets(group_client.group_id)
        for what, member_id, epoch, error in (
            ("the member", "a", member.epoch, 0),
            ("of another epoch", "a", member.epoch + 1, 22),
            ("a stranger", "x", member.epoch, UNKNOWN),
            ("nobody", "", -1, 0),
        ):
            found = producer.commit(
                group_client.classic, [(topic.name, 0)], 9, member_id=member_id, generation_id=epoch
            )
            expect_equal(found, [error], f"in a transaction: {what}")
        producer.end(commits=True)
        settled(
            lambda: fetch(group_client, topic.name, None, -1),
            lambda described_groups: described_groups == (0, 9),
            "the offset of the transaction",
        )
        member.leave()
        expect_equal(
            commit(group_client, topic.name, "", -1, offset=7),
            0,
            "without a member, when the group is empty",
        )


@REQUIREMENTS.that(
    8,
    "groups are described with epochs, members and both assignments, and listed as consumer groups",
    source="KIP-848",
    since=SINCE,
)
def described_groups(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerGroupClient(target) as group_client:
        member = group_client.member("a", topic, rack_id="r")
        member.join()
        group_client.settle(member, wanted=[{topic.topic_id: (0, 1)}])
        group = described(group_client)
        expect_equal(
            (group.group_state, group.group_epoch, group.assignment_epoch),
            ("Stable", member.epoch, member.epoch),
            "state and epochs",
        )
        expect_equal(group.assignor_name, "uniform", "the assignor")
        row = group.members[0]
        expect_equal(
            (row.member_id, row.rack_id, row.member_epoch, row.member_type),
            ("a", "r", member.epoch, 1),
            "the member",
        )
        expect_equal(
            (row.subscribed_topic_names, row.subscribed_topic_regex),
            ([topic.name], ""),
            "what it reads",
        )
        for shares in (row.assignment, row.target_assignment):
            expect_equal(
                [(each.topic_name, each.partitions) for each in shares.topic_partitions],
                [(topic.name, [0, 1])],
                "its partitions",
            )
        classic = group_client.peer.ask(
            DescribeGroupsRequest(groups=[group_client.group_id]), 6, DescribeGroupsResponse
        ).groups[0]
        expect_equal((classic.error_code, classic.group_state), (69, "Dead"), "DescribeGroups")
        for filters, is_sent in (
            ({}, True),
            ({"types_filter": ["consumer"]}, True),
            ({"types_filter": ["classic"]}, False),
        ):
            listed = group_client.peer.ask(ListGroupsRequest(**filters), 5, ListGroupsResponse)
            rows = [
                (each.group_type, each.group_state, each.protocol_type)
                for each in listed.groups
                if each.group_id == group_client.group_id
            ]
            expect_equal(
                rows,
                [("consumer", "Stable", "consumer")] if is_sent else [],
                f"ListGroups {filters}",
            )


@REQUIREMENTS.that(
    9,
    "an empty group changes its type with the protocol of the first member, and keeps its offsets",
    source="KIP-848",
    since=SINCE,
)
def converted(target: Target) -> None:
    topic = target.topic()
    with ConsumerGroupClient(target) as group_client, group_client.classic.peer() as peer:
        joined = group_client.classic.joined_alone(peer)
        group_client.classic.leave(peer, joined.member_id)
        expect_equal(
            group_client.classic.commit(peer, [(topic.name, 0)], offset=3),
            [0],
            "a commit for the classic group",
        )
        member = group_client.member("a", topic)
        member.join()
        group_client.settle(member, wanted=[{topic.topic_id: (0,)}])
        expect_equal(
            fetch(group_client, topic.name, None, -1), (0, 3), "the offset of the consumer group"
        )
        member.leave()
        back = group_client.classic.joined_alone(peer)
        expect_equal(
            group_client.classic.fetch(peer, topic.name, [0]),
            {0: (3, "m")},
            "the offset of the classic group",
        )
        group_client.classic.leave(peer, back.member_id)


@REQUIREMENTS.that(
    10,
    "a non-empty group cannot be deleted (NON_EMPTY_GROUP), nor offsets of its topics "
    "(GROUP_SUBSCRIBED_TO_TOPIC)",
    source="KIP-848",
    since=SINCE,
)
def deleted(target: Target) -> None:
    topic = target.topic()
    with ConsumerGroupClient(target) as group_client:
        member = group_client.member("a", topic)
        member.join()
        expect_equal(commit(group_client, topic.name, "a", member.epoch), 0, "a commit")
        rows = [
            OffsetDeleteRequestTopic(
                name=topic.name, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
            )
        ]
        for error in (86, 0):
            done = group_client.peer.ask(
                OffsetDeleteRequest(group_id=group_client.group_id, topics=rows),
                0,
                OffsetDeleteResponse,
            )
            expect_equal(done.topics[0].partitions[0].error_code, error, "OffsetDelete")
            gone = (
                group_client.peer.ask(
                    DeleteGroupsRequest(groups_names=[group_client.group_id]),
                    2,
                    DeleteGroupsResponse,
                )
                .results[0]
                .error_code
            )
            expect_equal(gone, 68 if error else 0, "DeleteGroups")
            member.leave()
        expect_error(described(group_client).error_code, ErrorCode.GROUP_ID_NOT_FOUND, "the group")


@REQUIREMENTS.that(11, "added partitions are assigned", source="KIP-848", since=SINCE)
def grown(target: Target) -> None:
    topic = target.topic(partitions=1)
    with ConsumerGroupClient(target) as group_client:
        member = group_client.member("a", topic)
        member.join()
        group_client.settle(member, wanted=[{topic.topic_id: (0,)}])
        with target.peer() as peer:
            asked = CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=topic.name, count=3, assignments=None)],
                timeout_ms=15000,
            )
            expect_equal(
                peer.ask(asked, 3, CreatePartitionsResponse).results[0].error_code,
                0,
                "CreatePartitions",
            )
        group_client.settle(member, wanted=[{topic.topic_id: (0, 1, 2)}])


@REQUIREMENTS.that(
    12,
    "a member that does not revoke within its rebalance time-out is removed, and the others "
    "continue",
    source="KIP-848",
    since=SINCE,
)
def does_not_revoke(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerGroupClient(target) as group_client:
        first, second = (
            group_client.member("a", topic, rebalance_timeout_ms=1500),
            group_client.member("b", topic),
        )
        first.join()
        group_client.settle(first, wanted=[{topic.topic_id: (0, 1)}])
        second.join()
        kept = rows_of(first.owned)

        def beat_without_giving_up() -> int:
            second.beat()
            time.sleep(0.1)
            return first.ask(topic_partitions=kept).error_code

        settled(beat_without_giving_up, lambda error: error == UNKNOWN, "the end of the member")
        group_client.settle(second, wanted=[{topic.topic_id: (0, 1)}])


@REQUIREMENTS.that(
    13,
    "a regular expression subscribes to matching topics, including later ones (since version 1)",
    source="KIP-848",
    since=SINCE,
)
def expressions(target: Target) -> None:
    prefix = target.fresh_name("expression")
    one = target.topic(name=f"{prefix}-1")
    target.topic(name=f"not-{prefix}-1")
    with ConsumerGroupClient(target) as group_client:
        member = group_client.member("a", subscribed_topic_regex=f"{prefix}.*")
        member.join()
        group_client.settle(member, wanted=[{one.topic_id: (0,)}])
        expect_equal(
            described(group_client).members[0].subscribed_topic_regex,
            f"{prefix}.*",
            "what it reads",
        )


@REQUIREMENTS.that(
    14, "in version 0 the coordinator generates the member id", source="KIP-1082", since=SINCE
)
def nameless(target: Target) -> None:
    topic = target.topic()
    with ConsumerGroupClient(target) as group_client:
        join: dict[str, object] = {
            "member_id": "",
            "member_epoch": 0,
            "rebalance_timeout_ms": 1000,
            "subscribed_topic_names": [topic.name],
            "topic_partitions": [],
        }
        found = group_client.ask_in(0, join)
        expect_equal(
            (found.error_code, len(found.member_id or "")), (0, 22), "error, and how long the id is"
        )


@REQUIREMENTS.that(
    15,
    "a member that rejoins without having left gets its partitions again",
    source=MANAGER,
    since="4.2",
)
def rejoins(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerGroupClient(target) as group_client:
        first, second = group_client.member("a", topic), group_client.member("b", topic)
        first.join()
        group_client.settle(first, wanted=[{topic.topic_id: (0, 1)}])
        second.join()
        group_client.settle(first, second, wanted=[{topic.topic_id: (0,)}, {topic.topic_id: (1,)}])
        first.join()
        expect_equal(first.owned, {topic.topic_id: (0,)}, "its assignment")


@REQUIREMENTS.that(
    16,
    "a member that rejoins without having left gets FENCED_MEMBER_EPOCH",
    source=MANAGER,
    since=SINCE,
    until="4.1",
)
def rejoin_is_fenced(target: Target) -> None:
    topic = target.topic(partitions=2)
    with ConsumerGroupClient(target) as group_client:
        first, second = group_client.member("a", topic), group_client.member("b", topic)
        first.join()
        group_client.settle(first, wanted=[{topic.topic_id: (0, 1)}])
        second.join()
        group_client.settle(first, second, wanted=[{topic.topic_id: (0,)}, {topic.topic_id: (1,)}])
        found = group_client.ask(
            member_id="a",
            member_epoch=0,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=[topic.name],
            topic_partitions=[],
        )
        expect_equal(found.error_code, FENCED, "the error")


@REQUIREMENTS.that(
    17,
    "expressions have RE2 syntax: what RE2/J rejects returns INVALID_REGULAR_EXPRESSION with its "
    "message",
    source="KIP-848, com.google.re2j.Pattern",
    since="4.1",
)
def expressions_of_re2(target: Target) -> None:
    join: dict[str, object] = {
        "member_id": "a",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1000,
        "topic_partitions": [],
    }
    with ConsumerGroupClient(target) as group_client:
        for expression, mistake in REFUSED_BY_RE2.items():
            found = group_client.ask(**{**join, "subscribed_topic_regex": expression})
            why = (
                f"SubscribedTopicRegex `{expression}` is not a valid regular expression: {mistake}."
            )
            expect_equal(
                (found.error_code, found.error_message),
                (INVALID_REGULAR_EXPRESSION, why),
                expression,
            )
