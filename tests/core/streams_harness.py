"""A streams group coordinator without a node: members by name, topics made by hand, and a log that
can be replayed.
"""

from kraftsim.groups.rules_shard import GroupShard
from kraftsim.groups.rules_streams_group import StreamsGroup, TaskSet
from kraftsim.groups.rules_streams_groups import StreamsGroups
from kraftsim.groups.rules_streams_heartbeats import StreamsAnswer, StreamsHeartbeat
from protocol.coordinator.streams_groups import (
    StreamsGroupTopologyValue,
    Subtopology,
    TopicInfo,
)
from protocol.errors import ErrorCode
from tests.core.consumers_harness import MadeTopics
from tests.core.groups_harness import GROUP, GroupsHarness

REBALANCE_MS = 20_000
DELAY_MS = 3_000


def topology(*subtopologies: Subtopology, epoch: int = 1) -> StreamsGroupTopologyValue:
    """Return a topology."""
    return StreamsGroupTopologyValue(epoch=epoch, subtopologies=list(subtopologies))


def reads(number: int, *sources: str, store: str | None = None) -> Subtopology:
    """Return a subtopology that reads topics, with a changelog if it keeps state."""
    stores = [] if store is None else [TopicInfo(name=store)]
    return Subtopology(
        subtopology_id=str(number), source_topics=list(sources), state_changelog_topics=stores
    )


class StreamsHarness(GroupsHarness):
    """`owned` has the tasks of each member, as last assigned; by default one subtopology reads
    topic t.
    """

    def __init__(self, topics: MadeTopics | None = None, **settings: object) -> None:
        super().__init__(
            GroupShard,
            **{"streams_have_roles": True, "streams_assigns_at_intervals": True, **settings},
        )
        self.topics = topics or MadeTopics()
        self.shard = GroupShard(self.settings, 7, self.events.append, self.topics)
        self.owned: dict[str, TaskSet] = {}
        self.epochs: dict[str, int] = {}

    @property
    def streams(self) -> StreamsGroup:
        """The group."""
        found = self.shard.other_groups[GROUP]
        assert isinstance(found, StreamsGroup)
        return found

    def ask(self, member_id: str, epoch: int, **changed: object) -> StreamsAnswer:
        """Send a heartbeat, and return the response."""
        self._waiters += 1
        waiter = self._waiters
        fields: dict[str, object] = {
            "group_id": GROUP,
            "member_id": member_id,
            "member_epoch": epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout_ms": -1,
            "topology": None,
            "owned": None,
            "process_id": None,
            "user_endpoint": None,
            "client_tags": None,
            "task_offsets": None,
            "task_end_offsets": None,
            "shuts_down": False,
            "endpoint_epoch": 0,
            "client_id": "c",
            "client_host": "/h",
            "api_version": 1,
            **changed,
        }
        # arg-type: a dict of values of several types
        asked = StreamsHeartbeat(**fields)  # type: ignore[arg-type]
        self.settle(
            self.shard.ask_type(
                StreamsGroups, lambda groups: groups.heartbeat(waiter, asked, self.now)
            )
        )
        answer = self.answers[waiter]
        assert isinstance(answer, StreamsAnswer)
        return answer

    # override: members bring a topology
    def join(self, member_id: str, **changed: object) -> StreamsAnswer:  # type: ignore[override]
        """Join the group, and accept the tasks."""
        fields = {
            "topology": topology(reads(0, "t")),
            "rebalance_timeout_ms": REBALANCE_MS,
            "owned": TaskSet(),
            "process_id": f"process-{member_id}",
            "client_tags": {},
            **changed,
        }
        return self.take(member_id, self.ask(member_id, 0, **fields))

    def beat(self, member_id: str, **changed: object) -> StreamsAnswer:
        """Send a heartbeat with the tasks that the member has, and accept its tasks."""
        fields = {"owned": self.owned[member_id], **changed}
        return self.take(member_id, self.ask(member_id, self.epochs[member_id], **fields))

    def beat_all(self, *member_ids: str, rounds: int = 6) -> dict[str, TaskSet]:
        """Let members send some rounds of heartbeats, a second apart; return their tasks."""
        for _ in range(rounds):
            self.pass_time(1_000)
            for member_id in member_ids:
                self.beat(member_id)
                self.no_active_task_is_shared()
        return {member_id: self.owned[member_id] for member_id in member_ids}

    def started(self, *member_ids: str, **changed: object) -> dict[str, TaskSet]:
        """Let members join and get their tasks."""
        for member_id in member_ids:
            self.join(member_id, **changed)
        self.pass_time(DELAY_MS)
        return self.beat_all(*member_ids)

    def take(self, member_id: str, answer: StreamsAnswer) -> StreamsAnswer:
        """Accept a response."""
        if answer.error is ErrorCode.NONE:
            self.epochs[member_id] = answer.member_epoch
            self.owned.setdefault(member_id, TaskSet())
            if answer.tasks is not None:
                self.owned[member_id] = answer.tasks
        return answer

    def no_active_task_is_shared(self) -> None:
        """Fail if two members run the same task."""
        rows = [
            (name, number)
            for tasks in self.owned.values()
            for name, numbers in tasks.active.items()
            for number in numbers
        ]
        assert len(rows) == len(set(rows)), f"two members run the same: {self.owned}"

    def gone(self, member_id: str) -> None:
        """Forget a member that has left."""
        del self.owned[member_id], self.epochs[member_id]

    def replayed_again(self) -> "StreamsHarness":
        """Another coordinator that has replayed the same log."""
        other = StreamsHarness(self.topics)
        other.settings = self.settings
        other.shard = GroupShard(self.settings, 7, other.events.append, self.topics)
        other.now_ms = self.now_ms
        for batch in self.log:
            other.shard.replay(batch)
        other.settle(other.shard.begin(other.now))
        return other


def state_of(harness: StreamsHarness) -> object:
    """What a coordinator knows of the group from the log."""
    group = harness.streams
    return (
        group.group_epoch,
        group.assignment_epoch,
        group.assigned_ms,
        group.metadata_hash,
        group.validated_topology_epoch,
        group.last_configs,
        group.topology,
        {key: group.members[key] for key in sorted(group.members)},
        {key: group.targets[key] for key in sorted(group.targets)},
    )
