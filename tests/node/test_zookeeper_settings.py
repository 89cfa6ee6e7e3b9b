"""Which properties put a broker into ZooKeeper mode, and which conflict."""

import pytest

from kraftsim.server.config import NodeConfig
from kraftsim.server.config_keys import ConfigError

BROKER = {
    "broker.id": "3",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "zookeeper.connect": "one:2181,two/kafka",
}
MIGRATING = {
    **BROKER,
    "zookeeper.metadata.migration.enable": "true",
    "controller.quorum.voters": "101@127.0.0.1:9192",
    "controller.listener.names": "CONTROLLER",
}


def test_pre_kraft_broker_needs_no_process_roles() -> None:
    """A property file of 2.x is accepted as it is."""
    config = NodeConfig.parse(BROKER)
    assert (
        config.is_zookeeper_mode,
        config.is_broker,
        config.is_controller,
        config.is_migrating,
    ) == (True, True, False, False)
    assert (config.node_id, config.node_name, config.role) == (3, "broker-3", "broker")
    assert (config.zookeeper.servers, config.zookeeper.chroot) == (
        (("one", 2181), ("two", 2181)),
        "/kafka",
    )
    assert (config.zookeeper_session_timeout_ms, config.zookeeper_connection_timeout_ms) == (
        18_000,
        None,
    )


def test_migrating_broker_has_the_controller_quorum() -> None:
    """KIP-866: in addition to ZooKeeper."""
    config = NodeConfig.parse(MIGRATING)
    assert (config.is_zookeeper_mode, config.is_migrating, config.controller_listener_names) == (
        True,
        True,
        ("CONTROLLER",),
    )


def test_node_with_process_roles_is_not_in_zookeeper_mode() -> None:
    """A controller that migrates from ZooKeeper has its address, too."""
    controller = {
        "process.roles": "controller",
        "node.id": "101",
        "listeners": "CONTROLLER://127.0.0.1:9192",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "101@127.0.0.1:9192",
        "zookeeper.connect": "one",
        "zookeeper.metadata.migration.enable": "true",
    }
    config = NodeConfig.parse(controller)
    assert (config.is_zookeeper_mode, config.is_migrating, config.is_controller) == (
        False,
        False,
        True,
    )


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({**BROKER, "zookeeper.connect": ""}, "process.roles is required, or zookeeper.connect"),
        (
            {**BROKER, "zookeeper.connect": "one:port"},
            "zookeeper.connect: 'one:port:2181' is not of the form host:port",
        ),
        ({**BROKER, "zookeeper.connect": "one/a//b"}, "is not a znode path"),
        ({**BROKER, "node.id": "4"}, "node.id: 4 is not the same as broker.id, 3"),
        ({**BROKER, "broker.id": "-1"}, "broker.id: is required"),
        (
            {**BROKER, "controller.listener.names": "CONTROLLER"},
            "controller.listener.names must be empty",
        ),
        (
            {**BROKER, "inter.broker.protocol.version": "2.9"},
            "inter.broker.protocol.version: version 2.9 is not a valid version",
        ),
        (
            {**BROKER, "control.plane.listener.name": "OTHER"},
            "control.plane.listener.name: OTHER is not in listeners",
        ),
        (
            {**BROKER, "control.plane.listener.name": "PLAINTEXT"},
            "must not be the same as inter.broker.listener.name",
        ),
        ({**BROKER, "zookeeper.set.acl": "true"}, "zookeeper.set.acl"),
        (
            {
                **BROKER,
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            },
            "does not work in ZooKeeper mode",
        ),
        (
            {**MIGRATING, "controller.quorum.voters": ""},
            "controller.quorum.voters or controller.quorum.bootstrap.servers must be set",
        ),
        (
            {**MIGRATING, "controller.listener.names": ""},
            "controller.listener.names must name the listener of the controllers",
        ),
        (
            {**MIGRATING, "inter.broker.protocol.version": "3.3"},
            "3.3 cannot be migrated, it must be 3.4 or higher",
        ),
        (
            {**MIGRATING, "inter.broker.protocol.version": "3.6", "log.dirs": "/a,/b"},
            "must be 3.7-IV2 or higher",
        ),
    ],
)
def test_conflicting_settings_are_rejected_in_one_line(settings: dict[str, str], why: str) -> None:
    """As in KafkaConfig."""
    with pytest.raises(ConfigError) as refused:
        NodeConfig.parse(settings)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)
