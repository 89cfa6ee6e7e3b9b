"""Where remote storage is located, and the configuration of its metadata topic, by a node's
properties.

`remote.log.storage.manager.class.name` selects the implementation. Kafka's LocalTieredStorage (the
default) is a directory, `rsm.config.dir`, relative to the parent of the data directory unless it
begins with '/'; `kraftsim.s3` is a bucket of an S3 service, `rsm.config.s3.bucket`.
Source: org.apache.kafka.server.log.remote.storage.RemoteLogManagerConfig,
TopicBasedRemoteLogMetadataManagerConfig, LocalTieredStorage.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from posixpath import isabs, normpath
from typing import Final

from kraftsim.server.config import REMOTE_METADATA_PREFIX, STORE_PREFIX, NodeConfig
from kraftsim.server.config_keys import ConfigError

LOCAL_TIERED_STORAGE: Final = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
S3: Final = "kraftsim.s3"
DEFAULT_DIRECTORY: Final = "/tmp/kraftsim-remote-store"
DIRECTORY_IN_IT: Final = "kafka-tiered-storage"
"""The subdirectory that LocalTieredStorage uses."""
METADATA_TOPIC: Final = "__remote_log_metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataTopicSettings:
    """The configuration by which the metadata topic is created."""

    partitions: int = 50
    replication_factor: int = 3
    retention_ms: int = -1


def store_location(config: NodeConfig) -> tuple[str, Mapping[str, str]]:
    """Return the location of remote storage, and the configuration of its client.

    Raises ConfigError.
    """
    settings = {
        name.removeprefix(STORE_PREFIX): value
        for name, value in config.given.items()
        if name.startswith(STORE_PREFIX)
    }
    kind = config.remote_log_storage_manager_class_name or LOCAL_TIERED_STORAGE
    if kind == S3:
        if not settings.get("s3.bucket"):
            raise ConfigError(f"{STORE_PREFIX}s3.bucket is required with {S3}")
        return f"s3:{settings['s3.bucket']}", settings
    if kind != LOCAL_TIERED_STORAGE:
        raise ConfigError(
            f"remote.log.storage.manager.class.name: expected {LOCAL_TIERED_STORAGE} or {S3}, "
            f"got {kind!r}"
        )
    place = settings.get("dir", DEFAULT_DIRECTORY)
    return (
        (
            f"file:{place if isabs(place) else normpath(f'{config.log_dir}/../{place}')}/"
            f"{DIRECTORY_IN_IT}"
        ),
        settings,
    )


def metadata_topic_settings(config: NodeConfig) -> MetadataTopicSettings:
    """Return the configuration of the metadata topic. Raises ConfigError."""
    prefix = f"{REMOTE_METADATA_PREFIX}remote.log.metadata.topic."
    try:
        return MetadataTopicSettings(
            partitions=int(config.given.get(f"{prefix}num.partitions", "50")),
            replication_factor=int(config.given.get(f"{prefix}replication.factor", "3")),
            retention_ms=int(config.given.get(f"{prefix}retention.ms", "-1")),
        )
    except ValueError as reason:
        raise ConfigError(f"{prefix}*: {reason}") from None
