"""A broker with several log directories: placement of replicas, moves between directories, and what
a move preserves.

Applies to a node with at least two directories, all of them online.   Source: KIP-112, KIP-113;
kafka.log.LogManager, ReplicaManager.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kraftsim.conformance.batches import batch, filled_topic, produce
from kraftsim.conformance.expect import Inapplicable, expect, expect_equal, expect_error, settled
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from protocol.messages.k35_describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from protocol.records.batches import split_batches

REQUIREMENTS = Requirements("describe", 4, "Several log directories")
MOVES = "ReplicaManager.alterReplicaLogDirs"
NAMES_UNTIL = 12
"""The last version of Fetch with topic names."""
DIRECTORIES_OF_MOVE = 2


@dataclass(frozen=True, slots=True)
class Lying:
    """A replica in a directory; `is_future` for the future replica of a move."""

    path: str
    size: int
    lag: int
    is_future: bool


def _directories(target: Target, leader: str) -> list[DescribeLogDirsResult]:
    """Return all directories of a node. Raises Inapplicable if there is only one."""
    with target.peer(leader) as peer:
        found = peer.ask(
            DescribeLogDirsRequest(topics=None),
            target.newest(ApiKey.DESCRIBE_LOG_DIRS),
            DescribeLogDirsResponse,
        ).results
    if len(found) < DIRECTORIES_OF_MOVE:
        raise Inapplicable("the node has one log directory: give it several (log.dirs=/a,/b)")
    return found


def _lying(target: Target, leader: str, topic: str, partition: int = 0) -> list[Lying]:
    def rows() -> Iterator[Lying]:
        for directory in _directories(target, leader):
            for each in directory.topics:
                for row in each.partitions:
                    if (each.name, row.partition_index) == (topic, partition):
                        yield Lying(
                            directory.log_dir, row.partition_size, row.offset_lag, row.is_future_key
                        )

    return list(rows())


def _move(target: Target, leader: str, path: str, topic: str, partition: int = 0) -> int:
    rows = [AlterReplicaLogDirTopic(name=topic, partitions=[partition])]
    with target.peer(leader) as peer:
        asked = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=rows)])
        answer = peer.ask(
            asked, target.newest(ApiKey.ALTER_REPLICA_LOG_DIRS), AlterReplicaLogDirsResponse
        )
    return answer.results[0].partitions[0].error_code


def _moved(target: Target, leader: str, path: str, topic: str) -> Lying:
    """Move a topic's only partition, wait until it is in its new directory only, and return its
    description there.
    """
    expect_error(_move(target, leader, path, topic), ErrorCode.NONE, f"moving to {path}")

    def is_there(lying: list[Lying]) -> bool:
        return [(each.path, each.is_future) for each in lying] == [(path, False)]

    return settled(lambda: _lying(target, leader, topic), is_there, f"the replica in {path} alone")[
        0
    ]


def _other(target: Target, leader: str, home: str) -> str:
    return next(each.log_dir for each in _directories(target, leader) if each.log_dir != home)


@REQUIREMENTS.that(
    1,
    "every replica is in one directory, and new ones are placed in the directory with the fewest",
    source="LogManager.nextLogDirs",
)
def spread(target: Target) -> None:
    def counts() -> list[int]:
        return sorted(
            sum(len(topic.partitions) for topic in each.topics)
            for each in _directories(target, target.address)
        )

    before = counts()
    topic = target.topic(partitions=before[-1] - before[0] + len(before))
    homes = [
        each.path
        for number in range(len(before))
        for each in _lying(target, topic.leader, topic.name, number)
    ]
    expect_equal(len(homes), len(before), "directories of so many partitions")
    after = counts()
    expect(
        after[-1] - after[0] <= 1, f"directories hold {after} partitions, and held {before} before"
    )


@REQUIREMENTS.that(
    2, "a moved replica is only in its new directory, with the same size and content", source=MOVES
)
def moved_whole(target: Target) -> None:
    topic = filled_topic(target, batches=5)
    [home] = _lying(target, topic.leader, topic.name)
    there = _moved(target, topic.leader, _other(target, topic.leader, home.path), topic.name)
    expect_equal((there.size, there.lag), (home.size, 0), "size and lag after the move")
    asked = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        topics=[FetchTopic(topic=topic.name, partitions=[FetchPartition(partition=0)])],
    )
    asked.topics[0].partitions[0].partition_max_bytes = 1 << 20
    with target.peer(topic.leader) as peer:
        answer = peer.ask(asked, target.newest(ApiKey.FETCH, until=NAMES_UNTIL), FetchResponse)
        partition = answer.responses[0].partitions[0]
        expect_error(partition.error_code, ErrorCode.NONE, "reading after the move")
        read = [
            record.offset
            for each in split_batches(bytes(partition.records or b""))
            for record in each.records()
        ]
        expect_equal(read, [0, 1, 2, 3, 4], "offsets that are read")
        written = produce(peer, topic.name, batch())
    expect_equal(
        (written.error_code, written.base_offset), (0, 5), "what is written after the move"
    )


@REQUIREMENTS.that(
    3,
    "a move preserves the producer state: duplicates are recognised",
    source="KIP-113; UnifiedLog (future logs)",
)
def moved_producers(target: Target) -> None:
    topic = target.topic()
    producer_id, producer_epoch = target.producer_id()
    batches = [
        batch(producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=number)
        for number in range(3)
    ]
    with target.peer(topic.leader) as peer:
        offsets = [produce(peer, topic.name, each).base_offset for each in batches]
        [home] = _lying(target, topic.leader, topic.name)
        _moved(target, topic.leader, _other(target, topic.leader, home.path), topic.name)
        again = [produce(peer, topic.name, each) for each in batches]
        expect_equal(
            [(each.error_code, each.base_offset) for each in again],
            [(0, offset) for offset in offsets],
            "duplicates",
        )
        gap = batch(producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=9)
        expect_error(
            produce(peer, topic.name, gap).error_code,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            "a gap in the sequence",
        )


@REQUIREMENTS.that(4, "a move to the current directory changes nothing", source=MOVES)
def not_moved(target: Target) -> None:
    topic = filled_topic(target, batches=1)
    before = _lying(target, topic.leader, topic.name)
    expect_error(
        _move(target, topic.leader, before[0].path, topic.name),
        ErrorCode.NONE,
        "a move to the current directory",
    )
    expect_equal(_lying(target, topic.leader, topic.name), before, "its directory")


@REQUIREMENTS.that(
    5,
    "a directory is stored for a partition that does not exist yet, though the response is "
    "UNKNOWN_TOPIC_OR_PARTITION",
    source=MOVES,
)
def wished(target: Target) -> None:
    name = target.fresh_name("wished")
    for path in [each.log_dir for each in _directories(target, target.address)]:
        topic = f"{name}-{path.rpartition('/')[2]}"
        expect_error(
            _move(target, target.address, path, topic),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"a wish for {path}",
        )
        made = target.topic(name=topic)
        if made.leader == target.address:  # other brokers did not receive the request
            expect_equal(
                [each.path for each in _lying(target, made.leader, topic)], [path], "its directory"
            )
