"""How a broker of KIP-758's second phase announces its window: a tagged field of its own, in the answers to Produce, ApiVersions or InitProducerId.

The document wants a version of Produce of its own, so that a producer knows what kind of broker it faces before it sends anything, and leaves open
which answer carries the value. One far above Kafka's is offered for that, which no other client asks in; requests stay in Kafka's versions. An answer
to Produce carries the window each time, so that one that changes is heard of; the one to ApiVersions once for each connection; the one to
InitProducerId once for each producer, and any broker may give it: the producer takes its window for that of all leaders.
Source: KIP-758 (never adopted), KIP-482.
"""

from collections.abc import Mapping
from typing import Final

from protocol.schema import Message

WINDOW_TAG: Final = 758
FIRST_VERSION: Final = 9
"""Of Produce: since then answers have tagged fields."""
WINDOW_BYTES: Final = 4
PRODUCE_VERSION: Final = 758
"""The last version of Produce that a broker offers which has a window and announces it before the first answer to Produce."""


def window_tag(sequences: int) -> dict[int, bytes]:
    """Return the tagged fields of an answer that announces a window of so many sequence numbers."""
    return {WINDOW_TAG: sequences.to_bytes(WINDOW_BYTES)}


def announce_window(answer: Message, sequences: int) -> None:
    """Put it into an answer."""
    answer._tags = window_tag(sequences)


def announced_window(tags: Mapping[int, bytes] | None) -> int | None:
    """Return the window that an answer announces; None: its sender is a broker of another kind."""
    value = (tags or {}).get(WINDOW_TAG)
    return int.from_bytes(value) if value is not None and len(value) == WINDOW_BYTES else None
