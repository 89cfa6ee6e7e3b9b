"""Measures the memory of a transactional producer on brokers: in a partition's producer state, at
its coordinator, and as connections.

The first two are the allocations of the interpreter for the objects that a broker keeps; the others
are the total growth of a broker process with that many producers over the wire.
"""

import gc
import time
import tracemalloc
from collections.abc import Callable
from contextlib import ExitStack

import psutil

from kraftsim.conformance.batches import batch, produce_request
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.target import Target
from kraftsim.conformance.transaction_client import find_transaction_coordinator
from kraftsim.conformance.transactional_id import topics_of
from kraftsim.producer_state.rules_manager import ProducerStateManager
from kraftsim.transactions.rules_state import (
    COMPLETE_COMMIT,
    ONGOING,
    TransactionFacts,
    TransactionShard,
)
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import ProduceResponse
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from tools.bench.clusters import cluster
from tools.bench.subjects import KRAFTSIM
from tools.bench.variants.workload import state_of

PRODUCERS = 10_000
OVER_THE_WIRE = 2_000
CONNECTIONS = 500
NOW_MS = 1_700_000_000_000
INIT, ADD, PRODUCE, END = 4, 3, 9, 3
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "kraftsim.frame.events": "false",
}


def weigh() -> dict[str, float]:
    """Return the bytes of one producer in each place."""
    return {
        "state of a partition": allocated(lambda: state_of(ProducerStateManager, PRODUCERS, 1)),
        "coordinator, transaction open": allocated(lambda: _known(ongoing=True)),
        "coordinator, at rest": allocated(lambda: _known(ongoing=False)),
        **_over_the_wire(),
    }


def allocated(make: Callable[[], object]) -> float:
    """Return the bytes allocated for each of PRODUCERS."""
    make()  # one-time allocations
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        made = make()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        assert made is not None, "it is held until here"
    finally:
        tracemalloc.stop()
    return (after - before) / PRODUCERS


def _known(*, ongoing: bool) -> TransactionShard:
    """Return a coordinator's state with PRODUCERS ids, each in a transaction with two partitions:
    the output and the offsets.
    """
    shard = TransactionShard()
    for number in range(PRODUCERS):
        partitions = (("task-out", number), ("__consumer_offsets", number % 50)) if ongoing else ()
        facts = TransactionFacts(
            producer_id=100_000 + number,
            producer_epoch=0,
            timeout_ms=60_000,
            state=ONGOING if ongoing else COMPLETE_COMMIT,
            partitions=partitions,
            start_ms=NOW_MS + number,
            last_update_ms=NOW_MS + number,
        )
        shard.learn(f"task-task-{number}", facts)
    return shard


def _over_the_wire() -> dict[str, float]:
    """Let OVER_THE_WIRE producers make one transaction of one record each, and open CONNECTIONS;
    return the growth of the broker for each.
    """
    with cluster(KRAFTSIM, settings=SETTINGS) as running, ExitStack() as open_connections:
        target = Target(running.bootstrap)
        topic = target.topic()
        process = psutil.Process(running.brokers[1])
        find_transaction_coordinator(target, "warm")
        with target.peer() as peer:
            _transactions(peer, topic.name, "warm", 500)
            before = process.memory_info().rss
            _transactions(peer, topic.name, "weighed", OVER_THE_WIRE)
            grown = process.memory_info().rss - before
        before = process.memory_info().rss
        for _ in range(CONNECTIONS):
            peer = open_connections.enter_context(target.peer())
            _initialised(peer, "of-a-connection")
        connected = process.memory_info().rss - before
    return {
        "broker, all of it, after one transaction": grown / OVER_THE_WIRE,
        "broker, a connection": connected / CONNECTIONS,
    }


def _transactions(peer: Peer, topic: str, prefix: str, count: int) -> None:
    """Run a transaction of one record for each of `count` ids, one after the other."""
    for number in range(count):
        name = f"{prefix}-{number}"
        producer_id, producer_epoch = _initialised(peer, name)
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=producer_epoch,
            v3_and_below_topics=topics_of([(topic, 0)]),
        )
        answer = peer.ask(added, ADD, AddPartitionsToTxnResponse)
        assert (
            answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            == ErrorCode.NONE
        ), answer
        records = batch(
            1,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        written = peer.ask(
            produce_request(topic, records, transactional_id=name), PRODUCE, ProduceResponse
        )
        assert written.responses[0].partition_responses[0].error_code == ErrorCode.NONE, written
        ended = EndTxnRequest(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=True,
        )
        assert peer.ask(ended, END, EndTxnResponse).error_code == ErrorCode.NONE, name


def _initialised(peer: Peer, name: str) -> tuple[int, int]:
    while True:
        asked = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        answer = peer.ask(asked, INIT, InitProducerIdResponse)
        if answer.error_code == ErrorCode.NONE:
            return answer.producer_id, answer.producer_epoch
        assert answer.error_code in (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.NOT_COORDINATOR,
        ), answer
        time.sleep(0.005)
