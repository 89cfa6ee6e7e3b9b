"""Checks a node's mode and inter-broker protocol version against its release: KRaft or ZooKeeper.

Source: KIP-500 (KRaft in preview from 2.8, for production from 3.3, alone from 4.0),
org.apache.kafka.server.common.MetadataVersionValidator.
"""

from collections.abc import Callable

from kraftsim.events.event import Event
from kraftsim.metadata.rules_versions import ProtocolVersion, UnknownProtocolVersion
from kraftsim.producer_ids.rules_block_clients import ProducerIdSource, ZnodeBlockClient
from kraftsim.releases.release import Release
from kraftsim.server.config import NodeConfig
from kraftsim.server.config_keys import ConfigError
from kraftsim.server.parts import Parts

VERSION_KEY = "inter.broker.protocol.version"
"""Ignored since 4.0; earlier nodes in KRaft mode only reject invalid values."""
FIRST_OF_KRAFT = "3.0-IV1"


def parts_for(config: NodeConfig, release: Release) -> Parts:
    """Return the parts of a node of a release, adapted to its mode and protocol version. Raises
    ConfigError for what the release does not support.
    """
    check_release(config, release)
    parts = Parts.for_release(release)
    if config.is_zookeeper_mode and not protocol_version(config, release).allocates_producer_ids:
        return parts.replacing(producer_id_source=znode_source)
    return parts


def znode_source(
    *, broker_epoch: Callable[[], int], emit: Callable[[Event], None], max_wait_ms: int
) -> ProducerIdSource:
    """Create the source of brokers below 3.0-IV0, which allocate blocks from ZooKeeper."""
    return ZnodeBlockClient(broker_epoch=broker_epoch, emit=emit)


def check_release(config: NodeConfig, release: Release) -> None:
    """Check a node's settings against its release. Raises ConfigError: one line."""
    if config.is_zookeeper_mode:
        if not release.has_zookeeper_mode:
            raise ConfigError(
                f"zookeeper.connect: {release.name} has no ZooKeeper mode; releases from 2.3 to "
                "3.9 have one (kraftsim.release)"
            )
        protocol_version(config, release)
    elif not release.has_kraft:
        why = (
            f"{release.name} keeps its metadata in ZooKeeper; KRaft is for 3.3 and later "
            "(before, it was a preview that is not offered here)"
        )
        raise ConfigError(
            f"kraftsim.release: {why}; set zookeeper.connect instead of process.roles, or "
            "another release"
        )
    elif release.has_zookeeper_mode and config.inter_broker_protocol_version:
        given = protocol_version(config, release)
        if not given.is_at_least(FIRST_OF_KRAFT):
            raise ConfigError(
                f"A non-KRaft version {given.release} given for {VERSION_KEY}. The minimum "
                f"version is {FIRST_OF_KRAFT}"
            )


def protocol_version(config: NodeConfig, release: Release) -> ProtocolVersion:
    """Return the inter-broker protocol version of a broker in ZooKeeper mode: the configured one,
    or the newest of its release. Raises ConfigError.
    """
    newest = ProtocolVersion.parse(release.metadata_version_name)
    given = config.inter_broker_protocol_version
    if not given:
        return newest
    try:
        version = ProtocolVersion.parse(given)
    except UnknownProtocolVersion as unknown:
        raise ConfigError(
            f"Invalid value {given} for configuration {VERSION_KEY}: {unknown}"
        ) from unknown
    if version > newest:
        raise ConfigError(
            f"Invalid value {given} for configuration {VERSION_KEY}: Version {given} is not a "
            f"valid version in {release.patch}"
        )
    return version
