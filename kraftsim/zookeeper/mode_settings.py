"""Validation of ZooKeeper-related properties: what Apache Kafka rejects is rejected here, for the
same reasons.

Source: kafka.server.KafkaConfig.{validateValues, populateSynonyms}.
"""

from collections.abc import Mapping
from typing import Protocol

from kraftsim.metadata.rules_versions import BEFORE_KRAFT, METADATA_VERSIONS
from kraftsim.server.config_keys import ConfigError
from kraftsim.server.endpoints import ListenerEndpoint, VoterAddress

CONNECT, MIGRATION, VERSION = (
    "zookeeper.connect",
    "zookeeper.metadata.migration.enable",
    "inter.broker.protocol.version",
)
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
NODE_ID, BROKER_ID = "node.id", "broker.id"


class ModeProperties(Protocol):
    """The properties of a node that depend on ZooKeeper mode."""

    @property
    def is_zookeeper_mode(self) -> bool:
        """Whether the node is a broker in ZooKeeper mode."""
        ...

    @property
    def is_migrating(self) -> bool:
        """Whether such a broker is migrated to KRaft."""
        ...

    @property
    def zookeeper_connect(self) -> str:
        """The addresses of ZooKeeper."""
        ...

    @property
    def zookeeper_metadata_migration_enable(self) -> bool:
        """Whether the cluster migrates from ZooKeeper."""
        ...

    @property
    def zookeeper_set_acl(self) -> bool:
        """Whether znodes are protected."""
        ...

    @property
    def inter_broker_protocol_version(self) -> str:
        """The version that brokers use among each other."""
        ...

    @property
    def inter_broker_listener_name(self) -> str:
        """The listener that brokers connect to."""
        ...

    @property
    def control_plane_listener_name(self) -> str:
        """The listener for controller requests."""
        ...

    @property
    def authorizer_class_name(self) -> str:
        """The authorizer."""
        ...

    @property
    def listeners(self) -> tuple[ListenerEndpoint, ...]:
        """The endpoints to bind."""
        ...

    @property
    def controller_listener_names(self) -> tuple[str, ...]:
        """The listeners of controllers."""
        ...

    @property
    def controller_quorum_voters(self) -> tuple[VoterAddress, ...]:
        """The voters of the quorum."""
        ...

    @property
    def controller_quorum_bootstrap_servers(self) -> tuple[tuple[str, int], ...]:
        """Addresses of some controllers."""
        ...

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The log directories."""
        ...


def with_node_id(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return the properties with node.id set from its synonym broker.id.

    Raises ConfigError if the two differ.
    """
    broker_id = properties.get(BROKER_ID)
    if broker_id is None:
        return properties
    if properties.get(NODE_ID, broker_id).strip() != broker_id.strip():
        raise ConfigError(
            f"{NODE_ID}: {properties[NODE_ID]} is not the same as {BROKER_ID}, {broker_id}"
        )
    if broker_id.strip() == "-1":
        raise ConfigError(f"{BROKER_ID}: is required; generated broker ids are not supported")
    return {**properties, NODE_ID: broker_id}


def check_zookeeper(config: ModeProperties) -> None:
    """Reject inconsistent properties. Raises ConfigError."""
    if config.zookeeper_set_acl:
        raise ConfigError(
            "zookeeper.set.acl: not supported; znodes have no ACLs here, as with false"
        )
    if config.zookeeper_metadata_migration_enable and not config.zookeeper_connect:
        raise ConfigError(f"{CONNECT} must also be set where {MIGRATION} is true")
    if config.control_plane_listener_name and config.control_plane_listener_name not in [
        each.listener for each in config.listeners
    ]:
        raise ConfigError(
            f"control.plane.listener.name: {config.control_plane_listener_name} is not in listeners"
        )
    if config.authorizer_class_name and config.is_zookeeper_mode == (
        config.authorizer_class_name == STANDARD_AUTHORIZER
    ):
        where = "ZooKeeper mode" if config.is_zookeeper_mode else "KRaft mode"
        raise ConfigError(
            f"authorizer.class.name: {config.authorizer_class_name} does not work in {where}"
        )
    if not config.is_zookeeper_mode:
        if config.control_plane_listener_name:
            raise ConfigError("control.plane.listener.name is not supported in KRaft mode")
        return
    if config.control_plane_listener_name == config.inter_broker_listener_name:
        raise ConfigError(
            "control.plane.listener.name must not be the same as inter.broker.listener.name"
        )
    _check_version(config.inter_broker_protocol_version)
    if config.is_migrating:
        _check_migrating(config)
    elif config.controller_listener_names:
        raise ConfigError(
            "controller.listener.names must be empty where process.roles is not set and "
            f"{MIGRATION} is false"
        )


def _check_migrating(config: ModeProperties) -> None:
    """A broker in migration needs the controllers' addresses, and a protocol version that supports
    migration.
    """
    if not config.controller_quorum_voters and not config.controller_quorum_bootstrap_servers:
        raise ConfigError(
            "controller.quorum.voters or controller.quorum.bootstrap.servers must be set where "
            f"{MIGRATION} is true"
        )
    if not config.controller_listener_names:
        raise ConfigError(
            "controller.listener.names must name the listener of the controllers where "
            f"{MIGRATION} is true"
        )
    if config.inter_broker_protocol_version and not _is_at_least(
        config.inter_broker_protocol_version, "3.4"
    ):
        raise ConfigError(
            f"{VERSION}: {config.inter_broker_protocol_version} cannot be migrated, it must be "
            f"3.4 or higher where {MIGRATION} is true"
        )
    is_lower = config.inter_broker_protocol_version and not _is_at_least(
        config.inter_broker_protocol_version, "3.7-IV2"
    )
    if len(config.log_dirs) > 1 and is_lower:
        raise ConfigError(
            f"{VERSION} must be 3.7-IV2 or higher where {MIGRATION} is true and log.dirs names "
            "several directories"
        )


def _check_version(version: str) -> None:
    if version and not any(_matches(version, name) for name in _names()):
        raise ConfigError(f"{VERSION}: version {version} is not a valid version")


def _is_at_least(version: str, lowest: str) -> bool:
    """Compare two versions; a short version means the last one of its release as the operand, the
    first one as the bound.
    """
    known = _names()
    own = max(index for index, name in enumerate(known) if _matches(version, name))
    return own >= min(index for index, name in enumerate(known) if _matches(lowest, name))


def _names() -> list[str]:
    return [
        *BEFORE_KRAFT.split(),
        *(version.name for _, version in sorted(METADATA_VERSIONS.items())),
    ]


def _matches(version: str, name: str) -> bool:
    """Return whether a version is `name`, or the short name of its release."""
    return version == name or version == name.partition("-")[0]
