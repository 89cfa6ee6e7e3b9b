"""The leader of the metadata log counts its own copy of a record before it is flushed.

A broker's AllocateProducerIds is answered as soon as the record is written. If the controller loses
power before the flush, the record is gone, and the next AllocateProducerIds allocates the same
block again: two producers share an id, and the batches of one are treated as retries of the other.

Source: KAFKA-10533, fixed by flushing before the high watermark advances
(org.apache.kafka.raft.KafkaRaftClient).
"""

from kraftsim.lab.bugs.bug import Bug
from kraftsim.raft.rules_log import RaftLog
from kraftsim.raft.rules_roles import Leadership


class CountsUnflushed(Leadership):
    """Treats written records as durable."""

    def _counted_end_offset(self, log: RaftLog) -> int:
        return log.end_offset  # right: what is flushed


BUG = Bug(
    name="KAFKA-10533",
    title="the metadata log's high watermark passes records that are not flushed",
    fixed_in=("2.8.0",),
    swap=lambda parts: parts.replacing(leadership=CountsUnflushed),
    scenario="quorum_under_faults",
    caught_by=(
        "high-watermark-flushed",
        "producer-id-blocks-disjoint",
        "producer-id-unique",
        "next-producer-id-monotonic",
    ),
)
