"""What brokers answer to InitProducerId version 6, the version of KIP-939: Apache Kafka, where
unstable versions are enabled, and kraftsim, where `kraftsim.two.phase.commit` offers it.

    python -m tests.apache_kafka.two_phase_commit [--subject NAME ...]
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from kraftsim.conformance.batches import batch, produce, produce_request
from kraftsim.conformance.marker_client import end_at, read_at
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.security_rights import TRANSACTION, rule, ruled
from kraftsim.conformance.target import Target, TargetTopic
from kraftsim.conformance.transactional_id import Producer, TransactionalId
from protocol.acls import AclOperation
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import ProduceResponse
from protocol.messages.k22_init_producer_id import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from protocol.records.batches import split_batches
from tests.conformance.secured import secured_apache_kafka, secured_kraftsim

ENABLE = "transaction.two.phase.commit.enable"
ON, OFF = {ENABLE: "true"}, {ENABLE: "false"}
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.max.timeout.ms": "60000",
    "log.retention.check.interval.ms": "300",
}
VERSION, END_VERSION, PRODUCE_VERSION = 6, 5, 11
RETENTION_SECONDS = 15.0
SHORT_MS, LONG_MS, WAIT_SECONDS = 100, 60_001, 1.5
WRITE, PREPARES = AclOperation.WRITE, AclOperation.TWO_PHASE_COMMIT
RELEASES = {"4.1": "4.1.2", "4.4": "4.4.0"}
Answers = dict[str, object]


def asked(
    peer: Peer,
    transactional_id: str | None,
    producer: tuple[int, int] = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH),
    *,
    timeout_ms: int = 60_000,
    participates: bool = False,
    keeps: bool = False,
) -> InitProducerIdResponse:
    """Send InitProducerId, version 6."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer[0],
        producer_epoch=producer[1],
        enable2_pc=participates,
        keep_prepared_txn=keeps,
    )
    return peer.ask(request, VERSION, InitProducerIdResponse)


def words(answer: InitProducerIdResponse) -> str:
    """Return the error, and what identity the answer has beside the producer's."""
    ongoing = (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)
    return f"{ErrorCode(answer.error_code).name} {ongoing[0]}/{ongoing[1]}"


def answers_of_one(target: Target) -> Answers:
    """Return what a broker answers that lets producers participate in a two-phase commit."""
    found: Answers = {"without flags": words(_init(target))}
    found["participates"] = words(_init(target, participates=True))
    found["participates, time-out above the maximum"] = words(
        _init(target, participates=True, timeout_ms=LONG_MS)
    )
    found["participates, time-out 0"] = words(_init(target, participates=True, timeout_ms=0))
    found["time-out above the maximum"] = words(_init(target, timeout_ms=LONG_MS))
    found["keeps"] = words(_init(target, keeps=True))
    found["participates, keeps"] = words(_init(target, participates=True, keeps=True))
    with target.peer() as peer:
        found["no transactional id, keeps"] = words(
            asked(peer, None, participates=True, keeps=True)
        )
        found["empty transactional id, keeps"] = words(
            asked(peer, "", participates=True, keeps=True)
        )
        found["producer id without epoch, keeps"] = words(
            asked(peer, "some", (5, -1), participates=True, keeps=True)
        )
    found.update(_of_a_transaction(target))
    return found


def _init(
    target: Target, *, participates: bool = False, keeps: bool = False, timeout_ms: int = 60_000
) -> InitProducerIdResponse:
    transactional_id = TransactionalId(target)
    transactional_id.init(waits=True)
    with target.peer(transactional_id.address) as peer:
        return asked(
            peer,
            transactional_id.name,
            timeout_ms=timeout_ms,
            participates=participates,
            keeps=keeps,
        )


def _of_a_transaction(target: Target) -> Answers:
    """Return what happens to a transaction whose producer participates: after its time-out, and
    with an InitProducerId of each kind.
    """
    topic, transactional_id = target.topic(), TransactionalId(target)
    transactional_id.init(waits=True)
    found: Answers = {}
    with target.peer(transactional_id.address) as peer:
        made = asked(peer, transactional_id.name, timeout_ms=SHORT_MS, participates=True)
        producer = (made.producer_id, made.producer_epoch)
        transactional_id.begin(producer, [(topic.name, 0)])
        time.sleep(WAIT_SECONDS)
        row = transactional_id.described()
        found["after its time-out"] = f"{row.transaction_state} {row.transaction_timeout_ms}"
        kept = asked(peer, transactional_id.name, participates=True, keeps=True)
        is_known = kept.ongoing_txn_producer_id == producer[0]
        found["keeps an open transaction"] = (
            f"{ErrorCode(kept.error_code).name} "
            f"{'the same id' if is_known else kept.ongoing_txn_producer_id}"
            f"/{kept.ongoing_txn_producer_epoch - (producer[1] if is_known else 0)}"
        )
        ends = EndTxnRequest(
            transactional_id=transactional_id.name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=True,
        )
        found["its former producer commits"] = ErrorCode(
            peer.ask(ends, END_VERSION, EndTxnResponse).error_code
        ).name
        found["does not keep it"] = words(asked(peer, transactional_id.name, participates=True))
    return found


def endings(target: Target) -> Answers:
    """Return what becomes of the records of a prepared transaction before it is committed: an
    operator aborts it in the partition as kafka-transactions.sh does; and retention.
    """
    return {
        "an operator aborts it in the partition": _committed_after(target, {}, _abort_there),
        "its records are older than retention.ms": _committed_after(
            target, {"retention.ms": "500", "segment.ms": "100"}, _wait_for_retention
        ),
        "its log is larger than retention.bytes": _committed_after(
            target,
            {"retention.bytes": "1", "retention.ms": "-1", "segment.ms": "100"},
            _wait_for_retention,
        ),
    }


Deed = Callable[[Target, TargetTopic, Producer], None]


def _committed_after(target: Target, configs: Mapping[str, str], deed: Deed) -> str:
    """Prepare a transaction with one record, let something happen, commit, and read: the results
    of the commit, and how many of the record a read_committed consumer gets.
    """
    topic, transactional_id = target.topic(configs=configs), TransactionalId(target)
    transactional_id.init(waits=True)
    with target.peer(transactional_id.address) as peer:
        made = asked(peer, transactional_id.name, participates=True)
        producer = (made.producer_id, made.producer_epoch)
        transactional_id.begin(producer, [(topic.name, 0)])
        record = batch(
            producer_id=producer[0], producer_epoch=producer[1], base_sequence=0, transactional=True
        )
        with target.peer(topic.leader) as leader:
            request = produce_request(topic.name, record, transactional_id=transactional_id.name)
            written = leader.ask(request, PRODUCE_VERSION, ProduceResponse)
        assert not written.responses[0].partition_responses[0].error_code, written
        deed(target, topic, producer)
        ends = EndTxnRequest(
            transactional_id=transactional_id.name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=True,
        )
        ended = ErrorCode(peer.ask(ends, END_VERSION, EndTxnResponse).error_code)
    transactional_id.reached("CompleteCommit")
    found = read_at(target, topic, 0)
    if found.error_code:
        return f"{ended.name}; Fetch from 0: {ErrorCode(found.error_code).name}"
    aborted = {row.producer_id for row in found.aborted_transactions or ()}
    kept = [each for each in split_batches(bytes(found.records or b"")) if not each.is_control]
    return f"{ended.name}; {sum(each.producer_id not in aborted for each in kept)} of 1 record"


def _abort_there(target: Target, topic: TargetTopic, producer: Producer) -> None:
    error = end_at(target, topic, producer, commits=False)
    assert not error, f"WriteTxnMarkers: {error}"


def _wait_for_retention(target: Target, topic: TargetTopic, producer: Producer) -> None:
    """Write records of others until the first one is gone, for RETENTION_SECONDS at most."""
    gives_up_at = time.monotonic() + RETENTION_SECONDS
    while time.monotonic() < gives_up_at and not read_at(target, topic, 0).error_code:
        time.sleep(0.2)
        with target.peer(topic.leader) as leader:
            produce(leader, topic.name, batch())


def rights(target: Target) -> Answers:
    """Return what a principal gets with WRITE on its transactional id, with TWO_PHASE_COMMIT, and
    with both.
    """
    transactional_id = TransactionalId(target)
    transactional_id.init(waits=True)
    write = rule(transactional_id.name, WRITE, resource=TRANSACTION)
    prepare = rule(transactional_id.name, PREPARES, resource=TRANSACTION)
    found: Answers = {}
    for name, rules in (("WRITE", (write,)), ("both", (write, prepare)), ("other", (prepare,))):
        with ruled(target, *rules) as peer:
            found[f"{name}: without flags"] = words(asked(peer, transactional_id.name))
            found[f"{name}: participates"] = words(
                asked(peer, transactional_id.name, participates=True)
            )
            found[f"{name}: keeps"] = words(asked(peer, transactional_id.name, keeps=True))
    return found


def answers_without(target: Target) -> Answers:
    """Return what a broker answers that lets no producer participate."""
    return {
        "off: without flags": words(_init(target)),
        "off: participates": words(_init(target, participates=True)),
        "off: keeps": words(_init(target, keeps=True)),
        "off: participates, keeps": words(_init(target, participates=True, keeps=True)),
    }


def subject(name: str, others: Mapping[str, str]) -> AbstractContextManager[Target]:
    """Return a cluster by name: "Apache Kafka 4.4" or "kraftsim 4.4"."""
    system, line = name.rsplit(" ", 1)
    if system == "kraftsim":
        own = {**SETTINGS, **others, "kraftsim.two.phase.commit": "as-merged"}
        return secured_kraftsim(line, others=own)
    unstable = {"unstable.api.versions.enable": "true", **SETTINGS, **others}
    return secured_apache_kafka(RELEASES[line], unstable)


def all_answers(name: str) -> Answers:
    """Ask a subject everything."""
    with subject(name, ON) as target:
        found = {**answers_of_one(target), **rights(target), **endings(target)}
    with subject(name, OFF) as target:
        return {**found, **answers_without(target)}


def main(arguments: list[str]) -> int:
    """Print a table of the answers."""
    parser = argparse.ArgumentParser(prog="two_phase_commit")
    parser.add_argument("--subject", action="append", default=[])
    names = parser.parse_args(arguments).subject or [
        f"{system} {line}" for line in RELEASES for system in ("Apache Kafka", "kraftsim")
    ]
    found = {name: all_answers(name) for name in names}
    print("|", " | ".join(("InitProducerId 6", *names)), "|")
    for row in found[names[0]]:
        print("|", " | ".join((row, *(str(found[name][row]) for name in names))), "|")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
