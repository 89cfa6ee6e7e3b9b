"""RemoveAccessControlEntryRecord (19): an entry of record 18 was deleted.

Source: KIP-801, RemoveAccessControlEntryRecord.json.
"""

from protocol.schema import message, uuid


@message(key=19, kind="metadata", versions="0", flexible="0+")
class RemoveAccessControlEntryRecord:
    """By the id of the entry."""

    id: bytes = uuid()
