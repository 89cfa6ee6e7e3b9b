"""A KIP-848 consumer group for the checks: members that send heartbeats, take their assignment, and
revoke partitions.
"""

from typing import Final

from kraftsim.conformance.expect import Unmet, expect_error, settled
from kraftsim.conformance.group_client import GroupClient, with_retries
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.target import Target, TargetTopic
from protocol.errors import ErrorCode
from protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

VERSION: Final = 1
REBALANCE_MS: Final = 60_000
Owned = dict[bytes, tuple[int, ...]]


class ConsumerGroupMember:
    """One member. `owned` is its assignment, which it takes as soon as it receives it."""

    def __init__(
        self, group: "ConsumerGroupClient", member_id: str, names: list[str], **fields: object
    ) -> None:
        self.talk = group
        self.member_id = member_id
        self.epoch = 0
        self.owned: Owned = {}
        self._names = names
        self._fields = fields

    def ask(self, **changed: object) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat with some fields, and return the response."""
        return self.talk.ask(member_id=self.member_id, member_epoch=self.epoch, **changed)

    def join(self) -> ConsumerGroupHeartbeatResponse:
        """Join and take the assignment; retry while the coordinator is loading."""
        self.epoch = 0
        fields: dict[str, object] = {
            "rebalance_timeout_ms": REBALANCE_MS,
            "subscribed_topic_names": self._names,
            "topic_partitions": [],
            **self._fields,
        }
        return self._take(
            with_retries(lambda: self.ask(**fields), lambda answer: answer.error_code)
        )

    def beat(self) -> ConsumerGroupHeartbeatResponse:
        """Send the owned partitions, and take the assignment."""
        instance = (
            {"instance_id": self._fields["instance_id"]} if "instance_id" in self._fields else {}
        )
        return self._take(self.ask(topic_partitions=rows_of(self.owned), **instance))

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        """Leave, or with -2 leave temporarily as a static member."""
        instance = (
            {"instance_id": self._fields["instance_id"]} if "instance_id" in self._fields else {}
        )
        return self.talk.ask(member_id=self.member_id, member_epoch=epoch, **instance)

    def _take(self, answer: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
        expect_error(answer.error_code, ErrorCode.NONE, f"a heartbeat of {self.member_id}")
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = {
                row.topic_id: tuple(sorted(row.partitions))
                for row in answer.assignment.topic_partitions
            }
        return answer


class ConsumerGroupClient:
    """A group with a new name on one connection, whose coordinator is available."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.classic = GroupClient(target)
        self.group_id = self.classic.group_id
        self.peer: Peer = self.classic.peer()

    def __enter__(self) -> "ConsumerGroupClient":
        return self

    def __exit__(self, *failure: object) -> None:
        self.peer.close()

    def ask(self, **fields: object) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat of a member to the group."""
        return self.ask_in(VERSION, fields)

    def ask_in(self, version: int, fields: dict[str, object]) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat in a given version."""
        # arg-type: a dict of values of several types
        asked = ConsumerGroupHeartbeatRequest(**{"group_id": self.group_id, **fields})  # type: ignore[arg-type]
        return self.peer.ask(asked, version, ConsumerGroupHeartbeatResponse)

    def member(self, name: str, *topics: TargetTopic, **fields: object) -> ConsumerGroupMember:
        """Return a member that has not joined yet."""
        return ConsumerGroupMember(self, name, [topic.name for topic in topics], **fields)

    def settle(self, *members: ConsumerGroupMember, wanted: list[Owned]) -> None:
        """Let members send heartbeats until each has its expected partitions.

        Raises Unmet if two ever own the same, or after a time-out.
        """

        def round_of_beats() -> list[Owned]:
            for member in members:
                member.beat()
                self._look(members)
            return [member.owned for member in members]

        settled(
            round_of_beats,
            lambda found: found == wanted and len({member.epoch for member in members}) == 1,
            "the assignments of all members",
        )

    def _look(self, members: tuple[ConsumerGroupMember, ...]) -> None:
        taken: dict[tuple[bytes, int], str] = {}
        for member in members:
            for topic_id, numbers in member.owned.items():
                for number in numbers:
                    other = taken.setdefault((topic_id, number), member.member_id)
                    if other != member.member_id:
                        raise Unmet(
                            f"partition {number} was given to {member.member_id} while {other} "
                            "had it"
                        )


def rows_of(owned: Owned) -> list[TopicPartitions]:
    """Return partitions as rows of a heartbeat."""
    return [
        TopicPartitions(topic_id=topic_id, partitions=list(numbers))
        for topic_id, numbers in owned.items()
    ]
