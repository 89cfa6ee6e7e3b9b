"""The server.properties of a node of Apache Kafka, made from those of kraftsim's own node.

A cluster specification says the same for both. What differs: settings of kraftsim alone
(`kraftsim.*`), settings that a release of Apache Kafka does not know, and values that it refuses.
These are left out, and reported.
Source: org.apache.kafka.server.config of each release, as `kraftsim.metadata.config_facts` has it.
"""

from collections.abc import Mapping
from typing import Final

from kraftsim.cluster.spec import CONTROLLER_LISTENER, NodeSpec
from kraftsim.metadata.rules_config_releases import config_tables
from kraftsim.releases.release import is_before
from kraftsim.server.config_values import definition_of
from kraftsim.server.security.listener_settings import base_key

OF_KRAFTSIM: Final = "kraftsim."
CONTROLLERS_ADVERTISE_SINCE: Final = "3.9"
"""Before KIP-853 a node must not advertise a controller listener."""
ADVERTISED: Final = "advertised.listeners"
METADATA_SEGMENT_BYTES: Final = "metadata.log.segment.bytes"
METADATA_SEGMENT_MIN: Final = 8 * 1024 * 1024
"""metadata.log.segment.min.bytes."""
OF_SHARE_TOPIC: Final = "share.coordinator.state.topic."
"""Every specification says how many replicas it has, for releases that have the topic."""
DERIVED: Final = (
    "kraftsim.cluster.id",
    "kraftsim.release",
    "kraftsim.run",
    "kraftsim.node.name",
    "kraftsim.seed",
    "kraftsim.outgoing.host",
    "kraftsim.small.segments",
    "kraftsim.large.frame.bytes",
    "kraftsim.upgrade.path",
    "kraftsim.initial.controllers",
    "kraftsim.bugs",
)
"""Settings of kraftsim that say nothing about what a broker does, or are done in another way."""


def apache_properties(
    node: NodeSpec, overrides: Mapping[str, str], line: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the properties of a node of Apache Kafka without `log.dirs`, and what was left out:
    setting -> the reason.

    `overrides` are settings from its next start on; `line` is the release line, such as 4.1.
    """
    passed: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for key, value in {**node.properties, **overrides}.items():
        if key in DERIVED or (key.startswith(OF_SHARE_TOPIC) and not _knows(key, line)):
            continue
        reason = _reason(key, value, line)
        if reason:
            left_out[key] = reason
        else:
            passed[key] = value
    return _reachable(passed, line), left_out


def _reason(key: str, value: str, line: str) -> str:
    """Return why a setting is left out; empty if it is passed on."""
    if key.startswith(OF_KRAFTSIM):
        return "a setting of kraftsim's own nodes"
    if key == METADATA_SEGMENT_BYTES and int(value) < METADATA_SEGMENT_MIN:
        return "a controller of Apache Kafka ends when a batch is larger than a segment"
    if not _knows(base_key(key), line):
        return f"Apache Kafka {line} has no such setting"
    definition = definition_of(line, base_key(key))
    return (definition.complaint(key, value) or "") if definition is not None else ""


def _knows(key: str, line: str) -> bool:
    tables = config_tables(line)
    return (
        key in tables.broker or key in tables.internal or key.startswith(("rsm.config.", "rlmm."))
    )


def _reachable(passed: dict[str, str], line: str) -> dict[str, str]:
    """Return properties with the advertised listeners that a release accepts: others reach the
    controllers of a static quorum by the addresses of the voters.
    """
    if ADVERTISED not in passed or not is_before(line, CONTROLLERS_ADVERTISE_SINCE):
        return passed
    kept = [
        each
        for each in passed[ADVERTISED].split(",")
        if not each.startswith(f"{CONTROLLER_LISTENER}:")
    ]
    rest = {key: value for key, value in passed.items() if key != ADVERTISED}
    return {**rest, ADVERTISED: ",".join(kept)} if kept else rest
