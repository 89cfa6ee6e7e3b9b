"""What became of configurations since 3.9, line by line: rows that are new or other, and names that are gone (None). Data only.

Source: kafka.server.KafkaConfig.configDef, DynamicBrokerConfig, LogConfig; asked of the classes of 4.0.2, 4.1.2, 4.2.2, 4.3.1 and 4.4.0. KIP-1030.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

from kraftsim.core.metadata.broker_config_table import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    INT,
    LIST,
    LONG,
    PASSWORD,
    PER_BROKER,
    SHORT,
    STRING,
    BrokerConfig,
    UpdateMode,
)
from kraftsim.core.metadata.config_definitions import Check, ConfigDefinition, at_least, between, some_words_of
from kraftsim.core.metadata.config_tables import KAFKA_3_9, ConfigTables
from kraftsim.core.metadata.topic_configs import TopicConfig
from protocol.config_resources import ConfigType

Row = TypeVar("Row", bound=ConfigDefinition)


def _row(kind: ConfigType, default: str | None, mode: UpdateMode = UpdateMode.READ_ONLY, check: Check | None = None) -> BrokerConfig:
    return BrokerConfig(kind, default, check, mode)


BROKER_SINCE_4_0: Final[Mapping[str, BrokerConfig | None]] = {
    "auto.include.jmx.reporter": None,
    "broker.id.generation.enable": None,
    "control.plane.listener.name": None,
    "controlled.shutdown.max.retries": None,
    "controlled.shutdown.retry.backoff.ms": None,
    "delegation.token.master.key": None,
    "eligible.leader.replicas.enable": None,
    "inter.broker.protocol.version": None,
    "leader.imbalance.per.broker.percentage": None,
    "log.message.downconversion.enable": None,
    "log.message.format.version": None,
    "log.message.timestamp.difference.max.ms": None,
    "offsets.commit.required.acks": None,
    "password.encoder.cipher.algorithm": None,
    "password.encoder.iterations": None,
    "password.encoder.key.length": None,
    "password.encoder.keyfactory.algorithm": None,
    "password.encoder.old.secret": None,
    "password.encoder.secret": None,
    "reserved.broker.max.id": None,
    "zookeeper.clientCnxnSocket": None,
    "zookeeper.connect": None,
    "zookeeper.connection.timeout.ms": None,
    "zookeeper.max.in.flight.requests": None,
    "zookeeper.metadata.migration.enable": None,
    "zookeeper.session.timeout.ms": None,
    "zookeeper.set.acl": None,
    "zookeeper.ssl.cipher.suites": None,
    "zookeeper.ssl.client.enable": None,
    "zookeeper.ssl.crl.enable": None,
    "zookeeper.ssl.enabled.protocols": None,
    "zookeeper.ssl.endpoint.identification.algorithm": None,
    "zookeeper.ssl.keystore.location": None,
    "zookeeper.ssl.keystore.password": None,
    "zookeeper.ssl.keystore.type": None,
    "zookeeper.ssl.ocsp.enable": None,
    "zookeeper.ssl.protocol": None,
    "zookeeper.ssl.truststore.location": None,
    "zookeeper.ssl.truststore.password": None,
    "zookeeper.ssl.truststore.type": None,
    "add.partitions.to.txn.retry.backoff.max.ms": _row(INT, "100"),
    "add.partitions.to.txn.retry.backoff.ms": _row(INT, "20"),
    "advertised.listeners": _row(STRING, None),
    "group.consumer.assignors": _row(LIST, "uniform,range"),
    "group.consumer.migration.policy": _row(STRING, "bidirectional"),
    "group.coordinator.append.linger.ms": _row(INT, "5"),
    "group.coordinator.rebalance.protocols": _row(LIST, "classic,consumer"),
    "group.coordinator.threads": _row(INT, "4"),
    "group.share.max.size": _row(INT, "200"),
    "log.message.timestamp.after.max.ms": _row(LONG, "3600000", CLUSTER_WIDE, at_least(0)),
    "metric.reporters": _row(LIST, "org.apache.kafka.common.metrics.JmxReporter", CLUSTER_WIDE),
    "node.id": _row(INT, None),
    "num.recovery.threads.per.data.dir": _row(INT, "2", CLUSTER_WIDE, at_least(1)),
    "process.roles": _row(LIST, None),
    "remote.list.offsets.request.timeout.ms": _row(LONG, "30000", CLUSTER_WIDE, at_least(1)),
    "remote.log.manager.copier.thread.pool.size": _row(INT, "10", CLUSTER_WIDE, at_least(1)),
    "remote.log.manager.expiration.thread.pool.size": _row(INT, "10", CLUSTER_WIDE, at_least(1)),
    "remote.log.manager.thread.pool.size": _row(INT, "2"),
    "remote.log.reader.threads": _row(INT, "10", CLUSTER_WIDE, at_least(1)),
    "share.coordinator.append.linger.ms": _row(INT, "10"),
    "share.coordinator.load.buffer.size": _row(INT, "5242880"),
    "share.coordinator.snapshot.update.records.per.snapshot": _row(INT, "500"),
    "share.coordinator.state.topic.compression.codec": _row(INT, "0"),
    "share.coordinator.state.topic.min.isr": _row(SHORT, "2"),
    "share.coordinator.state.topic.num.partitions": _row(INT, "50"),
    "share.coordinator.state.topic.replication.factor": _row(SHORT, "3"),
    "share.coordinator.state.topic.segment.bytes": _row(INT, "104857600"),
    "share.coordinator.threads": _row(INT, "1"),
    "share.coordinator.write.timeout.ms": _row(INT, "5000"),
    "share.fetch.purgatory.purge.interval.requests": _row(INT, "1000"),
}
BROKER_SINCE_4_1: Final[Mapping[str, BrokerConfig | None]] = {
    "group.share.max.groups": None,
    "group.coordinator.rebalance.protocols": _row(LIST, "classic,consumer,streams"),
    "group.share.assignors": _row(LIST, "simple"),
    "group.share.max.share.sessions": _row(INT, "2000"),
    "group.share.partition.max.record.locks": _row(INT, "2000"),
    "group.streams.heartbeat.interval.ms": _row(INT, "5000"),
    "group.streams.max.heartbeat.interval.ms": _row(INT, "15000"),
    "group.streams.max.session.timeout.ms": _row(INT, "60000"),
    "group.streams.max.size": _row(INT, "2147483647"),
    "group.streams.max.standby.replicas": _row(INT, "2"),
    "group.streams.min.heartbeat.interval.ms": _row(INT, "5000"),
    "group.streams.min.session.timeout.ms": _row(INT, "45000"),
    "group.streams.num.standby.replicas": _row(INT, "0"),
    "group.streams.session.timeout.ms": _row(INT, "45000"),
    "sasl.oauthbearer.assertion.algorithm": _row(STRING, "RS256"),
    "sasl.oauthbearer.assertion.claim.aud": _row(STRING, None),
    "sasl.oauthbearer.assertion.claim.exp.seconds": _row(INT, "300"),
    "sasl.oauthbearer.assertion.claim.iss": _row(STRING, None),
    "sasl.oauthbearer.assertion.claim.jti.include": _row(BOOLEAN, "false"),
    "sasl.oauthbearer.assertion.claim.nbf.seconds": _row(INT, "60"),
    "sasl.oauthbearer.assertion.claim.sub": _row(STRING, None),
    "sasl.oauthbearer.assertion.file": _row(STRING, None),
    "sasl.oauthbearer.assertion.private.key.file": _row(STRING, None),
    "sasl.oauthbearer.assertion.private.key.passphrase": _row(PASSWORD, None),
    "sasl.oauthbearer.assertion.template.file": _row(STRING, None),
    "sasl.oauthbearer.client.credentials.client.id": _row(STRING, None),
    "sasl.oauthbearer.client.credentials.client.secret": _row(PASSWORD, None),
    "sasl.oauthbearer.jwt.retriever.class": _row(CLASS, "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever"),
    "sasl.oauthbearer.jwt.validator.class": _row(CLASS, "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator"),
    "sasl.oauthbearer.scope": _row(STRING, None),
    "share.coordinator.append.linger.ms": _row(INT, "5"),
    "transaction.two.phase.commit.enable": _row(BOOLEAN, "false"),
}
BROKER_SINCE_4_2: Final[Mapping[str, BrokerConfig | None]] = {
    "advertised.listeners": _row(LIST, None),
    "config.providers": _row(LIST, "", CLUSTER_WIDE),
    "controller.listener.names": _row(LIST, None),
    "controller.quorum.auto.join.enable": _row(BOOLEAN, "false"),
    "early.start.listeners": _row(LIST, None),
    "group.coordinator.append.linger.ms": _row(INT, "-1"),
    "group.streams.initial.rebalance.delay.ms": _row(INT, "3000"),
    "listeners": _row(LIST, "PLAINTEXT://:9092", PER_BROKER),
    "log.dir": _row(LIST, "/tmp/kafka-logs"),
    "log.dirs": _row(LIST, None),
    "max.decompressed.message.bytes": _row(INT, "2147483639", CLUSTER_WIDE, between(1, 2147483639)),
    "remote.log.manager.follower.thread.pool.size": _row(INT, "2", CLUSTER_WIDE, at_least(1)),
    "sasl.oauthbearer.expected.audience": _row(LIST, ""),
    "share.coordinator.append.linger.ms": _row(INT, "-1"),
}
BROKER_SINCE_4_3: Final[Mapping[str, BrokerConfig | None]] = {
    "max.decompressed.message.bytes": None,
    "controller.quorum.fetch.max.bytes": _row(INT, "1048576"),
    "controller.quorum.fetch.snapshot.max.bytes": _row(INT, "1048576"),
    "cordoned.log.dirs": _row(LIST, "", PER_BROKER),
    "follower.fetch.last.tiered.offset.enable": _row(BOOLEAN, "false", CLUSTER_WIDE),
    "group.consumer.assignment.interval.ms": _row(INT, "1000", CLUSTER_WIDE, at_least(0)),
    "group.consumer.max.assignment.interval.ms": _row(INT, "15000"),
    "group.consumer.min.assignment.interval.ms": _row(INT, "0"),
    "group.coordinator.background.threads": _row(INT, "2"),
    "group.coordinator.cached.buffer.max.bytes": _row(INT, "1048588", CLUSTER_WIDE, at_least(524288)),
    "group.share.assignment.interval.ms": _row(INT, "1000", CLUSTER_WIDE, at_least(0)),
    "group.share.max.assignment.interval.ms": _row(INT, "15000"),
    "group.share.max.delivery.count.limit": _row(INT, "10"),
    "group.share.max.partition.max.record.locks": _row(INT, "4000"),
    "group.share.min.assignment.interval.ms": _row(INT, "0"),
    "group.share.min.delivery.count.limit": _row(INT, "2"),
    "group.share.min.partition.max.record.locks": _row(INT, "100"),
    "group.streams.assignment.interval.ms": _row(INT, "1000", CLUSTER_WIDE, at_least(0)),
    "group.streams.max.assignment.interval.ms": _row(INT, "15000"),
    "group.streams.min.assignment.interval.ms": _row(INT, "0"),
    "share.coordinator.cached.buffer.max.bytes": _row(INT, "1048588", CLUSTER_WIDE, at_least(524288)),
}
BROKER_SINCE_4_4: Final[Mapping[str, BrokerConfig | None]] = {
    "errors.deadletterqueue.auto.create.topics.enable": _row(BOOLEAN, "false", CLUSTER_WIDE),
    "errors.deadletterqueue.topic.name.prefix": _row(STRING, "dlq.", CLUSTER_WIDE),
    "group.streams.assignors": _row(LIST, "sticky"),
    "group.streams.rack.aware.assignment.tags": _row(LIST, ""),
    "group.streams.topology.description.plugin.class": _row(CLASS, None),
    "log.remote.copy.lag.bytes": _row(LONG, "-1", CLUSTER_WIDE, at_least(-1)),
    "log.remote.copy.lag.ms": _row(LONG, "0", CLUSTER_WIDE, at_least(-1)),
    "max.decompressed.message.bytes": _row(INT, "2147483639", CLUSTER_WIDE, between(1, 2147483639)),
    "sasl.oauthbearer.allow.unverified.audience": _row(BOOLEAN, "false"),
    "sasl.oauthbearer.allow.unverified.issuer": _row(BOOLEAN, "false"),
}

TOPIC_SINCE_4_0: Final[Mapping[str, TopicConfig | None]] = {
    "segment.bytes": TopicConfig(INT, str(1 << 30), at_least(1 << 20), "log.segment.bytes"),
    "message.format.version": None,
    "message.timestamp.difference.max.ms": None,
    "message.timestamp.after.max.ms": TopicConfig(LONG, "3600000", at_least(0), "log.message.timestamp.after.max.ms"),
    "message.downconversion.enable": None,
}
TOPIC_SINCE_4_2: Final[Mapping[str, TopicConfig | None]] = {
    "cleanup.policy": TopicConfig(LIST, "delete", some_words_of("compact", "delete"), "log.cleanup.policy"),
}
MAX_DECOMPRESSED: Final = "max.decompressed.message.bytes"
DECOMPRESSED: Final = {MAX_DECOMPRESSED: TopicConfig(INT, "2147483639", between(1, 2147483639), MAX_DECOMPRESSED)}
COPY_LAG: Final = {
    "remote.copy.lag.ms": TopicConfig(LONG, "0", at_least(-1), "log.remote.copy.lag.ms"),
    "remote.copy.lag.bytes": TopicConfig(LONG, "-1", at_least(-1), "log.remote.copy.lag.bytes"),
}
DEAD_LETTERS: Final = {"errors.deadletterqueue.group.enable": TopicConfig(BOOLEAN, "false")}


def _changed(before: Mapping[str, Row], changes: Mapping[str, Row | None]) -> dict[str, Row]:
    """Return a table with some rows other, new ones at its end, and some gone."""
    return {name: row for name, row in {**before, **changes}.items() if row is not None}


def _behind(before: Mapping[str, Row], name: str, added: Mapping[str, Row]) -> dict[str, Row]:
    """Return a table with rows added behind one of them: of several bad values the first is complained about."""
    found: dict[str, Row] = {}
    for each, row in before.items():
        found |= {each: row, **(added if each == name else {})}
    return found


KAFKA_4_0: Final = ConfigTables(_changed(KAFKA_3_9.broker, BROKER_SINCE_4_0), _changed(KAFKA_3_9.topic, TOPIC_SINCE_4_0))
KAFKA_4_1: Final = ConfigTables(_changed(KAFKA_4_0.broker, BROKER_SINCE_4_1), KAFKA_4_0.topic)
WITHOUT_DECOMPRESSED: Final = _changed(KAFKA_4_1.topic, TOPIC_SINCE_4_2)
WITH_DECOMPRESSED: Final = _behind(WITHOUT_DECOMPRESSED, "max.message.bytes", DECOMPRESSED)
WITH_COPY_LAG: Final = _behind(WITH_DECOMPRESSED, "remote.log.copy.disable", COPY_LAG)
KAFKA_4_2: Final = ConfigTables(_changed(KAFKA_4_1.broker, BROKER_SINCE_4_2), WITH_DECOMPRESSED)
KAFKA_4_3: Final = ConfigTables(_changed(KAFKA_4_2.broker, BROKER_SINCE_4_3), WITHOUT_DECOMPRESSED)
KAFKA_4_4: Final = ConfigTables(_changed(KAFKA_4_3.broker, BROKER_SINCE_4_4), _behind(WITH_COPY_LAG, "remote.log.delete.on.disable", DEAD_LETTERS))
CHANGED: Final = {"4.0": KAFKA_4_0, "4.1": KAFKA_4_1, "4.2": KAFKA_4_2, "4.3": KAFKA_4_3, "4.4": KAFKA_4_4}
NEW_KEYS: Final = frozenset(name for tables in CHANGED.values() for name in tables.broker if name not in KAFKA_3_9.broker)
"""What brokers can be told since 4.0."""


def config_tables(release: str) -> ConfigTables:
    """Return the configurations of a release line; those of 3.9 for every line that nothing else is told of."""
    return CHANGED.get(release, KAFKA_3_9)
