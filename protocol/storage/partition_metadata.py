"""partition.metadata: the topic id of a partition directory, to distinguish a recreated topic from
the old one with the same name.

Source: KIP-516, PartitionMetadataFile.
"""

from protocol.malformed import MalformedFile
from protocol.uuids import parse_uuid_text, uuid_text

FILE = "partition.metadata"


def build_partition_metadata(topic_id: bytes) -> bytes:
    """Return the file; its last line has no line end, as Kafka writes it."""
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def parse_partition_metadata(data: bytes) -> bytes:
    """Return the topic id. Raises MalformedFile."""
    lines = data.decode(errors="replace").splitlines()
    if (
        len(lines) != 2
        or lines[0].split() != ["version:", "0"]
        or not lines[1].startswith("topic_id: ")
    ):
        raise MalformedFile(FILE, f"{lines}")
    try:
        return parse_uuid_text(lines[1].removeprefix("topic_id: "))
    except ValueError as failure:
        raise MalformedFile(FILE, str(failure)) from failure
