"""Transactions on failing replicas: what read_committed consumers received remains valid, and no
transaction hangs.

Source: KIP-98, KIP-890; KAFKA-9807, KAFKA-14402, KAFKA-14884.
"""

from typing import TypedDict, Unpack

import pytest

from kraftsim.core.decision import Refusal
from kraftsim.partitions.rules_replica import PartitionReplica
from kraftsim.producer_state.rules_manager import ProducerStateManager
from protocol.records.batches import RecordBatch
from tests.core.transactions_harness import TransactionsHarness

SEEDS = 10


class ReplacedParts(TypedDict, total=False):
    """Classes that replace those of the product."""

    state_class: type[ProducerStateManager]
    replica_class: type[PartitionReplica]


def run(
    seed: int, version: int, *, brokers: int = 3, **options: Unpack[ReplacedParts]
) -> TransactionsHarness:
    harness = TransactionsHarness(
        seed, version=version, brokers=brokers, min_in_sync=min(brokers, 1 + seed % 2), **options
    )
    harness.run(300, trouble=0.06)
    harness.settle_transactions()
    return harness


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("brokers", [1, 3])
def test_committed_reads_remain_valid(version: int, brokers: int) -> None:
    """On leaders and followers; the last stable offset never passes an open transaction, and
    aborted lists name exactly what is to be skipped.

    A high watermark may decrease under a leader that knows less: a marker that was once replicated
    does not limit readers again.
    """
    committed = aborted = elections = reads = refused = 0
    for seed in range(SEEDS):
        harness = run(seed, version, brokers=brokers)
        committed += harness.committed
        aborted += harness.aborted
        elections += harness.elections
        reads += len(harness.reads)
        refused += harness.unverified + harness.fenced
    assert (
        committed > SEEDS / 2
        and aborted > 3 * SEEDS
        and elections > 5 * SEEDS
        and reads > 10 * SEEDS
        and refused > 0
    )


@pytest.mark.parametrize("seed", range(SEEDS, SEEDS + 8))
def test_committed_reads_remain_valid_in_any_history(seed: int) -> None:
    """The same, one history per run, for `make more-seeds`."""
    run(seed, 1 + seed % 2)


class SkipsVerification(ProducerStateManager):
    """KAFKA-14402."""

    __slots__ = ()

    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        now_ms: int,
        *,
        adds: bool = False,
    ) -> None:
        """Skip the verification."""

    def _refuse_unverified(self, batch: RecordBatch, guard: int | None) -> Refusal | None:
        return None


class ForgetsGuards(ProducerStateManager):
    """KAFKA-14884."""

    __slots__ = ()

    def _refuse_unverified(self, batch: RecordBatch, guard: int | None) -> Refusal | None:
        return None


class SeesEverything(PartitionReplica):
    """KAFKA-9807, at its worst."""

    __slots__ = ()

    @property
    def last_stable_offset(self) -> int:
        """Return the high watermark instead."""
        return self.high_watermark


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"state_class": SkipsVerification}, "hanging transactions|was different"),
        ({"state_class": ForgetsGuards}, "hanging transactions|was different"),
        ({"replica_class": SeesEverything}, "is not from"),
    ],
)
def test_harness_finds_a_former_bug(options: ReplacedParts, complaint: str) -> None:
    """Otherwise it would prove nothing."""
    with pytest.raises(AssertionError, match=complaint):
        for seed in range(10):
            run(seed, 1, **options)
