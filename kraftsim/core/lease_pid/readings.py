"""Where the draft contradicts itself or breaks off: each reading by its name, so that both can be played.

The first of each is what a server does that keeps the draft's promises; the others are there to be measured.
Source: the lease_pid draft, held against KIP-98.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

DAY_MS: Final = 86_400_000
IDS_PER_BLOCK: Final = 100


class Lookup(Enum):
    """How a server keeps the producers of a partition."""

    REPAIRED_LIST = "repaired list"
    """Ordered by id, wherever a new one has to go; the smallest ids expire first, one by one, as long as they are due."""
    LITERAL_LIST = "literal list"
    """New ones at one end, whatever their ids; searched as if it were in order; with id N all above N expire, as it is written."""
    TABLE = "table"
    """No order at all."""


class CountsFrom(Enum):
    """From when on the time of disuse counts."""

    LAST_SEEN = "last seen"
    """Disuse means that nothing came."""
    FIRST_SEEN = "first seen"
    """The first message that a server sees decides: a busy producer expires in the middle of its work."""


class NextGeneration(Enum):
    """Which sequence number the first message of the next generation has."""

    CONTINUES = "continues"
    """The one that the lease told: the next one."""
    BEGINS_AT_ZERO = "begins at zero"
    """0, as in Kafka after a new epoch."""


class SequenceOfLease(Enum):
    """What the sequence number of a lease is."""

    NEXT = "next"
    """The one that the partition takes next: a new producer begins with 0."""
    HIGH_WATERMARK = "high watermark"
    """The last one that the partition has: a new producer begins with 1, one above the 0 that it is leased with."""


class AnswerToRepeat(Enum):
    """What is answered to a message that is in the log already."""

    DUPLICATE = "46"
    SUCCESS = "0"
    OUT_OF_ORDER = "45"


class AnswerToUnknown(Enum):
    """What is answered to a producer that is not known and does not begin with 0: its lease has expired, or the map was lost."""

    UNKNOWN = "59"
    OUT_OF_ORDER = "45"
    TAKEN = "taken"
    """As brokers of Kafka do since 2.5."""


class AskedExpiry(Enum):
    """What a server makes of the expire_ms of a request."""

    IGNORED = "ignored"
    """One period for the cluster, as the draft proposes."""
    CAPPED = "capped"
    HONOURED = "honoured"


class EndsWith(Enum):
    """What ends a lease."""

    DISUSE = "disuse"
    CONNECTION = "connection"
    """Rejected by the draft: ids are freed as soon as the connection breaks over which they came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """The choices of one server. `expire_ms`: after so long without use an id may be forgotten. `id_bits` is less than 32 to see ids come again."""

    lookup: Lookup = Lookup.REPAIRED_LIST
    counts_from: CountsFrom = CountsFrom.LAST_SEEN
    next_generation: NextGeneration = NextGeneration.CONTINUES
    sequence_of_lease: SequenceOfLease = SequenceOfLease.NEXT
    repeat: AnswerToRepeat = AnswerToRepeat.DUPLICATE
    unknown: AnswerToUnknown = AnswerToUnknown.UNKNOWN
    asked_expiry: AskedExpiry = AskedExpiry.IGNORED
    ends_with: EndsWith = EndsWith.DISUSE
    expire_ms: int = DAY_MS
    ids_per_block: int = IDS_PER_BLOCK
    id_bits: int = 32

    @property
    def first_sequence(self) -> int:
        """Return the sequence number of the first message of a new producer."""
        return 0 if self.sequence_of_lease is SequenceOfLease.NEXT else 1
