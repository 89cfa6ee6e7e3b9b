"""Apache Kafka and kraftsim compared: existing, missing, unauthorized and failing partitions in one
Fetch.
"""

import itertools
import time
from collections import ChainMap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from kraftsim.conformance.batches import batch, produce
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.security_login import log_in
from kraftsim.conformance.security_rights import create, rule
from kraftsim.conformance.target import Target
from protocol.acls import AclOperation, AclPatternType
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from tests.apache_kafka.class_path import DEFAULT_RELEASE, NEWEST_RELEASE
from tests.apache_kafka.config_facts import line_of
from tests.conformance.secured import secured_apache_kafka, secured_kraftsim

pytestmark = pytest.mark.interop
OPEN, CLOSED, ABSENT = "open", "closed", "open-absent"
"""A topic that alice may read, one that she may not, and one that does not exist."""
KINDS = {
    "empty": (OPEN, 0),
    "full": (OPEN, 1),
    "no partition": (OPEN, 9),
    "no topic": (ABSENT, 0),
    "forbidden": (CLOSED, 0),
    "of another epoch": (OPEN, 2),
    "out of range": (OPEN, 3),
}
WRONG_EPOCH, EPOCHS_SINCE, IDS_SINCE, STATES_SINCE, SESSIONS_SINCE = 7, 9, 13, 15, 7
FAR = 99
NO_ID = bytes([7]) * 16
WAIT_MS, WAITED_MS = 150, 110

TRIES = 3
AT_ONCE = 12
"""Connections to each node: most requests wait for WAIT_MS."""
SIZE = 1 << 20
ORDERS = [order for count in (1, 2, 3) for order in itertools.permutations(KINDS, count)]
STRANGER = 5
"""A replica id that no broker has."""
Question = tuple[Any, ...]


class Node:
    """One node, and its topics by their ids."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.topics = {
            OPEN: target.topic(partitions=4, name=OPEN),
            CLOSED: target.topic(name=CLOSED),
        }
        self.ids = {topic.topic_id: name for name, topic in self.topics.items()} | {NO_ID: ABSENT}
        with target.peer(self.topics[OPEN].leader) as peer:
            assert produce(peer, OPEN, batch(), partition=1).error_code == ErrorCode.NONE
        read = rule(OPEN, AclOperation.READ, pattern=AclPatternType.PREFIXED)
        ((error, _),) = create(target, read)
        assert error == ErrorCode.NONE

    def peer(self, reader: str) -> Peer:
        if reader == "anonymous follower":
            return self.target.peer()
        peer = self.target.peer(self.target.sasl)
        log_in(peer)
        return peer

    def versions(self) -> list[int]:
        offered = list(self.target.versions(ApiKey.FETCH))
        wanted = [offered[0], 4, SESSIONS_SINCE, 12, IDS_SINCE, offered[-1]]
        return [version for version in dict.fromkeys(wanted) if version in offered]

    def request(
        self, kinds: tuple[str, ...], version: int, reader: str, **fields: Any
    ) -> FetchRequest:
        topics: list[FetchTopic] = []
        for kind in kinds:
            name, number = KINDS[kind]
            row = FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=SIZE)
            if kind == "of another epoch" and version >= EPOCHS_SINCE:
                row.current_leader_epoch = WRONG_EPOCH
            if kind == "out of range":
                row.fetch_offset = FAR
            topic_id = NO_ID if name == ABSENT else self.topics[name].topic_id
            named: dict[str, Any] = (
                {"topic": name} if version < IDS_SINCE else {"topic_id": topic_id}
            )
            topics.append(FetchTopic(partitions=[row], **named))
        request = FetchRequest(topics=topics, **fields)
        if "follower" in reader:
            if version >= STATES_SINCE:
                request.replica_state = ReplicaState(replica_id=STRANGER)
            else:
                request.replica_id = STRANGER
        return request

    def comparable(self, answer: FetchResponse) -> Any:
        """Return the response without node-specific values."""
        topics = [
            (
                topic.topic or self.ids[topic.topic_id],
                [
                    (
                        row.partition_index,
                        ErrorCode(row.error_code).name,
                        row.high_watermark,
                        row.last_stable_offset,
                        row.log_start_offset,
                        row.aborted_transactions,
                        row.preferred_read_replica,
                        (row.current_leader.leader_id, row.current_leader.leader_epoch),
                        (row.diverging_epoch.epoch, row.diverging_epoch.end_offset),
                        len(row.records or b""),
                    )
                    for row in topic.partitions
                ],
            )
            for topic in answer.responses
        ]
        return (answer.error_code, bool(answer.session_id), topics, len(answer.node_endpoints))


def asked(peer: Peer, node: Node, request: FetchRequest, version: int) -> tuple[FetchResponse, Any]:
    """Return a response, and, outside of sessions, whether it was delayed.

    A delayed request is sent again: the machine may have been slow.
    """
    began = time.monotonic()
    answer = peer.ask(request, version, FetchResponse)
    if request.session_epoch >= 0 or not request.max_wait_ms:
        return answer, node.comparable(answer)
    waits = 0
    while time.monotonic() - began > WAITED_MS / 1000 and waits < TRIES:
        waits += 1
        began = time.monotonic()
        peer.ask(request, version, FetchResponse)
    return answer, (node.comparable(answer), waits == TRIES)


def answers(
    node: Node, reader: str, orders: list[tuple[str, ...]], versions: list[int]
) -> dict[Question, Any]:
    """Fetch without a session, and, if supported, twice in a new session."""
    found: dict[Question, Any] = {}
    with node.peer(reader) as peer:
        for version, kinds, min_bytes, wait_ms, isolation in itertools.product(
            versions, orders, (0, 1), (0, WAIT_MS), (READ_UNCOMMITTED, READ_COMMITTED)
        ):
            if isolation == READ_COMMITTED and version < 4:
                continue
            fields = {"min_bytes": min_bytes, "max_wait_ms": wait_ms, "isolation_level": isolation}
            alone = node.request(kinds, version, reader, **fields)
            key = (reader, version, kinds, min_bytes, wait_ms, isolation)
            found[key] = asked(peer, node, alone, version)[1]
            if version < SESSIONS_SINCE or isolation == READ_UNCOMMITTED:
                continue
            opening = node.request(kinds, version, reader, session_epoch=0, **fields)
            answer, found[*key, "opens"] = asked(peer, node, opening, version)
            session = {"session_id": answer.session_id, "session_epoch": 1}
            if answer.session_id:
                again = node.request((), version, reader, **session, **fields)
                found[*key, "again"] = asked(peer, node, again, version)[1]
                closing = node.request(
                    (), version, reader, session_id=answer.session_id, session_epoch=-1
                )
                peer.ask(closing, version, FetchResponse)
    return found


@pytest.fixture(scope="module", params=[DEFAULT_RELEASE, NEWEST_RELEASE])
def both(request: pytest.FixtureRequest) -> Iterator[tuple[Node, Node]]:
    with ExitStack() as stack:
        theirs = stack.enter_context(secured_apache_kafka(request.param))
        ours = stack.enter_context(secured_kraftsim(line_of(request.param)))
        yield Node(theirs), Node(ours)


def compare(
    both: tuple[Node, Node], reader: str, orders: list[tuple[str, ...]], versions: list[int]
) -> None:
    with ThreadPoolExecutor(AT_ONCE * len(both)) as pool:
        parts = [
            [
                pool.submit(answers, node, reader, orders[first::AT_ONCE], versions)
                for first in range(AT_ONCE)
            ]
            for node in both
        ]
    theirs, ours = (ChainMap(*(part.result() for part in of_node)) for of_node in parts)
    differing = {
        key: (theirs[key], ours.get(key)) for key in theirs if theirs[key] != ours.get(key)
    }
    assert len(theirs) > len(orders) * len(versions)
    assert not differing, (len(differing), len(theirs), list(differing.items())[:4])


def test_every_partition_order_gets_the_same_response_in_the_newest_version(
    both: tuple[Node, Node],
) -> None:
    compare(both, "alice", ORDERS, both[0].versions()[-1:])


def test_every_version_gets_the_same_response_for_pairs_of_partitions(
    both: tuple[Node, Node],
) -> None:
    compare(both, "alice", [order for order in ORDERS if len(order) < 3], both[0].versions())


@pytest.mark.parametrize("reader", ["anonymous follower", "alice as a follower"])
def test_followers_get_the_same_responses(both: tuple[Node, Node], reader: str) -> None:
    compare(both, reader, [order for order in ORDERS if len(order) < 3], both[0].versions())


def test_a_duplicate_partition_gets_the_same_response(both: tuple[Node, Node]) -> None:
    compare(
        both,
        "alice",
        [(kind, other, kind) for kind, other in itertools.permutations(KINDS, 2)],
        both[0].versions(),
    )
