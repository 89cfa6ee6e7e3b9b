"""A ZooKeeper server as a node of a cluster: settings of ZooKeeper's own configuration file, and
kraftsim's settings that every node has.

Source: org.apache.zookeeper.server.quorum.QuorumPeerConfig (zookeeper.properties of Kafka's
distribution).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kraftsim.server.config_keys import ConfigError
from kraftsim.zookeeper.settings import ZookeeperSettings

MARK = "clientPort"
"""A key that every ZooKeeper configuration has, and no Kafka configuration."""
DIRECTORY = "dataDir"
OURS = "kraftsim."
LOG_DIRS = "log.dirs"
"""The key of a node's data directory in all modes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ZookeeperNodeConfig:
    """The configuration of a server.

    Fields that other nodes have, too, are named as in `NodeConfig`.
    """

    settings: ZookeeperSettings
    node_name: str
    log_dir: str
    events_dir: str | None
    run: str
    seed: int
    run_started_ns: int | None
    release: str = ""

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> "ZookeeperNodeConfig":
        """Validate a property set. Raises ConfigError: one line, naming the key."""
        ours = {
            key.removeprefix(OURS): value
            for key, value in properties.items()
            if key.startswith(OURS)
        }
        name = ours.get("node.name", "zookeeper-1")
        theirs = {
            key: value
            for key, value in properties.items()
            if not key.startswith(OURS) and key not in (DIRECTORY, LOG_DIRS)
        }
        directory = properties.get(LOG_DIRS) or properties.get(DIRECTORY)
        if not directory:
            raise ConfigError(f"{DIRECTORY} is required")
        started = ours.get("run.started.ns")
        return cls(
            settings=ZookeeperSettings.parse(theirs, name),
            node_name=name,
            log_dir=directory,
            events_dir=ours.get("events.dir"),
            run=ours.get("run", "run"),
            seed=int(ours.get("seed", "0")),
            run_started_ns=None if started is None else int(started),
        )


def is_zookeeper(properties: Mapping[str, str]) -> bool:
    """Return whether a property set is that of a ZooKeeper server."""
    return MARK in properties
