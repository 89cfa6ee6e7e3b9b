"""Assignments in a consumer group equal those of Apache Kafka's coordinator: the same members join
and leave both.

Source: KIP-848, org.apache.kafka.coordinator.group.assignor.
"""

from collections.abc import Mapping

import pytest

from kraftsim.conformance.consumer_group_client import ConsumerGroupClient, ConsumerGroupMember
from kraftsim.conformance.expect import settled
from kraftsim.conformance.target import Target, TargetTopic
from kraftsim.groups.rules_assignors import uuid_hash
from protocol.messages.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from tests.apache_kafka.harness import ApacheKafka
from tests.core.consumers_harness import ConsumersHarness, MadeTopics

pytestmark = pytest.mark.interop
Shares = dict[str, dict[str, tuple[int, ...]]]
"""Member -> name of a topic -> partitions."""

CASES: list[tuple[str, dict[str, int], str]] = [
    ("uniform", {"t": 4}, "a b"),
    ("uniform", {"t": 7}, "a b c"),
    ("uniform", {"t": 3}, "a b c d e"),
    ("uniform", {"t": 10}, "consumer-1 consumer-2 consumer-3 consumer-4"),
    ("uniform", {"t": 20}, "zeta alpha mu beta -zeta"),
    ("uniform", {"t": 3, "u": 2}, "a b c"),
    ("uniform", {"t": 2, "u": 2, "v": 2}, "d c b a"),
    ("uniform", {"t": 5, "u": 3, "v": 1}, "a b -a c d -b e"),
    ("uniform", {"t": 30}, "a b c d e f g h i j k l m n -c -h"),
    ("uniform", {"t": 4, "u": 4}, "a:t b:t,u"),
    ("uniform", {"t": 6, "u": 3, "v": 2}, "a:t b:t,u c:u,v"),
    ("range", {"t": 4}, "a b"),
    ("range", {"t": 7, "u": 2}, "c a b"),
    ("range", {"t": 3}, "a b c d"),
    ("range", {"t": 5, "u": 4}, "a:t b:t,u c:u"),
    ("range", {"t": 6}, "a b c -b"),
]
"""Assignor, partitions by topic, and members that join or (-) leave; a member subscribes to all
topics unless topics are given.
"""


@pytest.fixture(scope="module")
def kafka(apache_kafka_4: ApacheKafka) -> Target:
    """4.1.2, which computes the target assignment at every change."""
    return Target(apache_kafka_4.bootstrap)


@pytest.mark.parametrize(
    ("assignor", "topics", "steps"), CASES, ids=lambda case: str(case).replace(" ", "-")
)
def test_server_assignors_assign_as_apache_kafka_does(
    kafka: Target, assignor: str, topics: dict[str, int], steps: str
) -> None:
    made = with_distinct_buckets(kafka, topics)
    names = {topic.name: name for name, topic in made.items()}
    with ConsumerGroupClient(kafka) as client:
        members: dict[str, ConsumerGroupMember] = {}
        theirs = KnownTopics(topics, {name: topic.topic_id for name, topic in made.items()})
        harness = ConsumersHarness(theirs)
        for step in steps.split():
            member_id, _, wanted = step.removeprefix("-").partition(":")
            if step.startswith("-"):
                members.pop(member_id).leave()
                harness.ask(member_id, -1)
                harness.gone(member_id)
            else:
                read = wanted.split(",") if wanted else list(topics)
                members[member_id] = client.member(
                    member_id, *(made[name] for name in read), server_assignor=assignor
                )
                members[member_id].join()
                harness.join(member_id, *read, server_assignor=assignor)
            settle(client, members)
            harness.beat_all(*members, rounds=2 * len(members) + 2)
            ours = {
                each: {
                    theirs.name_of(topic_id): numbers
                    for topic_id, numbers in harness.owned[each].items()
                }
                for each in members
            }
            assert ours == {
                each: {names[name]: rows for name, rows in shares.items()}
                for each, shares in described(client).items()
            }, step


def with_distinct_buckets(kafka: Target, topics: Mapping[str, int]) -> dict[str, TargetTopic]:
    """Create topics whose ids have distinct buckets in Java's hash maps: the order within a bucket
    depends on insertion.
    """
    while True:
        made = {name: kafka.topic(partitions=count) for name, count in topics.items()}
        if len({place(topic.topic_id) for topic in made.values()}) == len(made):
            return made


def place(topic_id: bytes) -> int:
    """Return the bucket of a topic id in a small Java hash map."""
    hashed = uuid_hash(topic_id) & 0xFFFF_FFFF
    return (hashed ^ hashed >> 16) & 15


class KnownTopics(MadeTopics):
    """Topics with the ids that they have in the other cluster."""

    def __init__(self, counts: Mapping[str, int], ids: Mapping[str, bytes]) -> None:
        super().__init__()
        self._counts = dict(counts)
        self._ids = ids

    def find(self, name: str) -> tuple[bytes, int] | None:
        return self._ids[name], self._counts[name]

    def name_of(self, topic_id: bytes) -> str:
        return next(name for name, known in self._ids.items() if known == topic_id)


def settle(client: ConsumerGroupClient, members: dict[str, ConsumerGroupMember]) -> None:
    """Let all members heartbeat until each has its target assignment."""

    def look() -> str:
        for member in members.values():
            member.beat()
        return (
            client.peer.ask(
                ConsumerGroupDescribeRequest(group_ids=[client.group_id]),
                1,
                ConsumerGroupDescribeResponse,
            )
            .groups[0]
            .group_state
        )

    settled(look, lambda state: state == "Stable", "a stable group")


def described(client: ConsumerGroupClient) -> Shares:
    """Return the assignment of each member, by topic name."""
    group = client.peer.ask(
        ConsumerGroupDescribeRequest(group_ids=[client.group_id]), 1, ConsumerGroupDescribeResponse
    ).groups[0]
    return {
        member.member_id: {
            row.topic_name: tuple(sorted(row.partitions))
            for row in member.assignment.topic_partitions
            if row.partitions
        }
        for member in group.members
    }
