"""The points in which releases differ about producer state; picked once by traits in `node/parts.py`.   Source: KIP-360, KIP-854."""

from dataclasses import dataclass
from enum import Enum

DAY_MS = 86_400_000
SEQUENCES_BEHIND_DEFAULT = 10_000_000
SEQUENCES_BEHIND_MAX = 2**30
"""With more, what lies behind the latest batch and what lies ahead of it could not be told apart."""


class UnknownProducer(Enum):
    """What becomes of a first batch that does not start at sequence 0, from a producer id this partition does not know."""

    ACCEPTED = "accepted"
    """Since 2.5 (KIP-360): retention may have removed what was known."""
    UNKNOWN_PRODUCER_ID = "unknown producer id"
    """1.0 to 2.4: error 59."""
    OUT_OF_ORDER = "out of order"
    """0.11: error 45."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerStatePolicy:
    """`expiration_ms`: producer.id.expiration.ms. `verifies_transactions`: transaction.partition.verification.enable (KIP-890, since 3.6).

    `transactions_have_epochs`: a transaction that is open with another epoch of its producer is not this one (KIP-890 part 2, since 4.0).
    `sequences_behind`: max.in.flight.sequence.number.per.connection (KIP-758); Kafka's own rules ask for no such thing.
    """

    unknown_producer: UnknownProducer = UnknownProducer.ACCEPTED
    expiration_ms: int = DAY_MS
    verifies_transactions: bool = True
    transactions_have_epochs: bool = False
    sequences_behind: int = SEQUENCES_BEHIND_DEFAULT
    keeps_deleted: bool = True
    """A producer stays known when its records are deleted (KAFKA-7190, since 2.4; before: it goes with the last of them)."""
