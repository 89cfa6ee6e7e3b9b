"""Who gets what in a consumer group is what Apache Kafka's own coordinator gives them: the same members come and go at both.

Source: KIP-848, org.apache.kafka.coordinator.group.assignor.
"""

from collections.abc import Mapping

import pytest

from kraftsim.conformance.consumer_talk import ConsumerTalk, TalkingMember
from kraftsim.conformance.settle import settled
from kraftsim.conformance.target import Target, Topic
from kraftsim.core.groups.consumer.server_assignors import uuid_hash
from protocol.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from tests.apache_kafka.harness import ApacheKafka
from tests.core.consumers_lab import ConsumersLab, MadeTopics

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
"""Assignor, partitions by topic, and who comes or (-) goes; a member reads all topics unless it says which."""


@pytest.fixture(scope="module")
def kafka(apache_kafka_4: ApacheKafka) -> Target:
    """4.1.2, which works targets out at every change."""
    return Target(apache_kafka_4.bootstrap)


@pytest.mark.parametrize(("assignor", "topics", "steps"), CASES, ids=lambda case: str(case).replace(" ", "-"))
def test_members_get_what_apache_kafka_gives_them(kafka: Target, assignor: str, topics: dict[str, int], steps: str) -> None:
    made = made_apart(kafka, topics)
    names = {topic.name: name for name, topic in made.items()}
    with ConsumerTalk(kafka) as talk:
        members: dict[str, TalkingMember] = {}
        theirs = KnownTopics(topics, {name: topic.topic_id for name, topic in made.items()})
        lab = ConsumersLab(theirs)
        for step in steps.split():
            member_id, _, wanted = step.removeprefix("-").partition(":")
            if step.startswith("-"):
                members.pop(member_id).leave()
                lab.ask(member_id, -1)
                lab.gone(member_id)
            else:
                read = wanted.split(",") if wanted else list(topics)
                members[member_id] = talk.member(member_id, *(made[name] for name in read), server_assignor=assignor)
                members[member_id].join()
                lab.join(member_id, *read, server_assignor=assignor)
            settle(talk, members)
            lab.beat_all(*members, rounds=2 * len(members) + 2)
            ours = {each: {theirs.name_of(topic_id): numbers for topic_id, numbers in lab.owned[each].items()} for each in members}
            assert ours == {each: {names[name]: rows for name, rows in shares.items()} for each, shares in described(talk).items()}, step


def made_apart(kafka: Target, topics: Mapping[str, int]) -> dict[str, Topic]:
    """Make topics whose ids lie in places of their own in Java's hash maps: those that share one are in the order of history."""
    while True:
        made = {name: kafka.topic(partitions=count) for name, count in topics.items()}
        if len({place(topic.topic_id) for topic in made.values()}) == len(made):
            return made


def place(topic_id: bytes) -> int:
    """Return where in a hash map of Java with few entries a topic id lies."""
    hashed = uuid_hash(topic_id) & 0xFFFF_FFFF
    return (hashed ^ hashed >> 16) & 15


class KnownTopics(MadeTopics):
    """Topics with the ids that they have elsewhere."""

    def __init__(self, counts: Mapping[str, int], ids: Mapping[str, bytes]) -> None:
        super().__init__()
        self._counts = dict(counts)
        self._ids = ids

    def find(self, name: str) -> tuple[bytes, int] | None:
        return self._ids[name], self._counts[name]

    def name_of(self, topic_id: bytes) -> str:
        return next(name for name, known in self._ids.items() if known == topic_id)


def settle(talk: ConsumerTalk, members: dict[str, TalkingMember]) -> None:
    """Let all members heartbeat until everybody has its target."""

    def look() -> str:
        for member in members.values():
            member.beat()
        return talk.peer.ask(ConsumerGroupDescribeRequest(group_ids=[talk.group_id]), 1, ConsumerGroupDescribeResponse).groups[0].group_state

    settled(look, lambda state: state == "Stable", "a stable group")


def described(talk: ConsumerTalk) -> Shares:
    """Return what each member has, by the names of the topics."""
    group = talk.peer.ask(ConsumerGroupDescribeRequest(group_ids=[talk.group_id]), 1, ConsumerGroupDescribeResponse).groups[0]
    return {
        member.member_id: {row.topic_name: tuple(sorted(row.partitions)) for row in member.assignment.topic_partitions if row.partitions}
        for member in group.members
    }
