"""A consumer group of KIP-848 as the checks use it: members that heartbeat, take what they are given, and give up what they are to give up."""

from typing import Final

from kraftsim.conformance.expect import Unmet, expect_error
from kraftsim.conformance.group_talk import GroupTalk, patiently
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.settle import settled
from kraftsim.conformance.target import Target, Topic
from protocol.errors import ErrorCode
from protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

VERSION: Final = 1
REBALANCE_MS: Final = 60_000
Owned = dict[bytes, tuple[int, ...]]


class TalkingMember:
    """One member. `owned` is what it has: what it is told to have, as soon as it is told."""

    def __init__(self, talk: "ConsumerTalk", member_id: str, names: list[str], **fields: object) -> None:
        self.talk = talk
        self.member_id = member_id
        self.epoch = 0
        self.owned: Owned = {}
        self._names = names
        self._fields = fields

    def ask(self, **changed: object) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat with some fields, and return the answer as it is."""
        return self.talk.ask(member_id=self.member_id, member_epoch=self.epoch, **changed)

    def join(self) -> ConsumerGroupHeartbeatResponse:
        """Join, and take what comes; again where a slow coordinator is not ready for it yet."""
        self.epoch = 0
        fields: dict[str, object] = {
            "rebalance_timeout_ms": REBALANCE_MS,
            "subscribed_topic_names": self._names,
            "topic_partitions": [],
            **self._fields,
        }
        return self._take(patiently(lambda: self.ask(**fields), lambda answer: answer.error_code))

    def beat(self) -> ConsumerGroupHeartbeatResponse:
        """Say what it has, and take what comes."""
        instance = {"instance_id": self._fields["instance_id"]} if "instance_id" in self._fields else {}
        return self._take(self.ask(topic_partitions=rows_of(self.owned), **instance))

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        """Go, for good or (-2) for a while."""
        instance = {"instance_id": self._fields["instance_id"]} if "instance_id" in self._fields else {}
        return self.talk.ask(member_id=self.member_id, member_epoch=epoch, **instance)

    def _take(self, answer: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
        expect_error(answer.error_code, ErrorCode.NONE, f"a heartbeat of {self.member_id}")
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = {row.topic_id: tuple(sorted(row.partitions)) for row in answer.assignment.topic_partitions}
        return answer


class ConsumerTalk:
    """A group of a fresh name whose coordinator answers already, on one connection."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.classic = GroupTalk(target)
        self.group_id = self.classic.group_id
        self.peer: Peer = self.classic.peer()

    def __enter__(self) -> "ConsumerTalk":
        return self

    def __exit__(self, *failure: object) -> None:
        self.peer.close()

    def ask(self, **fields: object) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat of somebody to the group."""
        return self.ask_in(VERSION, fields)

    def ask_in(self, version: int, fields: dict[str, object]) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat in some version."""
        asked = ConsumerGroupHeartbeatRequest(**{"group_id": self.group_id, **fields})  # type: ignore[arg-type]
        return self.peer.ask(asked, version, ConsumerGroupHeartbeatResponse)

    def member(self, name: str, *topics: Topic, **fields: object) -> TalkingMember:
        """Return a member that has not joined yet."""
        return TalkingMember(self, name, [topic.name for topic in topics], **fields)

    def settle(self, *members: TalkingMember, wanted: list[Owned]) -> None:
        """Let members heartbeat until each has what it is to have. Raises Unmet if two ever have the same, or if it does not come to that."""

        def round_of_beats() -> list[Owned]:
            for member in members:
                member.beat()
                self._look(members)
            return [member.owned for member in members]

        settled(round_of_beats, lambda found: found == wanted and len({member.epoch for member in members}) == 1, "the shares of all members")

    def _look(self, members: tuple[TalkingMember, ...]) -> None:
        taken: dict[tuple[bytes, int], str] = {}
        for member in members:
            for topic_id, numbers in member.owned.items():
                for number in numbers:
                    other = taken.setdefault((topic_id, number), member.member_id)
                    if other != member.member_id:
                        raise Unmet(f"partition {number} was given to {member.member_id} while {other} had it")


def rows_of(owned: Owned) -> list[TopicPartitions]:
    """Return partitions as rows of a heartbeat."""
    return [TopicPartitions(topic_id=topic_id, partitions=list(numbers)) for topic_id, numbers in owned.items()]
