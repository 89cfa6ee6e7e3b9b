"""What a process does before it forks nodes, so that none of them has to: imports, the tables of
the release, and the codecs of the first requests.

Nothing here opens anything or draws a random number, and no setting of a node is read.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from kraftsim.cluster.launch import parse_node, parts_of
from kraftsim.cluster.spec import ClusterSpec, Role
from kraftsim.server.api_offer import VersionRange, spoken_versions
from kraftsim.server.call import controller_handlers
from kraftsim.server.config import NodeConfig
from protocol.api_keys import ApiKey
from protocol.codec.message_codec import CompiledMessage, compiled
from protocol.messages.registry import request_class, response_class

BETWEEN_NODES: Final = (
    ApiKey.API_VERSIONS,
    ApiKey.FETCH,
    ApiKey.METADATA,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
)
"""What nodes send to each other until a cluster answers."""


NODES: Final = {
    Role.BROKER: "kraftsim.server.broker",
    Role.CONTROLLER: "kraftsim.server.controller",
    Role.COMBINED: "kraftsim.server.combined",
    Role.ZOOKEEPER: "kraftsim.zookeeper.server",
}
"""Where `kraftsim.cluster.launch` finds the node of a role."""


def rehearse(spec: ClusterSpec, role: Role) -> None:
    """Prepare for nodes of one role of a cluster; its settings do not matter."""
    node = next(node for node in spec.nodes() if node.role is role)
    config = parse_node({"log.dirs": node.name, **node.properties})
    import_module(NODES[role])
    if not isinstance(config, NodeConfig):
        return
    release = parts_of(config).release
    if config.is_controller:
        controller_handlers()
        _use(release.controller_apis)
    if role is not Role.CONTROLLER:
        from kraftsim.server.forwarding import broker_handlers

        broker_handlers()
        _use(release.zookeeper_apis if config.is_zookeeper_mode else release.broker_apis)


def _use(apis: Mapping[ApiKey, VersionRange]) -> None:
    """Import the messages of all requests that a node serves, and make some of their codecs."""
    spoken = spoken_versions(apis)
    for key in BETWEEN_NODES:
        if key in spoken:
            _, newest = spoken[key]
            for message in (request_class(key), response_class(key)):
                codec: CompiledMessage[object] = compiled(message, newest)
                codec.decode(codec.encode(message()))
