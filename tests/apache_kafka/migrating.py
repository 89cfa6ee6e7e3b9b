"""A broker of Apache Kafka 3.9 on its way from ZooKeeper to KRaft: what its properties say in each phase, and what stands in ZooKeeper meanwhile."""

import json
import time
from collections.abc import Callable
from pathlib import Path

from protocol.zookeeper.kafka_znodes import MIGRATION, parse_cluster_id
from protocol.zookeeper.op_codes import OpCode
from protocol.zookeeper.znodes import GetChildren2Response, GetDataResponse, Stat, WatchedPath
from tests.apache_kafka.harness import ApacheKafka
from tests.node.zookeeper_talk import ZookeeperTalk

CONTROLLER_ID = 3000
LISTENERS = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
}
MIGRATES = {"zookeeper.metadata.migration.enable": "true"}


def controller_properties(port: int, zookeeper_port: int | None, cluster_id: str, *, node_id: int = CONTROLLER_ID) -> dict[str, str]:
    """Return the properties of the only controller of KRaft; without a ZooKeeper it ends a migration."""
    return {
        "process.roles": "controller",
        "node.id": str(node_id),
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        "controller.quorum.voters": f"{node_id}@127.0.0.1:{port}",
        "kraftsim.cluster.id": cluster_id,
        **LISTENERS,
        **({} if zookeeper_port is None else {"zookeeper.connect": f"127.0.0.1:{zookeeper_port}", **MIGRATES}),
    }


def set_properties(broker: ApacheKafka, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    """Give a broker other properties for its next life."""
    file = broker.directory / "server.properties"
    present = dict(line.partition("=")[::2] for line in file.read_text().splitlines() if line)
    file.write_text("".join(f"{key}={value}\n" for key, value in change(present).items()))


def as_migrating(voters: str) -> Callable[[dict[str, str]], dict[str, str]]:
    """Return what lets a broker be taken over."""
    return lambda present: {**present, **LISTENERS, **MIGRATES, "controller.quorum.voters": voters}


def as_kraft(voters: str) -> Callable[[dict[str, str]], dict[str, str]]:
    """Return what makes a broker one of KRaft."""

    def change(present: dict[str, str]) -> dict[str, str]:
        kept = {key: value for key, value in present.items() if not key.startswith(("zookeeper.", "broker.id"))}
        return {**kept, **LISTENERS, "process.roles": "broker", "node.id": present.get("broker.id", "1"), "controller.quorum.voters": voters}

    return change


class Znodes:
    """What stands in a ZooKeeper, whoever made it."""

    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str) -> bytes | None:
        """Return the data of a znode; None where there is none."""
        found = self.find(path)
        return None if found is None else found[0]

    def find(self, path: str) -> tuple[bytes | None, Stat] | None:
        """Return data and what is known of a znode, or None."""
        with ZookeeperTalk(self.port) as talk:
            told = talk.ask(OpCode.GET_DATA, WatchedPath(path=path))
            if told.header.error:
                return None
            answer = told.read(GetDataResponse)
            return answer.data, answer.stat

    def tree(self, root: str = "/") -> dict[str, tuple[bytes | None, Stat]]:
        """Return everything below a path, without ZooKeeper's own znodes."""
        found: dict[str, tuple[bytes | None, Stat]] = {}
        with ZookeeperTalk(self.port) as talk:
            waiting = [root]
            while waiting:
                path = waiting.pop(0)
                answer = talk.ask(OpCode.GET_DATA, WatchedPath(path=path)).read(GetDataResponse)
                found[path] = answer.data, answer.stat
                names = talk.ask(OpCode.GET_CHILDREN_2, WatchedPath(path=path)).read(GetChildren2Response).children
                waiting += [f"{path.rstrip('/')}/{name}" for name in sorted(names) if not (path == "/" and name == "zookeeper")]
        found.pop("/", None)
        return found

    def cluster_id(self) -> str:
        """Return the id of the cluster."""
        return parse_cluster_id(self.get("/cluster/id") or b"")

    def migrated_until(self) -> int:
        """Return up to which offset ZooKeeper is in step with the log; -1: nothing is copied."""
        text = self.get(MIGRATION)
        return -1 if text is None else int(json.loads(text)["kraft_metadata_offset"])


def wait_for(holds: Callable[[], object], what: str, *, logs: tuple[Path, ...] = (), seconds: float = 150.0) -> None:
    """Wait until something holds."""
    give_up_at = time.monotonic() + seconds
    while not holds():
        words = "\n".join(log.read_text(errors="replace")[-3000:] for log in logs)
        assert time.monotonic() < give_up_at, f"not within {seconds:g} s: {what}\n{words}"
        time.sleep(0.05)
