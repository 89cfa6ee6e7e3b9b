"""Probes of transactional ids that are unused for transactional.id.expiration.ms: when they expire,
and the errors that their producers get.

Source: KIP-98; TransactionStateManager.enableTransactionalIdExpiration, KAFKA-8710.
"""

from kraftsim.conformance.probes.group_steps import offsets
from kraftsim.conformance.probes.of_identities import STUCK_COMMIT
from kraftsim.conformance.probes.partition_steps import DescribeProducers, Read, produce
from kraftsim.conformance.probes.probe import Chapter, probe
from kraftsim.conformance.probes.transaction_steps import (
    Add,
    AddOffsetsStep,
    Describe,
    Verify,
    abort,
    commit,
    init,
    once,
)
from kraftsim.conformance.probes.worn_steps import Gone, Pause, Twin

EXPIRATION_MS = 1_200
SETTINGS = {
    "transactional.id.expiration.ms": str(EXPIRATION_MS),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
}
LONGER_MS = EXPIRATION_MS + 800

CHAPTER = Chapter(
    title="Expired transactional ids",
    settings=SETTINGS,
    probes=(
        probe(
            "unused transactional ids of several producers",
            init(),
            Twin(client_name="old"),
            init("b"),
            init("c"),
            Gone(),
            Gone(client_name="b"),
            Gone(client_name="c"),
            init(keeps=True),
            Describe(),
            init("old", keeps=True),
            init("b"),
            init("c", keeps=True, epoch=3),
            init("c", version=3, keeps=True),
        ),
        probe(
            "an expired transactional id: all other requests of its producer",
            init(),
            Gone(),
            Add(),
            AddOffsetsStep(),
            Verify(),
            Verify(adds=True),
            commit(),
            abort(version=1),
            commit(version=5),
            abort(version=5),
            produce(),
            produce(version=12),
            offsets(version=3),
            offsets(version=5),
            Describe(),
        ),
        probe(
            "a completed transaction: its id expires, its records stay",
            init(),
            Add(),
            produce(),
            commit(),
            once("CompleteCommit"),
            Gone(),
            Read(),
            DescribeProducers(),
            produce(1),
            init(),
            Add(),
            produce(),
            abort(),
            Gone(),
            Read(),
        ),
        probe(
            "a longer open transaction: its id does not expire",
            init(),
            Add(),
            produce(),
            Pause(ms=LONGER_MS),
            Describe(),
            commit(),
            Gone(),
            Read(),
        ),
        probe(
            "a transaction that does not complete: its id does not expire",
            *STUCK_COMMIT,
            Pause(ms=LONGER_MS),
            Describe(),
        ),
    ),
)
