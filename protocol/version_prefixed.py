"""Messages with a version prefix of two bytes: most of what Kafka persists or embeds in a bytes
field.

Whether a version after the newest known one is accepted is the reader's decision: it works if only
fields at the end were added.
Source: MessageUtil.toVersionPrefixedBytes; ConsumerProtocol, ControlRecordUtils (versions after the
newest are read as the newest).
"""

from protocol.codec.fixed import fixed
from protocol.codec.message_codec import compiled
from protocol.malformed import MalformedMessage
from protocol.schema import Message, declaration_of, int16, structure


@structure
class VersionPrefix:
    """The version, before the message."""

    version: int = int16()


PREFIX = fixed(VersionPrefix)
PREFIX_BYTES = PREFIX.size


def build_version_prefixed(message: Message, version: int) -> bytes:
    """Return the version and the message."""
    cls: type = type(message)
    return PREFIX.pack(version) + compiled(cls, version).encode(message)


def parse_version_prefixed(cls: type, content: bytes, *, later_as_newest: bool = False) -> Message:
    """Return the message; trailing bytes are ignored, as Kafka does. Raises MalformedMessage.

    `later_as_newest`: a version after the newest declared one is read as that.
    """
    found = prefixed_version(content)
    versions = declaration_of(cls).versions
    version = min(found, versions.last) if later_as_newest else found
    if version not in versions:
        raise MalformedMessage(
            None, found, declaration_of(cls).name, f"version {found}, not {versions}", 0
        )
    return compiled(cls, version).decode(content, PREFIX_BYTES)[0]


def prefixed_version(content: bytes) -> int:
    """Return the version prefix. Raises MalformedMessage."""
    if len(content) < PREFIX_BYTES:
        raise MalformedMessage(
            None, None, "", f"{len(content)} bytes are too short for a version", 0
        )
    version: int = PREFIX.unpack_from(content)[0]
    return version
