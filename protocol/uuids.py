"""Uuids as Kafka shows them: sixteen raw bytes on the wire, 22 characters of URL-safe base64 in
files and messages.

Source: org.apache.kafka.common.Uuid, DirectoryId (KIP-858).
"""

import base64
import re
from typing import Final

ZERO_UUID: Final = bytes(16)
METADATA_TOPIC_ID: Final = (
    bytes(15) + b"\x01"
)  # of __cluster_metadata, the one topic id that is given, not drawn
MIGRATING_DIRECTORY_ID: Final = (
    ZERO_UUID  # not known yet, because the broker came from ZooKeeper or from before 3.7
)
UNASSIGNED_DIRECTORY_ID: Final = bytes(15) + b"\x01"
LOST_DIRECTORY_ID: Final = bytes(15) + b"\x02"  # in some directory that failed

_TEXT = re.compile(r"[A-Za-z0-9_-]{22}")


def uuid_text(raw: bytes) -> str:
    """Return 16 bytes as 22 characters."""
    assert len(raw) == 16, "a uuid has 16 bytes"
    return base64.urlsafe_b64encode(raw)[:22].decode()


def parse_uuid_text(text: str) -> bytes:
    """Return the 16 bytes of 22 characters. Raises ValueError."""
    if _TEXT.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a uuid")
    return base64.urlsafe_b64decode(text + "==")
