"""A producer forgets the sequences of a partition when a broker says that it does not know the topic.

A broker that has just been started answers Metadata with less than there is. The client drops what it knew of the topic, its sequences with it; when
the topic is back, it begins again with sequence 0 in the same epoch. The broker takes new records for the old ones with these sequences, and says
where those are: acknowledged, and nowhere in the log.

Source: the release notes of librdkafka 1.9.0; a client's bug, put into our own client.
"""

from kraftsim.bugs.bug import Bug
from kraftsim.core.clients.idempotent_producer import IdempotentProducer
from kraftsim.core.clients.producer_steps import MetadataArrived, ProducerEffect, ProducerInput


class ForgetsPartitions(IdempotentProducer):
    """Counts from 0 again wherever metadata lacks a partition."""

    def step(self, happened: ProducerInput, now_ms: int) -> list[ProducerEffect]:
        """Take note of what happened, and forget what metadata does not name."""
        if isinstance(happened, MetadataArrived):
            for where, queue in self._queues.items():
                if where not in happened.leaders:
                    queue.next_sequence = 0  # right: a partition is remembered for as long as the producer lives
        return super().step(happened, now_ms)


BUG = Bug(
    name="librdkafka-forgotten-sequence",
    title="a producer forgets its sequences when a topic is missing in metadata",
    fixed_in=("librdkafka 1.9.0",),
    swap=lambda parts: parts.replacing(idempotent_producer=ForgetsPartitions),
    story="topic_vanishes_from_metadata",
    caught_by=("acknowledged-records-in-final-log", "records-in-final-log-once"),
)
