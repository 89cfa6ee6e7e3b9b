"""When the active controller responds, and what remains of its state when it loses leadership: for
every possible high watermark.

Source: org.apache.kafka.controller.QuorumController (deferredEventQueue, renounce).
"""

from functools import partial
from typing import cast

import pytest

from kraftsim.metadata.events import MetadataReverted
from kraftsim.metadata.metadata_writer import AppendedOffsets, MetadataWriter
from kraftsim.metadata.rules_controller_state import ControllerState
from kraftsim.metadata.rules_partitions import TopicDefaults
from kraftsim.producer_ids.events import ProducerIdBlockAllocated
from kraftsim.raft.raft_node import RaftNode
from kraftsim.world.simulated import Simulation
from protocol.metadata.controller import ProducerIdsRecord
from protocol.records.batches import RecordBatch

FIRST = 5
"""The log begins with so many committed records."""


class LeadingRaft:
    """A leader of epoch 3 whose log is a list."""

    leader_epoch = 3

    def __init__(self) -> None:
        self.batches: list[RecordBatch] = []
        self.log_end_offset = FIRST
        self.is_settled = False

    def append(self, batch: bytes, record_count: int, record_kinds: str) -> None:
        self.batches.append(RecordBatch(batch))
        self.log_end_offset += record_count

    def on_written(self) -> None:
        """There are no followers."""


def allocated(number: int) -> ProducerIdBlockAllocated:
    return ProducerIdBlockAllocated(
        broker_id=1,
        broker_epoch=1,
        first_producer_id=1000 * number,
        next_producer_id=1000 * (number + 1),
        offset=FIRST + number,
    )


@pytest.mark.parametrize("high_watermark", range(FIRST, FIRST + 4))
def test_committed_writes_are_answered_and_the_rest_reverted_and_rejected(
    high_watermark: int,
) -> None:
    """Three blocks are at offsets 5, 6 and 7, and leadership is lost with everything below the high
    watermark committed.
    """
    committed = high_watermark - FIRST
    answered: list[tuple[int, int]] = []
    given_up: list[int] = []

    def on_committed(number: int, offsets: AppendedOffsets | None) -> None:
        assert offsets is not None
        answered.append((number, offsets.first_offset))

    with Simulation(1) as simulation:
        host = simulation.add_host("controller-1")
        raft, state = (
            LeadingRaft(),
            ControllerState(
                cluster_id="c",
                session_timeout_ms=9000,
                metadata_version=21,
                topic_defaults=TopicDefaults(),
            ),
        )
        metadata_writer = MetadataWriter(simulation.world_of(host), state, cast(RaftNode, raft))
        for number in range(3):
            metadata_writer.write(
                [
                    ProducerIdsRecord(
                        broker_id=1, broker_epoch=1, next_producer_id=1000 * (number + 1)
                    )
                ],
                [allocated(number)],
                partial(on_committed, number),
                on_given_up=partial(given_up.append, number),
            )
        assert [batch.base_offset for batch in raft.batches] == [FIRST, FIRST + 1, FIRST + 2]
        assert (answered, given_up, state.producer_ids.next_producer_id) == ([], [], 3000)
        metadata_writer.on_high_watermark(high_watermark)
        assert answered == [(number, FIRST + number) for number in range(committed)]
        metadata_writer.give_up(high_watermark)
        assert given_up == list(range(committed, 3))
        assert state.producer_ids.next_producer_id == 1000 * committed
        assert state.journal.first_uncommitted_offset is None
        emitted = [event for _, _, event in simulation.log("controller-1", 1).entries]
        assert [event for event in emitted if isinstance(event, ProducerIdBlockAllocated)] == [
            allocated(number) for number in range(committed)
        ]
        assert [event for event in emitted if isinstance(event, MetadataReverted)] == [
            MetadataReverted(to_offset=high_watermark)
        ]


@pytest.mark.parametrize("is_settled", [True, False])
def test_read_only_decision_waits_for_all_earlier_writes(is_settled: bool) -> None:
    """It may depend on what is not committed yet."""
    answered: list[AppendedOffsets | None] = []
    with Simulation(1) as simulation:
        raft, state = (
            LeadingRaft(),
            ControllerState(
                cluster_id="c",
                session_timeout_ms=9000,
                metadata_version=21,
                topic_defaults=TopicDefaults(),
            ),
        )
        raft.is_settled = is_settled
        metadata_writer = MetadataWriter(
            simulation.world_of(simulation.add_host("controller-1")), state, cast(RaftNode, raft)
        )
        metadata_writer.write([], on_committed=answered.append)
        assert answered == ([None] if is_settled else [])
        metadata_writer.on_high_watermark(FIRST - 1)
        assert answered == ([None] if is_settled else [])
        metadata_writer.on_high_watermark(FIRST)
        assert answered == [None]
