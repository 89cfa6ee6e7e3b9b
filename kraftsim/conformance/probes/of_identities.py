"""Probes of InitProducerId: the assigned producer id and epoch, in every state of a transaction."""

from kraftsim.conformance.probes.partition_steps import MarkerStep, Read, produce
from kraftsim.conformance.probes.probe import FENCE_REMEMBERS, START_IS_FORGOTTEN, Chapter, probe
from kraftsim.conformance.probes.transaction_steps import Add, Describe, abort, commit, init, once

LIMIT_MS = 900_000
STUCK_COMMIT = (
    init(),
    Add(),
    produce(),
    MarkerStep(epoch=1, commits=False),
    commit(),
    once("PrepareCommit"),
)
"""The partition has seen a later epoch and rejects markers with this one, so that the transaction
stays in its prepared state.
"""
STUCK_ABORT = (
    init(),
    Add(),
    produce(),
    MarkerStep(epoch=1, commits=False),
    abort(),
    once("PrepareAbort"),
)

CHAPTER = Chapter(
    title="Producer ids",
    probes=(
        *(
            probe(f"a new transactional id, version {version}", init(version=version), Describe())
            for version in range(6)
        ),
        probe("InitProducerId again", init(), init(), init(version=1), Describe()),
        probe("an empty transactional id", init(name=""), init(version=0, name="")),
        probe(
            "without a transactional id the time-out is ignored",
            init(nameless=True, timeout_ms=-1),
            init("b", nameless=True, timeout_ms=LIMIT_MS + 1),
        ),
        probe(
            "without a transactional id, with the producer's id and epoch",
            init(nameless=True),
            init(nameless=True, keeps=True),
        ),
        probe(
            "without a transactional id, with a producer id and no epoch",
            init(nameless=True, id_only=True),
        ),
        probe(
            "without a transactional id, with an epoch and no producer id",
            init(nameless=True, epoch_only=True),
        ),
        probe("a time-out of 0 or less", init(timeout_ms=0), init(timeout_ms=-1), Describe()),
        probe(
            "the longest time-out, and a longer one",
            init(timeout_ms=LIMIT_MS),
            init(timeout_ms=LIMIT_MS + 1),
        ),
        probe(
            "a producer id without an epoch, an epoch without a producer id",
            init(),
            init(id_only=True),
            init(epoch_only=True),
        ),
        probe("own id and epoch", init(), init(keeps=True), Describe()),
        probe(
            "own id and the previous epoch: a retry",
            init(),
            init(keeps=True),
            init(keeps=True, epoch=-1),
            Describe(),
        ),
        probe(
            "own id and the previous epoch, after another InitProducerId",
            init(),
            init(),
            init(keeps=True, epoch=-1),
        ),
        probe(
            "own id and a much older epoch",
            init(),
            init(keeps=True),
            init(keeps=True),
            init(keeps=True, epoch=-2),
        ),
        probe("own id and a future epoch, version 4", init(), init(keeps=True, epoch=1)),
        probe("own id and a future epoch, version 3", init(), init(version=3, keeps=True, epoch=1)),
        probe("own id and a future epoch, version 5", init(), init(version=5, keeps=True, epoch=1)),
        probe("another producer's id, version 4", init(), init("b"), init(keeps=True, id_of="b")),
        probe(
            "another producer's id, version 3",
            init(),
            init("b"),
            init(version=3, keeps=True, id_of="b"),
        ),
        probe("an unallocated producer id", init(), init(keeps=True, id_of="nobody")),
        probe(
            "a producer id and epoch for an unknown transactional id",
            init("b"),
            init(keeps=True, id_of="b", epoch=8),
            Describe(),
        ),
        probe(
            "an open transaction is aborted first",
            init(),
            Add(),
            init(),
            init(until_free=True),
            Describe(),
            since_4=START_IS_FORGOTTEN,
        ),
        probe(
            "an open transaction, version 2",
            init(),
            Add(),
            init(version=2),
            init(version=2, until_free=True),
        ),
        probe(
            "an open transaction; own id and epoch",
            init(),
            Add(),
            init(keeps=True),
            init(keeps=True, until_free=True),
            Describe(),
            since_4=FENCE_REMEMBERS,
        ),
        probe(
            "an open transaction; own id and the epoch of the fence",
            init(),
            Add(),
            init(),
            init(keeps=True, epoch=1, until_free=True),
        ),
        probe(
            "an open transaction; own id and a future epoch",
            init(),
            Add(),
            init(keeps=True, epoch=1),
            once("CompleteAbort"),
        ),
        probe(
            "an open transaction; another producer's id",
            init(),
            init("b"),
            Add(),
            init(keeps=True, id_of="b"),
            Describe(),
        ),
        probe(
            "after a commit",
            init(),
            Add(),
            produce(),
            commit(),
            once("CompleteCommit"),
            init(),
            Describe(),
            since_4=START_IS_FORGOTTEN,
        ),
        probe(
            "after an abort, with own id and epoch",
            init(),
            Add(),
            abort(),
            once("CompleteAbort"),
            init(keeps=True),
            Describe(),
            since_4=START_IS_FORGOTTEN,
        ),
        probe(
            "while a commit does not complete",
            *STUCK_COMMIT,
            init(),
            init(keeps=True),
            init(version=3, keeps=True, epoch=1),
        ),
        probe(
            "while an abort does not complete",
            *STUCK_ABORT,
            init(),
            init(keeps=True),
            init(keeps=True, epoch=1),
        ),
        probe(
            "the time-out is the last requested one",
            init(timeout_ms=60_000),
            init(timeout_ms=1_000, keeps=True),
            Add(),
            once("CompleteAbort"),
            Describe(),
        ),
        probe(
            "a transaction that timed out is aborted, and its producer is fenced",
            init(timeout_ms=1_000),
            Add(),
            produce(),
            once("CompleteAbort"),
            commit(),
            abort(version=1),
            Add(),
            produce(1),
            init(keeps=True),
            Read(until_stable=True),
            since_4=FENCE_REMEMBERS,
        ),
        probe(
            "a transaction that timed out; the epoch of its fence is accepted",
            init(timeout_ms=1_000),
            Add(),
            once("CompleteAbort"),
            init(keeps=True, epoch=1),
        ),
        probe(
            "a producer without a transaction never times out",
            init(timeout_ms=1_000),
            Describe(),
            commit(),
        ),
    ),
)
