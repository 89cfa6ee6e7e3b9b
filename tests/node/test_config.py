"""A node accepts Kafka's property files; an unusable value is reported in one line that names the
key.
"""

import pytest

from kraftsim.metadata.rules_config_releases import all_broker_settings
from kraftsim.server.config import NodeConfig, unknown_keys
from kraftsim.server.config_keys import ConfigError
from kraftsim.server.endpoints import ListenerEndpoint, VoterAddress
from kraftsim.server.security.listener_settings import listener_keys
from kraftsim.server.settings_in_effect import keys_without_effect

BROKER = {
    "process.roles": "broker",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "101@127.0.0.1:9192",
}
CONTROLLER = {
    "process.roles": "controller",
    "node.id": "101",
    "listeners": "CONTROLLER://127.0.0.1:9192",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "101@127.0.0.1:9192",
}


def test_defaults_are_those_of_kafka() -> None:
    """ConfigDef of 3.9."""
    config = NodeConfig.parse(BROKER)
    assert (
        config.num_partitions,
        config.default_replication_factor,
        config.min_insync_replicas,
    ) == (1, 1, 1)
    assert (
        config.message_max_bytes,
        config.log_segment_bytes,
        config.socket_request_max_bytes,
    ) == (1048588, 1073741824, 104857600)
    assert (config.broker_heartbeat_interval_ms, config.broker_session_timeout_ms) == (2000, 9000)
    assert (config.producer_id_expiration_ms, config.connections_max_idle_ms) == (86400000, 600000)
    assert config.segment_ms == 168 * 3600 * 1000
    assert config.auto_create_topics_enable
    assert config.log_flush_interval_messages == 2**63 - 1


def test_addresses_and_names_are_derived_as_in_kafka() -> None:
    """advertised.listeners defaults to listeners, the inter-broker listener to PLAINTEXT, and a
    controller listener uses PLAINTEXT.
    """
    config = NodeConfig.parse(
        {
            **BROKER,
            "listeners": "plaintext://:9092, EXTERNAL://[::1]:9093",
            "listener.security.protocol.map": EXTERNAL_MAP,
        }
    )
    assert config.listeners == (
        ListenerEndpoint("PLAINTEXT", "", 9092),
        ListenerEndpoint("EXTERNAL", "::1", 9093),
    )
    assert config.advertised_listeners == (
        ListenerEndpoint("PLAINTEXT", "127.0.0.1", 9092),
        ListenerEndpoint("EXTERNAL", "::1", 9093),
    )
    assert config.inter_broker_listener_name == "PLAINTEXT"
    assert config.controller_quorum_voters == (VoterAddress(101, "127.0.0.1", 9192),)
    assert config.node_name == "broker-1"
    assert NodeConfig.parse(CONTROLLER).is_controller


def test_inter_broker_security_protocol_selects_the_listener() -> None:
    """KafkaConfig.getInterBrokerListenerNameAndSecurityProtocol."""
    settings = {
        **BROKER,
        "listeners": "PLAINTEXT://h:1,SASL_PLAINTEXT://h:2",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
    }
    login = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
    }
    assert NodeConfig.parse({**settings, **login}).inter_broker_listener_name == "SASL_PLAINTEXT"
    with pytest.raises(
        ConfigError,
        match=r"^Only one of inter\.broker\.listener\.name and security\.inter\.broker\.protocol "
        r"should be set\.$",
    ):
        NodeConfig.parse({**settings, **login, "inter.broker.listener.name": "PLAINTEXT"})


EXTERNAL_MAP = "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (
            {"num.partitons": "3"},
            "num.partitons is not a known setting; did you mean num.partitions?",
        ),
        ({"qwertz": "3"}, "qwertz is not a known setting"),
        ({"node.id": None}, "node.id is required"),
        (
            {"group.consumer.assignors": "unifrom"},
            "group.consumer.assignors: expected uniform or range or a class, got 'unifrom'",
        ),
        (
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
            "Controller listener with name CONTROLLER defined in controller.listener.names",
        ),
        ({"process.roles": None}, "process.roles is required"),
        ({"node.id": "one"}, "node.id: expected a whole number of 0 or more, got 'one'"),
        ({"node.id": "-1"}, "node.id: expected a whole number of 0 or more, got '-1'"),
        (
            {"default.replication.factor": "40000"},
            "default.replication.factor: expected a whole number from 1 to 32767, got '40000'",
        ),
        (
            {"auto.create.topics.enable": "yes"},
            "auto.create.topics.enable: expected true or false, got 'yes'",
        ),
        (
            {"log.message.timestamp.type": "x"},
            "log.message.timestamp.type: expected one of CreateTime, LogAppendTime, got 'x'",
        ),
        ({"process.roles": "broker,observer"}, "process.roles: expected broker, controller or"),
        ({"process.roles": "broker,broker"}, "process.roles: expected broker, controller or"),
        (
            {"listeners": "PLAINTEXT:9092"},
            "listeners: 'PLAINTEXT:9092' is not of the form NAME://host:port",
        ),
        (
            {"listeners": "PLAINTEXT://a:70000"},
            "listeners: 'PLAINTEXT://a:70000' is not of the form NAME://host:port",
        ),
        (
            {"listeners": "PLAINTEXT://a:1,PLAINTEXT://a:2"},
            "listeners: listener name PLAINTEXT is given twice",
        ),
        ({"listeners": "PLAINTEXT://a:1,SSL://a:1"}, "listeners: port 1 is given twice"),
        (
            {"listeners": "OTHER://a:1"},
            "listeners: OTHER has no security protocol in listener.security.protocol.map",
        ),
        ({"listeners": "PLAINTEXT://a:1,SSL://a:2"}, "ssl.keystore.type: SSL needs a key in PEM"),
        (
            {"listeners": "PLAINTEXT://a:1,SASL_PLAINTEXT://a:2"},
            "sasl.enabled.mechanisms: GSSAPI of SASL_PLAINTEXT is not one of PLAIN",
        ),
        (
            {"listeners": "CONTROLLER://a:1"},
            "listeners: CONTROLLER of a broker must not be in controller.listener.names",
        ),
        (
            {"listeners": "PLAINTEXT://0.0.0.0:9092"},
            (
                "advertised.listeners: 0.0.0.0 of PLAINTEXT cannot be advertised; set "
                "advertised.listeners"
            ),
        ),
        (
            {"advertised.listeners": "OTHER://a:1"},
            "advertised.listeners: OTHER is not in listeners (PLAINTEXT)",
        ),
        (
            {"inter.broker.listener.name": "OTHER"},
            "inter.broker.listener.name: OTHER is not in advertised.listeners (PLAINTEXT)",
        ),
        (
            {"controller.quorum.voters": "101:a"},
            "controller.quorum.voters: '101:a' is not of the form id@host:port",
        ),
        (
            {"controller.quorum.voters": ""},
            "controller.quorum.voters must name a controller, as id@host:port",
        ),
        (
            {"controller.quorum.voters": "1@a:9"},
            "node.id: 1 is a controller in controller.quorum.voters, so no broker can have it",
        ),
        (
            {"log.dirs": "/a,/b,/a/"},
            "log.dirs must name directories, each of them once, got '/a,/b,/a/'",
        ),
        (
            {"log.cleanup.policy": "compact,forget"},
            "log.cleanup.policy: expected some of compact, delete, got 'compact,forget'",
        ),
        (
            {"log.cleaner.min.cleanable.ratio": "1.5"},
            "log.cleaner.min.cleanable.ratio: expected a number from 0 to 1, got '1.5'",
        ),
    ],
)
def test_invalid_value_is_one_line_that_names_the_key(
    changed: dict[str, str | None], line: str
) -> None:
    """As in ConfigException; the suggested key is kraftsim's."""
    properties = {key: value for key, value in {**BROKER, **changed}.items() if value is not None}
    with pytest.raises(ConfigError) as refused:
        NodeConfig.parse(properties)
    assert str(refused.value).startswith(line)
    assert "\n" not in str(refused.value)


def test_controller_must_be_a_voter() -> None:
    """org.apache.kafka.raft.QuorumConfig: node.id must be among the voters."""
    with pytest.raises(ConfigError, match=r"controller 102 is not in controller\.quorum\.voters"):
        NodeConfig.parse({**CONTROLLER, "node.id": "102"})


def test_unsupported_kafka_settings_are_accepted_and_listed() -> None:
    """A property file of a real node works; a warning lists the settings without effect."""
    properties = {**BROKER, "num.io.threads": "8", "background.threads": "4"}
    NodeConfig.parse(properties)
    assert keys_without_effect(properties) == ["num.io.threads", "background.threads"]


def test_all_unknown_keys_are_listed_at_once_with_suggestions() -> None:
    """One attempt shows every key of a foreign property file that is not Kafka's."""
    wrong = {"log4j.foo": "1", "confluent.metadata.topic": "x", "offset.topic.num.partitions": "3"}
    with pytest.raises(ConfigError) as refused:
        NodeConfig.parse({**BROKER, **wrong, "listener.name.plaintext.ssl.client.auht": "required"})
    assert str(refused.value).split("; ") == [
        "log4j.foo is not a known setting",
        "confluent.metadata.topic is not a known setting",
        "offset.topic.num.partitions is not a known setting",
        "did you mean offsets.topic.num.partitions?",
        "listener.name.plaintext.ssl.client.auht is not a known setting",
        "did you mean listener.name.plaintext.ssl.client.auth?",
    ]


def test_every_setting_of_every_release_is_accepted() -> None:
    """With its own default as the value; `unknown_keys` is empty for all of them, also with a
    listener prefix.
    """
    names = [
        *all_broker_settings(),
        *(f"listener.name.internal.{name}" for name in listener_keys()),
    ]
    assert unknown_keys(dict.fromkeys(names, "")) == []
    assert {
        "group.share.max.size",
        "group.consumer.min.session.timeout.ms",
        "advertised.port",
    } <= all_broker_settings()


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (
            {"num.io.threads": "many"},
            "Invalid value many for configuration num.io.threads: Not a number of type INT",
        ),
        (
            {"group.share.max.size": "0"},
            "Invalid value 0 for configuration group.share.max.size: Value must be at least 10",
        ),
        (
            {"super.users": "User:a;bob"},
            r"super.users: expected principalType:principalName \(User:bob\), got 'bob'",
        ),
        (
            {"listener.name.plaintext.ssl.client.auth": "often"},
            "String must be one of: required, requested, none",
        ),
    ],
)
def test_values_are_validated_by_the_definition_of_the_release(
    settings: dict[str, str], complaint: str
) -> None:
    """ConfigDef.parse; also of settings without effect."""
    with pytest.raises(ConfigError, match=complaint):
        NodeConfig.parse({**BROKER, **settings})


def test_older_names_are_equivalent() -> None:
    """log.dir is the fallback of log.dirs; up to 2.8 host and port are the fallback of
    listeners.
    """
    old = {
        name: value
        for name, value in BROKER.items()
        if name not in ("listeners", "log.dirs", "advertised.listeners")
    }
    config = NodeConfig.parse(
        {
            **old,
            "log.dir": "/d",
            "host.name": "127.0.0.1",
            "port": "9777",
            "advertised.host.name": "a",
        }
    )
    assert config.log_dirs == ("/d",)
    assert [str(each) for each in (*config.listeners, *config.advertised_listeners)] == [
        "PLAINTEXT://127.0.0.1:9777",
        "PLAINTEXT://a:9777",
    ]


COMBINED: dict[str, str | None] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "advertised.listeners": "PLAINTEXT://localhost:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
    "log.dirs": "/data",
}
"""As in the server.properties of Apache Kafka's container image."""


def combined(**changed: str | None) -> NodeConfig:
    merged = {**COMBINED, **{key.replace("_", "."): value for key, value in changed.items()}}
    return NodeConfig.parse({key: value for key, value in merged.items() if value is not None})


def test_a_combined_node_has_listeners_of_both_roles() -> None:
    """The broker registers its own listeners only; the controller's need not be advertised."""
    config = combined()
    assert (config.is_broker, config.is_controller, config.role) == (
        True,
        True,
        "broker,controller",
    )
    assert config.node_name == "broker-1"
    assert [each.listener for each in config.broker_listeners] == ["PLAINTEXT"]
    assert [each.listener for each in config.controller_listeners] == ["CONTROLLER"]
    both = combined(advertised_listeners="PLAINTEXT://a:1,CONTROLLER://a:2")
    assert [each.listener for each in both.advertised_broker_listeners] == ["PLAINTEXT"]
    assert combined(process_roles="controller, broker").is_combined


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"listeners": "PLAINTEXT://:9092"}, "controller.listener.names: CONTROLLER is not in"),
        (
            {"listeners": "CONTROLLER://a:1", "advertised_listeners": None},
            "advertised.listeners: a broker needs a listener that is not in controller.listener",
        ),
        (
            {"advertised_listeners": "CONTROLLER://a:1"},
            "advertised.listeners: a broker needs a listener that is not in controller.listener",
        ),
        (
            {"inter_broker_listener_name": "CONTROLLER"},
            "inter.broker.listener.name: CONTROLLER must not be in controller.listener.names",
        ),
        (
            {"controller_listener_names": "CONTROLLER,SECOND"},
            "controller.listener.names: SECOND is not in listeners",
        ),
        ({"controller_quorum_voters": "2@a:1"}, "node.id: controller 1 is not in controller.quo"),
        ({"controller_listener_names": None}, "controller.listener.names must name a listener"),
        ({"controller_quorum_voters": None}, "controller.quorum.voters must name a controller"),
    ],
)
def test_a_combined_node_that_apache_kafka_refuses_is_refused(
    changed: dict[str, str | None], line: str
) -> None:
    """Each row was refused by Apache Kafka 3.9.1 and 4.4.0, too (kafka.server.KafkaConfig)."""
    with pytest.raises(ConfigError) as refused:
        combined(**changed)
    assert str(refused.value).startswith(line)
