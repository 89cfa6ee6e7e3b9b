"""Inconsistent settings at startup; tests/apache_kafka/test_starting_configs.py checks the same in
Apache Kafka.
"""

import pytest

from kraftsim.metadata.rules_config_releases import complaint_at_start, config_tables

BROKER = {"listeners": "PLAINTEXT://h:1", "controller.listener.names": "CONTROLLER"}


def why(line: str, given: dict[str, str]) -> str | None:
    tables = config_tables(line)
    rows = {**tables.internal, **tables.broker}
    settings = {**BROKER, **given}
    return complaint_at_start(
        settings.__contains__,
        lambda name: settings.get(name, rows[name].default) if name in rows else None,
    )


@pytest.mark.parametrize("line", ["2.3", "2.8", "3.9", "4.4"])
def test_defaults_of_a_release_are_consistent(line: str) -> None:
    assert why(line, {}) is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"inter.broker.listener.name": "A", "security.inter.broker.protocol": "SSL"},
            "Only one of inter.broker.listener.name and",
        ),
        ({"inter.broker.listener.name": ""}, "The provided listener name is null"),
        ({"advertised.listeners": " , "}, "There must be at least one broker advertised listener"),
        ({"early.start.listeners": "X"}, "early.start.listeners contains listener X"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip can be set to zero only if"),
        ({"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "h:1"}, None),
        (
            {"connections.max.idle.ms": "100"},
            "connection.failed.authentication.delay.ms=100 should always be less",
        ),
        ({"connections.max.idle.ms": "-1"}, None),
        ({"queued.max.request.bytes": "5"}, "queued.max.request.bytes must be larger"),
        (
            {"replica.fetch.wait.max.ms": "30001", "replica.lag.time.max.ms": "30001"},
            "replica.socket.timeout.ms should always be at least",
        ),
        ({"replica.lag.time.max.ms": "499"}, "replica.fetch.wait.max.ms should always be less"),
        ({"log.cleaner.threads": "0"}, "/ by zero"),
        (
            {"log.cleaner.dedupe.buffer.size": "1048576"},
            "log.cleaner.dedupe.buffer.size must be at least 1MB",
        ),
        ({"log.retention.hours": "0"}, "log.retention.ms must be unlimited"),
        ({"log.retention.hours": "0", "log.retention.minutes": "1"}, None),
        ({"log.roll.ms": "0"}, "log.roll.ms must be greater"),
        ({"group.share.max.share.sessions": "1"}, "group.share.max.share.sessions must be greater"),
        (
            {"group.streams.num.warmup.replicas": "2000000"},
            "group.streams.num.warmup.replicas must be less",
        ),
        (
            {"group.consumer.assignment.interval.ms": "2000000"},
            "group.consumer.assignment.interval.ms must be less",
        ),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "Disabling the 'classic' protocol"),
    ],
)
def test_inconsistent_settings_are_rejected(given: dict[str, str], words: str | None) -> None:
    said = why("4.4", given)
    assert said is None if words is None else (said or "").startswith(words)
