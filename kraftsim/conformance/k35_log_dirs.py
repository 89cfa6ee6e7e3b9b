"""DescribeLogDirs (35) and AlterReplicaLogDirs (34).

Source: KIP-113, KIP-784, KIP-827; kafka.server.ReplicaManager.
"""

from collections.abc import Mapping, Sequence

from kraftsim.conformance.batches import filled_topic
from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from protocol.messages.k35_describe_log_dirs import (
    UNKNOWN_BYTES,
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)

REQUIREMENTS = Requirements("describe", 2, "DescribeLogDirs and AlterReplicaLogDirs")
MANAGER = "ReplicaManager.describeLogDirs"
SPACE_SINCE = 4
LONG_NAME = "n" * 214
"""With a partition number and the suffix of a future log, this is one character longer than a
directory name may be.
"""


def _describe(
    target: Target,
    leader: str,
    topics: Mapping[str, Sequence[int]] | None,
    version: int | None = None,
) -> DescribeLogDirsResult:
    rows = (
        None
        if topics is None
        else [
            DescribableLogDirTopic(topic=name, partitions=list(numbers))
            for name, numbers in topics.items()
        ]
    )
    chosen = target.newest(ApiKey.DESCRIBE_LOG_DIRS) if version is None else version
    with target.peer(leader) as peer:
        answer = peer.ask(DescribeLogDirsRequest(topics=rows), chosen, DescribeLogDirsResponse)
    expect_error(answer.error_code, ErrorCode.NONE, f"version {chosen}: the top-level error")
    expect_equal(len(answer.results), 1, f"version {chosen}: directories")
    expect_error(answer.results[0].error_code, ErrorCode.NONE, f"version {chosen}: the directory")
    return answer.results[0]


def _rows(result: DescribeLogDirsResult) -> dict[tuple[str, int], DescribeLogDirsPartition]:
    return {
        (topic.name, row.partition_index): row
        for topic in result.topics
        for row in topic.partitions
    }


@REQUIREMENTS.that(
    1,
    "a log directory is returned with its partitions, their sizes, and no offset lag",
    source=MANAGER,
)
def described(target: Target) -> None:
    topic = filled_topic(target, batches=2)
    other = filled_topic(target, batches=1)
    for version in target.versions(ApiKey.DESCRIBE_LOG_DIRS):
        result = _describe(target, topic.leader, {topic.name: [0]}, version)
        rows = _rows(result)
        expect_equal(list(rows), [(topic.name, 0)], f"version {version}: the returned partitions")
        row = rows[topic.name, 0]
        expect(
            100 < row.partition_size < 1000,
            f"version {version}: two small batches take {row.partition_size} bytes",
        )
        expect_equal(
            (row.offset_lag, row.is_future_key),
            (0, False),
            f"version {version}: lag, whether it is a copy under way",
        )
        expect(result.log_dir.startswith("/"), f"version {version}: directory {result.log_dir!r}")
    larger = _rows(_describe(target, topic.leader, {topic.name: [0]}))[topic.name, 0].partition_size
    smaller = _rows(_describe(target, other.leader, {other.name: [0]}))[
        other.name, 0
    ].partition_size
    expect_equal(larger, 2 * smaller, "bytes of two batches, beside those of one")


@REQUIREMENTS.that(
    2, "an empty list of topics returns no topics, null returns all of them", source=MANAGER
)
def everything_or_nothing(target: Target) -> None:
    topic = target.topic(partitions=2)
    every = _rows(_describe(target, topic.leader, None))
    expect((topic.name, 0) in every, "the topic is not among everything")
    nothing: list[dict[str, list[int]]] = [
        {},
        {topic.name: [9]},
        {target.fresh_name("absent"): [0]},
        {topic.name: []},
    ]
    for topics in nothing:
        expect_equal(
            _rows(_describe(target, topic.leader, topics)),
            {},
            f"the returned partitions of {topics}",
        )


@REQUIREMENTS.that(
    3, "since version 4 the size and free space of the volume are returned", source="KIP-827"
)
def room(target: Target) -> None:
    for version in target.versions(ApiKey.DESCRIBE_LOG_DIRS):
        found = _describe(target, target.address, {}, version)
        if version < SPACE_SINCE:
            expect_equal(
                (found.total_bytes, found.usable_bytes),
                (UNKNOWN_BYTES, UNKNOWN_BYTES),
                f"version {version}: size and free space",
            )
        else:
            expect(
                0 < found.usable_bytes <= found.total_bytes,
                f"version {version}: {found.usable_bytes} of {found.total_bytes} bytes",
            )


@REQUIREMENTS.that(
    4,
    "a replica may stay in its directory; an unknown directory returns LOG_DIR_NOT_FOUND",
    source="ReplicaManager.alterReplicaLogDirs",
)
def moved(target: Target) -> None:
    topic = filled_topic(target, batches=1)
    home = _describe(target, topic.leader, {}).log_dir
    absent = target.fresh_name("absent")
    for version in target.versions(ApiKey.ALTER_REPLICA_LOG_DIRS):
        for path, name, partition, error in (
            (home, topic.name, 0, ErrorCode.NONE),
            (home + "-other", topic.name, 0, ErrorCode.LOG_DIR_NOT_FOUND),
            (home, topic.name, 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (home, absent, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (home + "-other", absent, 0, ErrorCode.LOG_DIR_NOT_FOUND),
            (home, LONG_NAME, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
            (home + "-other", LONG_NAME, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
            (home, LONG_NAME[1:], 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ):
            rows = [AlterReplicaLogDirTopic(name=name, partitions=[partition])]
            with target.peer(topic.leader) as peer:
                asked = AlterReplicaLogDirsRequest(
                    dirs=[AlterReplicaLogDir(path=path, topics=rows)]
                )
                answer = peer.ask(asked, version, AlterReplicaLogDirsResponse)
            returned = [
                (found.topic_name, row.partition_index, row.error_code)
                for found in answer.results
                for row in found.partitions
            ]
            expect_equal(
                returned,
                [(name, partition, int(error))],
                f"version {version}, {name[:40]}-{partition} to {path}",
            )
