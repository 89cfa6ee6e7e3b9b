"""Probes of AddPartitionsToTxn and AddOffsetsToTxn, from producers and from brokers."""

from kraftsim.conformance.probes.of_identities import STUCK_ABORT, STUCK_COMMIT
from kraftsim.conformance.probes.partition_steps import MarkerStep, produce
from kraftsim.conformance.probes.probe import END_BEFORE_EPOCH, Chapter, probe
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

MISSING = (("nowhere", (0,)),)

CHAPTER = Chapter(
    title="Adding partitions to a transaction",
    probes=(
        *(
            probe(f"a partition, version {version}", init(), Add(version=version), Describe())
            for version in range(4)
        ),
        probe(
            "the same partition again, and another one",
            init(),
            Add(),
            Add(),
            Add(topics=(("", (0, 1)),)),
            Describe(),
        ),
        probe(
            "the same partition twice in a request", init(), Add(topics=(("", (0, 0)),)), Describe()
        ),
        probe("no partition at all", init(), Add(topics=()), Describe()),
        probe("a topic without partitions", init(), Add(topics=(("", ()),)), Describe()),
        probe("a topic that does not exist", init(), Add(topics=MISSING), Describe()),
        probe(
            "a partition that does not exist, with one that does",
            init(),
            Add(topics=(("", (0, 7)),)),
            Describe(),
        ),
        probe(
            "a topic that does not exist, with one that does",
            init(),
            Add(topics=(("", (0,)), ("nowhere", (0, 1)))),
            Describe(),
        ),
        probe(
            "an internal topic", init(), Add(topics=(("__transaction_state", (0,)),)), Describe()
        ),
        probe("an empty transactional id", init(), Add(name="")),
        probe(
            "an unknown transactional id",
            init(),
            Add(name="unknown-name"),
            Add(version=1, name="unknown-name"),
        ),
        probe(
            "another producer's id", init(), init("b"), Add(id_of="b"), Add(version=1, id_of="b")
        ),
        probe("an unallocated producer id", init(), Add(id_of="nobody")),
        probe(
            "an older epoch",
            init(),
            init(),
            Add(epoch=-1),
            Add(version=2, epoch=-1),
            Add(version=1, epoch=-1),
            Add(version=0, epoch=-1),
        ),
        probe(
            "a future epoch",
            init(),
            Add(epoch=1),
            Add(version=2, epoch=1),
            Add(version=1, epoch=1),
            Add(version=0, epoch=1),
        ),
        probe("after a commit", init(), Add(), commit(), once("CompleteCommit"), Add(), Describe()),
        probe("after an abort", init(), Add(), abort(), once("CompleteAbort"), Add(), Describe()),
        probe(
            "while a commit does not complete",
            *STUCK_COMMIT,
            Add(),
            Add(epoch=1),
            AddOffsetsStep(),
            since_4=END_BEFORE_EPOCH,
        ),
        probe("while an abort does not complete", *STUCK_ABORT, Add(), AddOffsetsStep()),
        probe(
            "as a broker: verification of a partition that was not added, version 4",
            init(),
            Verify(),
            Verify(version=5),
        ),
        probe(
            "as a broker: verification of an added partition",
            init(),
            Add(),
            Verify(),
            Verify(version=5),
            Verify(topics=(("", (0, 1)),)),
        ),
        probe(
            "as a broker: another transactional id, another producer's id, an unallocated id",
            init(),
            init("b"),
            Verify(name="unknown"),
            Verify(id_of="b"),
            Verify(id_of="nobody"),
        ),
        probe(
            "as a broker: an older epoch, and a future one",
            init(),
            init(),
            Add(),
            Verify(epoch=-1),
            Verify(epoch=1),
            Verify(version=5, epoch=1),
        ),
        probe("as a broker: an empty transactional id", init(), Verify(name="")),
        probe(
            "as a broker: a partition that does not exist",
            init(),
            Add(),
            Verify(topics=(("", (0, 7)),)),
            Verify(topics=MISSING),
        ),
        probe(
            "as a broker: an empty request", init(), Verify(topics=()), Verify(topics=(("", ()),))
        ),
        probe(
            "as a broker: after the transaction",
            init(),
            Add(),
            commit(),
            once("CompleteCommit"),
            Verify(),
            Verify(version=5),
        ),
        probe(
            "as a broker: while a commit does not complete",
            *STUCK_COMMIT,
            Verify(),
            Verify(version=5),
        ),
        probe(
            "as a broker: two transactions, one of which has the partition",
            init(),
            init("b"),
            Add(),
            Verify(beside=("b",)),
            Verify(version=5, beside=("b",)),
        ),
        probe("as a broker: adding a partition", init(), Verify(adds=True), Verify(), Describe()),
        probe(
            "as a broker: adding an added partition, with an old epoch",
            init(),
            init(),
            Add(),
            Verify(adds=True),
            Verify(adds=True, epoch=-1),
            Describe(),
        ),
        probe(
            "as a broker: adding to a transaction that does not complete",
            *STUCK_COMMIT,
            Verify(adds=True),
            Verify(version=5, adds=True),
        ),
        *(
            probe(
                f"the offsets of a group, version {version}",
                init(),
                AddOffsetsStep(version=version),
                Describe(),
            )
            for version in range(5)
        ),
        probe(
            "the offsets of a group, twice", init(), AddOffsetsStep(), AddOffsetsStep(), Describe()
        ),
        probe(
            "the offsets of a group with an empty id", init(), AddOffsetsStep(group=""), Describe()
        ),
        probe(
            "the offsets of a group; an unknown transactional id, an empty one, another "
            "producer's id",
            init(),
            AddOffsetsStep(name="unknown"),
            AddOffsetsStep(name=""),
            AddOffsetsStep(id_of="nobody"),
        ),
        probe(
            "the offsets of a group; an older epoch",
            init(),
            init(),
            AddOffsetsStep(epoch=-1),
            AddOffsetsStep(version=2, epoch=-1),
            AddOffsetsStep(version=1, epoch=-1),
        ),
        probe(
            "the offsets of a group; a future epoch",
            init(),
            AddOffsetsStep(epoch=1),
            AddOffsetsStep(version=1, epoch=1),
        ),
        probe(
            "a partition with an administrator's marker is still in the transaction",
            init(),
            Add(),
            produce(),
            MarkerStep(commits=False),
            Verify(),
            Describe(),
        ),
    ),
)
