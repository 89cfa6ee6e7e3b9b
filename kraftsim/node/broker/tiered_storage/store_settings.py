"""Where the remote store is, and what the metadata topic is like, by a node's properties.

`remote.log.storage.manager.class.name` says what kind of store it is: that of Kafka's own LocalTieredStorage (or nothing) is a directory,
`rsm.config.dir`, beside the data directory if it does not begin with '/'; `kraftsim.s3` is a bucket of a service that speaks S3,
`rsm.config.s3.bucket`.
Source: org.apache.kafka.server.log.remote.storage.RemoteLogManagerConfig, TopicBasedRemoteLogMetadataManagerConfig, LocalTieredStorage.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from posixpath import isabs, normpath
from typing import Final

from kraftsim.node.config import REMOTE_METADATA_PREFIX, STORE_PREFIX, NodeConfig
from kraftsim.node.config_keys import ConfigError

LOCAL_TIERED_STORAGE: Final = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
S3: Final = "kraftsim.s3"
DEFAULT_DIRECTORY: Final = "/tmp/kraftsim-remote-store"
DIRECTORY_IN_IT: Final = "kafka-tiered-storage"
"""In which LocalTieredStorage keeps everything."""
METADATA_TOPIC: Final = "__remote_log_metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataTopicSettings:
    """How the metadata topic is created."""

    partitions: int = 50
    replication_factor: int = 3
    retention_ms: int = -1


def store_location(config: NodeConfig) -> tuple[str, Mapping[str, str]]:
    """Return where the store is, and what its client is told. Raises ConfigError."""
    told = {name.removeprefix(STORE_PREFIX): value for name, value in config.given.items() if name.startswith(STORE_PREFIX)}
    kind = config.remote_log_storage_manager_class_name or LOCAL_TIERED_STORAGE
    if kind == S3:
        if not told.get("s3.bucket"):
            raise ConfigError(f"{STORE_PREFIX}s3.bucket is required with {S3}")
        return f"s3:{told['s3.bucket']}", told
    if kind != LOCAL_TIERED_STORAGE:
        raise ConfigError(f"remote.log.storage.manager.class.name: expected {LOCAL_TIERED_STORAGE} or {S3}, got {kind!r}")
    place = told.get("dir", DEFAULT_DIRECTORY)
    return f"file:{place if isabs(place) else normpath(f'{config.log_dir}/../{place}')}/{DIRECTORY_IN_IT}", told


def metadata_topic_settings(config: NodeConfig) -> MetadataTopicSettings:
    """Return how the metadata topic is created. Raises ConfigError."""
    prefix = f"{REMOTE_METADATA_PREFIX}remote.log.metadata.topic."
    try:
        return MetadataTopicSettings(
            partitions=int(config.given.get(f"{prefix}num.partitions", "50")),
            replication_factor=int(config.given.get(f"{prefix}replication.factor", "3")),
            retention_ms=int(config.given.get(f"{prefix}retention.ms", "-1")),
        )
    except ValueError as reason:
        raise ConfigError(f"{prefix}*: {reason}") from None
