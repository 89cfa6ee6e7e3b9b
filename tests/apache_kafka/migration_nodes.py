"""A broker of Apache Kafka 3.9 that migrates from ZooKeeper to KRaft: its properties in each phase,
and the content of ZooKeeper.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path

from protocol.zookeeper.kafka_znodes import MIGRATION, parse_cluster_id
from protocol.zookeeper.op_codes import OpCode
from protocol.zookeeper.znodes import GetChildren2Response, GetDataResponse, Stat, WatchedPath
from tests.apache_kafka.harness import ApacheKafka
from tests.node.raw_zookeeper_client import ZooKeeperClient

CONTROLLER_ID = 3000
LISTENERS = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
}
MIGRATES = {"zookeeper.metadata.migration.enable": "true"}


def controller_properties(
    port: int, zookeeper_port: int | None, cluster_id: str, *, node_id: int = CONTROLLER_ID
) -> dict[str, str]:
    """Return the properties of the single KRaft controller; without a ZooKeeper it finalizes a
    migration.
    """
    return {
        "process.roles": "controller",
        "node.id": str(node_id),
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        "controller.quorum.voters": f"{node_id}@127.0.0.1:{port}",
        "kraftsim.cluster.id": cluster_id,
        **LISTENERS,
        **(
            {}
            if zookeeper_port is None
            else {"zookeeper.connect": f"127.0.0.1:{zookeeper_port}", **MIGRATES}
        ),
    }


def set_properties(broker: ApacheKafka, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    """Set the properties of a broker for its next start."""
    file = broker.directory / "server.properties"
    present = dict(line.partition("=")[::2] for line in file.read_text().splitlines() if line)
    file.write_text("".join(f"{key}={value}\n" for key, value in change(present).items()))


def as_migrating(voters: str) -> Callable[[dict[str, str]], dict[str, str]]:
    """Return the properties that enable the migration of a broker."""
    return lambda present: {**present, **LISTENERS, **MIGRATES, "controller.quorum.voters": voters}


def as_kraft(voters: str) -> Callable[[dict[str, str]], dict[str, str]]:
    """Return the properties of a broker in KRaft mode."""

    def change(present: dict[str, str]) -> dict[str, str]:
        kept = {
            key: value
            for key, value in present.items()
            if not key.startswith(("zookeeper.", "broker.id"))
        }
        return {
            **kept,
            **LISTENERS,
            "process.roles": "broker",
            "node.id": present.get("broker.id", "1"),
            "controller.quorum.voters": voters,
        }

    return change


class Znodes:
    """The content of a ZooKeeper, ours or Apache's."""

    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str) -> bytes | None:
        """Return the data of a znode; None where there is none."""
        found = self.find(path)
        return None if found is None else found[0]

    def find(self, path: str) -> tuple[bytes | None, Stat] | None:
        """Return the data and the Stat of a znode, or None."""
        with ZooKeeperClient(self.port) as client:
            response = client.ask(OpCode.GET_DATA, WatchedPath(path=path))
            if response.header.error:
                return None
            answer = response.read(GetDataResponse)
            return answer.data, answer.stat

    def tree(self, root: str = "/") -> dict[str, tuple[bytes | None, Stat]]:
        """Return all znodes below a path, without /zookeeper."""
        found: dict[str, tuple[bytes | None, Stat]] = {}
        with ZooKeeperClient(self.port) as client:
            waiting = [root]
            while waiting:
                path = waiting.pop(0)
                answer = client.ask(OpCode.GET_DATA, WatchedPath(path=path)).read(GetDataResponse)
                found[path] = answer.data, answer.stat
                names = (
                    client.ask(OpCode.GET_CHILDREN_2, WatchedPath(path=path))
                    .read(GetChildren2Response)
                    .children
                )
                waiting += [
                    f"{path.rstrip('/')}/{name}"
                    for name in sorted(names)
                    if not (path == "/" and name == "zookeeper")
                ]
        found.pop("/", None)
        return found

    def cluster_id(self) -> str:
        """Return the id of the cluster."""
        return parse_cluster_id(self.get("/cluster/id") or b"")

    def migrated_until(self) -> int:
        """Return the metadata offset up to which ZooKeeper is in sync with the log; -1: nothing is
        migrated.
        """
        text = self.get(MIGRATION)
        return -1 if text is None else int(json.loads(text)["kraft_metadata_offset"])


def wait_for(
    holds: Callable[[], object], what: str, *, logs: tuple[Path, ...] = (), seconds: float = 150.0
) -> None:
    """Wait until a condition is true."""
    give_up_at = time.monotonic() + seconds
    while not holds():
        words = "\n".join(log.read_text(errors="replace")[-3000:] for log in logs)
        assert time.monotonic() < give_up_at, f"not within {seconds:g} s: {what}\n{words}"
        time.sleep(0.05)
