"""Ids for topics that have none: below inter.broker.protocol.version 2.8 a topic was its name, and nothing else.

The image of a broker goes by ids, so such a topic has one that follows from its name; it is never told to anybody and never written to disk.
Source: KIP-516.
"""

from hashlib import sha256
from typing import Final

from protocol.uuids import ZERO_UUID

_MARK: Final = b"\xfdNONE"
"""No drawn uuid begins so: its seventh byte, which says how it was made, lies further on and is none of Kafka's."""
UUID_BYTES: Final = 16


def derived_topic_id(name: str) -> bytes:
    """Return what stands for the id of a topic without one."""
    return _MARK + sha256(name.encode()).digest()[: UUID_BYTES - len(_MARK)]


def is_derived(topic_id: bytes) -> bool:
    """Tell whether an id only stands for none."""
    return topic_id.startswith(_MARK)


def told_topic_id(topic_id: bytes) -> bytes:
    """Return the id that others are told: zeros where there is none."""
    return ZERO_UUID if is_derived(topic_id) else topic_id
