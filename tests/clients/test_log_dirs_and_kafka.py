"""A broker with two log directories, Apache Kafka's and ours: the same requests, moves and
failures, and the same responses.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from protocol.messages.k35_describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tests.apache_kafka.class_path import class_path
from tests.apache_kafka.harness import ApacheKafka
from tests.apache_kafka.second_directory import add_second_directory
from tests.cluster.broker_client import BrokerClient, batch_of, broker_client
from tests.cluster.running import QUICK_SESSIONS, running_processes

pytestmark = pytest.mark.interop
TOPIC, PARTITIONS = "spread", 4
SETTINGS = {
    **QUICK_SESSIONS,
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "log.dir.failure.timeout.ms": "30000",
}
FIRST, SECOND, NOWHERE = "first", "second", "nowhere"
PATIENCE_SECONDS = 30.0


@pytest.fixture(autouse=True)
def java() -> Iterator[None]:
    class_path()
    yield


class LogDirSteps:
    """The description of one broker, with its directories named first and second."""

    def __init__(self, broker: BrokerClient, directories: dict[str, Path]) -> None:
        self.broker = broker
        self.paths = {name: str(path) for name, path in directories.items()}
        self.names = {path: name for name, path in self.paths.items()}
        self.observed: list[object] = []

    def described(self) -> dict[str, tuple[int, list[int], list[bool]]]:
        """Return for each directory its error, the partitions of the topic in it, and whether they
        are future replicas.
        """
        answer = self.broker.peer.ask(
            DescribeLogDirsRequest(topics=None), 4, DescribeLogDirsResponse
        )
        found = {}
        for result in answer.results:
            rows = [
                row for topic in result.topics if topic.name == TOPIC for row in topic.partitions
            ]
            rows.sort(key=lambda row: row.partition_index)
            found[self.names[result.log_dir]] = (
                result.error_code,
                [row.partition_index for row in rows],
                [row.is_future_key for row in rows],
            )
        return dict(sorted(found.items()))

    def move(self, partition: int, directory: str, topic: str = TOPIC) -> int:
        rows = [AlterReplicaLogDirTopic(name=topic, partitions=[partition])]
        asked = AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDir(path=self.paths[directory], topics=rows)]
        )
        return (
            self.broker.peer.ask(asked, 2, AlterReplicaLogDirsResponse)
            .results[0]
            .partitions[0]
            .error_code
        )

    def until(self, holds: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < give_up_at, self.described()
            time.sleep(0.05)

    def run(self) -> list[object]:
        """Distribute partitions, move them, write, and lose the second directory."""
        broker, observed = self.broker, self.observed
        broker.create_topic(TOPIC, PARTITIONS)
        for partition in range(PARTITIONS):
            for number in range(20):
                assert (
                    broker.produce(TOPIC, batch_of([b"%d" % number] * 3), partition).error_code == 0
                )
        spread = self.described()
        observed.append([(error, len(partitions)) for error, partitions, _ in spread.values()])
        mover = spread[FIRST][1][0]
        observed.append([self.move(mover, name) for name in (NOWHERE, FIRST)])
        observed.append(
            [self.move(9, SECOND), self.move(0, SECOND, "absent"), self.move(mover, SECOND)]
        )
        assert broker.produce(TOPIC, batch_of([b"more"]), mover).error_code == 0
        self.until(
            lambda: mover in self.described()[SECOND][1] and mover not in self.described()[FIRST][1]
        )
        observed.append(
            [
                (len(partitions), any(are_future))
                for _, partitions, are_future in self.described().values()
            ]
        )
        observed.append(
            broker.values(TOPIC, mover)
            == [b"%d" % number for number in range(20) for _ in range(3)] + [b"more"]
        )
        lost = Path(self.paths[SECOND])
        lost.rename(
            lost.with_name("lost")
        )  # atomic: deleting file by file would race with a broker that writes checkpoints there
        lost.write_text("")
        self.until(lambda: self.described()[SECOND][0] != 0)
        time.sleep(1)
        observed.append(
            [(error, len(partitions)) for error, partitions, _ in self.described().values()]
        )
        kept = self.described()[FIRST][1][0]
        observed.append(
            [broker.peer is not None, broker.produce(TOPIC, batch_of([b"x"]), kept).error_code]
        )
        observed.append(broker.produce(TOPIC, batch_of([b"x"]), mover).error_code)
        observed.append([self.move(kept, SECOND), self.move(kept, FIRST), self.move(mover, FIRST)])
        rows = {row.partition_index: row for row in broker.metadata(TOPIC).topics[0].partitions}
        observed.append(
            [
                (rows[each].error_code, rows[each].leader_id > 0, rows[each].offline_replicas)
                for each in (kept, mover)
            ]
        )
        return observed


def directories_in(root: Path) -> dict[str, Path]:
    return {FIRST: root / "first", SECOND: root / "second", NOWHERE: root / "nowhere"}


def test_two_log_directories_behave_as_in_apache_kafka(tmp_path: Path) -> None:
    ours = directories_in(tmp_path / "dirs")
    both = {"broker-1": {"log.dirs": f"{ours[FIRST]},{ours[SECOND]}"}}
    with (
        running_processes(tmp_path / "run", settings=SETTINGS, node_settings=both) as cluster,
        broker_client(cluster.bootstrap) as broker,
    ):
        our_results = LogDirSteps(broker, ours).run()
    second = tmp_path / "second"
    with ApacheKafka(settings=SETTINGS) as apache:
        theirs = {FIRST: apache.data, SECOND: second, NOWHERE: tmp_path / "nowhere"}
        add_second_directory(apache, second)
        with broker_client(apache.bootstrap) as broker:
            their_results = LogDirSteps(broker, theirs).run()
    assert our_results == their_results
