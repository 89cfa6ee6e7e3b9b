"""meta.properties: the node id and cluster id of a log directory.

Version 0 is ZooKeeper's (broker.id), version 1 KRaft's (node.id); directory.id was added in 3.7.
Source: MetaProperties, java.util.Properties.
"""

from dataclasses import dataclass

from protocol.malformed import MalformedFile
from protocol.storage.java_integers import parse_int32
from protocol.uuids import parse_uuid_text, uuid_text

FILE = "meta.properties"
ZOOKEEPER_VERSION = 0
KRAFT_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The contents; a version 0 file may lack any of the three."""

    version: int = KRAFT_VERSION
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: bytes | None = None


def build_meta_properties(meta: MetaProperties, written_at: str | None = None) -> bytes:
    """Return the file as Java's Properties writes it: an empty comment, the date if one is given,
    keys in the order of its hash table.

    `written_at` is a date in Java's form, `Sat Nov 21 12:04:56 UTC 2026`.
    """
    lines = ["#"] if written_at is None else ["#", f"#{written_at}"]
    if meta.node_id is not None:
        lines.append(
            f"{'broker.id' if meta.version == ZOOKEEPER_VERSION else 'node.id'}={meta.node_id}"
        )
    if meta.directory_id is not None:
        lines.append(f"directory.id={uuid_text(meta.directory_id)}")
    lines.append(f"version={meta.version}")
    if meta.cluster_id is not None:
        lines.append(f"cluster.id={meta.cluster_id}")
    return "".join(f"{line}\n" for line in lines).encode()


def parse_meta_properties(data: bytes) -> MetaProperties:
    """Return the contents of the file.

    Raises MalformedFile if a version 1 file contains no node id or no cluster id.
    """
    properties = dict(_properties(data))
    try:
        version = parse_int32(properties.get("version", str(ZOOKEEPER_VERSION)))
        node_id = properties.get("broker.id" if version == ZOOKEEPER_VERSION else "node.id")
        directory_id = properties.get("directory.id")
        meta = MetaProperties(
            version=version,
            cluster_id=properties.get("cluster.id"),
            node_id=None if node_id is None else parse_int32(node_id),
            directory_id=None if directory_id is None else parse_uuid_text(directory_id),
        )
    except ValueError as failure:
        raise MalformedFile(FILE, str(failure)) from failure
    if version not in (ZOOKEEPER_VERSION, KRAFT_VERSION):
        raise MalformedFile(FILE, f"version {version}")
    if version == KRAFT_VERSION and (meta.node_id is None or meta.cluster_id is None):
        raise MalformedFile(FILE, "version 1 needs node.id and cluster.id")
    return meta


def _properties(data: bytes) -> list[tuple[str, str]]:
    """Read `key=value` lines; what Kafka writes here never needs Java's escapes or continuation
    lines.
    """
    found = []
    for line in data.decode(errors="replace").splitlines():
        stripped = line.strip()
        if stripped and stripped[0] not in "#!":
            key, _, value = stripped.partition("=")
            found.append((key.strip(), value.strip()))
    return found
