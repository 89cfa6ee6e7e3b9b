"""docker-compose.yml itself: its services are consistent with each other, with the images and with
the nodes.
"""

from kraftsim.cli.properties import properties_of_environment
from kraftsim.server.config import NodeConfig
from tests.compose.composition import FILE, Service, composition
from tests.compose.dockerfile import stages, steps_of

NODES = ("controller", "broker-1", "broker-2", "broker-3")
QUORUM = ("node-1", "node-2", "node-3")
RUN = {"run": "/var/lib/kraftsim/run"}
"""The event logs of all nodes."""


def config_of(service: Service) -> NodeConfig:
    return NodeConfig.parse(properties_of_environment(service.environment))


def test_compose_has_a_controller_three_brokers_and_profiles() -> None:
    services = composition()
    assert tuple(name for name, service in services.items() if not service.profiles) == NODES
    profiles: dict[tuple[str, ...], list[str]] = {}
    for name, service in services.items():
        profiles.setdefault(service.profiles, []).append(name)
    del profiles[()]
    assert profiles == {
        ("quorum",): list(QUORUM),
        ("zookeeper",): ["zookeeper", "zk-controller", "zk-broker"],
        ("migrated",): ["migrated-broker"],
        ("analysis",): ["analysis"],
        ("scenario",): ["scenario", "scenario-report"],
    }
    assert [config_of(services[name]).process_roles for name in NODES] == [
        ("controller",),
        *[("broker",)] * 3,
    ]
    assert [config_of(services[name]).node_id for name in NODES] == [101, 1, 2, 3]


def test_nodes_advertise_service_names_inside_and_localhost_outside() -> None:
    """listeners and advertised.listeners as in Kafka: brokers use service names, clients outside
    use published ports of this machine.
    """
    services = composition()
    voters = {config_of(services[name]).controller_quorum_voters for name in NODES}
    controller = config_of(services["controller"])
    assert voters == {controller.controller_quorum_voters}
    assert [(voter.host, voter.port) for voter in controller.controller_quorum_voters] == [
        ("controller", controller.listeners[0].port)
    ]
    for number, name in enumerate(NODES[1:]):
        service, config = services[name], config_of(services[name])
        assert {endpoint.host for endpoint in config.listeners} == {name}
        inside, outside = config.advertised_at("INTERNAL"), config.advertised_at("EXTERNAL")
        assert (inside.host, inside.port) == (name, 9092)
        (port,) = service.published
        assert (
            (outside.host, outside.port) == ("localhost", port.port) == ("localhost", 9092 + number)
        )
        assert port.host == "127.0.0.1", "nothing is reachable from other machines"
        assert port.target_port == next(
            endpoint.port for endpoint in config.listeners if endpoint.listener == "EXTERNAL"
        )
    chosen = composition(BROKER_2_PORT="12345")["broker-2"]
    assert (chosen.published[0].port, config_of(chosen).advertised_at("EXTERNAL").port) == (
        12345,
        12345,
    )


def test_every_node_has_its_own_volume_and_health_check() -> None:
    services = composition()
    for name in NODES:
        service, config = services[name], config_of(services[name])
        assert service.volumes == {name: "/var/lib/kraftsim/node", **RUN}
        assert config.log_dir.startswith("/var/lib/kraftsim/node/")
        listener = config.listeners[0]
        assert service.health is not None and service.health.command == (
            "kraftsim",
            "doctor",
            "--node",
            f"{name}:{listener.port}",
        )
        assert service.depends_on == (
            {} if name == "controller" else {"controller": "service_healthy"}
        )


def test_services_use_images_of_the_dockerfile_and_declared_volumes() -> None:
    for service in composition().values():
        assert service.target in stages()
        declared = {step.words for step in steps_of(service.target) if step.verb == "VOLUME"}
        assert set(service.volumes.values()) <= declared, (
            "a volume takes its owner from the directory in the image"
        )


def test_every_node_writes_its_events_where_the_analysis_reads_them() -> None:
    """Times are counted from the start of the machine, which its containers share."""
    services = composition()
    for name, service in services.items():
        if service.target != "node":
            continue
        ours = properties_of_environment(service.environment)
        assert ours["kraftsim.events.dir"] == "/var/lib/kraftsim/run/events", name
        assert (ours["kraftsim.run"], ours["kraftsim.run.started.ns"]) == ("composed", "0")
        assert RUN.items() <= service.volumes.items()
    assert services["analysis"].volumes == RUN


def test_the_quorum_has_three_combined_nodes_that_know_each_other() -> None:
    services = composition()
    configs = [config_of(services[name]) for name in QUORUM]
    assert all(config.is_combined for config in configs)
    assert [config.node_id for config in configs] == [11, 12, 13]
    for config in configs:
        assert [(voter.node_id, voter.host) for voter in config.controller_quorum_voters] == [
            (11, "node-1"),
            (12, "node-2"),
            (13, "node-3"),
        ]
    ports = [each.port for service in services.values() for each in service.published]
    assert len(ports) - len(set(ports)) == 1, (
        "only a migrated broker has the port of its former self"
    )


def test_the_migrated_broker_is_the_same_broker_without_zookeeper() -> None:
    services = composition()
    before, after = services["zk-broker"], services["migrated-broker"]
    assert before.volumes == after.volumes
    assert config_of(before).is_migrating and not config_of(after).is_zookeeper_mode
    assert config_of(before).node_id == config_of(after).node_id == 31


def test_the_compose_file_names_no_registry() -> None:
    assert "://" not in FILE.read_text().replace("INTERNAL://", "").replace(
        "EXTERNAL://", ""
    ).replace("CONTROLLER://", "")
