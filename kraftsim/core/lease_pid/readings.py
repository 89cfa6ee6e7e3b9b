"""The readings of the draft where it contradicts itself or is incomplete; each can be selected by
its name.

The first of each keeps the draft's guarantees; the others are for comparison.
Source: the lease_pid draft, compared with KIP-98.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

DAY_MS: Final = 86_400_000
IDS_PER_BLOCK: Final = 100


class Lookup(Enum):
    """The representation of a partition's producers."""

    REPAIRED_LIST = "repaired list"
    """Ordered by id, with insertion in order; the smallest ids expire first, one by one, as long as
    they are due.
    """
    LITERAL_LIST = "literal list"
    """Appended regardless of id; searched as if ordered; if id N expires, all above N expire, as
    the draft says.
    """
    TABLE = "table"
    """Unordered."""


class CountsFrom(Enum):
    """The start of the expiry time."""

    LAST_SEEN = "last seen"
    """The last message: ids without messages expire."""
    FIRST_SEEN = "first seen"
    """The first message seen by a server: an active producer expires too."""


class NextGeneration(Enum):
    """The sequence number of the first message of the next generation."""

    CONTINUES = "continues"
    """The next one, as in the lease."""
    BEGINS_AT_ZERO = "begins at zero"
    """0, as in Kafka after an epoch bump."""


class SequenceOfLease(Enum):
    """The meaning of a lease's sequence number."""

    NEXT = "next"
    """The next one that the partition accepts: a new producer starts with 0."""
    HIGH_WATERMARK = "high watermark"
    """The last one of the partition: a new producer starts with 1, one above the 0 of its lease."""


class AnswerToRepeat(Enum):
    """The response to a message that is already in the log."""

    DUPLICATE = "46"
    SUCCESS = "0"
    OUT_OF_ORDER = "45"


class AnswerToUnknown(Enum):
    """The response to an unknown producer that does not start with 0: its lease has expired, or the
    state was lost.
    """

    UNKNOWN = "59"
    OUT_OF_ORDER = "45"
    TAKEN = "taken"
    """Like Kafka brokers since 2.5."""


class AskedExpiry(Enum):
    """How a server uses the expire_ms of a request."""

    IGNORED = "ignored"
    """One period for the cluster, as the draft proposes."""
    CAPPED = "capped"
    HONOURED = "honoured"


class EndsWith(Enum):
    """What ends a lease."""

    DISUSE = "disuse"
    CONNECTION = "connection"
    """Rejected by the draft: ids are released when their connection closes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """The readings of one server.

    `expire_ms`: unused ids expire after this time. `id_bits` below 32 makes ids repeat soon.
    """

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
