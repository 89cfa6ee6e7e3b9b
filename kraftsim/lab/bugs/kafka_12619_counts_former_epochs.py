"""A new leader commits records of previous epochs as soon as a majority has them, before a record
of its own epoch is committed.

Such a record can still be lost: a controller with a later epoch in its log wins the next election
without having the record, and the replicas that have it truncate it. It takes three elections in a
row with two leaders that could not replicate what they wrote: figure 8 of the Raft paper.

Source: KAFKA-12619, fixed by requiring the LeaderChange record of the epoch itself
(org.apache.kafka.raft.LeaderState.maybeUpdateHighWatermark).
"""

from kraftsim.lab.bugs.bug import Bug
from kraftsim.raft.rules_roles import Leadership


class CountsFormerEpochs(Leadership):
    """Advances the high watermark below the first record of its own epoch."""

    def _covers_own_epoch(self, high_watermark: int) -> bool:
        return high_watermark >= self.epoch_start_offset  # right: >


BUG = Bug(
    name="KAFKA-12619",
    title="a new leader commits records of previous epochs without one of its own",
    fixed_in=("2.8.0", "3.0.0"),
    swap=lambda parts: parts.replacing(leadership=CountsFormerEpochs),
    scenario="quorum_under_faults",
    caught_by=(
        "leader-completeness",
        "no-truncation-below-high-watermark",
        "producer-id-blocks-disjoint",
    ),
)
