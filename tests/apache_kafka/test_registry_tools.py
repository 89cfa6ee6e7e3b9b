"""Apache Kafka's own tools for configs, features, quotas and credentials against our cluster:
values are shown, errors are reported.
"""

from collections.abc import Callable, Iterator

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import CONTROLLER_PORT_DISTANCE, ClusterSpec
from tests.apache_kafka.class_path import DEFAULT_RELEASE, class_path
from tests.apache_kafka.harness import run_java

pytestmark = pytest.mark.interop
CONFIGS = "kafka.admin.ConfigCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
TOPICS = "org.apache.kafka.tools.TopicCommand"
API_VERSIONS = "kafka.admin.BrokerApiVersionsCommand"
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def addresses() -> Iterator[tuple[str, str]]:
    """(a broker, the controller) of a cluster of two brokers."""
    class_path(DEFAULT_RELEASE)
    port = free_port_range(2)
    with EmbeddedCluster(ClusterSpec(brokers=2, port=port)) as cluster:
        yield cluster.bootstrap.partition(",")[0], f"127.0.0.1:{port + CONTROLLER_PORT_DISTANCE}"


@pytest.fixture
def tool(addresses: tuple[str, str]) -> Tool:
    """Run a tool, by its class, check its exit code, and return its output; `on_controller`:
    connect to the controller.
    """

    def run(
        main_class: str, *arguments: str, fails: bool = False, on_controller: bool = False
    ) -> str:
        server = (
            ("--bootstrap-controller", addresses[1])
            if on_controller
            else ("--bootstrap-server", addresses[0])
        )
        words = (*arguments, *server) if main_class == CLUSTER else (*server, *arguments)
        done = run_java(DEFAULT_RELEASE, main_class, *words)
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def configs(tool: Tool, kind: str, name: str | None, *arguments: str, fails: bool = False) -> str:
    """Run kafka-configs for an entity, or for the default of its type."""
    entity = ("--entity-default",) if name is None else ("--entity-name", name)
    return tool(CONFIGS, "--entity-type", kind, *entity, *arguments, fails=fails)


def test_kafka_configs_alters_topic_configs(tool: Tool) -> None:
    """Set at creation, altered and deleted; synonyms are shown in Kafka's order."""
    tool(TOPICS, "--create", "--topic", "configured", "--config", "retention.ms=5000")
    assert "Configs: retention.ms=5000" in tool(TOPICS, "--describe", "--topic", "configured")
    configs(
        tool,
        "topics",
        "configured",
        "--alter",
        "--add-config",
        "segment.ms=7777,cleanup.policy=compact",
        "--delete-config",
        "retention.ms",
    )
    shown = configs(tool, "topics", "configured", "--describe")
    assert shown.splitlines() == [
        "Dynamic configs for topic configured are:",
        (
            "  cleanup.policy=compact sensitive=false "
            "synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact, "
            "DEFAULT_CONFIG:log.cleanup.policy=delete}"
        ),
        "  segment.ms=7777 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.ms=7777}",
    ]
    assert len(configs(tool, "topics", "configured", "--describe", "--all").splitlines()) == 37
    said = configs(
        tool, "topics", "configured", "--alter", "--add-config", "segment.ms=x", fails=True
    )
    assert (
        "InvalidConfigurationException: Invalid value x for configuration segment.ms: Not a "
        "number of type LONG"
    ) in said


def test_kafka_configs_alters_dynamic_broker_configs(tool: Tool) -> None:
    """KIP-226: for all brokers, for one of them, and configs that are not dynamic."""
    configs(tool, "brokers", None, "--alter", "--add-config", "log.retention.ms=123456")
    configs(tool, "brokers", "1", "--alter", "--add-config", "log.retention.ms=123")
    synonyms = (
        "DYNAMIC_BROKER_CONFIG:log.retention.ms=123, "
        "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=123456, "
        "DEFAULT_CONFIG:log.retention.hours=168"
    )
    assert (
        f"  log.retention.ms=123 sensitive=false synonyms={{{synonyms}}}"
        in configs(tool, "brokers", "1", "--describe").splitlines()
    )
    said = configs(tool, "brokers", "1", "--alter", "--add-config", "num.partitions=5", fails=True)
    assert (
        "InvalidRequestException: Cannot update these configs dynamically: Set(num.partitions)"
        in said
    )
    configs(tool, "brokers", "1", "--alter", "--delete-config", "log.retention.ms")
    assert "log.retention.ms=123456" in configs(tool, "brokers", None, "--describe")


def test_kafka_configs_alters_quotas_credentials_and_client_metrics(tool: Tool) -> None:
    """Entities without an API of their own are shown by kafka-configs too."""
    configs(tool, "users", "alice", "--alter", "--add-config", "producer_byte_rate=1000")
    configs(tool, "clients", None, "--alter", "--add-config", "consumer_byte_rate=2000")
    configs(
        tool,
        "users",
        "alice",
        "--alter",
        "--add-config",
        "SCRAM-SHA-256=[iterations=4096,password=secret]",
    )
    configs(
        tool,
        "client-metrics",
        "subscription",
        "--alter",
        "--add-config",
        "interval.ms=1000,match=[client_id=a.*]",
    )
    shown = configs(tool, "users", "alice", "--describe")
    assert "Quota configs for user-principal 'alice' are producer_byte_rate=1000.0" in shown
    assert (
        "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-256=iterations=4096"
        in shown
    )
    assert "Quota configs for the default client-id are consumer_byte_rate=2000.0" in configs(
        tool, "clients", None, "--describe"
    )
    assert "interval.ms=1000" in tool(CONFIGS, "--entity-type", "client-metrics", "--describe")


@pytest.mark.parametrize("on_controller", [False, True])
def test_kafka_features_downgrades_and_upgrades(tool: Tool, on_controller: bool) -> None:
    """kafka-features, on a broker and on the controller itself (KIP-919)."""
    assert (
        tool(FEATURES, "downgrade", "--metadata", "3.7", on_controller=on_controller)
        == "metadata.version was downgraded to 19.\n"
    )
    assert "Can't downgrade to a newer version." in tool(
        FEATURES, "downgrade", "--metadata", "3.8", fails=True, on_controller=on_controller
    )
    assert "FinalizedVersionLevel: 3.7-IV4" in tool(
        FEATURES, "describe", on_controller=on_controller
    )
    said = tool(FEATURES, "downgrade", "--metadata", "3.3", fails=True, on_controller=on_controller)
    assert (
        "Refusing to perform the requested downgrade because it might delete metadata information."
        in said
    )
    assert (
        tool(FEATURES, "upgrade", "--metadata", "3.9", on_controller=on_controller)
        == "metadata.version was upgraded to 21.\n"
    )


@pytest.mark.parametrize("on_controller", [False, True])
def test_kafka_cluster_prints_the_cluster_id(tool: Tool, on_controller: bool) -> None:
    """kafka-cluster cluster-id."""
    assert (
        tool(CLUSTER, "cluster-id", on_controller=on_controller)
        == "Cluster ID: a3JhZnRzaW0tY2x1c3RlcQ\n"
    )


def test_kafka_broker_api_versions_queries_every_broker(tool: Tool) -> None:
    """kafka-broker-api-versions finds all brokers by DescribeCluster."""
    shown = tool(API_VERSIONS)
    assert (
        shown.count("DescribeConfigs(32): 0 to 4 [usable: 4]")
        == shown.count("UpdateFeatures(57): 0 to 1 [usable: 1]")
        == 2
    )


def test_kafka_cluster_unregisters_a_broker(tool: Tool) -> None:
    """The last test of the file: broker 2 does not return."""
    assert "BrokerIdNotRegisteredException" in tool(CLUSTER, "unregister", "--id", "77", fails=True)
    assert tool(CLUSTER, "unregister", "--id", "2") == "Broker 2 is no longer registered.\n"
