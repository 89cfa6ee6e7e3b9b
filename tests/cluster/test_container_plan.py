"""What a container runs, by its environment: the defaults of Apache Kafka's image, what its users
set, and several nodes.
"""

from collections.abc import Mapping

import pytest

from kraftsim.cli.properties import properties_of_environment
from kraftsim.cluster.container import ContainerPlan, address_to_check, container_plan
from kraftsim.cluster.launch import require_valid
from kraftsim.cluster.spec import SpecError
from kraftsim.server.config import NodeConfig
from kraftsim.server.config_keys import ConfigError


def plan(**environment: str) -> ContainerPlan:
    return container_plan(properties_of_environment(environment), environment, data="node")


def node(**environment: str) -> Mapping[str, str]:
    """The properties of the one node; they are usable."""
    found = plan(**environment).node
    assert found is not None
    NodeConfig.parse(found)
    return found


def test_by_default_it_is_the_combined_node_of_apache_kafkas_image() -> None:
    """docker/server.properties of Apache Kafka; every address, because of the published port."""
    found = node()
    assert found["process.roles"] == "broker,controller"
    assert found["listeners"] == "PLAINTEXT://0.0.0.0:9092,CONTROLLER://0.0.0.0:9093"
    assert found["advertised.listeners"] == "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093"
    assert found["controller.quorum.voters"] == "1@localhost:9093"
    assert found["offsets.topic.replication.factor"] == "1"
    assert found["log.dirs"] == "node/data"


def test_one_setting_does_not_void_the_defaults() -> None:
    found = node(KAFKA_LOG_SEGMENT_BYTES="65536", KRAFTSIM_RELEASE="3.8", KRAFTSIM_CODEC="x")
    assert (found["log.segment.bytes"], found["kraftsim.release"]) == ("65536", "3.8")
    assert found["process.roles"] == "broker,controller" and "kraftsim.codec" not in found


def test_listeners_follow_the_advertised_ones() -> None:
    """As the script `configure` of Apache Kafka's image derives them."""
    found = node(KAFKA_ADVERTISED_LISTENERS="PLAINTEXT://box.example:19092")
    assert found["listeners"] == "PLAINTEXT://0.0.0.0:19092,CONTROLLER://0.0.0.0:9093"
    assert found["advertised.listeners"].startswith("PLAINTEXT://box.example:19092,")
    assert node(KRAFTSIM_ADVERTISED_HOST="box")["advertised.listeners"].startswith(
        "PLAINTEXT://box:9092,"
    )


def test_testcontainers_names_no_voters() -> None:
    """org.testcontainers.kafka.KafkaHelper leaves controller.quorum.voters out."""
    found = node(
        KAFKA_LISTENERS="PLAINTEXT://:9092,BROKER://:9093,CONTROLLER://:9094",
        KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=(
            "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        KAFKA_INTER_BROKER_LISTENER_NAME="BROKER",
        KAFKA_PROCESS_ROLES="broker,controller",
        KAFKA_CONTROLLER_LISTENER_NAMES="CONTROLLER",
        KAFKA_NODE_ID="1",
        KAFKA_ADVERTISED_LISTENERS="PLAINTEXT://localhost:32768,BROKER://0a1b2c:9093",
    )
    assert found["controller.quorum.voters"] == "1@localhost:9094"
    assert found["advertised.listeners"] == (
        "PLAINTEXT://localhost:32768,BROKER://0a1b2c:9093,CONTROLLER://localhost:9094"
    )


def test_a_controller_advertises_the_host_under_which_it_votes() -> None:
    found = node(
        KAFKA_PROCESS_ROLES="controller",
        KAFKA_NODE_ID="5",
        KAFKA_CONTROLLER_QUORUM_VOTERS="4@other:9093,5@me:9093",
    )
    assert found["listeners"] == "CONTROLLER://0.0.0.0:9093"
    assert found["advertised.listeners"] == "CONTROLLER://me:9093"


def test_zookeeper_mode_has_no_roles() -> None:
    found = node(KAFKA_ZOOKEEPER_CONNECT="zookeeper:2181")
    assert "process.roles" not in found and found["broker.id"] == "1"
    assert found["listeners"] == "PLAINTEXT://0.0.0.0:9092"


def test_several_nodes_share_a_container() -> None:
    """Clients get the published ports, brokers another listener; settings of one node are out."""
    found = plan(KRAFTSIM_BROKERS="3", KAFKA_NODE_ID="7", KAFKA_NUM_PARTITIONS="4")
    spec = found.cluster
    assert spec is not None and found.left_out == ("node.id",)
    require_valid(spec)
    assert spec.node_names == ("broker-1", "broker-2", "broker-3")
    assert spec.combined_names == ("broker-1",)
    second = spec.node("broker-2").properties
    assert second["listeners"] == "PLAINTEXT://0.0.0.0:9093,INTERNAL://127.0.0.1:19093"
    assert second["advertised.listeners"].startswith("PLAINTEXT://localhost:9093,")
    assert second["num.partitions"] == "4" and second["inter.broker.listener.name"] == "INTERNAL"
    quorum = plan(KRAFTSIM_BROKERS="3", KRAFTSIM_CONTROLLERS="3", KRAFTSIM_RELEASE="4.1").cluster
    assert quorum is not None and quorum.release == "4.1"
    assert quorum.combined_names == quorum.broker_names


def test_the_health_check_asks_the_first_listener() -> None:
    assert address_to_check(plan()) == ("127.0.0.1", 9092)
    assert address_to_check(plan(KRAFTSIM_BROKERS="2")) == ("127.0.0.1", 9092)
    own = plan(KAFKA_LISTENERS="PLAINTEXT://10.0.0.7:7000,CONTROLLER://:9093")
    assert address_to_check(own) == ("10.0.0.7", 7000)


@pytest.mark.parametrize(
    ("environment", "error", "line"),
    [
        ({"KRAFTSIM_BROKERS": "0"}, ConfigError, "KRAFTSIM_BROKERS: expected a whole number"),
        (
            {"KRAFTSIM_BROKERS": "2", "KRAFTSIM_CONTROLLERS": "3"},
            SpecError,
            "KRAFTSIM_CONTROLLERS=3",
        ),
        ({"KAFKA_LISTENERS": "PLAINTEXT"}, ConfigError, "listeners: 'PLAINTEXT' is not of"),
    ],
)
def test_unusable_settings_are_one_line(
    environment: dict[str, str], error: type[Exception], line: str
) -> None:
    with pytest.raises(error, match=line):
        plan(**environment)
