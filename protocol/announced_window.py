"""How a broker of KIP-758's second phase announces its window: a tagged field in the responses to
Produce, ApiVersions or InitProducerId.

The document proposes its own version of Produce, so that a producer knows the kind of broker before
it sends anything, and leaves open which response contains the value. A version far above Kafka's is
advertised for that, which no other client uses; requests stay in Kafka's versions. A Produce
response contains the window each time, so that changes are noticed; an ApiVersions response once
for each connection; an InitProducerId response once for each producer, and from any broker: the
producer assumes its window for all leaders.
Source: KIP-758 (never adopted), KIP-482.
"""

from collections.abc import Mapping
from typing import Final

from protocol.schema import Message

WINDOW_TAG: Final = 758
FIRST_VERSION: Final = 9
"""The first version of Produce whose responses have tagged fields."""
WINDOW_BYTES: Final = 4
PRODUCE_VERSION: Final = 758
"""The last version of Produce of a broker that has a window and announces it before the first
Produce response.
"""


def window_tag(sequences: int) -> dict[int, bytes]:
    """Return the tagged fields of a response that announces a window of so many sequence
    numbers.
    """
    return {WINDOW_TAG: sequences.to_bytes(WINDOW_BYTES)}


def announce_window(answer: Message, sequences: int) -> None:
    """Add the window to a response."""
    answer._tags = window_tag(sequences)


def announced_window(tags: Mapping[int, bytes] | None) -> int | None:
    """Return the window that a response announces; None: the broker does not support it."""
    value = (tags or {}).get(WINDOW_TAG)
    return int.from_bytes(value) if value is not None and len(value) == WINDOW_BYTES else None
