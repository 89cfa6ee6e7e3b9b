"""The znodes of Apache Kafka: paths, and the JSON texts.

Readers use key names; written texts have Kafka's own order of keys.

Source: kafka.zk.ZkData, kafka.cluster.Broker, ZkMigrationLeadershipState, KIP-98, KIP-866; texts
taken from a broker of 3.9.1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from protocol.malformed import MalformedMessage
from protocol.message_json import Json
from protocol.uuids import parse_uuid_text, uuid_text
from protocol.zookeeper.map_orders import mutable_map_order, properties_order
from protocol.zookeeper.znode_json import (
    decimal_of,
    integer_of,
    integers_of,
    json_text,
    nullable_text_of,
    parse_object,
    texts_of,
)

CLUSTER_ID: Final = "/cluster/id"
BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
BROKER_SEQUENCE: Final = "/brokers/seqid"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CONFIG: Final = "/config"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE: Final = "/config/changes/config_change_"
CONFIG_TYPES: Final = ("topics", "clients", "users", "brokers", "ips")
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION: Final = "/admin/preferred_replica_election"
ISR_CHANGES: Final = "/isr_change_notification"
ISR_CHANGE: Final = "/isr_change_notification/isr_change_"
LOG_DIRECTORY_EVENTS: Final = "/log_dir_event_notification"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
FEATURE: Final = "/feature"
MIGRATION: Final = "/migration"
PERSISTENT_PATHS: Final = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIRECTORY_EVENTS,
    *(f"{CONFIG}/{each}" for each in CONFIG_TYPES),
)
"""The znodes that the first broker creates, in this order, including their parents."""
DEFAULT_ENTITY: Final = "<default>"
INITIAL_CONTROLLER_EPOCH: Final = 0
NO_KRAFT_EPOCH: Final = -1
RECOVERING: Final = 1


def broker_path(broker_id: int) -> str:
    """Return the path of a broker."""
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    """Return the path of a topic's replica assignment."""
    return f"{TOPICS}/{topic}"


def state_path(topic: str, partition: int) -> str:
    """Return the path of a partition's leader and ISR."""
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def config_path(entity_type: str, *names: str) -> str:
    """Return the path of the configuration of a topic, broker, user or client; `names` may continue
    with another type: (user, "clients", client).
    """
    return "/".join((CONFIG, entity_type, *names))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdBlockZnode:
    """The last allocated block; its end is inclusive."""

    broker_id: int
    first_producer_id: int
    last_producer_id: int

    def build(self) -> bytes:
        """Return the text."""
        first, last = str(self.first_producer_id), str(self.last_producer_id)
        return json_text(
            {"version": 1, "broker": self.broker_id, "block_start": first, "block_end": last}
        )

    @classmethod
    def parse(cls, data: bytes) -> "ProducerIdBlockZnode":
        """Decode the text. Raises MalformedMessage."""
        found = parse_object(data, PRODUCER_ID_BLOCK)
        return cls(
            broker_id=integer_of(found, "broker"),
            first_producer_id=decimal_of(found, "block_start"),
            last_producer_id=decimal_of(found, "block_end"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerZnode:
    """A live broker. Its epoch is the zxid of the transaction that created the znode."""

    host: str | None
    port: int
    endpoints: Sequence[str]
    security_protocols: Mapping[str, str]
    """By listener."""
    timestamp_ms: int
    rack: str | None = None
    jmx_port: int = -1
    features: Mapping[str, Json] = field(default_factory=dict)
    version: int = 5

    def build(self) -> bytes:
        """Return the text."""
        rack: dict[str, Json] = {} if self.rack is None else {"rack": self.rack}
        return json_text(
            {
                "features": dict(self.features),
                "listener_security_protocol_map": dict(self.security_protocols),
                "endpoints": list(self.endpoints),
                **rack,
                "jmx_port": self.jmx_port,
                "port": self.port,
                "host": self.host,
                "version": self.version,
                "timestamp": str(self.timestamp_ms),
            }
        )

    @classmethod
    def parse(cls, data: bytes) -> "BrokerZnode":
        """Decode the text, for versions from 2 on. Raises MalformedMessage."""
        found = parse_object(data, BROKER_IDS)
        endpoints = texts_of(
            found.get("endpoints") or [f"PLAINTEXT://{found.get('host')}:{found.get('port')}"],
            "endpoints",
        )
        protocols = found.get("listener_security_protocol_map")
        named = (
            protocols
            if isinstance(protocols, dict)
            else {each.partition("://")[0]: each.partition("://")[0] for each in endpoints}
        )
        features = found.get("features")
        return cls(
            host=nullable_text_of(found, "host"),
            port=integer_of(found, "port"),
            endpoints=endpoints,
            security_protocols={str(name): str(protocol) for name, protocol in named.items()},
            timestamp_ms=decimal_of(found, "timestamp") if "timestamp" in found else -1,
            rack=nullable_text_of(found, "rack"),
            jmx_port=integer_of(found, "jmx_port") if "jmx_port" in found else -1,
            features=features if isinstance(features, dict) else {},
            version=integer_of(found, "version"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerZnode:
    """The controller.

    A KRaft controller contains its own epoch; a ZooKeeper-mode controller has -1, and before 3.4 no
    epoch.
    """

    broker_id: int
    timestamp_ms: int
    kraft_epoch: int | None = NO_KRAFT_EPOCH

    def build(self) -> bytes:
        """Return the text."""
        if self.kraft_epoch is None:
            return json_text(
                {"version": 1, "brokerid": self.broker_id, "timestamp": str(self.timestamp_ms)}
            )
        return json_text(
            {
                "version": 2,
                "brokerid": self.broker_id,
                "timestamp": str(self.timestamp_ms),
                "kraftControllerEpoch": self.kraft_epoch,
            }
        )

    @classmethod
    def parse(cls, data: bytes) -> "ControllerZnode":
        """Decode the text. Raises MalformedMessage."""
        found = parse_object(data, CONTROLLER)
        epoch = (
            integer_of(found, "kraftControllerEpoch") if "kraftControllerEpoch" in found else None
        )
        return cls(
            broker_id=integer_of(found, "brokerid"),
            timestamp_ms=decimal_of(found, "timestamp"),
            kraft_epoch=epoch,
        )


def parse_controller_epoch(data: bytes | None) -> int:
    """Decode the number in /controller_epoch. Raises MalformedMessage."""
    try:
        return int(data or b"0")
    except ValueError as wrong:
        raise MalformedMessage(None, None, CONTROLLER_EPOCH, f"{data!r} is no number") from wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicZnode:
    """The replicas of each partition. Topics from before 2.8 have no id."""

    partitions: Mapping[int, Sequence[int]]
    topic_id: bytes | None = None
    adding_replicas: Mapping[int, Sequence[int]] = field(default_factory=dict)
    removing_replicas: Mapping[int, Sequence[int]] = field(default_factory=dict)

    def build(self) -> bytes:
        """Return the text."""
        partitions = _by_partition(self.partitions)
        adding, removing = (
            _by_partition(self.adding_replicas),
            _by_partition(self.removing_replicas),
        )
        if self.topic_id is None:
            return json_text(
                {
                    "version": 2,
                    "partitions": partitions,
                    "adding_replicas": adding,
                    "removing_replicas": removing,
                }
            )
        return json_text(
            {
                "partitions": partitions,
                "topic_id": uuid_text(self.topic_id),
                "adding_replicas": adding,
                "removing_replicas": removing,
                "version": 3,
            }
        )

    @classmethod
    def parse(cls, data: bytes) -> "TopicZnode":
        """Decode the text, for versions from 1 on. Raises MalformedMessage."""
        found = parse_object(data, TOPICS)
        topic_id = nullable_text_of(found, "topic_id")
        return cls(
            partitions=_replicas(found, "partitions"),
            topic_id=None if topic_id is None else parse_uuid_text(topic_id),
            adding_replicas=_replicas(found, "adding_replicas"),
            removing_replicas=_replicas(found, "removing_replicas"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStateZnode:
    """Leader and ISR; the version of the znode is the partition epoch. A leader of -1 is none."""

    leader: int
    leader_epoch: int
    isr: Sequence[int]
    controller_epoch: int
    is_recovering: bool = False

    def build(self) -> bytes:
        """Return the text."""
        recovering: dict[str, Json] = (
            {"leader_recovery_state": RECOVERING} if self.is_recovering else {}
        )
        head: dict[str, Json] = {
            "controller_epoch": self.controller_epoch,
            "leader": self.leader,
            "version": 1,
        }
        return json_text(
            {**head, **recovering, "leader_epoch": self.leader_epoch, "isr": list(self.isr)}
        )

    @classmethod
    def parse(cls, data: bytes) -> "PartitionStateZnode":
        """Decode the text. Raises MalformedMessage."""
        found = parse_object(data, "partition state")
        return cls(
            leader=integer_of(found, "leader"),
            leader_epoch=integer_of(found, "leader_epoch"),
            isr=integers_of(found.get("isr"), "isr"),
            controller_epoch=integer_of(found, "controller_epoch"),
            is_recovering=found.get("leader_recovery_state") == RECOVERING,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationZnode:
    """The progress of a migration to KRaft; -1: not started."""

    kraft_controller_id: int = -1
    kraft_controller_epoch: int = -1
    kraft_metadata_offset: int = -1
    kraft_metadata_epoch: int = -1

    def build(self) -> bytes:
        """Return the text."""
        return json_text(
            {
                "version": 0,
                "kraft_metadata_offset": self.kraft_metadata_offset,
                "kraft_controller_id": self.kraft_controller_id,
                "kraft_metadata_epoch": self.kraft_metadata_epoch,
                "kraft_controller_epoch": self.kraft_controller_epoch,
            }
        )

    @classmethod
    def parse(cls, data: bytes) -> "MigrationZnode":
        """Decode the text. Raises MalformedMessage."""
        found = parse_object(data, MIGRATION)
        if integer_of(found, "version") != 0:
            raise MalformedMessage(None, None, MIGRATION, f"version {found['version']} is unknown")
        return cls(
            kraft_controller_id=integer_of(found, "kraft_controller_id"),
            kraft_controller_epoch=integer_of(found, "kraft_controller_epoch"),
            kraft_metadata_offset=integer_of(found, "kraft_metadata_offset"),
            kraft_metadata_epoch=integer_of(found, "kraft_metadata_epoch"),
        )


def build_config(config: Mapping[str, str]) -> bytes:
    """Return the text of a topic's, broker's, user's or client's configuration."""
    return json_text(
        {"version": 1, "config": {name: config[name] for name in properties_order(list(config))}}
    )


def parse_config(data: bytes) -> dict[str, str]:
    """Read a configuration. Raises MalformedMessage."""
    found = parse_object(data, CONFIG).get("config")
    if not isinstance(found, dict):
        raise MalformedMessage(None, None, CONFIG, "config is no object")
    return {name: str(value) for name, value in found.items()}


def build_config_change(entity_path: str) -> bytes:
    """Return the text of a configuration change notification for brokers: `topics/x`."""
    return json_text({"version": 2, "entity_path": entity_path})


def parse_config_change(data: bytes) -> str:
    """Decode which configuration has changed. Raises MalformedMessage."""
    path = nullable_text_of(parse_object(data, CONFIG_CHANGES), "entity_path")
    if path is None:
        raise MalformedMessage(None, None, CONFIG_CHANGES, "no entity_path")
    return path


def build_cluster_id(cluster_id: str) -> bytes:
    """Return the text of the cluster id."""
    return json_text({"version": "1", "id": cluster_id})


def parse_cluster_id(data: bytes) -> str:
    """Decode the cluster id. Raises MalformedMessage."""
    cluster_id = nullable_text_of(parse_object(data, CLUSTER_ID), "id")
    if cluster_id is None:
        raise MalformedMessage(None, None, CLUSTER_ID, "no id")
    return cluster_id


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureZnode:
    """The finalized features.

    Before 2.7-IV0 they are disabled; before 3.3-IV0 (version 1) it has minimum levels, too, equal
    to the maximum.
    """

    levels: Mapping[str, int] = field(default_factory=dict)
    is_enabled: bool = True
    version: int = 2

    def build(self) -> bytes:
        """Return the text."""
        return build_features(self.levels, is_enabled=self.is_enabled, version=self.version)

    @classmethod
    def parse(cls, data: bytes) -> "FeatureZnode":
        """Decode the text. Raises MalformedMessage."""
        found = parse_object(data, FEATURE)
        features = found.get("features")
        version = integer_of(found, "version")
        if not isinstance(features, dict) or version not in (1, 2):
            raise MalformedMessage(
                None, None, FEATURE, f"version {version} with features {features!r}"
            )
        levels = {
            name: integer_of(level, "max_version_level")
            for name, level in features.items()
            if isinstance(level, dict)
        }
        return cls(levels=levels, is_enabled=integer_of(found, "status") == 1, version=version)


def build_features(
    levels: Mapping[str, int], *, is_enabled: bool = True, version: int = 2
) -> bytes:
    """Return the text of the finalized features."""
    features: Json = {
        name: {"max_version_level": level, "min_version_level": level}
        if version == 1
        else {"max_version_level": level}
        for name, level in levels.items()
    }
    return json_text({"features": features, "version": version, "status": int(is_enabled)})


def _replicas(found: Mapping[str, Json], name: str) -> dict[int, list[int]]:
    partitions = found.get(name, {})
    if not isinstance(partitions, dict):
        raise MalformedMessage(None, None, name, f"{partitions!r} is no object")
    return {
        decimal_of({name: partition}, name): integers_of(replicas, name)
        for partition, replicas in partitions.items()
    }


def _by_partition(replicas: Mapping[int, Sequence[int]]) -> dict[str, Json]:
    return {
        number: list(replicas[int(number)])
        for number in mutable_map_order([str(partition) for partition in replicas])
    }
