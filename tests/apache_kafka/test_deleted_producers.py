"""Brokers of 2.3 and 2.4 beside ours of the same lines, each on our ZooKeeper: producer state after
records were deleted (KAFKA-7190).

2.3 removes the state of a producer with the last of its records, and returns UNKNOWN_PRODUCER_ID
when it continues; 2.4 keeps it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kraftsim.conformance.batches import batch, produce
from kraftsim.conformance.expect import Unmet, settled
from kraftsim.conformance.target import Target
from protocol.errors import ErrorCode
from protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tests.apache_kafka.config_facts import line_of
from tests.apache_kafka.zookeeper_brokers import OurBroker
from tests.apache_kafka.zookeeper_mode import broker_of_zookeeper
from tests.node.zookeeper_server import running_zookeeper

pytestmark = pytest.mark.interop
TO_THE_END, OLD_PRODUCE, OLD_DELETE = -1, 7, 1
SETTLE_SECONDS = 30.0
FORGOTTEN, KNOWN = int(ErrorCode.UNKNOWN_PRODUCER_ID), int(ErrorCode.NONE)


@contextmanager
def theirs(release: str, directory: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """Apache Kafka: its address, and how to restart it."""
    with (
        running_zookeeper(directory) as zookeeper,
        broker_of_zookeeper(zookeeper.port, release=release) as broker,
    ):

        def again() -> None:
            broker.stop()
            broker.start()

        yield broker.bootstrap, again


@contextmanager
def ours(release: str, directory: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """A broker of ours: the same."""
    with running_zookeeper(directory) as zookeeper:
        broker = OurBroker(directory, 1, zookeeper.port, release_name=line_of(release))
        broker.start()

        def again() -> None:
            broker.stop()
            broker.start()

        try:
            yield broker.bootstrap, again
        finally:
            broker.stop()


def answers(bootstrap: str, restart: Callable[[], None]) -> list[tuple[str, int]]:
    """Produce, delete and produce again, before and after a clean shutdown; return the
    responses.
    """
    target = Target(bootstrap)
    topic = settled(
        lambda: _topic(target), lambda found: found is not None, "a topic", SETTLE_SECONDS
    )
    assert topic is not None
    found = []

    def send(what: str, producer_id: int, sequence: int) -> None:
        with target.peer() as peer:
            records = batch(producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
            found.append((what, produce(peer, topic, records, OLD_PRODUCE).error_code))

    def delete(offset: int) -> None:
        place = DeleteRecordsTopic(
            name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
        )
        with target.peer() as peer:
            row = (
                peer.ask(
                    DeleteRecordsRequest(topics=[place], timeout_ms=5000),
                    OLD_DELETE,
                    DeleteRecordsResponse,
                )
                .topics[0]
                .partitions[0]
            )
        found.append((f"DeleteRecords below {offset}", row.error_code))

    send("the first batch of 7", 7, 0)
    send("the first batch of 8", 8, 0)
    delete(1)
    send("the second batch of 8, whose first exists", 8, 1)
    send("the second batch of 7, whose first is deleted", 7, 1)
    send("the first batch of 9", 9, 0)
    delete(TO_THE_END)
    restart()
    settled(
        lambda: _answer_to(
            lambda: send("the second batch of 9, deleted before a shutdown", 9, 1), found
        ),
        bool,
        "a leader",
        SETTLE_SECONDS,
    )
    return found


def _topic(target: Target) -> str | None:
    try:
        return target.topic().name
    except (Unmet, OSError):
        return None


def _answer_to(send: Callable[[], None], found: list[tuple[str, int]]) -> bool:
    """Try to send; return whether a leader has responded, and discard any other response."""
    try:
        send()
    except OSError:
        return False
    if found[-1][1] in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        found.pop()
        return False
    return True


@pytest.mark.parametrize(
    ("release", "expected"), [("2.3.1", [FORGOTTEN, FORGOTTEN]), ("2.4.1", [KNOWN, FORGOTTEN])]
)
def test_producer_state_after_its_records_are_deleted(
    release: str, expected: list[int], tmp_path: Path
) -> None:
    """While the broker runs, and after a shutdown with an empty log, whose snapshot is deleted with
    its records in both.
    """
    results = []
    for kind in (theirs, ours):
        (tmp_path / kind.__name__).mkdir()
        with kind(release, tmp_path / kind.__name__) as (bootstrap, restart):
            results.append(answers(bootstrap, restart))
    assert results[0] == results[1]
    assert [error for what, error in results[0] if "deleted" in what] == expected
    assert {error for what, error in results[0] if "deleted" not in what} == {KNOWN}
