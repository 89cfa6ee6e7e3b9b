"""A broker's own server.properties for a whole cluster: its settings apply to every node, except
those that name one node, its addresses, its directories, or the cluster that it belongs to.

Logins, keys and rights are left out with the listeners that they protect: the nodes of a cluster
that is started here have listeners of their own, without authentication.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kraftsim.server.config_keys import ConfigError

OF_ONE_NODE: Final = frozenset(
    {
        *("node.id", "broker.id", "broker.rack", "process.roles", "kraftsim.node.name"),
        *("listeners", "advertised.listeners", "listener.security.protocol.map"),
        *("host.name", "port", "advertised.host.name", "advertised.port"),
        *("inter.broker.listener.name", "security.inter.broker.protocol"),
        *("controller.listener.names", "control.plane.listener.name"),
        *("log.dir", "log.dirs", "metadata.log.dir", "kraftsim.events.dir"),
        *("controller.quorum.voters", "controller.quorum.bootstrap.servers"),
        *("kraftsim.initial.controllers", "kraftsim.cluster.id"),
        *("zookeeper.connect", "zookeeper.metadata.migration.enable"),
        "inter.broker.protocol.version",
        *("authorizer.class.name", "super.users", "allow.everyone.if.no.acl.found"),
    }
)
"""Keys that are left out. The level of a cluster (`inter.broker.protocol.version`) follows from the
release here, and the level of a KRaft cluster from its metadata log.
"""
OF_ONE_LISTENER: Final = ("listener.name.", "sasl.", "ssl.", "zookeeper.ssl.", "zookeeper.clientC")
"""Beginnings of keys that are left out."""


def settings_of_all(properties: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the settings for every node, and the keys that are left out, in order."""
    left_out = tuple(name for name in properties if is_of_one_node(name))
    return {name: value for name, value in properties.items() if name not in left_out}, left_out


def is_of_one_node(name: str) -> bool:
    """Return whether a key belongs to one node or listener."""
    return name in OF_ONE_NODE or name.startswith(OF_ONE_LISTENER)


def text_of(file: Path) -> str:
    """Return the content of a properties file. Raises ConfigError, in one line."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as failure:
        raise ConfigError(f"{file}: {failure.strerror or failure}") from failure
    except UnicodeDecodeError as failure:
        raise ConfigError(f"{file}: it is no text file in UTF-8 ({failure.reason})") from failure
