"""Apache Kafka and kraftsim compared: the same members of streams groups get the same responses,
and both coordinators write the same records.

The ids of topics differ, so a hash of topics is shown as their names. Left out is the time of
assignments.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kraftsim.conformance.group_client import GroupClient
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.streams_group_client import rows_of, subtopology, tasks_of
from kraftsim.conformance.target import Target
from kraftsim.groups.rules_timing import partition_of
from protocol.coordinator.registry import CoordinatorTopic, build_record, parse_record
from protocol.coordinator.streams_groups import (
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMetadataValue,
)
from protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.k88_streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskOffset,
    TopicInfo,
    Topology,
)
from protocol.messages.k89_streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from protocol.records.batches import split_batches
from protocol.schema import declaration_of
from tests.apache_kafka.harness import ApacheKafka
from tests.apache_kafka.named_hashes import HashedTopics
from tests.cluster.running import running_processes

pytestmark = pytest.mark.interop
RELEASES = {"4.2.2": "4.2", "4.3.1": "4.3", "4.4.0": "4.4"}
"""Apache Kafka -> the release that kraftsim emulates."""
OFFSETS, OFFSETS_PARTITIONS = "__consumer_offsets", 3
SINCE_4_3 = {"group.streams.assignment.interval.ms": "0"}
SETTINGS = {
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.num.standby.replicas": "1",
}
TOPICS = {"three": 3, "two": 2, "store": 3, "stored": 3, "lone": 1}
STREAMS_RECORDS = range(17, 24)
FETCH_VERSION = 12
SIZE = 1 << 20
SEEN_SECONDS = 1.0
STATEFUL = (
    subtopology(0, ["three"], stores=["store"]),
    subtopology(1, ["two"]),
    subtopology(10, ["three", "two"], stores=["stored"]),
    subtopology(2, ["lone"]),
)
"""Their ids have buckets of their own in a Java hash map: the order in one depends on history."""
TAGS = [KeyValue(key="z", value="1"), KeyValue(key="y", value="2")]


class Side:
    """One of the two: members by name with what they own, and everything that was answered."""

    def __init__(self, target: Target, group_id: str, version: int) -> None:
        self.group_id = group_id
        self.answers: list[str] = []
        self._version = version
        self._target = target
        groups = GroupClient(target)
        self._peer: Peer = groups.peer()
        self._epochs: dict[str, int] = {}
        self._owned: dict[str, dict[str, list[object]]] = {}

    def ask(self, member_id: str, epoch: int, **fields: object) -> StreamsGroupHeartbeatResponse:
        """Send a heartbeat, and keep the response."""
        # arg-type: a dict of values of several types
        request = StreamsGroupHeartbeatRequest(
            **{"group_id": self.group_id, "member_id": member_id, "member_epoch": epoch, **fields}  # type: ignore[arg-type]
        )
        answer = self._peer.ask(request, self._version, StreamsGroupHeartbeatResponse)
        for row in answer.partitions_by_user_endpoint or ():
            row.active_partitions.sort(key=lambda each: (each.topic, each.partitions))
            row.standby_partitions.sort(key=lambda each: (each.topic, each.partitions))
        if answer.partitions_by_user_endpoint is not None:
            answer.partitions_by_user_endpoint.sort(key=lambda row: row.user_endpoint.port)
        self.answers.append(f"{member_id} {epoch}: {answer}")
        return answer

    def join(self, member_id: str, *parts: Subtopology, **fields: object) -> None:
        """Join with a topology, or again."""
        joining: dict[str, object] = {
            "rebalance_timeout_ms": 60_000,
            "topology": Topology(epoch=1, subtopologies=list(parts)),
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
            "process_id": f"process-{member_id[0]}",
            "client_tags": [],
            **fields,
        }
        self._take(member_id, self.ask(member_id, 0, **joining))

    def beat(self, member_id: str, **fields: object) -> None:
        """Send what the member owns."""
        owned = self._owned.get(member_id, {})
        rows: dict[str, object] = {
            name: owned.get(name, []) for name in ("active_tasks", "standby_tasks", "warmup_tasks")
        }
        self._take(member_id, self.ask(member_id, self._epochs[member_id], **rows, **fields))

    def rounds(self, *member_ids: str, count: int = 4) -> None:
        """Let members send some rounds of heartbeats."""
        for _ in range(count):
            for member_id in member_ids:
                self.beat(member_id)

    def describe(self) -> None:
        """Keep the description of the group."""
        request = StreamsGroupDescribeRequest(group_ids=[self.group_id])
        answer = self._peer.ask(request, self._version, StreamsGroupDescribeResponse)
        answer.groups[0].members.sort(key=lambda member: member.member_id)
        self.answers.append(str(answer))

    def topic(self, name: str, partitions: int) -> None:
        """Create a topic, and let the coordinator see it, later than clients do."""
        self._target.topic(partitions=partitions, name=name)
        time.sleep(SEEN_SECONDS)

    def _take(self, member_id: str, answer: StreamsGroupHeartbeatResponse) -> None:
        if answer.error_code != 0:
            return
        self._epochs[member_id] = answer.member_epoch
        if answer.active_tasks is not None:
            self._owned[member_id] = {
                name: list(rows_of(tasks_of(rows)))
                for name, rows in (
                    ("active_tasks", answer.active_tasks),
                    ("standby_tasks", answer.standby_tasks),
                    ("warmup_tasks", answer.warmup_tasks),
                )
            }

    def records(self) -> list[tuple[bytes, bytes | None, tuple[str, ...]]]:
        """Return the records of the group, without times and with names of hashed topics."""
        topics = HashedTopics(self._peer)
        number = partition_of(self.group_id, OFFSETS_PARTITIONS)
        row = FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=SIZE)
        request = FetchRequest(
            max_wait_ms=100,
            max_bytes=SIZE,
            topics=[FetchTopic(topic=OFFSETS, partitions=[row])],
        )
        answer = self._peer.ask(request, FETCH_VERSION, FetchResponse)
        content = answer.responses[0].partitions[0].records
        assert content is not None
        found = []
        for batch in split_batches(bytes(content)):
            for record in batch.records():
                assert record.key is not None
                if int.from_bytes(record.key[:2]) in STREAMS_RECORDS:
                    found.append(plain(record.key, record.value, topics))
        return [each for each in found if self.group_id.encode() in each[0]]


def plain(
    key: bytes, value: bytes | None, topics: HashedTopics
) -> tuple[bytes, bytes | None, tuple[str, ...]]:
    """Return a record without the time of the assignment, and the topics that it has a hash of."""
    parsed = parse_record(CoordinatorTopic.CONSUMER_OFFSETS, key, value)
    assert parsed is not None and declaration_of(type(parsed[0])) is not None
    match parsed[1]:
        case StreamsGroupMetadataValue() as metadata:
            names = topics.named(metadata.metadata_hash)
            metadata.metadata_hash = 0
            return *build_record(parsed[0], metadata), names
        case StreamsGroupTargetAssignmentMetadataValue() as assigned:
            assigned.assignment_timestamp = int(assigned.assignment_timestamp != 0)
            return *build_record(parsed[0], assigned), ()
    return key, value, ()


Script = Callable[[Side], None]


def several_members(side: Side) -> None:
    """Three members of two processes come and go; subtopology ids are not in order of numbers."""
    side.join("a1", *STATEFUL)
    side.describe()
    side.join(
        "b1",
        *STATEFUL,
        rack_id="r",
        client_tags=TAGS,
    )
    side.rounds("a1", "b1")
    side.join("a2", *STATEFUL)
    side.rounds("a1", "b1", "a2", count=6)
    side.describe()
    side.ask("b1", -1)
    side.rounds("a1", "a2")
    side.join("a1", *STATEFUL)
    side.rounds("a1", "a2")
    side.join("c1", *STATEFUL)
    side.beat("a2")
    side.ask("a2", 1)
    side.rounds("c1", "a1", "a2", count=5)
    side.ask("a2", -1, shutdown_application=True)
    side.beat("a1")
    side.ask("a1", -1)
    side.ask("c1", -1)
    side.describe()
    side.join("d1", *STATEFUL)
    side.describe()


def user_endpoints(side: Side) -> None:
    """Endpoints are given, changed, and removed by a join without."""
    part = subtopology(0, ["three"], stores=["store"])
    side.join("a1", part, user_endpoint=Endpoint(host="h", port=1))
    side.beat("a1")
    side.join("b1", part, user_endpoint=Endpoint(host="h", port=2))
    side.rounds("a1", "b1", count=3)
    side.beat("a1", endpoint_information_epoch=1)
    side.beat("b1", user_endpoint=Endpoint(host="i", port=3))
    side.rounds("a1", "b1", count=2)
    side.join("a1", part)
    side.rounds("a1", "b1", count=3)
    side.describe()


def missing_topics(side: Side) -> None:
    """Source topics are missing, for members with an endpoint too, and come later."""
    late = f"{side.group_id}-late"
    part = subtopology(0, [late, "two"])
    side.join("a1", part)
    side.join("b1", part, user_endpoint=Endpoint(host="h", port=1))
    side.describe()
    side.topic(late, 4)
    side.rounds("a1", count=2)
    side.describe()


def wrong_topologies(side: Side) -> None:
    """Topologies that no topics fit."""
    repartition = TopicInfo(name="repartition")
    loop = Subtopology(
        subtopology_id="0",
        repartition_sink_topics=["repartition"],
        repartition_source_topics=[repartition],
    )
    together = CopartitionGroup(source_topics=[0, 1])
    far = CopartitionGroup(source_topics=[0, 7])
    fixed = [TopicInfo(name="r1", partitions=2), TopicInfo(name="r2", partitions=5)]
    both = CopartitionGroup(repartition_source_topics=[0, 1])
    cases: tuple[list[Subtopology], ...] = (
        [loop],
        [subtopology(0, ["two"], repartitions=[repartition])],
        [subtopology(0, [], stores=["store"])],
        [subtopology(0, ["two", "three"], copartitions=[together])],
        [subtopology(0, ["two", "three"], copartitions=[far])],
        [subtopology(0, ["two"], repartitions=fixed, copartitions=[both])],
        [
            subtopology(
                0,
                ["two"],
                repartitions=fixed[:1],
                copartitions=[CopartitionGroup(source_topics=[0], repartition_source_topics=[0])],
            ),
        ],
        [subtopology(0, ["two"]), subtopology(0, ["three"])],
        [subtopology(0, ["two"], stores=["store"])],
        [],
    )
    group_id = side.group_id
    for number, parts in enumerate(cases):
        side.group_id = f"{group_id}-{number}"
        side.join("a1", *parts)
        side.describe()
        side.join("a1", *STATEFUL)
        side.ask("a1", -1)
    side.group_id = group_id


def static_members(side: Side) -> None:
    """A static member leaves for a while, and comes back under another id."""
    part = subtopology(0, ["three"], stores=["store"])
    side.join("a1", part, instance_id="i")
    side.join("b1", part, instance_id="j")
    side.ask("a1", 2, instance_id="i", active_tasks=[], standby_tasks=[], warmup_tasks=[])
    side.join("x1", part, instance_id="i")
    side.ask("a1", -2, instance_id="i")
    side.describe()
    side.join("a2", part, instance_id="i", user_endpoint=Endpoint(host="h", port=1))
    side.ask("a1", 2, instance_id="i")
    side.ask("a1", -1, instance_id="i")
    side.ask("z1", 3, instance_id="k")
    side.describe()
    side.ask("a2", -1, instance_id="i")
    side.describe()


def task_offsets(side: Side) -> None:
    """Members with the state of a task get it first."""
    part = subtopology(0, ["three"], stores=["store"])
    offsets = [TaskOffset(subtopology_id="0", partition=number, offset=number) for number in (0, 2)]
    side.join("a1", part, task_offsets=offsets, task_end_offsets=offsets)
    side.beat("a1", task_offsets=offsets)
    side.join("b1", part, task_offsets=offsets[:1])
    side.beat("b1", task_offsets=offsets)
    side.join("c1", part)
    for member_id in ("a1", "b1", "c1") * 3:
        side.beat(member_id)
    side.describe()


EVERYWHERE: tuple[Script, ...] = (several_members, user_endpoints, missing_topics, wrong_topologies)
SINCE_4_4: tuple[Script, ...] = (static_members, task_offsets)


@contextmanager
def both_sides(release: str, directory: Path) -> Iterator[tuple[Target, Target]]:
    """Run both, with the same topics."""
    line = RELEASES[release]
    settings = {**SETTINGS, **({} if line == "4.2" else SINCE_4_3)}
    with (
        ApacheKafka(release, settings) as theirs,
        running_processes(directory / "run", release=line, settings=settings) as ours,
    ):
        targets = Target(theirs.bootstrap), Target(ours.bootstrap)
        for target in targets:
            for name, partitions in TOPICS.items():
                target.topic(partitions=partitions, name=name)
        yield targets


@pytest.mark.parametrize("release", RELEASES)
def test_streams_groups_answer_and_write_the_same(release: str, tmp_path: Path) -> None:
    is_newest = RELEASES[release] == "4.4"
    scripts = EVERYWHERE + (SINCE_4_4 if is_newest else ())
    with both_sides(release, tmp_path) as targets:
        for script in scripts:
            for version in (0, 1) if is_newest else (0,):
                group_id = f"{script.__name__}-{version}"
                theirs, ours = (Side(target, group_id, version) for target in targets)
                for side in (theirs, ours):
                    script(side)
                for their, our in zip(theirs.answers, ours.answers, strict=True):
                    assert our == their, script.__name__
                assert ours.records() == theirs.records(), script.__name__
