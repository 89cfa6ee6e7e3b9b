"""A consumer-group coordinator without a node: members by name, manually created topics, and a log
that can be replayed.
"""

from kraftsim.groups.rules_assignors import Shares
from kraftsim.groups.rules_consumer_group import ConsumerGroup
from kraftsim.groups.rules_consumer_groups import HeartbeatInput
from kraftsim.groups.rules_shard import GroupShard
from kraftsim.groups.rules_timing import HeartbeatAnswer, Protocols
from kraftsim.groups.rules_topic_hashes import hash_of_topic
from protocol.errors import ErrorCode
from tests.core.groups_harness import GROUP, GroupsHarness

REBALANCE_MS = 20_000


class MadeTopics:
    """Topics by name, with their number of partitions."""

    def __init__(self) -> None:
        self.version = 0
        self._counts: dict[str, int] = {}

    def make(self, name: str, count: int) -> bytes:
        """Create or enlarge a topic, and return its id."""
        self.version += 1
        self._counts[name] = count
        return id_of(name)

    def find(self, name: str) -> tuple[bytes, int] | None:
        return (id_of(name), self._counts[name]) if name in self._counts else None

    def hash_of(self, name: str) -> int | None:
        found = self.find(name)
        return None if found is None else hash_of_topic(found[0], name, [()] * found[1])

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name in self._counts if id_of(name) == topic_id), None)

    def names(self) -> list[str]:
        return sorted(self._counts)


def id_of(name: str) -> bytes:
    """The id of a topic."""
    return name.encode().ljust(16, b".")


class ConsumersHarness(GroupsHarness):
    """`owned` has the partitions of each member, as last assigned."""

    def __init__(self, topics: MadeTopics | None = None, **settings: object) -> None:
        super().__init__(GroupShard, **settings)
        self.topics = topics or MadeTopics()
        self.shard = GroupShard(self.settings, 7, self.events.append, self.topics)
        self.owned: dict[str, Shares] = {}
        self.epochs: dict[str, int] = {}

    @property
    def consumers(self) -> ConsumerGroup:
        """The group."""
        return self.shard.consumer_groups[GROUP]

    def ask(self, member_id: str, epoch: int, **changed: object) -> HeartbeatAnswer:
        """Send a heartbeat, and return the response."""
        self._waiters += 1
        fields: dict[str, object] = {
            "group_id": GROUP,
            "member_id": member_id,
            "member_epoch": epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout_ms": -1,
            "subscribed_names": None,
            "subscribed_regex": None,
            "server_assignor": None,
            "owned": None,
            "client_id": "c",
            "client_host": "/h",
            "fresh_id": "fresh",
            **changed,
        }
        # arg-type: a dict of values of several types
        asked = HeartbeatInput(**fields)  # type: ignore[arg-type]
        self.settle(self.shard.consumer_heartbeat(self._waiters, asked, self.now))
        answer = self.answers[self._waiters]
        assert isinstance(answer, HeartbeatAnswer)
        return answer

    # override: consumers name their topics
    def join(self, member_id: str, *names: str, **changed: object) -> HeartbeatAnswer:  # type: ignore[override]
        """Join the group, and accept the assignment."""
        fields = {
            "subscribed_names": names or ("t",),
            "rebalance_timeout_ms": REBALANCE_MS,
            "owned": {},
            **changed,
        }
        return self._take(member_id, self.ask(member_id, 0, **fields))

    def beat(self, member_id: str, **changed: object) -> HeartbeatAnswer:
        """Send a heartbeat with the owned partitions, and accept the assignment."""
        return self._take(
            member_id,
            self.ask(
                member_id, self.epochs[member_id], **{"owned": self.owned[member_id], **changed}
            ),
        )

    def beat_all(self, *member_ids: str, rounds: int = 6) -> dict[str, list[int]]:
        """Let members send some rounds of heartbeats, and return the partitions of topic t that
        each has.
        """
        for _ in range(rounds):
            for member_id in member_ids:
                self.beat(member_id)
                self._no_partition_is_shared()
        return {
            member_id: list(self.owned[member_id].get(id_of("t"), ())) for member_id in member_ids
        }

    def _take(self, member_id: str, answer: HeartbeatAnswer) -> HeartbeatAnswer:
        if answer.error is ErrorCode.NONE:
            self.epochs[member_id] = answer.member_epoch
            self.owned.setdefault(member_id, {})
            if answer.assigned is not None:
                self.owned[member_id] = dict(answer.assigned)
        return answer

    def _no_partition_is_shared(self) -> None:
        rows = [
            (topic_id, number)
            for shares in self.owned.values()
            for topic_id, numbers in shares.items()
            for number in numbers
        ]
        assert len(rows) == len(set(rows)), f"two members have the same: {self.owned}"

    def gone(self, member_id: str) -> None:
        """Remove a member that has left."""
        del self.owned[member_id], self.epochs[member_id]

    def classic_join(self) -> int:
        """Request to join as a classic member."""
        return super().join(fresh="classic")

    def classic_joins(
        self, member_id: str, protocols: Protocols, *, fresh: str, instance: str | None = None
    ) -> int:
        """Request to join with a subscription; return the number of the pending response."""
        return super().join(member_id, fresh=fresh, instance=instance, spoken=protocols)

    def stable_classic(self) -> None:
        """Create a classic group with one member that has left."""
        waiter = self.classic_join()
        self.pass_time(3000)
        self.leave(self.joined(waiter).member_id)

    def replayed_again(self) -> "ConsumersHarness":
        """Another coordinator that has replayed the same log."""
        other = ConsumersHarness(
            self.topics,
            consumer_migration_policy=self.settings.consumer_migration_policy,
            consumer_keeps_assignment_epochs=self.settings.consumer_keeps_assignment_epochs,
        )
        for batch in self.log:
            other.shard.replay(batch)
        other.records, other.log = list(self.records), list(self.log)
        other.owned, other.epochs = dict(self.owned), dict(self.epochs)
        other.settle(other.shard.begin(other.now))
        return other


def state_of(harness: ConsumersHarness) -> object:
    """The complete state of the group in the log."""
    group = harness.consumers
    return (
        group.group_epoch,
        group.assignment_epoch,
        group.metadata_hash,
        group.members,
        group.targets,
        group.resolved,
        group.state,
    )
