"""Assignments in share groups equal those of Apache Kafka's SimpleAssignor, the order of topics and
partitions included: the same groups through many changes.

Source: KIP-932, org.apache.kafka.coordinator.group.assignor.SimpleAssignor.
"""

import random
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from kraftsim.groups.rules_assignors import (
    NO_SHARES,
    Shares,
    hash_set_order,
    java_order,
    uuid_hash,
)
from kraftsim.groups.rules_simple_assignor import SharingMember, assign_shared
from kraftsim.groups.rules_timing import java_hash
from tests.apache_kafka.class_path import class_path, java

pytestmark = pytest.mark.interop
GROUP_COUNT, STEP_COUNT = 250, 8
ANSWER_SECONDS = 120


class DrawnGroup:
    """A group of up to twelve members on up to six topics, which changes at random."""

    def __init__(self, seed: int) -> None:
        self._draw = draw = random.Random(seed)
        count = draw.randint(1, 6)
        self.ids = {f"topic-{draw.randrange(10**6)}": draw.randbytes(16) for _ in range(count)}
        most = draw.choice((1, 3, 8, 40))
        self.counts = {name: draw.randint(1, most) for name in self.ids}
        self.assignable = dict.fromkeys(self.ids, 0)
        self.members: dict[str, list[str]] = {}
        self.targets: dict[str, Shares] = {}
        self._has_same_topics = draw.random() < 0.6
        self._names = draw.sample(list(self.ids), draw.randint(1, count))

    def change(self) -> None:
        """Let members join, leave or subscribe to other topics, and topics grow."""
        draw = self._draw
        for name in self.ids:
            self.counts[name] += draw.choice((0, 0, 0, 2))
            self.assignable[name] = draw.choice((self.counts[name], self.assignable[name]))
        for _ in range(draw.randint(1, 4)):
            if len(self.members) > 1 and draw.random() < 0.35:
                gone = draw.choice(list(self.members))
                del self.members[gone]
                self.targets.pop(gone, None)
            elif len(self.members) < 12:
                self.members[f"{draw.randrange(10**9)}"] = []
        names = [*self.ids, "missing"]
        if self._has_same_topics and draw.random() < 0.2:
            self._names = draw.sample(names, draw.randint(1, len(names)))
        for member_id in self.members:
            if self._has_same_topics:
                self.members[member_id] = self._names
            elif not self.members[member_id] or draw.random() < 0.2:
                self.members[member_id] = draw.sample(names, draw.randint(1, len(names)))

    @property
    def has_same_topics(self) -> bool:
        """Whether all members subscribe to the same topics."""
        return len({frozenset(names) for names in self.members.values()}) == 1

    def question(self) -> str:
        """Return the group as SharedAssignments reads it."""
        topics = ";".join(
            f"{name}={topic_id.hex()}={self.counts[name]}={joined(range(self.assignable[name]))}"
            for name, topic_id in self.ids.items()
        )
        members = ";".join(
            f"{member_id}={'+'.join(names)}={written(self.targets.get(member_id, NO_SHARES))}"
            for member_id, names in self.members.items()
        )
        return f"{'S' if self.has_same_topics else 'D'} {topics} {members}"

    def answer(self) -> str:
        """Assign, and return the result as SharedAssignments writes it."""
        rows = [
            SharingMember(
                member_id=member_id,
                topic_ids=tuple(
                    self.ids[name]
                    for name in hash_set_order(self.members[member_id], java_hash)
                    if name in self.ids
                ),
                subscribes=bool(self.members[member_id]),
                target=self.targets.get(member_id, NO_SHARES),
            )
            for member_id in java_order(self.members, java_hash)
        ]
        by_id = {self.ids[name]: name for name in self.ids}
        assigned = assign_shared(
            rows,
            {topic_id: self.counts[name] for topic_id, name in by_id.items()},
            {topic_id: range(self.assignable[name]) for topic_id, name in by_id.items()},
            has_same_topics=self.has_same_topics,
        )
        self.targets = {
            member_id: {
                topic_id: tuple(hash_set_order(shares[topic_id], int))
                for topic_id in java_order(shares, uuid_hash)
            }
            for member_id, shares in assigned.items()
        }
        return ";".join(
            written(assigned[member_id]) if member_id in assigned else "-"
            for member_id in self.members
        )


def joined(numbers: Iterable[int]) -> str:
    return "+".join(map(str, numbers))


def written(shares: Shares) -> str:
    return "/".join(f"{topic_id.hex()}:{joined(numbers)}" for topic_id, numbers in shares.items())


@pytest.mark.parametrize("release", ["4.2.2", "4.4.0"])
def test_simple_assignor_assigns_as_apache_kafka_does(release: str) -> None:
    """Each step begins with the target of the one before."""
    questions: list[str] = []
    ours: list[str] = []
    for seed in range(GROUP_COUNT):
        group = DrawnGroup(seed)
        for _ in range(STEP_COUNT):
            group.change()
            questions.append(group.question())
            ours.append(group.answer())
    theirs = subprocess.run(
        [
            java(),
            "-cp",
            ":".join(map(str, class_path(release))),
            str(Path(__file__).with_name("SharedAssignments.java")),
        ],
        input="\n".join(questions) + "\n",
        capture_output=True,
        check=True,
        text=True,
        timeout=ANSWER_SECONDS,
    ).stdout.splitlines()
    assert len(theirs) == len(ours)
    different = [index for index, row in enumerate(ours) if row != theirs[index]]
    assert not different, (
        f"{len(different)} of {len(ours)}: {questions[different[0]]}\n"
        f"{theirs[different[0]]}\n{ours[different[0]]}"
    )
