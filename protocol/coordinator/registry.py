"""Reads and writes the records of the coordinators' topics, which are declared in the other modules
of this package.

The key begins with the record's type, the value with its version, two bytes each; a null value is a
tombstone. An unknown type is skipped, because an older broker may read what a newer one wrote
(KIP-915); an unknown version stops the reader, because partial state is unusable.
Source: CoordinatorRecordSerde, GroupCoordinatorRecordSerde, ShareCoordinatorRecordSerde,
TransactionLog.
"""

from enum import Enum
from functools import cache
from typing import NamedTuple

from protocol.codec.message_codec import compiled
from protocol.declarations import classes_by_number
from protocol.schema import Message, declaration_of
from protocol.version_prefixed import (
    PREFIX,
    PREFIX_BYTES,
    build_version_prefixed,
    parse_version_prefixed,
    prefixed_version,
)

KEY_VERSION = 0
"""The version of every key: its two bytes contain the record type instead, which up to 3.9 was
called the version of the key.
"""


class CoordinatorTopic(Enum):
    """A topic in which coordinators keep their state; each has its own record type numbers."""

    TRANSACTION_STATE = "__transaction_state"
    CONSUMER_OFFSETS = "__consumer_offsets"
    SHARE_GROUP_STATE = "__share_group_state"


class RecordClasses(NamedTuple):
    """The classes of a record type."""

    key: type
    value: type


MODULES = {
    CoordinatorTopic.TRANSACTION_STATE: ("transactions",),
    CoordinatorTopic.CONSUMER_OFFSETS: ("consumer_groups", "share_groups", "streams_groups"),
    CoordinatorTopic.SHARE_GROUP_STATE: ("share_states",),
}
"""The modules that declare the records of each topic."""


def build_record(
    key: Message, value: Message | None, version: int = 0
) -> tuple[bytes, bytes | None]:
    """Return key and value of the log record.

    `version` is that of the value: a feature level or metadata.version determines it.
    """
    cls: type = type(key)
    declaration = declaration_of(cls)
    assert declaration.kind == "coordinator-key" and declaration.api_key is not None, (
        f"{declaration.name} is no key of a coordinator's record"
    )
    content = PREFIX.pack(declaration.api_key) + compiled(cls, KEY_VERSION).encode(key)
    if value is None:
        return content, None
    value_declaration = declaration_of(type(value))
    assert (
        value_declaration.kind == "coordinator-value"
        and value_declaration.name == declaration.name.removesuffix("Key") + "Value"
    ), f"{value_declaration.name} does not belong to {declaration.name}"
    return content, build_version_prefixed(value, version)


def parse_record(
    topic: CoordinatorTopic, key: bytes, value: bytes | None
) -> tuple[Message, Message | None] | None:
    """Return key and value, which is None in a tombstone; None for an unknown type, which readers
    skip.

    Raises MalformedMessage.
    """
    record_type = prefixed_version(key)
    try:
        classes = record_classes(topic, record_type)
    except KeyError:
        return None
    found: Message = compiled(classes.key, KEY_VERSION).decode(key, PREFIX_BYTES)[0]
    return found, None if value is None else parse_version_prefixed(classes.value, value)


def value_version(value: bytes) -> int:
    """Return the version of a value that `parse_record` accepts."""
    return prefixed_version(value)


@cache
def declared_types(topic: CoordinatorTopic) -> tuple[int, ...]:
    """Return the record types of a topic, ascending."""
    return tuple(_classes(topic))


def record_classes(topic: CoordinatorTopic, record_type: int) -> RecordClasses:
    """Return the classes of key and value. Raises KeyError for an undeclared type."""
    return _classes(topic)[record_type]


@cache
def _classes(topic: CoordinatorTopic) -> dict[int, RecordClasses]:
    modules = [f"{__package__}.{name}" for name in MODULES[topic]]
    values = classes_by_number(modules, "coordinator-value")
    return {
        number: RecordClasses(key, values[number])
        for number, key in classes_by_number(modules, "coordinator-key").items()
    }
