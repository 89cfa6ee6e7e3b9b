"""The share coordinator answers and writes what that of Apache Kafka does: the same requests to
both, drawn at random, with their responses and the records in `__share_group_state`.
"""

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kraftsim.cli.main import kraftsim
from kraftsim.conformance.peer import Peer
from kraftsim.groups.rules_assignors import java_order, uuid_hash
from protocol.coordinator.registry import CoordinatorTopic, build_record, parse_record
from protocol.errors import ErrorCode
from protocol.messages import (
    k83_initialize_share_group_state as k83,
)
from protocol.messages import (
    k84_read_share_group_state as k84,
)
from protocol.messages import (
    k85_write_share_group_state as k85,
)
from protocol.messages import (
    k86_delete_share_group_state as k86,
)
from protocol.messages import (
    k87_read_share_group_state_summary as k87,
)
from protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.k10_find_coordinator import (
    SHARE,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.records.batches import split_batches
from protocol.uuids import uuid_text
from tests.apache_kafka.class_path import NEWEST_RELEASE
from tests.apache_kafka.harness import ApacheKafka, run_tool
from tests.conftest import ClusterFactory

pytestmark = pytest.mark.interop
RELEASES = [("4.1", "4.1.2"), ("4.2", "4.2.2"), ("4.3", "4.3.1"), ("4.4", "4.4.0")]
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
}
STATES = "__share_group_state"
TOPICS = {"a": 2, "b": 1}
NOWHERE = bytes([9]) * 16
GROUPS = ("g", "h:i")
REQUESTS = 260
WAIT_SECONDS = 30.0
SIZE = 1 << 22
FETCH_VERSION, METADATA_VERSION, CREATE_VERSION, FIND_VERSION = 12, 12, 7, 6
COUNTS_SINCE = 1
Shown = Any
"""A response or a record without what differs between two clusters."""


@dataclass(frozen=True)
class Node:
    """One node, and its topics by their ids."""

    peer: Peer
    ids: dict[str, bytes]

    def name_of(self, topic_id: bytes) -> str:
        return {topic_id: name for name, topic_id in self.ids.items()}.get(topic_id, "nowhere")

    def shown(self, answer: Any) -> Shown:
        """Return the rows of a response, by topic name; their order is that of Java's maps."""
        topics = [topic.topic_id for topic in answer.results]
        assert topics == java_order(topics, uuid_hash)
        return sorted(
            (
                self.name_of(topic.topic_id),
                [
                    tuple(
                        tuple(map(_fields, value)) if isinstance(value, list) else value
                        for value in _fields(row)
                    )
                    for row in topic.partitions
                ],
            )
            for topic in answer.results
        )

    def records(self) -> list[Shown]:
        """Return every record of the log, and check that our encoder writes the same bytes."""
        row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=SIZE)
        request = FetchRequest(topics=[FetchTopic(topic=STATES, partitions=[row])])
        answer = self.peer.ask(request, FETCH_VERSION, FetchResponse)
        found = []
        for batch in split_batches(answer.responses[0].partitions[0].records or b""):
            for record in batch.records():
                assert record.key is not None
                parsed = parse_record(CoordinatorTopic.SHARE_GROUP_STATE, record.key, record.value)
                assert parsed is not None
                key, value = parsed
                assert build_record(key, value) == (record.key, record.value)
                shown = (
                    None
                    if value is None
                    else {name: getattr(value, name) for name in _names(value)}
                )
                if shown is not None:
                    shown["state_batches"] = [_fields(each) for each in shown["state_batches"]]
                    if "create_timestamp" in shown:
                        shown["is_cold"] = shown.pop("create_timestamp") != shown.pop(
                            "write_timestamp"
                        )
                found.append(
                    (
                        type(key).__name__,
                        key.group_id,
                        self.name_of(key.topic_id),
                        key.partition,
                        shown,
                    )
                )
        return found


def _names(message: Any) -> list[str]:
    return list(type(message).__annotations__)


def _fields(message: Any) -> tuple[Any, ...]:
    return tuple(getattr(message, name) for name in _names(message))


def requests(draw: random.Random, latest: int) -> Iterator[tuple[type, type, str, dict[str, Any]]]:
    """Yield request class, response class, group, and rows: topic name -> rows."""
    for number in count():
        makes = draw.choice(
            (
                (k83.InitializeShareGroupStateRequest, k83.InitializeStateData, k83.PartitionData),
                (k84.ReadShareGroupStateRequest, k84.ReadStateData, k84.PartitionData),
                *[(k85.WriteShareGroupStateRequest, k85.WriteStateData, k85.PartitionData)] * 6,
                (k86.DeleteShareGroupStateRequest, k86.DeleteStateData, k86.PartitionData),
                (
                    k87.ReadShareGroupStateSummaryRequest,
                    k87.ReadStateSummaryData,
                    k87.PartitionData,
                ),
            )
        )
        if number < len(GROUPS) * 4:
            makes = (
                k83.InitializeShareGroupStateRequest,
                k83.InitializeStateData,
                k83.PartitionData,
            )
        if makes[0] is k86.DeleteShareGroupStateRequest and draw.random() < 0.85:
            makes = (k84.ReadShareGroupStateRequest, k84.ReadStateData, k84.PartitionData)
        rows: dict[str, list[Any]] = {}
        for _ in range(draw.choice((1, 1, 1, 2, 3))):
            name = draw.choice((*["a"] * 6, *["b"] * 4, "nowhere"))
            row = makes[2](partition=draw.choice((*[0] * 9, *[1] * 4, 2, -1)))
            names = _names(row)
            if "state_epoch" in names:
                row.state_epoch = draw.choice((-1, *[number // 90] * 9, number // 90 + 1))
            if "leader_epoch" in names:
                row.leader_epoch = draw.choice((-1, 0, *[number // 60] * 9, number // 60 + 1))
            if "start_offset" in names:
                row.start_offset = draw.choice((-1, -1, 0, number // 4, draw.randint(0, 80)))
            if "delivery_complete_count" in names and latest >= COUNTS_SINCE:
                row.delivery_complete_count = draw.choice((-1, 0, 3, draw.randint(0, 20)))
            if "state_batches" in names:
                row.state_batches = [
                    k85.StateBatch(
                        first_offset=(first := draw.randint(0, 90)),
                        last_offset=first + draw.choice((0, 1, 5, 20)),
                        delivery_state=draw.choice((0, 2, 4)),
                        delivery_count=draw.choice((1, 1, 2, 3)),
                    )
                    for _ in range(draw.choice((0, 1, 1, 2, 3)))
                ]
            rows.setdefault(name, []).append(row)
        if draw.random() < 0.03:
            rows["a"] = []
        yield makes[0], makes[1], draw.choice(("", *GROUPS * 8)), rows


def opened(stack: ExitStack, address: str) -> Node:
    """Create the topics, and let the coordinator's topic be created."""
    peer = stack.enter_context(Peer.at(address))
    topics = [
        CreatableTopic(name=name, num_partitions=number, replication_factor=1)
        for name, number in TOPICS.items()
    ]
    peer.ask(CreateTopicsRequest(topics=topics), CREATE_VERSION, CreateTopicsResponse)
    ids: dict[str, bytes] = {}
    until = time.monotonic() + WAIT_SECONDS
    while len(ids) < len(TOPICS):
        assert time.monotonic() < until, "the topics are created"
        rows = peer.ask(
            MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in TOPICS]),
            METADATA_VERSION,
            MetadataResponse,
        ).topics
        ids = {str(row.name): row.topic_id for row in rows if row.error_code == ErrorCode.NONE}
    return Node(peer, {**ids, "nowhere": NOWHERE})


def found(node: Node) -> list[Shown]:
    """Return the responses of FindCoordinator until there is one, without repetitions."""
    key = f"g:{uuid_text(node.ids['a'])}:0"
    seen: list[Shown] = []
    until = time.monotonic() + WAIT_SECONDS
    while True:
        assert time.monotonic() < until, "the coordinator's topic is created"
        row = node.peer.ask(
            FindCoordinatorRequest(coordinator_keys=[key], key_type=SHARE),
            FIND_VERSION,
            FindCoordinatorResponse,
        ).coordinators[0]
        shown = (row.error_code, row.error_message, row.node_id)
        if shown not in seen:
            seen.append(shown)
        if row.error_code == ErrorCode.NONE:
            return seen
        time.sleep(0.05)


def errors_of_keys(node: Node) -> list[Shown]:
    """Return the errors of keys, some of them malformed."""
    topic_id = uuid_text(node.ids["a"])
    keys = [
        "",
        ":",
        "g",
        f"g:{topic_id}",
        f"g:{topic_id}:",
        f"g:{topic_id}:0:",
        f"g:{topic_id}:0::",
        f":{topic_id}:0",
        f" :{topic_id}:0",
        f" g :{topic_id}:0",
        f"g:h:{topic_id}:0",
        f"g::{topic_id}:0",
        f"g:{topic_id}:+3",
        f"g:{topic_id}:-3",
        f"g:{topic_id}:03",
        f"g:{topic_id}: 3",
        f"g:{topic_id}:2147483648",
        f"g:{topic_id}:x",
        f"g:{topic_id[:-1]}:0",
        f"g:{topic_id}=:0",
        "g:h:0",
    ]
    rows = node.peer.ask(
        FindCoordinatorRequest(coordinator_keys=keys, key_type=SHARE),
        FIND_VERSION,
        FindCoordinatorResponse,
    ).coordinators
    return [
        (index, row.error_code, row.error_message, row.node_id) for index, row in enumerate(rows)
    ]


def answers(node: Node, seed: int, latest: int) -> list[tuple[str, Shown]]:
    """Send the requests one by one, and return the responses."""
    given = []
    draw = random.Random(seed)
    modules = {
        k83.InitializeShareGroupStateRequest: (k83.InitializeShareGroupStateResponse, 0),
        k84.ReadShareGroupStateRequest: (k84.ReadShareGroupStateResponse, 0),
        k85.WriteShareGroupStateRequest: (k85.WriteShareGroupStateResponse, latest),
        k86.DeleteShareGroupStateRequest: (k86.DeleteShareGroupStateResponse, 0),
        k87.ReadShareGroupStateSummaryRequest: (k87.ReadShareGroupStateSummaryResponse, latest),
    }
    for request, topic, group_id, rows in islice(requests(draw, latest), REQUESTS):
        response, version = modules[request]
        asked = request(
            group_id=group_id,
            topics=[topic(topic_id=node.ids[name], partitions=each) for name, each in rows.items()],
        )
        answer: Any = node.peer.ask(asked, version, response)
        given.append((f"{request.__name__} {group_id} {rows}", node.shown(answer)))
    return given


def first_request(node: Node) -> Shown:
    """Return the summary of a state that has not begun."""
    row = k87.PartitionData(partition=0, leader_epoch=0)
    topic = k87.ReadStateSummaryData(topic_id=node.ids["a"], partitions=[row])
    asked = k87.ReadShareGroupStateSummaryRequest(group_id="g", topics=[topic])
    return node.shown(node.peer.ask(asked, 0, k87.ReadShareGroupStateSummaryResponse))


def until_loaded(node: Node) -> None:
    """Wait until the coordinator answers; that of 4.1 knows no topic until the next metadata."""
    until = time.monotonic() + WAIT_SECONDS
    while first_request(node)[0][1][0][1] != ErrorCode.NONE:
        assert time.monotonic() < until, "the coordinator loads its partition"
        time.sleep(0.05)


@pytest.mark.parametrize(("line", "release"), RELEASES)
def test_the_share_coordinator_is_that_of_apache_kafka(
    line: str, release: str, embedded_cluster_factory: ClusterFactory
) -> None:
    """Responses, and records in the order of the log (KIP-932)."""
    latest = int(line != "4.1")
    with ExitStack() as stack:
        real = stack.enter_context(ApacheKafka(release, settings=dict(SETTINGS)))
        own = embedded_cluster_factory(release=line, settings=SETTINGS)
        theirs, ours = opened(stack, real.bootstrap), opened(stack, own.bootstrap)
        assert first_request(theirs) == first_request(ours)
        assert found(theirs) == found(ours)
        for node in (theirs, ours):
            until_loaded(node)
        assert errors_of_keys(theirs) == errors_of_keys(ours)
        for (question, there), (_, here) in zip(
            answers(theirs, 5, latest), answers(ours, 5, latest), strict=True
        ):
            assert here == there, question
        assert len(theirs.records()) > REQUESTS // 3
        for index, (there, here) in enumerate(zip(theirs.records(), ours.records(), strict=True)):
            assert here == there, f"record {index}"
        if release == NEWEST_RELEASE:
            files = own.directory.data("broker-1").rglob(f"{STATES}-0/*.log")
            assert_dumped_alike(next(files))


def assert_dumped_alike(log: Path) -> None:
    """Both tools print the same lines for a log that kraftsim has written."""
    options = ["--share-group-state-decoder"]
    theirs = run_tool(NEWEST_RELEASE, "dump-log", *options, "--files", str(log))
    done = CliRunner().invoke(kraftsim, ["dump", *options, str(log)], standalone_mode=False)
    assert done.stdout.splitlines() == theirs.splitlines()
    assert done.stdout.count("payload: ") > REQUESTS // 3
