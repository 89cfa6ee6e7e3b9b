"""What runs in a container: one node, combined unless the settings say otherwise, or a small
cluster; decided by the environment, as in Apache Kafka's container image.

KAFKA_... variables are Kafka's settings, KRAFTSIM_... those of kraftsim (KRAFTSIM_RELEASE is
kraftsim.release), CLUSTER_ID the id of the cluster. What they leave open has the values of the
server.properties in Apache Kafka's image. Unlike there, one given setting does not void the other
defaults, and a controller without voters is its own: so `-e KAFKA_LOG_SEGMENT_BYTES=65536` alone
works.
Source: KIP-975 (docker/server.properties, the scripts run, configure and launch).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from kraftsim.cluster.own_properties import settings_of_all
from kraftsim.cluster.spec import CLIENT_LISTENER, CONTROLLER_LISTENER, ClusterSpec, SpecError
from kraftsim.server.config_keys import ConfigError
from kraftsim.server.endpoints import ListenerEndpoint, parse_endpoints

MOUNTED: Final = PurePosixPath("/mnt/shared/config/server.properties")
"""Where a file of properties is read from, as in Apache Kafka's image."""
CLIENT_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
INTERNAL_LISTENER: Final = "INTERNAL"
INTERNAL_DISTANCE: Final = 10_000
"""Distance of the port for other brokers from that for clients, in a container of several nodes."""
SIZE: Final = "KRAFTSIM_BROKERS"
CONTROLLERS: Final = "KRAFTSIM_CONTROLLERS"
ADVERTISED_HOST: Final = "KRAFTSIM_ADVERTISED_HOST"
EVERY_ADDRESS: Final = "0.0.0.0"
PROTOCOLS: Final = (
    "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
    "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
)
ONE_REPLICA: Final = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
"""In a container of one node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerPlan:
    """What a container runs: the properties of one node, or a cluster."""

    node: Mapping[str, str] | None = None
    cluster: ClusterSpec | None = None
    left_out: tuple[str, ...] = ()
    """Settings of one node that a cluster cannot have."""


def container_plan(
    given: Mapping[str, str], environment: Mapping[str, str], *, data: str
) -> ContainerPlan:
    """Return what to run.

    `given` are the properties of the file and the environment, `environment` the variables that are
    no property, `data` the directory for disks. Raises ConfigError or SpecError.
    """
    size = _number(environment, SIZE, 1)
    host = environment.get(ADVERTISED_HOST, "localhost")
    if size == 1 and CONTROLLERS not in environment:
        return ContainerPlan(node=_node(given, host, data))
    settings, left_out = settings_of_all(given)
    return ContainerPlan(
        cluster=_cluster(size, _number(environment, CONTROLLERS, 1), host, settings),
        left_out=left_out,
    )


def address_to_check(plan: ContainerPlan) -> tuple[str, int]:
    """Return where a health check asks, from inside the container."""
    if plan.cluster is not None:
        return "127.0.0.1", plan.cluster.port
    assert plan.node is not None, "a container runs a node or a cluster"
    first = parse_endpoints(plan.node["listeners"])[0]
    return "127.0.0.1" if first.host in ("", EVERY_ADDRESS) else first.host, first.port


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, str(default)).strip()
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"{name}: expected a whole number of 1 or more, got {text!r}")
    return int(text)


# --------------------------------------------------------------------------------------------------
# One node


def _node(given: Mapping[str, str], host: str, data: str) -> dict[str, str]:
    properties = {"log.dirs": f"{data}/data", **ONE_REPLICA, **given}
    if "log.dir" in given and "log.dirs" not in given:
        del properties["log.dirs"]
    if "zookeeper.connect" in given and "process.roles" not in given:
        return _listening({"broker.id": "1", **properties}, host, ())
    properties.setdefault("process.roles", "broker,controller")
    properties.setdefault("node.id", given.get("broker.id", "1"))
    properties.setdefault("controller.listener.names", CONTROLLER_LISTENER)
    properties.setdefault("listener.security.protocol.map", PROTOCOLS)
    names = tuple(
        name.strip().upper() for name in properties["controller.listener.names"].split(",")
    )
    properties = _listening(properties, host, names)
    if "controller" in properties["process.roles"] and not (
        properties.keys() & {"controller.quorum.voters", "controller.quorum.bootstrap.servers"}
    ):
        port = next(each.port for each in _endpoints(properties) if each.listener in names)
        properties["controller.quorum.voters"] = f"{properties['node.id']}@localhost:{port}"
    return properties


def _listening(
    properties: dict[str, str], host: str, controllers: tuple[str, ...]
) -> dict[str, str]:
    """Return properties with listeners, and with a host that clients can reach."""
    roles = [role.strip() for role in properties.get("process.roles", "broker").split(",")]
    advertised = properties.get("advertised.listeners", "")
    if not properties.get("listeners"):
        found = [
            f"{each.listener}://{EVERY_ADDRESS}:{each.port}" for each in parse_endpoints(advertised)
        ] or ([f"{CLIENT_LISTENER}://:{CLIENT_PORT}"] if "broker" in roles else [])
        if "controller" in roles and controllers:
            found.append(f"{controllers[0]}://:{CONTROLLER_PORT}")
        properties["listeners"] = ",".join(found)
    if not advertised and "broker" in roles:
        properties["advertised.listeners"] = ",".join(
            f"{each.listener}://{each.host or host}:{each.port}"
            if each.host not in ("", EVERY_ADDRESS)
            else f"{each.listener}://{host}:{each.port}"
            for each in _endpoints(properties)
            if each.listener not in controllers
        )
    properties = _bound_everywhere(properties, controllers)
    own = [each.listener for each in _endpoints(properties) if each.listener not in controllers]
    if (
        "inter.broker.listener.name" not in properties
        and "security.inter.broker.protocol" not in properties
        and own
        and CLIENT_LISTENER not in own
    ):
        properties["inter.broker.listener.name"] = own[0]
    return properties


def _bound_everywhere(properties: dict[str, str], controllers: tuple[str, ...]) -> dict[str, str]:
    """Return properties whose listeners without a host listen on every address, as in Kafka; a
    controller advertises the host under which it is a voter.
    """
    found, advertised = [], properties.pop("advertised.listeners", "")
    own = f"{properties.get('node.id', '')}@"
    voters = [voter.strip() for voter in properties.get("controller.quorum.voters", "").split(",")]
    hosts = [
        voter.removeprefix(own).rpartition(":")[0] for voter in voters if voter.startswith(own)
    ]
    known = {each.listener for each in parse_endpoints(advertised)}
    for each in _endpoints(properties):
        is_everywhere = each.host in ("", EVERY_ADDRESS)
        found.append(
            f"{each.listener}://{EVERY_ADDRESS}:{each.port}" if is_everywhere else str(each)
        )
        if each.listener in controllers and is_everywhere and each.listener not in known:
            place = f"{each.listener}://{next(iter(hosts), 'localhost')}:{each.port}"
            advertised = f"{advertised},{place}".strip(",")
    return {
        **properties,
        "listeners": ",".join(found),
        **({"advertised.listeners": advertised} if advertised else {}),
    }


def _endpoints(properties: Mapping[str, str]) -> tuple[ListenerEndpoint, ...]:
    try:
        return parse_endpoints(properties["listeners"])
    except ValueError as wrong:
        raise ConfigError(f"listeners: {wrong}") from wrong


# --------------------------------------------------------------------------------------------------
# Several nodes: broker N listens for clients on port 9091 + N, which must be published under the
# same number, because that is the one that clients get


def _cluster(size: int, controllers: int, host: str, settings: Mapping[str, str]) -> ClusterSpec:
    if controllers > size:
        raise SpecError(
            f"{CONTROLLERS}={controllers}: the controllers are brokers here, so {SIZE} must be "
            f"{controllers} or more"
        )
    whole = ClusterSpec(
        brokers=size,
        controllers=controllers,
        combined=controllers,
        port=CLIENT_PORT,
        run="container",
        settings=settings,
    )
    return ClusterSpec(
        brokers=size,
        controllers=controllers,
        combined=controllers,
        release=settings.get("kraftsim.release", whole.release),
        port=CLIENT_PORT,
        run="container",
        settings=settings,
        node_settings={name: _addresses(whole, name, host) for name in whole.broker_names},
    )


def _addresses(spec: ClusterSpec, name: str, host: str) -> dict[str, str]:
    """Return the listeners of a node: for clients, for other brokers, and for controllers."""
    node = spec.node(name)
    internal = f"{INTERNAL_LISTENER}://127.0.0.1:{node.port + INTERNAL_DISTANCE}"
    controller = (
        [f"{CONTROLLER_LISTENER}://127.0.0.1:{node.controller_port}"]
        if node.controller_port
        else []
    )
    return {
        "listeners": ",".join(
            [f"{CLIENT_LISTENER}://{EVERY_ADDRESS}:{node.port}", internal, *controller]
        ),
        "advertised.listeners": ",".join(
            [f"{CLIENT_LISTENER}://{host}:{node.port}", internal, *controller]
        ),
        "listener.security.protocol.map": f"{INTERNAL_LISTENER}:PLAINTEXT,{PROTOCOLS}",
        "inter.broker.listener.name": INTERNAL_LISTENER,
    }
