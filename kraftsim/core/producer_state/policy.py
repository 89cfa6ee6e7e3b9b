"""Release differences of producer state; selected by traits in `node/parts.py`.   Source: KIP-360, KIP-854."""

from dataclasses import dataclass
from enum import Enum

DAY_MS = 86_400_000
SEQUENCES_BEHIND_DEFAULT = 10_000_000
SEQUENCES_BEHIND_MAX = 2**30
"""With a larger value, sequences behind and ahead of the latest batch would be ambiguous."""


class UnknownProducer(Enum):
    """How a partition handles the first batch of an unknown producer id if it does not start at sequence 0."""

    ACCEPTED = "accepted"
    """Since 2.5 (KIP-360): accepted, as retention may have removed the state."""
    UNKNOWN_PRODUCER_ID = "unknown producer id"
    """1.0 to 2.4: error 59."""
    OUT_OF_ORDER = "out of order"
    """0.11: error 45."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerStatePolicy:
    """`expiration_ms`: producer.id.expiration.ms. `verifies_transactions`: transaction.partition.verification.enable (KIP-890, since 3.6).

    `transactions_have_epochs`: an open transaction with another producer epoch is a different one (KIP-890 part 2, since 4.0).
    `sequences_behind`: max.in.flight.sequence.number.per.connection (KIP-758); not used by Kafka's own rules.
    """

    unknown_producer: UnknownProducer = UnknownProducer.ACCEPTED
    expiration_ms: int = DAY_MS
    verifies_transactions: bool = True
    transactions_have_epochs: bool = False
    sequences_behind: int = SEQUENCES_BEHIND_DEFAULT
    keeps_deleted: bool = True
    """Whether a producer is retained when its records are deleted (KAFKA-7190, since 2.4; before: removed with the last of them)."""
