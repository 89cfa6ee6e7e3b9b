"""Settings of a lease_pid server.

Kafka has no such properties; names are Kafka's where Kafka has an equivalent.

Source: the lease_pid draft; Kafka's broker properties.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, TypeVar

from kraftsim.lease_pid.rules_broker import (
    AnswerToRepeat,
    AnswerToUnknown,
    AskedExpiry,
    CountsFrom,
    EndsWith,
    Lookup,
    NextGeneration,
    Readings,
    SequenceOfLease,
)
from kraftsim.server.config_keys import ConfigError

Address = tuple[str, int]
Choice = TypeVar("Choice", bound=Enum)
KEYS: Final = (
    *(
        "broker.id",
        "listeners",
        "zookeeper.connect",
        "lease.brokers",
        "lease.topics",
        "default.replication.factor",
    ),
    *(
        "zookeeper.session.timeout.ms",
        "replica.lag.time.max.ms",
        "lease.expire.ms",
        "lease.ids.per.block",
        "lease.id.bits",
    ),
    *(
        "lease.snapshot.interval.ms",
        "lease.lookup",
        "lease.counts.from",
        "lease.next.generation",
        "lease.repeat",
        "lease.unknown",
    ),
    *("lease.asked.expiry", "lease.ends.with", "lease.sequence"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """`brokers`: the address of each server, this one included; `topics`: partition counts.

    All servers have the same values.
    """

    broker_id: int
    brokers: Mapping[int, Address]
    zookeeper: tuple[Address, ...]
    topics: Mapping[str, int]
    replicas: int = 3
    host: str = ""
    port: int = 0
    """The port to listen on; 0: any free port, for tests of one server."""
    session_timeout_ms: int = 3000
    lag_max_ms: int = 1000
    snapshot_interval_ms: int = 5000
    readings: Readings = field(default_factory=Readings)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "LeaseSettings":
        """Parse properties. Raises ConfigError for invalid ones."""
        unknown = sorted(set(given) - set(KEYS))
        if unknown:
            raise ConfigError(
                f"{unknown[0]}: not a setting of lease_pid (supported: {', '.join(KEYS)})"
            )
        missing = [
            key
            for key in ("broker.id", "zookeeper.connect", "lease.brokers", "lease.topics")
            if not given.get(key)
        ]
        if missing:
            raise ConfigError(f"{missing[0]}: must be given")
        broker_id = _number(given, "broker.id", 0, 0)
        brokers = {
            _whole("lease.brokers", number): parse_address("lease.brokers", place)
            for number, place in _pairs(given, "lease.brokers", "@")
        }
        if broker_id not in brokers:
            raise ConfigError(f"lease.brokers: does not name broker {broker_id}")
        host, port = (
            parse_address("listeners", given["listeners"])
            if "listeners" in given
            else brokers[broker_id]
        )
        settings = cls(
            broker_id=broker_id,
            brokers=brokers,
            zookeeper=tuple(
                parse_address("zookeeper.connect", each)
                for each in given["zookeeper.connect"].split(",")
            ),
            topics={
                topic: _whole("lease.topics", count)
                for topic, count in _pairs(given, "lease.topics", ":")
            },
            host=host,
            port=port,
            session_timeout_ms=_number(given, "zookeeper.session.timeout.ms", 3000, 1),
            lag_max_ms=_number(given, "replica.lag.time.max.ms", 1000, 1),
            snapshot_interval_ms=_number(given, "lease.snapshot.interval.ms", 5000, 1),
            readings=_readings(given),
        )
        return replace(
            settings, replicas=min(_number(given, "default.replication.factor", 3, 1), len(brokers))
        )

    def replicas_of(self, partition: int) -> list[int]:
        """Return the replicas of a partition, the preferred leader first."""
        ids = sorted(self.brokers)
        return [
            ids[(partition + place) % len(ids)] for place in range(min(self.replicas, len(ids)))
        ]


def _readings(given: Mapping[str, str]) -> Readings:
    return Readings(
        lookup=_choice(given, "lease.lookup", Lookup, Lookup.REPAIRED_LIST),
        counts_from=_choice(given, "lease.counts.from", CountsFrom, CountsFrom.LAST_SEEN),
        next_generation=_choice(
            given, "lease.next.generation", NextGeneration, NextGeneration.CONTINUES
        ),
        sequence_of_lease=_choice(given, "lease.sequence", SequenceOfLease, SequenceOfLease.NEXT),
        repeat=_choice(given, "lease.repeat", AnswerToRepeat, AnswerToRepeat.DUPLICATE),
        unknown=_choice(given, "lease.unknown", AnswerToUnknown, AnswerToUnknown.UNKNOWN),
        asked_expiry=_choice(given, "lease.asked.expiry", AskedExpiry, AskedExpiry.IGNORED),
        ends_with=_choice(given, "lease.ends.with", EndsWith, EndsWith.DISUSE),
        expire_ms=_number(given, "lease.expire.ms", 86_400_000, 1),
        ids_per_block=_number(given, "lease.ids.per.block", 100, 1),
        id_bits=_number(given, "lease.id.bits", 32, 2),
    )


def _choice(given: Mapping[str, str], key: str, kind: type[Choice], default: Choice) -> Choice:
    if key not in given:
        return default
    try:
        return kind(given[key].replace("-", " "))
    except ValueError:
        raise ConfigError(
            f"{key}: {given[key]!r} is not one of "
            f"{', '.join(str(each.value).replace(' ', '-') for each in kind)}"
        ) from None


def _number(given: Mapping[str, str], key: str, default: int, least: int) -> int:
    number = _whole(key, given.get(key, str(default)))
    if number < least:
        raise ConfigError(f"{key}: {number} is less than {least}")
    return number


def _whole(key: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{key}: {text!r} is not a whole number") from None


def _pairs(given: Mapping[str, str], key: str, between: str) -> list[tuple[str, str]]:
    found = []
    for each in given[key].split(","):
        name, mark, value = each.strip().partition(between)
        if not mark:
            raise ConfigError(f"{key}: {each!r} is not of the form A{between}B")
        found.append((name, value))
    return found


def parse_address(key: str, text: str) -> Address:
    """Parse HOST:PORT. Raises ConfigError that names the key."""
    host, mark, port = text.strip().rpartition(":")
    if not mark or not host:
        raise ConfigError(f"{key}: {text!r} is not of the form HOST:PORT")
    return host, _whole(key, port)
