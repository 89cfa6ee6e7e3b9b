"""Probes of offsets in transactions: who may commit them, and when they are visible (KIP-447)."""

from kraftsim.conformance.probes.group_steps import (
    DeleteGroup,
    DeleteOffset,
    FetchOffsets,
    Join,
    Offsets,
    offsets,
)
from kraftsim.conformance.probes.partition_steps import Marker
from kraftsim.conformance.probes.probe import Chapter, probe
from kraftsim.conformance.probes.reasons import NO_GROUP_FOR_A_GENERATION, OPEN_IN_ITS_EPOCH_ONLY
from kraftsim.conformance.probes.transaction_steps import (
    AddOffsets,
    Describe,
    abort,
    commit,
    init,
    once,
)

DONE = once("CompleteCommit")
UNDONE = once("CompleteAbort")
OPEN = (init(), AddOffsets())
"""A producer whose transaction contains the offsets of the group."""
STABLE = FetchOffsets(until_stable=True)
NOW = FetchOffsets(stable=False)

CHAPTER = Chapter(
    title="Offsets in transactions",
    probes=(
        *(
            probe(
                f"offsets, version {version}",
                *OPEN,
                offsets(version=version),
                commit(),
                DONE,
                STABLE,
            )
            for version in range(5)
        ),
        *(
            probe(
                f"offsets of a group that was not added, version {version}",
                init(),
                offsets(version=version),
            )
            for version in (0, 2, 3, 4)
        ),
        probe(
            "offsets of a group that was not added, version 5",
            init(),
            offsets(version=5),
            Describe(),
            FetchOffsets(),
            commit(version=5),
            DONE,
            STABLE,
        ),
        probe(
            "version 5 with an older epoch, and a future one",
            init(),
            init(),
            offsets(version=5, epoch=-1),
            offsets(version=5, epoch=1),
        ),
        probe(
            "version 5 with an unallocated id, and an unknown transactional id",
            init(),
            offsets(version=5, id_of="nobody"),
            offsets(version=5, name="unknown"),
        ),
        probe(
            "an unknown transactional id, and an empty one",
            *OPEN,
            offsets(name="unknown"),
            offsets(name=""),
            offsets(version=4, name="unknown"),
        ),
        probe(
            "an unallocated producer id",
            *OPEN,
            offsets(id_of="nobody"),
            offsets(version=4, id_of="nobody"),
        ),
        probe("an older epoch", init(), *OPEN, offsets(epoch=-1), offsets(version=4, epoch=-1)),
        probe("a future epoch", *OPEN, offsets(epoch=1), offsets(version=4, epoch=1)),
        probe(
            "an older epoch, after a commit with the current one",
            init(),
            *OPEN,
            offsets(),
            offsets(6, epoch=-1),
        ),
        probe(
            "a future epoch, after a commit with the current one",
            *OPEN,
            offsets(),
            offsets(6, epoch=1),
            since_4=OPEN_IN_ITS_EPOCH_ONLY,
        ),
        probe("an empty group id", *OPEN, offsets(group="")),
        probe("a topic that does not exist", *OPEN, offsets(topic="nowhere")),
        probe(
            "a partition that does not exist, with one that does", *OPEN, offsets(partitions=(0, 7))
        ),
        probe(
            "too long metadata", *OPEN, offsets(metadata="m" * 4097), offsets(metadata="m" * 4096)
        ),
        probe(
            "an unknown group, with a generation",
            *OPEN,
            offsets(some_generation=1),
            since_4=NO_GROUP_FOR_A_GENERATION,
        ),
        probe(
            "an unknown group, with a member and a generation",
            *OPEN,
            offsets(member="x", some_generation=1),
            since_4=NO_GROUP_FOR_A_GENERATION,
        ),
        probe(
            "an unknown group, with a member and no generation",
            *OPEN,
            offsets(member="x", no_generation=True),
        ),
        probe(
            "an unknown group, with an instance",
            *OPEN,
            offsets(instance_id="i", no_generation=True),
        ),
        # A group with a member.
        probe("a member", *OPEN, Join(), offsets(member="m"), commit(), DONE, STABLE),
        probe(
            "a member with the previous generation",
            *OPEN,
            Join(),
            Join(),
            offsets(member="m", generation=-1),
        ),
        probe(
            "a member with a future generation", *OPEN, Join(), offsets(member="m", generation=1)
        ),
        probe(
            "a member without a generation", *OPEN, Join(), offsets(member="m", no_generation=True)
        ),
        probe(
            "an unknown member",
            *OPEN,
            Join(),
            offsets(member="x", some_generation=1),
            offsets(member="x", no_generation=True),
        ),
        probe("a generation without a member", *OPEN, Join(), offsets(some_generation=1)),
        probe(
            "neither a member nor a generation, in a non-empty group",
            *OPEN,
            Join(),
            offsets(),
            offsets(version=2),
        ),
        probe(
            "a member that waits for its assignment",
            *OPEN,
            Join(),
            Join(syncs=False),
            offsets(member="m"),
            offsets(6, member="m", generation=-1),
        ),
        probe(
            "a static member", *OPEN, Join(instance_id="i"), offsets(member="m", instance_id="i")
        ),
        probe("an unknown instance id", *OPEN, Join(), offsets(member="m", instance_id="unknown")),
        probe(
            "a fenced instance id",
            *OPEN,
            Join(instance_id="i"),
            Join(client_name="n", instance_id="i"),
            offsets(member="m", instance_id="i"),
            offsets(member="m"),
            offsets(member="n", instance_id="i"),
        ),
        probe(
            "an instance id without a member id",
            *OPEN,
            Join(instance_id="i"),
            offsets(instance_id="i", some_generation=1),
            offsets(instance_id="i"),
        ),
        probe(
            "an old client with a member in the group",
            *OPEN,
            Join(),
            offsets(7, version=2),
            commit(),
            DONE,
            STABLE,
            Offsets(8, member="m"),
            STABLE,
        ),
        # Visibility of pending and committed offsets.
        probe(
            "a pending offset is not returned with require_stable",
            *OPEN,
            offsets(),
            FetchOffsets(),
            NOW,
            FetchOffsets(version=6),
            FetchOffsets(version=1),
        ),
        probe(
            "a pending offset is not returned, several groups at once",
            *OPEN,
            offsets(),
            FetchOffsets(version=8),
            FetchOffsets(version=8, stable=False),
        ),
        probe(
            "all offsets of a group, of which one is pending",
            *OPEN,
            Offsets(3),
            offsets(partition=1),
            FetchOffsets(every=True),
            FetchOffsets(every=True, stable=False),
        ),
        probe(
            "one partition with a pending offset, another without",
            *OPEN,
            Offsets(3),
            offsets(partition=1),
            FetchOffsets(partitions=(0, 1)),
        ),
        probe(
            "a partition with an offset, and a pending one",
            *OPEN,
            Offsets(3),
            offsets(9),
            FetchOffsets(),
            NOW,
            commit(),
            DONE,
            STABLE,
        ),
        probe(
            "a commit makes the offset visible",
            *OPEN,
            offsets(),
            FetchOffsets(),
            commit(),
            DONE,
            STABLE,
            NOW,
        ),
        probe(
            "an abort drops the offset", *OPEN, Offsets(3), offsets(9), abort(), UNDONE, STABLE, NOW
        ),
        probe(
            "the last commit in a transaction applies",
            *OPEN,
            offsets(5),
            offsets(9),
            offsets(7),
            commit(),
            DONE,
            STABLE,
        ),
        probe(
            "a non-transactional commit after the pending one applies",
            *OPEN,
            offsets(9),
            Offsets(3),
            FetchOffsets(),
            NOW,
            commit(),
            DONE,
            STABLE,
        ),
        probe(
            "a non-transactional commit before the pending one is replaced",
            *OPEN,
            Offsets(3),
            offsets(9),
            commit(),
            DONE,
            STABLE,
        ),
        probe(
            "two transactions, the later one commits first",
            *OPEN,
            init("b"),
            AddOffsets(client_name="b"),
            offsets(5),
            offsets(9, client_name="b"),
            commit("b"),
            once("CompleteCommit", "b"),
            FetchOffsets(),
            commit(),
            DONE,
            STABLE,
        ),
        probe(
            "two transactions, the later one aborts",
            *OPEN,
            init("b"),
            AddOffsets(client_name="b"),
            offsets(5),
            offsets(9, client_name="b"),
            commit(),
            DONE,
            FetchOffsets(),
            NOW,
            abort("b"),
            once("CompleteAbort", "b"),
            STABLE,
        ),
        probe(
            "the successor's InitProducerId drops pending offsets",
            *OPEN,
            Offsets(3),
            offsets(9),
            init(),
            init(until_free=True),
            STABLE,
            offsets(10, epoch=-2),
        ),
        probe(
            "a transaction that timed out leaves no pending offsets",
            init(timeout_ms=1_000),
            AddOffsets(),
            offsets(9),
            UNDONE,
            STABLE,
        ),
        probe(
            "after a commit, without being added again",
            *OPEN,
            offsets(),
            commit(),
            DONE,
            STABLE,
            offsets(6),
            offsets(6, version=4),
        ),
        probe(
            "a marker of an unknown producer for offsets",
            Marker(client_name="nobody", places=(("__consumer_offsets", (0,)),)),
            Marker(client_name="nobody", places=(("__consumer_offsets", (77,)),)),
        ),
        probe(
            "a group with pending offsets is deleted",
            *OPEN,
            offsets(),
            DeleteGroup(),
            commit(),
            DONE,
            STABLE,
        ),
        probe(
            "a pending offset is deleted",
            *OPEN,
            Offsets(3),
            offsets(9),
            DeleteOffset(),
            NOW,
            commit(),
            DONE,
            STABLE,
        ),
        probe(
            "no offset at all",
            FetchOffsets(),
            NOW,
            FetchOffsets(partitions=(0, 7)),
            FetchOffsets(every=True),
            FetchOffsets(version=8),
        ),
    ),
)
