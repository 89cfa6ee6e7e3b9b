"""Every broker config with its default and with extreme values: Apache Kafka starts with the same
ones as kraftsim.

Apache Kafka validates each set of properties as at startup (KafkaConfig.fromProps).
"""

from typing import Final

import pytest

from kraftsim.metadata.rules_config_releases import config_tables
from kraftsim.server.config import NodeConfig
from kraftsim.server.config_keys import ConfigError
from protocol.config_resources import ConfigType
from tests.apache_kafka.class_path import DEFAULT_RELEASE, NEWEST_RELEASE
from tests.apache_kafka.config_facts import line_of
from tests.apache_kafka.test_member_bounds import COMMON, theirs

pytestmark = pytest.mark.interop
VALUES: Final = ("", "garbage", "-1", "0", "1", "2147483647", "9223372036854775807")
TOGETHER: Final = (
    {"security.inter.broker.protocol": "SSL"},
    {"security.inter.broker.protocol": "ssl"},
    {"security.inter.broker.protocol": "PLAINTEXT", "inter.broker.listener.name": "PLAINTEXT"},
    {"security.inter.broker.protocol": "PLAINTEXT", "listeners": "PLAINTEXT://127.0.0.1:9092"},
    {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"},
    {"connections.max.idle.ms": "-1", "connection.failed.authentication.delay.ms": "600000"},
    {"connections.max.idle.ms": "100"},
    {"connections.max.idle.ms": "101"},
    {"log.retention.ms": "5", "log.retention.minutes": "0"},
    {"log.retention.minutes": "0", "log.retention.hours": "5"},
    {"log.cleaner.enable": "false", "log.cleaner.threads": "0"},
    {"log.cleaner.threads": "2", "log.cleaner.dedupe.buffer.size": "2097152"},
    {"log.cleaner.threads": "2", "log.cleaner.dedupe.buffer.size": "2097154"},
    {"queued.max.request.bytes": "104857600"},
    {"queued.max.request.bytes": "104857599"},
    {"replica.fetch.wait.max.ms": "30000"},
    {"replica.fetch.wait.max.ms": "30001", "replica.lag.time.max.ms": "60000"},
    {"early.start.listeners": "CONTROLLER,PLAINTEXT"},
    {"early.start.listeners": "controller"},
    {"controller.listener.names": "CONTROLLER,X"},
    {"cordoned.log.dirs": "/a", "log.dirs": "/a,/b"},
    {"cordoned.log.dirs": "/c,/a,/d", "log.dirs": "/a,/b"},
    {"cordoned.log.dirs": "*"},
    {"group.coordinator.rebalance.protocols": "consumer"},
    {"group.coordinator.rebalance.protocols": "classic"},
)
LISTS: Final = "lists that must not be empty in Apache Kafka, and class names in them"
NOT_SERVED: Final = "has no effect here"
LOOSER: Final = (
    ("control.plane.listener.name", "an empty one counts as unset"),
    ("group.share.assignors", NOT_SERVED),
    ("group.streams.assignors", NOT_SERVED),
    ("group.consumer.assignors", LISTS),
    ("remote.log.manager.copier.thread.pool.size", NOT_SERVED),
    ("remote.log.manager.expiration.thread.pool.size", NOT_SERVED),
    ("share.coordinator.snapshot.update.records.per.snapshot", NOT_SERVED),
    ("share.coordinator.state.topic.compression.codec", NOT_SERVED),
)
"""Configs of which kraftsim accepts values that Apache Kafka refuses."""
STRICTER: Final = (
    ("authorizer.class.name", "a missing authorizer would allow everything"),
    ("controller.quorum.election.backoff.max.ms", "a time below 0"),
    ("controller.quorum.election.timeout.ms", "a time below 1"),
    ("controller.quorum.fetch.timeout.ms", "a time below 1"),
    ("default.replication.factor", "no topic could be created"),
    ("log.cleaner.io.buffer.load.factor", "a part below 0"),
    ("log.cleaner.io.max.bytes.per.second", "a rate below 0"),
    ("log.cleanup.policy", "no policy"),
    ("log.flush.interval.ms", "a time below 0"),
    ("num.replica.fetchers", "no fetcher"),
    ("process.roles", "a node without a role"),
    ("replica.selector.class", "a selector that does not exist"),
    ("request.timeout.ms", "a time below 0"),
    ("zookeeper.connection.timeout.ms", "a time below 0"),
)
"""Configs of which kraftsim refuses values that Apache Kafka accepts, but does not work with."""


def questions(line: str) -> list[dict[str, str]]:
    """Return each config with each value, and combinations that must be consistent."""
    tables = config_tables(line)
    known = {**tables.broker, **tables.internal}
    single = [
        {name: value}
        for name, row in known.items()
        for value in (*VALUES, row.default)
        if value is not None
    ]
    return single + [values for values in TOGETHER if values.keys() <= known.keys()]


def ours(line: str, values: dict[str, str]) -> str:
    """Return the startup error of our node."""
    common = dict(each.split("=", 1) for each in COMMON)
    try:
        NodeConfig.parse({**common, **values, "kraftsim.release": line})
    except ConfigError as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize("release", [DEFAULT_RELEASE, "4.1.2", NEWEST_RELEASE])
def test_brokers_start_with_the_same_configs(release: str) -> None:
    line = line_of(release)
    known = {**config_tables(line).broker, **config_tables(line).internal}
    asked = questions(line)
    their_errors = theirs(release, asked)
    assert (
        len(their_errors) == len(asked) > 2000
        and "" in their_errors
        and len(set(their_errors)) > 100
    )
    looser, stricter = {}, {}
    for values, their in zip(asked, their_errors, strict=True):
        our, name = ours(line, values), next(iter(values))
        if (
            their
            and not our
            and known[name].kind is not ConfigType.CLASS
            and name not in dict(LOOSER)
        ):
            looser[name] = (values, their)
        if our and not their and name not in dict(STRICTER):
            stricter[name] = (values, our)
    assert (looser, stricter) == ({}, {})


@pytest.mark.parametrize("release", [DEFAULT_RELEASE, NEWEST_RELEASE])
def test_contradictory_configs_are_refused_with_the_same_message(release: str) -> None:
    line = line_of(release)
    asked = [values for values in questions(line) if len(values) > 1 or values in TOGETHER]
    differing = [
        (values, their, our)
        for values, their in zip(asked, theirs(release, asked), strict=True)
        if their != (our := ours(line, values))
    ]
    assert [each for each in differing if "security.inter.broker.protocol" not in each[0]] == []
    assert all(our and their for _, their, our in differing)
