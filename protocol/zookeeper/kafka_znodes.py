"""The znodes of Apache Kafka: paths, and the JSON texts.

Readers use key names; written texts have Kafka's own order of keys.

Source: kafka.zk.ZkData, kafka.cluster.Broker, ZkMigrationLeadershipState, KIP-98, KIP-866; texts
taken from a broker of 3.9.1.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from protocol.malformed import MalformedMessage
from protocol.message_json import Json
from protocol.uuids import parse_uuid_text, uuid_text

# --------------------------------------------------------------------------------------------------
# The iteration order of JVM maps, which is the order of keys in znodes; nothing else depends on it
#
# Source: scala.collection.mutable.HashMap, scala.collection.immutable.HashMap (2.13),
# java.util.concurrent.ConcurrentHashMap; texts of Kafka 3.9.1.

WORD: Final = 0xFFFFFFFF
SMALL_MAP_MAX: Final = 4
"""Up to this size an immutable map keeps the insertion order."""
TABLE: Final = 16
BITS: Final = 5


def string_hash(text: str) -> int:
    """Return String.hashCode, without its sign."""
    encoded, found = text.encode("utf-16-be"), 0
    for position in range(0, len(encoded), 2):
        found = (31 * found + int.from_bytes(encoded[position : position + 2])) & WORD
    return found


def mutable_map_order(names: Sequence[str]) -> list[str]:
    """Return keys in the order of a mutable map into which they were put one after the other."""
    size = TABLE
    while len(names) >= size * 3 // 4:
        size *= 2
    return sorted(names, key=lambda name: (_spread(name) & (size - 1), _signed(_spread(name))))


def properties_order(names: Sequence[str]) -> list[str]:
    """Return keys in the order of java.util.Properties."""
    size = TABLE
    while len(names) >= size * 3 // 4:
        size *= 2
    return sorted(names, key=lambda name: _spread(name) & (size - 1))


def immutable_map_order(names: Sequence[str]) -> list[str]:
    """Return keys in the order of an immutable map: a hash trie, whose nodes iterate over their own
    keys first.
    """
    return list(names) if len(names) <= SMALL_MAP_MAX else _trie_order(names, 0)


def _trie_order(names: Sequence[str], shift: int) -> list[str]:
    slots: dict[int, list[str]] = {}
    for name in names:
        slots.setdefault((_improved(name) >> shift) & ((1 << BITS) - 1), []).append(name)
    own = [slots[slot][0] for slot in sorted(slots) if len(slots[slot]) == 1]
    deeper = [slots[slot] for slot in sorted(slots) if len(slots[slot]) > 1]
    return own + [
        name
        for group in deeper
        for name in (
            _trie_order(group, shift + BITS) if shift + BITS < WORD.bit_length() else group
        )
    ]


def _spread(name: str) -> int:
    found = string_hash(name)
    return found ^ (found >> 16)


def _signed(found: int) -> int:
    return found if found <= WORD >> 1 else found - WORD - 1


def _improved(name: str) -> int:
    found = string_hash(name)
    found = (found + ~(found << 9)) & WORD
    found ^= found >> 14
    found = (found + (found << 4)) & WORD
    return found ^ (found >> 10)


# --------------------------------------------------------------------------------------------------
# JSON in znodes: encoding of objects and decoding of their parts, with error messages
#
# Source: kafka.utils.Json, kafka.utils.json.DecodeJson.


def json_text(value: Mapping[str, Json]) -> bytes:
    """Return an object as Kafka writes it: no spaces, keys in the given order."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def parse_object(data: bytes, place: str) -> dict[str, Json]:
    """Decode an object. Raises MalformedMessage."""
    try:
        found: Json = json.loads(data)
    except (ValueError, RecursionError) as failure:
        raise MalformedMessage(None, None, place, f"no JSON: {failure}") from failure
    if not isinstance(found, dict):
        raise MalformedMessage(None, None, place, "no object")
    return found


def integer_of(found: Mapping[str, Json], name: str) -> int:
    """Return a whole number. Raises MalformedMessage."""
    number = found.get(name)
    if not isinstance(number, int) or isinstance(number, bool):
        raise MalformedMessage(None, None, name, f"{number!r} is no whole number")
    return number


def decimal_of(found: Mapping[str, Json], name: str) -> int:
    """Return a number that is encoded as text. Raises MalformedMessage."""
    text = found.get(name)
    try:
        return int(str(text))
    except ValueError:
        raise MalformedMessage(None, None, name, f"{text!r} is no number") from None


def nullable_text_of(found: Mapping[str, Json], name: str) -> str | None:
    """Return a text, or None. Raises MalformedMessage."""
    text = found.get(name)
    if text is not None and not isinstance(text, str):
        raise MalformedMessage(None, None, name, f"{text!r} is no text")
    return text


def texts_of(found: Json, name: str) -> list[str]:
    """Return a list of texts. Raises MalformedMessage."""
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise MalformedMessage(None, None, name, f"{found!r} is no list of texts")
    return [str(each) for each in found]


def integers_of(found: Json, name: str) -> list[int]:
    """Return a list of whole numbers. Raises MalformedMessage."""
    if not isinstance(found, list):
        raise MalformedMessage(None, None, name, f"{found!r} is no list")
    return [integer_of({name: each}, name) for each in found]


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


# --------------------------------------------------------------------------------------------------
# Requests to a controller by znodes: reassignments, elections, deletions; and notifications from
# brokers
#
# Reassignments and elections are protocol requests since 2.4; the znodes still work in 3.9.
# Source: kafka.zk.{ReassignPartitionsZNode, PreferredReplicaElectionZNode, DeleteTopicsTopicZNode,
# IsrChangeNotificationSequenceZNode, LogDirEventNotificationSequenceZNode}.

LOG_DIRECTORY_EVENT: Final = f"{LOG_DIRECTORY_EVENTS}/log_dir_event_"
FAILED: Final = 1
TopicPartition = tuple[str, int]


def delete_topic_path(topic: str) -> str:
    """Return the path that requests the deletion of a topic."""
    return f"{DELETE_TOPICS}/{topic}"


def build_reassignments(moves: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    """Return the text that requests reassignments of some partitions."""
    rows: list[Json] = [
        {"topic": topic, "partition": partition, "replicas": list(replicas)}
        for (topic, partition), replicas in moves.items()
    ]
    return json_text({"version": 1, "partitions": rows})


def parse_reassignments(data: bytes) -> dict[TopicPartition, list[int]]:
    """Decode the requested replicas. Raises MalformedMessage."""
    return {_partition(row): integers_of(row.get("replicas"), "replicas") for row in _rows(data)}


def build_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Return the text that requests preferred leader elections, or notifies of changed ISRs."""
    rows: list[Json] = [{"topic": topic, "partition": partition} for topic, partition in partitions]
    return json_text({"version": 1, "partitions": rows})


def parse_partitions(data: bytes) -> list[TopicPartition]:
    """Decode the partitions. Raises MalformedMessage."""
    return [_partition(row) for row in _rows(data)]


def build_log_directory_event(broker_id: int) -> bytes:
    """Return the text with which a broker reports a failed log directory."""
    return json_text({"version": 1, "broker": broker_id, "event": FAILED})


def parse_log_directory_event(data: bytes) -> int:
    """Decode the broker id. Raises MalformedMessage."""
    return integer_of(parse_object(data, LOG_DIRECTORY_EVENTS), "broker")


def _rows(data: bytes) -> list[dict[str, Json]]:
    rows = parse_object(data, "partitions").get("partitions")
    if not isinstance(rows, list):
        raise MalformedMessage(None, None, "partitions", f"{rows!r} is no list")
    return [row for row in rows if isinstance(row, dict)]


def _partition(row: Mapping[str, Json]) -> TopicPartition:
    topic = nullable_text_of(row, "topic")
    if topic is None:
        raise MalformedMessage(None, None, "topic", "none is named")
    return topic, integer_of(row, "partition")
