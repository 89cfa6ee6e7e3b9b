"""A member of a streams group (KIP-1071): it joins with its topology, and takes and revokes active
tasks. Task n of a subtopology reads partition n of each of its source topics.

A heartbeat has the tasks only if they have changed since the last one that was answered; the first
one, and each after an epoch is fenced, has the topology and no tasks. The transactions of the tasks
commit offsets with the member epoch.

Left out of Kafka's client: standby and warm-up tasks (num.standby.replicas is 0 here) with their
task offsets, endpoints of interactive queries, the shutdown of an application, and the topology
description of KIP-1331. Statuses of the coordinator need no action: a member whose source topics
are missing, or whose assignment is delayed, has no tasks meanwhile.
Source: KIP-1071, org.apache.kafka.clients.consumer.internals.{StreamsMembershipManager,
StreamsGroupHeartbeatRequestManager}.
"""

from collections.abc import Mapping
from typing import Final

from kraftsim.clients.rules_heartbeat_member import JOINS, HeartbeatMembership
from kraftsim.clients.rules_member_steps import (
    ClientMemberState,
    MemberSettings,
    MembershipInput,
    StreamsHeartbeatAnswered,
    StreamsMemberHeartbeat,
)
from kraftsim.clients.rules_producer_steps import TopicPartition

NO_TASKS: Final[Mapping[str, tuple[int, ...]]] = {}


class StreamsGroupMembership(HeartbeatMembership[str]):
    """One member of a streams group, whose settings have the topology."""

    def __init__(self, settings: MemberSettings, member_id: str) -> None:
        super().__init__(settings, member_id)
        self._reported: Mapping[str, tuple[int, ...]] | None = None
        """The tasks that the coordinator knows the member to have; None: it may know others."""

    def _on_other(self, happened: MembershipInput, now_ms: int) -> None:
        match happened:
            case StreamsHeartbeatAnswered(active=active):
                self._on_answered(happened, active, now_ms)
            case _:
                raise AssertionError(f"{type(happened).__name__} is of another protocol")

    def _known(self, now_ms: int) -> Mapping[str, tuple[int, ...]]:
        return self._target

    def _named(self, assigned: Mapping[str, tuple[int, ...]]) -> tuple[TopicPartition, ...]:
        return tuple(
            sorted(
                TopicPartition(topic, number)
                for name, numbers in assigned.items()
                for topic in self._settings.subtopologies[name]
                for number in numbers
            )
        )

    def _forget_sent(self) -> None:
        self._reported = None

    def _leaving(self, member_epoch: int) -> StreamsMemberHeartbeat:
        return StreamsMemberHeartbeat(member_id=self.member_id, member_epoch=member_epoch)

    def _heartbeat(self) -> StreamsMemberHeartbeat:
        if self.state is ClientMemberState.JOINING:
            self._reported = NO_TASKS
            return StreamsMemberHeartbeat(
                member_id=self.member_id, member_epoch=JOINS, joins=True, active=NO_TASKS
            )
        is_new = self._reported != self._owned
        self._reported = self._owned
        if self.state is ClientMemberState.ACKNOWLEDGING:
            self.state = self._state_by_target
        return StreamsMemberHeartbeat(
            member_id=self.member_id,
            member_epoch=self.generation_id,
            active=self._owned if is_new else None,
        )
