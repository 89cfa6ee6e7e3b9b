"""What `process.roles` requires of the other settings: a node is a broker, a controller, both in
one process, or, without roles, a broker in ZooKeeper mode.

Source: kafka.server.KafkaConfig.validateValues.
"""

from typing import TYPE_CHECKING, Final

from kraftsim.server.config_keys import ConfigError
from kraftsim.zookeeper.mode_settings import check_zookeeper

if TYPE_CHECKING:
    from kraftsim.server.config import NodeConfig

BROKER: Final = "broker"
CONTROLLER: Final = "controller"


def check_roles(config: "NodeConfig") -> None:
    """Reject roles that a node cannot have, and settings that contradict them.

    Raises ConfigError.
    """
    check_zookeeper(config)
    if config.is_zookeeper_mode:
        return
    if not config.process_roles:
        raise ConfigError(
            "process.roles is required, or zookeeper.connect for a broker in ZooKeeper mode"
        )
    roles = config.process_roles
    if not set(roles) <= {BROKER, CONTROLLER} or len(set(roles)) < len(roles):
        raise ConfigError(
            f"process.roles: expected broker, controller or broker,controller, got "
            f"{','.join(roles)!r}"
        )
    if not config.controller_listener_names:
        raise ConfigError("controller.listener.names must name a listener")
    _check_voters(config)
    if config.is_combined:
        _check_combined(config)


def _check_voters(config: "NodeConfig") -> None:
    if not config.controller_quorum_voters:
        if not config.controller_quorum_bootstrap_servers:
            instead = "or controller.quorum.bootstrap.servers, for dynamic voters"
            raise ConfigError(
                f"controller.quorum.voters must name a controller, as id@host:port, {instead}"
            )
        return
    voter_ids = [voter.node_id for voter in config.controller_quorum_voters]
    if config.is_controller and config.node_id not in voter_ids:
        raise ConfigError(
            f"node.id: controller {config.node_id} is not in controller.quorum.voters "
            f"({', '.join(map(str, voter_ids))})"
        )
    if not config.is_controller and config.node_id in voter_ids:
        raise ConfigError(
            f"node.id: {config.node_id} is a controller in controller.quorum.voters, so no "
            "broker can have it"
        )


def _check_combined(config: "NodeConfig") -> None:
    """Refuse a process of both roles in which one of them has no listener.

    Source: kafka.server.KafkaConfig.validateValues (the branch of combined nodes).
    """
    names = config.controller_listener_names
    own = [endpoint.listener for endpoint in config.listeners]
    missing = [name for name in names if name not in own]
    if missing:
        raise ConfigError(
            f"controller.listener.names: {missing[0]} is not in listeners ({', '.join(own)})"
        )
    if all(endpoint.listener in names for endpoint in config.advertised_listeners):
        raise ConfigError(
            "advertised.listeners: a broker needs a listener that is not in "
            f"controller.listener.names ({', '.join(names)})"
        )
    if config.inter_broker_listener_name in names:
        raise ConfigError(
            f"inter.broker.listener.name: {config.inter_broker_listener_name} must not be in "
            "controller.listener.names"
        )
