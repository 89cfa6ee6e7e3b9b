"""When a follower joins the ISR, and when acks=all is acknowledged: the rules of a leader, one by
one.

Source: KAFKA-7128, KIP-497, KIP-841, KIP-903; kafka.cluster.Partition.{isFollowerInSync,
handleAlterPartitionUpdate, checkEnoughReplicasReachOffset}.
"""

import pytest

from kraftsim.partitions.rules_append import ALL_REPLICAS, AppendDecision, AppendRules
from kraftsim.partitions.rules_follower import ReadBounds
from kraftsim.partitions.rules_leader import (
    After,
    InSyncReplicas,
    LeaderAndIsrState,
    LeaderRules,
    LeaderState,
)
from kraftsim.partitions.rules_log import LeaderEpochs
from kraftsim.partitions.rules_reading import decide_read
from kraftsim.partitions.rules_replica import AgreedIsr, PartitionReplica
from kraftsim.producer_state.rules_entries import ProducerStatePolicy
from kraftsim.producer_state.rules_manager import ProducerStateManager
from protocol.errors import ErrorCode
from tests.core.batches import make_batch

OWN, FOLLOWER, BROKER_EPOCH = 1, 2, 70
EPOCH_START = 10


@pytest.mark.parametrize(
    ("fetch_offset", "high_watermark", "eligible_epoch", "joins"),
    [
        (10, 5, BROKER_EPOCH, True),
        (10, 10, BROKER_EPOCH, True),
        (
            9,
            5,
            BROKER_EPOCH,
            False,
            # has all records that the leader knows to be committed, but may lack some that its
            # predecessor acknowledged
        ),
        (5, 5, BROKER_EPOCH, False),
        (11, 12, BROKER_EPOCH, False),
        (12, 12, BROKER_EPOCH, True),
        (10, 5, BROKER_EPOCH + 1, False),  # the metadata has a later incarnation
    ],
)
def test_joining_replica_has_the_high_watermark_and_the_epoch_start(
    fetch_offset: int, high_watermark: int, eligible_epoch: int, joins: bool
) -> None:
    """And is alive, in the incarnation that the metadata contains (KAFKA-7128, KIP-903)."""
    leader_and_isr = LeaderAndIsrState(
        leader_epoch=3, partition_epoch=7, replicas=(OWN, FOLLOWER), isr=(OWN,)
    )
    leader_state = LeaderState(
        OWN,
        leader_and_isr,
        log_end_offset=EPOCH_START,
        now_ms=0,
        rules=LeaderRules(),
        eligible=lambda replica_id, broker_epoch: (
            (replica_id, broker_epoch) == (FOLLOWER, eligible_epoch)
        ),
    )
    leader_state.on_fetch(
        FOLLOWER, fetch_offset, 0, log_end_offset=12, now_ms=1, broker_epoch=BROKER_EPOCH
    )
    proposal = leader_state.expansion(FOLLOWER, high_watermark)
    assert (proposal is not None) == joins
    assert proposal is None or (proposal.isr, proposal.broker_epochs[1]) == (
        (OWN, FOLLOWER),
        BROKER_EPOCH,
    )


@pytest.mark.parametrize(
    ("leader_epoch", "partition_epoch", "after"),
    [
        (3, 8, After.CHANGED),
        (3, 7, After.CHANGED),
        (3, 6, After.NOTHING),
        (2, 8, After.NOTHING),
        (4, 8, After.NOTHING),
    ],
)
def test_response_of_an_earlier_partition_epoch_is_ignored(
    leader_epoch: int, partition_epoch: int, after: After
) -> None:
    """It describes an ISR that has been replaced since (Partition.handleAlterPartitionUpdate)."""
    in_sync = InSyncReplicas((OWN,), leader_epoch=3, partition_epoch=7)
    proposal = in_sync.propose((OWN, FOLLOWER), (-1, BROKER_EPOCH))
    assert (
        in_sync.on_answer(
            proposal,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            isr=(OWN, FOLLOWER),
        )
        is after
    )
    is_taken = after is After.CHANGED
    assert (in_sync.agreed, in_sync.proposal) == (
        ((OWN, FOLLOWER), None) if is_taken else ((OWN,), proposal)
    )
    assert in_sync.partition_epoch == (partition_epoch if is_taken else 7)


def empty_replica() -> PartitionReplica:
    """A replica with an empty log."""
    return PartitionReplica(
        topic="t",
        partition=0,
        replica_id=OWN,
        log_start_offset=0,
        log_end_offset=0,
        epochs=LeaderEpochs(),
        producer_state=ProducerStateManager(ProducerStatePolicy(verifies_transactions=False)),
        rules=AppendRules(min_in_sync_replicas=2),
        emit=lambda event: None,
    )


@pytest.mark.parametrize(
    ("reader", "end_offset"),
    [({}, 1), ({"reads_committed": True}, 1), ({"is_follower": True}, 3)],
    ids=["consumer", "read_committed consumer", "follower"],
)
def test_only_followers_read_beyond_the_high_watermark(
    reader: dict[str, bool], end_offset: int
) -> None:
    """Three batches are appended, and the follower has one of them (Partition.readRecords)."""
    replica = empty_replica()
    leader_and_isr = LeaderAndIsrState(
        leader_epoch=3, partition_epoch=7, replicas=(OWN, FOLLOWER), isr=(OWN, FOLLOWER)
    )
    replica.lead(leader_and_isr, now_ms=0, rules=LeaderRules(), eligible=lambda replica_id, _: True)
    for _ in range(3):
        decision = replica.decide_append(make_batch(0, producer_id=-1, epoch=-1), ALL_REPLICAS, 0)
        assert isinstance(decision, AppendDecision)
        replica.apply_append(decision)
    replica.on_follower_fetch(FOLLOWER, 1, 0, now_ms=1, broker_epoch=BROKER_EPOCH)
    bounds = decide_read(replica, 0, **reader)
    assert isinstance(bounds, ReadBounds)
    assert (bounds.end_offset, bounds.high_watermark) == (end_offset, 1)


@pytest.mark.parametrize(
    ("waits", "left", "error"),
    [
        (False, (OWN, FOLLOWER), ErrorCode.NONE),
        (False, (OWN,), ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        (True, (OWN, FOLLOWER), ErrorCode.NONE),
        (True, (OWN,), None),
    ],
)
def test_append_is_acknowledged_by_the_remaining_isr_or_waits_since_3_7(
    waits: bool, left: tuple[int, ...], error: ErrorCode | None
) -> None:
    """Before 3.7 the high watermark advances without the removed replicas and the append returns
    error 20; since then it waits (KIP-966).
    """
    replica = empty_replica()
    leader_and_isr = LeaderAndIsrState(
        leader_epoch=3, partition_epoch=7, replicas=(OWN, FOLLOWER, 3), isr=(OWN, FOLLOWER, 3)
    )
    rules = LeaderRules(lag_max_ms=100, min_in_sync=2, waits_for_min_in_sync=waits)
    replica.lead(leader_and_isr, now_ms=0, rules=rules, eligible=lambda replica_id, _: True)
    decision = replica.decide_append(make_batch(0, producer_id=-1, epoch=-1), ALL_REPLICAS, 0)
    assert isinstance(decision, AppendDecision)
    replica.apply_append(decision)
    if FOLLOWER in left:
        replica.on_follower_fetch(FOLLOWER, 1, 0, now_ms=200, broker_epoch=BROKER_EPOCH)
    assert replica.replicated(1) is None
    proposal = replica.shrinking(200)
    assert proposal is not None and proposal.isr == left
    assert replica.on_isr_answer(proposal, AgreedIsr(3, 8, left), 500) is After.CHANGED
    assert replica.replicated(1) is error
