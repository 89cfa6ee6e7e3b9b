"""Bugs that Apache Kafka 4.4.0 still has, asked for with single requests: on Apache Kafka, and on
kraftsim, which does the same.

    python -m tests.apache_kafka.present_bugs [--subject NAME ...]

KAFKA-20310: InitProducerId is retried because its response was lost, and the coordinator restarted
meanwhile. The epoch before is in no record, so that the rightful producer is fenced.
KAFKA-15591: two Produce requests are in flight to a partition that is just being created. The first
one is refused, the second one creates the producer's state with its own sequence, and the retry of
the first one is out of order for ever.
KAFKA-20961: a replica moves to another log directory, and loses the leader epochs without records.
A follower that asks for one of them gets OFFSET_OUT_OF_RANGE until a record is written. kraftsim
keeps these epochs; it does the same with the bug switch of that name.
"""

import argparse
import sys
import time
from collections.abc import Sequence

from kraftsim.conformance.batches import batch, filled_topic, produce
from kraftsim.conformance.k01_fetch import fetch_one, fetch_request
from kraftsim.conformance.probes.worn_steps import Worn, wear_out
from kraftsim.conformance.target import Target
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import FetchPartition
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.k23_offset_for_leader_epoch import (
    CONSUMER_REPLICA_ID,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from protocol.messages.k35_describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tests.apache_kafka.class_path import NEWEST_RELEASE
from tests.apache_kafka.probes import Ours, Theirs, subject, subjects, warmed_up

LAST_BUT_ONE = 32765
"""InitProducerId bumps it to the last epoch that a producer gets."""
INIT_VERSION = 4
"""The first version of InitProducerId with PRODUCER_FENCED."""
EARLIER_RECORDS = 17
BATCHES = 3
FETCH_VERSION, EPOCH_VERSION, METADATA_VERSION, DIRECTORIES_VERSION = 15, 4, 12, 2
MOVE_SECONDS, PAUSE_SECONDS = 20.0, 0.1
LOST_EPOCHS = "KAFKA-20961"
WORN = Worn(at_epoch=LAST_BUT_ONE, number=1)
PLAIN_ID = "init-retried"
Answer = tuple[str, int, int]
"""An error, a producer id and its epoch."""


def init(
    target: Target, transactional_id: str, producer_id: int = -1, producer_epoch: int = -1
) -> Answer:
    """Initialise an id, for the producer that has this producer id and epoch."""
    asked = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    with target.peer() as peer:
        answer = peer.ask(asked, INIT_VERSION, InitProducerIdResponse)
    return ErrorCode(answer.error_code).name, answer.producer_id, answer.producer_epoch


def answers_to_retries(node: Ours | Theirs, target: Target, transactional_id: str) -> list[Answer]:
    """Bump the epoch twice; repeat the second request at once, and after a restart (KAFKA-20310).

    Returns the responses to the last three.
    """
    _, producer_id, producer_epoch = init(target, transactional_id)
    own = (transactional_id, producer_id, producer_epoch)
    found = [init(target, *own), init(target, *own)]
    node.restart_with({})
    warmed_up(target)
    return [*found, init(target, *own)]


def errors_of_a_new_partition(target: Target) -> list[str]:
    """Produce the second batch of a producer to a new partition, then the first one, then the first
    one again (KAFKA-15591).
    """
    topic = target.topic()
    producer_id, producer_epoch = target.producer_id()

    def sent(records: int, base_sequence: int) -> bytes:
        return batch(
            records,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )

    first, second = sent(EARLIER_RECORDS, 0), sent(1, EARLIER_RECORDS)
    with target.peer(topic.leader) as peer:
        rows = [produce(peer, topic.name, each) for each in (second, first, first)]
    return [ErrorCode(row.error_code).name for row in rows]


def _places(target: Target, name: str = "") -> list[tuple[str, bool]]:
    """Return the log directories, or those with a replica of a topic: path, whether it is a future
    one.
    """
    with target.peer() as peer:
        found = peer.ask(
            DescribeLogDirsRequest(topics=None), DIRECTORIES_VERSION, DescribeLogDirsResponse
        )
    if not name:
        return [(each.log_dir, False) for each in found.results]
    return [
        (each.log_dir, row.is_future_key)
        for each in found.results
        for topic in each.topics
        if topic.name == name
        for row in topic.partitions
    ]


def answers_about_the_last_epoch(node: Ours | Theirs, target: Target) -> list[Answer]:
    """Let a leader epoch without records begin, and ask for its end as consumers and followers do,
    before and after the replica moves to another log directory (KAFKA-20961).

    Returns for both the error of Fetch, and epoch and end offset of OffsetForLeaderEpoch.
    """
    name = filled_topic(target, BATCHES).name
    first = _places(target)[0][0]
    second = node.add_directory(first)
    warmed_up(target)
    topic = target.led_topic(name, 1)
    with target.peer() as peer:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        answer = peer.ask(asked, METADATA_VERSION, MetadataResponse)
    leader_epoch = answer.topics[0].partitions[0].leader_epoch

    def has_epoch(row: FetchPartition) -> None:
        row.current_leader_epoch = row.last_fetched_epoch = leader_epoch

    def end_of_epoch() -> Answer:
        fetched = fetch_one(
            target,
            topic,
            fetch_request(topic, FETCH_VERSION, BATCHES, change=has_epoch),
            FETCH_VERSION,
        )
        row = OffsetForLeaderPartition(
            partition=0, current_leader_epoch=-1, leader_epoch=leader_epoch
        )
        with target.peer(topic.leader) as peer:
            ends = peer.ask(
                OffsetForLeaderEpochRequest(
                    replica_id=CONSUMER_REPLICA_ID,
                    topics=[OffsetForLeaderTopic(topic=name, partitions=[row])],
                ),
                EPOCH_VERSION,
                OffsetForLeaderEpochResponse,
            )
        end = ends.topics[0].partitions[0]
        return ErrorCode(fetched.error_code).name, end.leader_epoch, end.end_offset

    before = end_of_epoch()
    move = AlterReplicaLogDir(
        path=second, topics=[AlterReplicaLogDirTopic(name=name, partitions=[0])]
    )
    with target.peer(topic.leader) as peer:
        peer.ask(
            AlterReplicaLogDirsRequest(dirs=[move]),
            DIRECTORIES_VERSION,
            AlterReplicaLogDirsResponse,
        )
    give_up_at = time.monotonic() + MOVE_SECONDS
    while _places(target, name) != [(second, False)] and time.monotonic() < give_up_at:
        time.sleep(PAUSE_SECONDS)
    return [before, end_of_epoch()]


def observed(name: str, bugs: Sequence[str] = ()) -> dict[str, list[str] | list[Answer]]:
    """Return what one subject answers: bug -> responses. `bugs` are injected into kraftsim."""
    node = subject(name, bugs)
    with node as target:
        warmed_up(target)
        wear_out(target, [WORN])
        node.restart_with({})
        warmed_up(target)
        return {
            "KAFKA-15591": errors_of_a_new_partition(target),
            "KAFKA-20310": answers_to_retries(node, target, PLAIN_ID),
            "KAFKA-20310, last epoch": answers_to_retries(node, target, WORN.worn_id),
            LOST_EPOCHS: answers_about_the_last_epoch(node, target),
        }


def is_shown(answers: dict[str, list[str] | list[Answer]]) -> bool:
    """Return whether the responses are those of all bugs."""
    late = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.name
    fenced = (ErrorCode.PRODUCER_FENCED.name, -1, -1)
    retries = [each for bug, each in answers.items() if bug.startswith("KAFKA-20310")]
    return (
        answers["KAFKA-15591"] == [ErrorCode.NONE.name, late, late]
        and all(first == second != fenced == after for first, second, after in retries)
        and has_lost_epochs(answers)
    )


def has_lost_epochs(answers: dict[str, list[str] | list[Answer]]) -> bool:
    """Return whether the last epoch ended at the log end offset, and is unknown after the move."""
    before, after = answers[LOST_EPOCHS]
    return (before[0], before[2]) == (ErrorCode.NONE.name, BATCHES) and after == (
        ErrorCode.OFFSET_OUT_OF_RANGE.name,
        -1,
        -1,
    )


def main(words: Sequence[str]) -> int:
    """Ask and print; 1 if a subject does not show the bugs."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.apache_kafka.present_bugs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    newest = [name for name, release in subjects().items() if release == NEWEST_RELEASE]
    parser.add_argument("--subject", nargs="+", choices=list(subjects()), default=newest)
    found = {name: observed(name, [LOST_EPOCHS]) for name in parser.parse_args(words).subject}
    for name, answers in found.items():
        print(name)
        for bug, each in answers.items():
            print(f"  {bug}: {each}")
    return int(not all(map(is_shown, found.values())))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
