"""The identity of a data directory: meta.properties is read, or written at the first start, and
must match this node and this cluster.

The directory of another node must never be served: its logs would be taken for this node's. So a
directory with a missing or damaged meta.properties is refused, as in Apache Kafka, and only an
empty one is formatted.

Source: org.apache.kafka.metadata.properties.MetaPropertiesEnsemble, kafka.tools.StorageTool,
kafka.server.KafkaRaftServer.initializeLogDirs.
"""

import posixpath
from collections.abc import Iterator
from dataclasses import replace

from kraftsim.releases.release import release
from kraftsim.releases.traits import DIRECTORY_IDS
from kraftsim.server.config import NodeConfig
from kraftsim.server.config_keys import ConfigError
from kraftsim.world.interface import World
from protocol.malformed import MalformedMessage
from protocol.storage.file_names import (
    BOOTSTRAP_CHECKPOINT,
    META_PROPERTIES,
    METADATA_TOPIC,
    metadata_snapshot_name,
    partition_directory_name,
)
from protocol.storage.text_files import (
    KRAFT_VERSION,
    ZOOKEEPER_VERSION,
    MetaProperties,
    build_meta_properties,
    parse_meta_properties,
)
from protocol.uuids import ZERO_UUID, uuid_text

CLUSTER_ID_KEY = "kraftsim.cluster.id"
UUID_BYTES = 16
METADATA_DIRECTORY = partition_directory_name(METADATA_TOPIC, 0)
NO_DIRECTORY_ID = ZERO_UUID
RESERVED_PREFIX = bytes(15)
"""Kafka reserves the uuids below 100; those up to 255 are excluded for simplicity."""
BEFORE_FORMATTING = frozenset({".lock", "lost+found", BOOTSTRAP_CHECKPOINT})
"""The files that a directory may contain before it is formatted: the lock of this process, file
system entries, and bootstrap records.
"""
FORMAT_SNAPSHOT = metadata_snapshot_name(0, 0)
"""Formatting writes it before meta.properties, so it exists if a crash interrupts the
formatting.
"""
HALF_WRITTEN = (".tmp", ".part")


class ForeignDirectory(ConfigError):
    """The data directory belongs to another cluster or another node."""


def belonging_to_its_directories(config: NodeConfig, world: World) -> NodeConfig:
    """Return the config of a KRaft node with the cluster id of its directories, unless the config
    has one.

    In ZooKeeper mode the id comes from ZooKeeper. An unreadable file is reported later, when the
    directory is loaded.
    Source: org.apache.kafka.metadata.properties.MetaPropertiesEnsemble.clusterId.
    """
    if CLUSTER_ID_KEY in config.given or config.is_zookeeper_mode:
        return config
    for place in (world, *(world.elsewhere(path) for path in config.log_dirs[1:])):
        try:
            found = (
                parse_meta_properties(place.disk.read(META_PROPERTIES))
                if place.disk.exists(META_PROPERTIES)
                else None
            )
        except (OSError, MalformedMessage):
            continue
        if found is not None and found.cluster_id is not None:
            return replace(config, cluster_id=found.cluster_id)
    return config


async def load_identity(world: World, config: NodeConfig) -> bytes:
    """Return the id of the data directory; an empty directory is formatted for this node. Before
    3.7 directories have no id (NO_DIRECTORY_ID).

    Raises ForeignDirectory, ConfigError, OSError.
    """
    return await _load(world, config, f"log.dirs: {config.log_dir}")


async def load_directory_identity(world: World, config: NodeConfig, directory: str) -> bytes:
    """Return the id of another one of log.dirs, which is the disk of `world`; an empty directory is
    formatted for this node.

    Raises ForeignDirectory, ConfigError, OSError.
    """
    return await _load(world, config, f"log.dirs: {directory}")


async def load_metadata_identity(world: World, config: NodeConfig, directory_id: bytes) -> bytes:
    """Return the id of the metadata log directory: that of the data directory, which was loaded
    before, unless it has its own.

    Raises ForeignDirectory, ConfigError, OSError.
    """
    if not config.has_metadata_directory:
        return directory_id
    if world.disk.list(METADATA_DIRECTORY):
        raise ConfigError(
            f"log.dirs: {config.log_dir} holds a metadata log, and metadata.log.dir says "
            f"{config.metadata_log_dir}"
        )
    return await _load(
        metadata_world(world, config), config, f"metadata.log.dir: {config.metadata_log_dir}"
    )


async def _load(world: World, config: NodeConfig, place: str) -> bytes:
    if not world.disk.exists(META_PROPERTIES):
        check_formattable(world, config, place)
        return await _format(
            world,
            config,
            directory_id=None,
            version=ZOOKEEPER_VERSION if config.is_zookeeper_mode else KRAFT_VERSION,
        )
    try:
        found = parse_meta_properties(world.disk.read(META_PROPERTIES))
    except MalformedMessage as malformed:
        raise ConfigError(
            f"{place}/{META_PROPERTIES} cannot be read: {malformed.reason}"
        ) from malformed
    if found.node_id is None:
        raise ConfigError(f"{place}/{META_PROPERTIES} names no node ({_id_key(found.version)})")
    if found.cluster_id is None and not config.is_zookeeper_mode:
        raise ConfigError(f"{place}/{META_PROPERTIES} names no cluster (cluster.id)")
    if found.cluster_id is not None and found.cluster_id != config.cluster_id:
        raise ForeignDirectory(
            f"{place} belongs to cluster {found.cluster_id}, not to {config.cluster_id} "
            f"({CLUSTER_ID_KEY})"
        )
    if found.node_id != config.node_id:
        raise ForeignDirectory(
            f"{place} belongs to node {found.node_id}, not to {config.node_id} (node.id)"
        )
    lacks_directory_id = found.directory_id is None and _names_directories(config)
    if lacks_directory_id or found.cluster_id is None:
        return await _format(world, config, found.directory_id, found.version)
    return found.directory_id or NO_DIRECTORY_ID


def check_formattable(world: World, config: NodeConfig, place: str) -> None:
    """Refuse to format a directory that contains anything: it may be the data of another node.

    Raises ConfigError.
    """
    others = (*config.log_dirs[1:], config.metadata_directory)
    inside = {posixpath.relpath(path, config.log_dir).split("/")[0] for path in others}
    own = inside | {
        path.strip("/").split("/")[0] for path in others
    }  # simulated directories share one disk
    held = [
        name
        for name in world.disk.list("")
        if name not in BEFORE_FORMATTING
        and name not in own
        and not name.endswith(HALF_WRITTEN)
        and not _is_half_formatted(world, name)
    ]
    if held:
        raise ConfigError(
            f"{place} holds {held[0]} and no {META_PROPERTIES}: only an empty directory is "
            "formatted"
        )


def _is_half_formatted(world: World, name: str) -> bool:
    """Return whether a file was left by an interrupted formatting."""
    return name == METADATA_DIRECTORY and all(
        file == FORMAT_SNAPSHOT or file.endswith(HALF_WRITTEN) for file in world.disk.list(name)
    )


def _id_key(version: int) -> str:
    return "broker.id" if version == ZOOKEEPER_VERSION else "node.id"


def random_uuid(world: World, purpose: str) -> bytes:
    """Generate a Kafka uuid: never a reserved one, and never with a text form that starts with
    '-'.
    """
    return next(random_uuids(world, purpose))


def random_uuids(world: World, purpose: str) -> Iterator[bytes]:
    """Yield uuids for a purpose, without an end."""
    rng = world.random(purpose)
    while True:
        drawn = rng.randbytes(UUID_BYTES)
        if not drawn.startswith(RESERVED_PREFIX) and not uuid_text(drawn).startswith("-"):
            yield drawn


def _names_directories(config: NodeConfig) -> bool:
    """Return whether directories have ids: since 3.7, and not in ZooKeeper mode before the broker
    migrates (checked against Apache Kafka 3.9.2).
    """
    return release(config.release).has(DIRECTORY_IDS) and (
        config.is_migrating or not config.is_zookeeper_mode
    )


async def _format(
    world: World, config: NodeConfig, directory_id: bytes | None, version: int
) -> bytes:
    if directory_id is None and _names_directories(config):
        directory_id = random_uuid(world, "directory id")
    meta = MetaProperties(
        version=version,
        cluster_id=config.cluster_id,
        node_id=config.node_id,
        directory_id=directory_id,
    )
    await world.disk.replace(META_PROPERTIES, build_meta_properties(meta))
    return directory_id or NO_DIRECTORY_ID


# --------------------------------------------------------------------------------------------------
# The directory of the metadata log and quorum state: the first log directory, unless
# `metadata.log.dir` is set
#
# Source: kafka.server.KafkaConfig.metadataLogDir, kafka.raft.KafkaRaftManager.


def metadata_world(world: World, config: NodeConfig) -> World:
    """Return the world of a node with the metadata log directory as its disk."""
    return world.elsewhere(config.metadata_directory) if config.has_metadata_directory else world
