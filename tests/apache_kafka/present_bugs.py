"""Bugs that Apache Kafka 4.4.0 still has, asked for with single requests: on Apache Kafka, and on
kraftsim, which does the same.

    python -m tests.apache_kafka.present_bugs [--subject NAME ...]

KAFKA-20310: InitProducerId is retried because its response was lost, and the coordinator restarted
meanwhile. The epoch before is in no record, so that the rightful producer is fenced.
KAFKA-15591: two Produce requests are in flight to a partition that is just being created. The first
one is refused, the second one creates the producer's state with its own sequence, and the retry of
the first one is out of order for ever.
"""

import argparse
import sys
from collections.abc import Sequence

from kraftsim.conformance.batches import batch, produce
from kraftsim.conformance.probes.worn_steps import Worn, wear_out
from kraftsim.conformance.target import Target
from protocol.errors import ErrorCode
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.apache_kafka.class_path import NEWEST_RELEASE
from tests.apache_kafka.probes import Ours, Theirs, subject, subjects, warmed_up

LAST_BUT_ONE = 32765
"""InitProducerId bumps it to the last epoch that a producer gets."""
INIT_VERSION = 4
"""The first version of InitProducerId with PRODUCER_FENCED."""
EARLIER_RECORDS = 17
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


def observed(name: str) -> dict[str, list[str] | list[Answer]]:
    """Return what one subject answers: bug -> responses."""
    node = subject(name)
    with node as target:
        warmed_up(target)
        wear_out(target, [WORN])
        node.restart_with({})
        warmed_up(target)
        return {
            "KAFKA-15591": errors_of_a_new_partition(target),
            "KAFKA-20310": answers_to_retries(node, target, PLAIN_ID),
            "KAFKA-20310, last epoch": answers_to_retries(node, target, WORN.worn_id),
        }


def is_shown(answers: dict[str, list[str] | list[Answer]]) -> bool:
    """Return whether the responses are those of both bugs."""
    late = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.name
    fenced = (ErrorCode.PRODUCER_FENCED.name, -1, -1)
    retries = [each for bug, each in answers.items() if bug != "KAFKA-15591"]
    return answers["KAFKA-15591"] == [ErrorCode.NONE.name, late, late] and all(
        first == second != fenced == after for first, second, after in retries
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
    found = {name: observed(name) for name in parser.parse_args(words).subject}
    for name, answers in found.items():
        print(name)
        for bug, each in answers.items():
            print(f"  {bug}: {each}")
    return int(not all(map(is_shown, found.values())))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
