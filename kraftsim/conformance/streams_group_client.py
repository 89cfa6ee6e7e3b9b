"""A KIP-1071 streams group for the checks: members with a topology that send heartbeats, take their
tasks, and revoke them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from kraftsim.conformance.expect import Unmet, expect_error, settled
from kraftsim.conformance.group_client import GroupClient, with_retries
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k88_streams_group_heartbeat import (
    CopartitionGroup,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from protocol.messages.k89_streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

VERSION: Final = 0
REBALANCE_MS: Final = 60_000
Tasks = dict[str, tuple[int, ...]]
"""Subtopology id -> partitions."""


def subtopology(
    number: int,
    sources: Iterable[str],
    *,
    stores: Iterable[str] = (),
    sinks: Iterable[str] = (),
    repartitions: Sequence[TopicInfo] = (),
    copartitions: Sequence[CopartitionGroup] = (),
) -> Subtopology:
    """Return a subtopology that reads topics; `stores` are changelog topics."""
    return Subtopology(
        subtopology_id=str(number),
        source_topics=list(sources),
        state_changelog_topics=[
            TopicInfo(name=name, topic_configs=[KeyValue(key="cleanup.policy", value="compact")])
            for name in stores
        ],
        repartition_sink_topics=list(sinks),
        repartition_source_topics=list(repartitions),
        copartition_groups=list(copartitions),
    )


def rows_of(tasks: Mapping[str, tuple[int, ...]]) -> list[TaskIds]:
    """Return tasks as rows of a heartbeat."""
    return [
        TaskIds(subtopology_id=name, partitions=list(numbers)) for name, numbers in tasks.items()
    ]


class TaskRow(Protocol):
    """A row of tasks, of a heartbeat or of a description."""

    @property
    def subtopology_id(self) -> str:
        """The subtopology."""
        ...

    @property
    def partitions(self) -> list[int]:
        """The partitions of its tasks."""
        ...


def tasks_of(rows: Iterable[TaskRow] | None) -> Tasks:
    """Return rows as tasks."""
    return {row.subtopology_id: tuple(sorted(row.partitions)) for row in rows or ()}


class StreamsGroupMember:
    """One member, which takes and gives up tasks as soon as a response says so. It has a process of
    its own.
    """

    def __init__(
        self, group: "StreamsGroupClient", member_id: str, topology: Topology, **fields: object
    ) -> None:
        self.talk = group
        self.member_id = member_id
        self.epoch = 0
        self.active: Tasks = {}
        self.standby: Tasks = {}
        self.topology = topology
        self._fields: dict[str, object] = {"process_id": f"process-{member_id}", **fields}

    def ask(self, **changed: object) -> StreamsGroupHeartbeatResponse:
        """Send a heartbeat with some fields, and return the response."""
        return self.talk.ask(member_id=self.member_id, member_epoch=self.epoch, **changed)

    def join(self, **changed: object) -> StreamsGroupHeartbeatResponse:
        """Join and take the tasks; retry while the coordinator is loading."""
        self.epoch = 0
        fields = self.joining(**changed)
        return self.take(
            with_retries(lambda: self.talk.ask(**fields), lambda answer: answer.error_code)
        )

    def joining(self, **changed: object) -> dict[str, object]:
        """Return the fields of a valid first heartbeat."""
        return {
            "member_id": self.member_id,
            "member_epoch": 0,
            "rebalance_timeout_ms": REBALANCE_MS,
            "topology": self.topology,
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
            "client_tags": [],
            **self._fields,
            **changed,
        }

    def beat(self, **changed: object) -> StreamsGroupHeartbeatResponse:
        """Send the tasks that it has, and take new ones."""
        instance = {key: self._fields[key] for key in ("instance_id",) if key in self._fields}
        return self.take(
            self.ask(
                active_tasks=rows_of(self.active),
                standby_tasks=rows_of(self.standby),
                warmup_tasks=[],
                **instance,
                **changed,
            )
        )

    def leave(self, epoch: int = -1, **changed: object) -> StreamsGroupHeartbeatResponse:
        """Leave, or with -2 leave temporarily as a static member."""
        instance = {key: self._fields[key] for key in ("instance_id",) if key in self._fields}
        return self.talk.ask(member_id=self.member_id, member_epoch=epoch, **instance, **changed)

    def take(self, answer: StreamsGroupHeartbeatResponse) -> StreamsGroupHeartbeatResponse:
        """Take epoch and tasks of a response."""
        expect_error(answer.error_code, ErrorCode.NONE, f"a heartbeat of {self.member_id}")
        self.epoch = answer.member_epoch
        if answer.active_tasks is not None:
            self.active = tasks_of(answer.active_tasks)
            self.standby = tasks_of(answer.standby_tasks)
        return answer


class StreamsGroupClient:
    """A group with a new name on one connection, whose coordinator is available."""

    def __init__(self, target: Target) -> None:
        self.target = target
        target.range_of(ApiKey.STREAMS_GROUP_HEARTBEAT)
        self.classic = GroupClient(target)
        self.group_id = self.classic.group_id
        self.peer: Peer = self.classic.peer()

    def __enter__(self) -> "StreamsGroupClient":
        return self

    def __exit__(self, *failure: object) -> None:
        self.peer.close()

    def ask(self, **fields: object) -> StreamsGroupHeartbeatResponse:
        """Send a heartbeat of a member to the group."""
        return self.ask_in(VERSION, fields)

    def ask_in(self, version: int, fields: dict[str, object]) -> StreamsGroupHeartbeatResponse:
        """Send a heartbeat in a given version."""
        # arg-type: a dict of values of several types
        asked = StreamsGroupHeartbeatRequest(**{"group_id": self.group_id, **fields})  # type: ignore[arg-type]
        return self.peer.ask(asked, version, StreamsGroupHeartbeatResponse)

    def describe(self, version: int = VERSION, **fields: bool) -> DescribedGroup:
        """Return the description of the group."""
        asked = StreamsGroupDescribeRequest(group_ids=[self.group_id], **fields)
        return self.peer.ask(asked, version, StreamsGroupDescribeResponse).groups[0]

    def member(self, name: str, *parts: Subtopology, **fields: object) -> StreamsGroupMember:
        """Return a member that has not joined yet, with a topology of these parts."""
        return StreamsGroupMember(
            self, name, Topology(epoch=1, subtopologies=list(parts)), **fields
        )

    def settle(self, *members: StreamsGroupMember, wanted: list[Tasks]) -> None:
        """Let members send heartbeats until each has its expected active tasks.

        Raises Unmet if two ever run the same, or after a time-out.
        """

        def round_of_beats() -> list[Tasks]:
            for member in members:
                member.beat()
                self._look(members)
            return [member.active for member in members]

        settled(
            round_of_beats,
            lambda found: found == wanted and len({member.epoch for member in members}) == 1,
            "the tasks of all members",
        )

    def settle_evenly(self, *members: StreamsGroupMember, count: int) -> None:
        """Let members send heartbeats until each runs as many tasks, of `count` in all."""

        def round_of_beats() -> list[int]:
            for member in members:
                member.beat()
                self._look(members)
            return [sum(map(len, member.active.values())) for member in members]

        settled(
            round_of_beats,
            lambda found: (
                sum(found) == count
                and max(found) - min(found) <= 1
                and len({member.epoch for member in members}) == 1
            ),
            "the tasks of all members",
        )

    def _look(self, members: tuple[StreamsGroupMember, ...]) -> None:
        taken: dict[tuple[str, int], str] = {}
        for member in members:
            for name, numbers in member.active.items():
                for number in numbers:
                    other = taken.setdefault((name, number), member.member_id)
                    if other != member.member_id:
                        raise Unmet(
                            f"task {name}_{number} was given to {member.member_id} while {other} "
                            "had it"
                        )
