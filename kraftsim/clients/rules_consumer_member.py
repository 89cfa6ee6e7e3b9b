"""A member of a consumer group (KIP-848): its heartbeats have the subscription and the partitions
that it owns, by topic id, for which it asks the brokers for names.

Source: KIP-848, org.apache.kafka.clients.consumer.internals.{ConsumerMembershipManager,
ConsumerHeartbeatRequestManager}.
"""

from collections.abc import Mapping
from dataclasses import replace

from kraftsim.clients.rules_heartbeat_member import JOINS, HeartbeatMembership
from kraftsim.clients.rules_member_steps import (
    ClientMemberState,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswered,
    MemberSettings,
    MembershipInput,
    NameTopics,
    SubscriptionChanged,
    TopicsNamed,
)
from kraftsim.clients.rules_producer_steps import TopicPartition

Shares = Mapping[bytes, tuple[int, ...]]
"""Topic id -> partitions, ascending."""


class ConsumerGroupMembership(HeartbeatMembership[bytes]):
    """One member of a consumer group."""

    def __init__(self, settings: MemberSettings, member_id: str) -> None:
        super().__init__(settings, member_id)
        self._names_topics = False
        self._name_at_ms = 0
        """When brokers may be asked again for names that they did not know."""
        self._names: dict[bytes, str] = {}
        self._sent = ConsumerHeartbeat(member_id=member_id, member_epoch=JOINS)
        """The fields that the coordinator knows: later heartbeats leave them out."""

    @property
    def wake_at_ms(self) -> int | None:
        """When TimePassed is due without other inputs; None: never."""
        heartbeat_at_ms = self._heartbeat_at_ms
        if self.state is not ClientMemberState.RECONCILING or self._names_topics:
            return heartbeat_at_ms
        return (
            self._name_at_ms if heartbeat_at_ms is None else min(heartbeat_at_ms, self._name_at_ms)
        )

    def _on_other(self, happened: MembershipInput, now_ms: int) -> None:
        match happened:
            case SubscriptionChanged(topics, expression):
                self._settings = replace(self._settings, topics=topics, topic_expression=expression)
            case TopicsNamed(names):
                self._names_topics = False
                self._names |= names or {}
                self._name_at_ms = now_ms + self._settings.retry_backoff_ms
            case ConsumerHeartbeatAnswered(assigned=assigned):
                self._on_answered(happened, assigned, now_ms)
            case _:
                raise AssertionError(f"{type(happened).__name__} is of another protocol")

    def _known(self, now_ms: int) -> Shares:
        unknown = tuple(sorted(each for each in self._target if each not in self._names))
        if unknown and not self._names_topics and now_ms >= self._name_at_ms:
            self._names_topics = True
            self._effects.append(NameTopics(unknown))
        return {
            topic_id: numbers
            for topic_id, numbers in self._target.items()
            if topic_id in self._names
        }

    def _named(self, assigned: Shares) -> tuple[TopicPartition, ...]:
        return tuple(
            sorted(
                TopicPartition(self._names[topic_id], number)
                for topic_id, numbers in assigned.items()
                for number in numbers
            )
        )

    def _forget_sent(self) -> None:
        self._sent = ConsumerHeartbeat(member_id=self.member_id, member_epoch=JOINS)

    def _leaving(self, member_epoch: int) -> ConsumerHeartbeat:
        return ConsumerHeartbeat(member_id=self.member_id, member_epoch=member_epoch)

    def _heartbeat(self) -> ConsumerHeartbeat:
        """Return the next heartbeat, with the fields that the coordinator does not know yet."""
        expression = self._settings.topic_expression
        whole = ConsumerHeartbeat(
            member_id=self.member_id,
            member_epoch=self.generation_id,
            topics=self._settings.topics,
            expression=expression if expression is not None or not self._sent.expression else "",
            rebalance_timeout_ms=self._settings.rebalance_timeout_ms,
            owned=self._owned,
        )
        known, self._sent = self._sent, whole
        if self.state is ClientMemberState.ACKNOWLEDGING:
            self.state = self._state_by_target
        return ConsumerHeartbeat(
            member_id=self.member_id,
            member_epoch=self.generation_id,
            topics=None if whole.topics == known.topics else whole.topics,
            expression=None if whole.expression == known.expression else whole.expression,
            rebalance_timeout_ms=-1
            if whole.rebalance_timeout_ms == known.rebalance_timeout_ms
            else whole.rebalance_timeout_ms,
            owned=None if whole.owned == known.owned else whole.owned,
        )
