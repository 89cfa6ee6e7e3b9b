"""A producer drops the sequence numbers of a partition when Metadata lacks the topic.

A broker that has just started returns incomplete Metadata. The client drops its state of the topic,
including its sequences; when the topic is back, it starts with sequence 0 in the same epoch. The
broker treats new records as duplicates of the batches with these sequences, and returns the offsets
of those: acknowledged, but not in the log.

Source: the release notes of librdkafka 1.9.0; a client bug, injected into kraftsim's own client.
"""

from kraftsim.clients.rules_idempotent_producer import IdempotentProducer
from kraftsim.clients.rules_producer_steps import MetadataArrived, ProducerEffect, ProducerInput
from kraftsim.lab.bugs.bug import Bug


class DropsSequences(IdempotentProducer):
    """Restarts at sequence 0 when Metadata lacks a partition."""

    def step(self, happened: ProducerInput, now_ms: int) -> list[ProducerEffect]:
        """Apply an event, and drop the state of partitions that Metadata does not contain."""
        if isinstance(happened, MetadataArrived):
            for where, queue in self._queues.items():
                if where not in happened.leaders:
                    queue.next_sequence = (
                        0  # right: the state of a partition is kept until the producer is closed
                    )
        return super().step(happened, now_ms)


BUG = Bug(
    name="librdkafka-forgotten-sequence",
    title="a producer drops its sequence numbers when a topic is missing in metadata",
    fixed_in=("librdkafka 1.9.0",),
    swap=lambda parts: parts.replacing(idempotent_producer=DropsSequences),
    scenario="topic_missing_from_metadata",
    caught_by=("acknowledged-records-in-final-log", "records-in-final-log-once"),
)
