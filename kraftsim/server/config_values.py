"""Deprecated names and release-specific validation of a node's properties.

Fields of `NodeConfig` validate their own values; this module validates every other setting by the
definition of the release. It also applies defaults that differ in the release, and validates the
bounds of group members.
Source: org.apache.kafka.common.config.ConfigDef.parse, kafka.server.KafkaConfig (logDirs,
listeners), org.apache.kafka.coordinator.group.GroupCoordinatorConfig,
SecurityUtils.parseKafkaPrincipal.
"""

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from kraftsim.metadata.rules_config_definitions import (
    CORDONED,
    ConfigDefinition,
    complaint_about_cordons,
)
from kraftsim.metadata.rules_config_releases import (
    DEFAULT_LINE,
    LINES,
    all_broker_settings,
    complaint_at_start,
    config_tables,
)
from kraftsim.server.config_keys import ConfigError
from kraftsim.server.security.listener_settings import base_key, closest_listener_key

SUPER_USERS: Final = "super.users"
LIST_SEPARATOR: Final = ";"
TYPE_SEPARATOR: Final = ":"
CLOSE: Final = 0.85
"""The minimum similarity (difflib's ratio) of an unknown key and a suggested one."""

RELEASE_KEY: Final = "kraftsim.release"
DEFAULTS_BY_RELEASE: Final = (
    "controller.quorum.fetch.max.bytes",
    "controller.quorum.fetch.snapshot.max.bytes",
    "log.message.timestamp.after.max.ms",
    "message.max.bytes",
    "metadata.max.retention.bytes",
    "remote.log.manager.thread.pool.size",
    "replica.lag.time.max.ms",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    "zookeeper.session.timeout.ms",
)
"""Settings with effect whose default differs between releases; `NodeConfig` declares that of
3.9.
"""
MEMBER_KINDS: Final = ("consumer", "share", "streams")
MEMBER_TIMES: Final = ("heartbeat.interval.ms", "session.timeout.ms")
MEMBER_BOUNDS: Final = ("", "min.", "max.")
MEMBER_PREFIXES: Final = tuple(f"group.{kind}." for kind in MEMBER_KINDS)
MEMBER_SETTINGS: Final = frozenset(
    f"{prefix}{bound}{time}"
    for prefix in MEMBER_PREFIXES
    for bound in MEMBER_BOUNDS
    for time in MEMBER_TIMES
)
"""A node validates them against each other at startup."""
CONSUMER_BOUNDS: Final = frozenset(
    f"group.consumer.{bound}.{time}" for bound in ("min", "max") for time in MEMBER_TIMES
)
"""Those of an implemented group kind that have no field of `NodeConfig`."""
OLDER_NAMES: Final = frozenset(
    {"log.dir", "host.name", "port", "advertised.host.name", "advertised.port"}
)
"""Deprecated settings that newer ones replace."""
FIRST_WITH_SHORTER_HEARTBEATS: Final = "4.0"


def describe_unknown_keys(unknown: Iterable[str], known: Collection[str]) -> str:
    """Return one line that names every unknown key, each with the most similar known one."""
    complaints = []
    for name in unknown:
        close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=CLOSE)
        close = close or closest_listener_key(name)
        hint = f"; did you mean {close[0]}?" if close else ""
        complaints.append(f"{name} is not a known setting{hint}")
    return "; ".join(complaints)


def with_fallbacks(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties with the values of deprecated names: log.dir, and up to 2.8 the host and
    port.
    """
    filled = dict(properties)
    if "log.dir" in filled:
        filled.setdefault("log.dirs", filled["log.dir"])
    if "listeners" not in filled and filled.keys() & {"host.name", "port"}:
        filled["listeners"] = (
            f"PLAINTEXT://{filled.get('host.name', '')}:{filled.get('port', '9092')}"
        )
    if "advertised.listeners" not in filled and filled.keys() & {
        "advertised.host.name",
        "advertised.port",
    }:
        host = filled.get("advertised.host.name", filled.get("host.name", ""))
        filled["advertised.listeners"] = (
            f"PLAINTEXT://{host}:{filled.get('advertised.port', filled.get('port', '9092'))}"
        )
    return filled


def with_release_defaults(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return properties with the defaults of the release where they differ from those of 3.9."""
    line = properties.get(RELEASE_KEY, DEFAULT_LINE)
    if line == DEFAULT_LINE:
        return properties
    tables = config_tables(line)
    known = {
        name: tables.broker.get(name) or tables.internal.get(name) for name in DEFAULTS_BY_RELEASE
    }
    defaults = {name: row.default for name, row in known.items() if row is not None}
    return {**{name: text for name, text in defaults.items() if text is not None}, **properties}


def check_member_bounds(release: str, properties: Mapping[str, str]) -> None:
    """Reject group member timeouts outside of their bounds. Raises ConfigError."""
    if not any(name.startswith(MEMBER_PREFIXES) for name in properties):
        return
    line = release if release in LINES else DEFAULT_LINE
    tables = config_tables(line)
    rows = {**tables.internal, **tables.broker}
    values = {
        name: properties.get(name, rows[name].default) for name in MEMBER_SETTINGS if name in rows
    }
    times = {name: int(value) for name, value in values.items() if value is not None}
    is_new = LINES.index(line) >= LINES.index(FIRST_WITH_SHORTER_HEARTBEATS)
    for kind in MEMBER_KINDS:
        if f"group.{kind}.session.timeout.ms" in times:
            complaint = _complaint_about_members(kind, times, is_new=is_new)
            if complaint is not None:
                raise ConfigError(complaint)


def _complaint_about_members(kind: str, times: Mapping[str, int], *, is_new: bool) -> str | None:
    equal = "equal to" if is_new else "equals to"
    for time in MEMBER_TIMES:
        name, shortest, longest = (f"group.{kind}.{bound}{time}" for bound in MEMBER_BOUNDS)
        for high, low in ((longest, shortest), (name, shortest)):
            if times[high] < times[low]:
                return f"{high} must be greater than or {equal} {low}"
        if times[name] > times[longest]:
            return f"{name} must be less than or {equal} {longest}"
    heartbeat, session = (f"group.{kind}.{time}" for time in MEMBER_TIMES)
    is_wrong = is_new and times[heartbeat] >= times[session]
    return f"{heartbeat} must be less than {session}" if is_wrong else None


SEGMENT_SIZES = ("log.segment.bytes", "metadata.log.segment.bytes")
"""Sizes that have had a minimum since 4.0 and 4.1: before, a test could have small segments."""


def check_values(
    release: str, properties: Mapping[str, str], *, small_segments: bool = False
) -> None:
    """Reject values that the definition of a setting does not allow; with `small_segments`, those
    of SEGMENT_SIZES are allowed. Raises ConfigError.
    """
    for name, value in properties.items():
        if small_segments and name in SEGMENT_SIZES:
            continue
        definition = definition_of(release, base_key(name))
        complaint = None if definition is None else definition.complaint(name, value)
        if complaint is not None:
            raise ConfigError(complaint)
    check_member_bounds(release, properties)
    _check_together(release, properties)
    for user in properties.get(SUPER_USERS, "").split(LIST_SEPARATOR):
        if user.strip() and TYPE_SEPARATOR not in user:
            raise ConfigError(
                f"{SUPER_USERS}: expected principalType:principalName (User:bob), got "
                f"{user.strip()!r}"
            )


def _check_together(release: str, properties: Mapping[str, str]) -> None:
    tables = config_tables(release)

    def value(name: str) -> str | None:
        row = tables.broker.get(name) or tables.internal.get(name)
        return properties.get(name, row.default) if row is not None else None

    complaint = complaint_at_start(properties.__contains__, value)
    if complaint is not None:
        raise ConfigError(complaint)
    if CORDONED in tables.broker:
        complaint = complaint_about_cordons(properties.get(CORDONED), properties.get("log.dirs"))
        if complaint is not None:
            raise ConfigError(complaint)


def definition_of(release: str, name: str) -> ConfigDefinition | None:
    """Return the definition of a broker setting in a release, or in the newest other release that
    has it.
    """
    if name not in all_broker_settings():  # else the tables of all releases would be made
        return None
    for line in (release, *reversed(LINES)):
        tables = config_tables(line)
        if name in tables.broker or name in tables.internal:
            return tables.broker.get(name) or tables.internal[name]
    return None
