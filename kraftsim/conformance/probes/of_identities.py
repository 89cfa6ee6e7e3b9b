"""Probes of InitProducerId: who gets which id and epoch, in every state that a transaction can be in."""

from kraftsim.conformance.probes.partition_steps import Marker, Read, produce
from kraftsim.conformance.probes.probe import Chapter, probe
from kraftsim.conformance.probes.reasons import FENCE_REMEMBERS, START_IS_FORGOTTEN
from kraftsim.conformance.probes.transaction_steps import Add, Describe, abort, commit, init, once

LIMIT_MS = 900_000
STUCK_COMMIT = (init(), Add(), produce(), Marker(epoch=1, commits=False), commit(), once("PrepareCommit"))
"""The partition has seen a later epoch and takes no marker of this one, so that the transaction never gets beyond its decision."""
STUCK_ABORT = (init(), Add(), produce(), Marker(epoch=1, commits=False), abort(), once("PrepareAbort"))

CHAPTER = Chapter(
    title="Identities",
    probes=(
        *(probe(f"a name is asked about for the first time, version {version}", init(version=version), Describe()) for version in range(6)),
        probe("the same name asks again", init(), init(), init(version=1), Describe()),
        probe("a name of no letters", init(name=""), init(version=0, name="")),
        probe("no name: a time-out does not matter", init(nameless=True, timeout_ms=-1), init("b", nameless=True, timeout_ms=LIMIT_MS + 1)),
        probe("no name, with an own id and epoch", init(nameless=True), init(nameless=True, keeps=True)),
        probe("no name, with an id and no epoch", init(nameless=True, id_only=True)),
        probe("no name, with an epoch and no id", init(nameless=True, epoch_only=True)),
        probe("a time-out of 0 and less", init(timeout_ms=0), init(timeout_ms=-1), Describe()),
        probe("the longest time-out, and a longer one", init(timeout_ms=LIMIT_MS), init(timeout_ms=LIMIT_MS + 1)),
        probe("an id without an epoch, an epoch without an id", init(), init(id_only=True), init(epoch_only=True)),
        probe("own id and epoch", init(), init(keeps=True), Describe()),
        probe("own id and the epoch before: a repeated question", init(), init(keeps=True), init(keeps=True, epoch=-1), Describe()),
        probe("own id and the epoch before, after somebody else took the name", init(), init(), init(keeps=True, epoch=-1)),
        probe("own id and an epoch of long ago", init(), init(keeps=True), init(keeps=True), init(keeps=True, epoch=-2)),
        probe("own id and an epoch to come, version 4", init(), init(keeps=True, epoch=1)),
        probe("own id and an epoch to come, version 3", init(), init(version=3, keeps=True, epoch=1)),
        probe("own id and an epoch to come, version 5", init(), init(version=5, keeps=True, epoch=1)),
        probe("another's id, version 4", init(), init("b"), init(keeps=True, id_of="b")),
        probe("another's id, version 3", init(), init("b"), init(version=3, keeps=True, id_of="b")),
        probe("nobody's id", init(), init(keeps=True, id_of="nobody")),
        probe("an id and epoch for a name that is unknown", init("b"), init(keeps=True, id_of="b", epoch=8), Describe()),
        probe("a transaction goes on: it is ended first", init(), Add(), init(), init(until_free=True), Describe(), since_4=START_IS_FORGOTTEN),
        probe("a transaction goes on, version 2", init(), Add(), init(version=2), init(version=2, until_free=True)),
        probe(
            "a transaction goes on; own id and epoch",
            init(),
            Add(),
            init(keeps=True),
            init(keeps=True, until_free=True),
            Describe(),
            since_4=FENCE_REMEMBERS,
        ),
        probe("a transaction goes on; own id and the epoch that the fence gave", init(), Add(), init(), init(keeps=True, epoch=1, until_free=True)),
        probe("a transaction goes on; own id and an epoch to come", init(), Add(), init(keeps=True, epoch=1), once("CompleteAbort")),
        probe("a transaction goes on; another's id", init(), init("b"), Add(), init(keeps=True, id_of="b"), Describe()),
        probe("after a commit", init(), Add(), produce(), commit(), once("CompleteCommit"), init(), Describe(), since_4=START_IS_FORGOTTEN),
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
        probe("while a commit does not get done", *STUCK_COMMIT, init(), init(keeps=True), init(version=3, keeps=True, epoch=1)),
        probe("while an abort does not get done", *STUCK_ABORT, init(), init(keeps=True), init(keeps=True, epoch=1)),
        probe(
            "the time-out is the last one that was asked for",
            init(timeout_ms=60_000),
            init(timeout_ms=1_000, keeps=True),
            Add(),
            once("CompleteAbort"),
            Describe(),
        ),
        probe(
            "a transaction that lasted too long is aborted, and its producer is fenced",
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
            "a transaction that lasted too long; the epoch that its fence gave is accepted",
            init(timeout_ms=1_000),
            Add(),
            once("CompleteAbort"),
            init(keeps=True, epoch=1),
        ),
        probe("a producer that got nothing but an id never lasts too long", init(timeout_ms=1_000), Describe(), commit()),
    ),
)
