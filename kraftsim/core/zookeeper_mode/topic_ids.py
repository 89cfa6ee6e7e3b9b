"""Ids for topics without one: below inter.broker.protocol.version 2.8 topics have names only.

A broker's image is keyed by ids, so such a topic gets one derived from its name; it is not sent to
other nodes and not written to disk.
Source: KIP-516.
"""

from hashlib import sha256
from typing import Final

from protocol.uuids import ZERO_UUID

_MARK: Final = b"\xfdNONE"
"""The prefix of derived ids, not expected in a random uuid.

The uuid version, in the seventh byte, comes after it.
"""
UUID_BYTES: Final = 16


def derived_topic_id(name: str) -> bytes:
    """Return the derived id of a topic without one."""
    return _MARK + sha256(name.encode()).digest()[: UUID_BYTES - len(_MARK)]


def is_derived(topic_id: bytes) -> bool:
    """Return whether an id is a derived one."""
    return topic_id.startswith(_MARK)


def reported_topic_id(topic_id: bytes) -> bytes:
    """Return the id to send to others: zeros for a derived one."""
    return ZERO_UUID if is_derived(topic_id) else topic_id
