"""A migration that is rolled back and begun again with a controller that is formatted again,
recorded: a broker of Apache Kafka, and a controller of ours or of theirs, on our ZooKeeper.
"""

import json
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protocol.config_resources import ConfigResourceType
from protocol.zookeeper.kafka_znodes import CONTROLLER, CONTROLLER_EPOCH, MIGRATION
from protocol.zookeeper.op_codes import OpCode
from protocol.zookeeper.znodes import VersionedPath
from tests.apache_kafka.class_path import DEFAULT_RELEASE
from tests.apache_kafka.harness import ApacheKafka, _free_ports
from tests.apache_kafka.migration_comparison import settled
from tests.apache_kafka.migration_nodes import (
    CONTROLLER_ID,
    LISTENERS,
    MIGRATES,
    Znodes,
    as_migrating,
    wait_for,
)
from tests.apache_kafka.migration_run import (
    LATER_TOPIC,
    Clients,
    StartsController,
    Tree,
    _configure,
    _create,
    _furnish,
    _restart,
    our_controller,
    their_controller,
)
from tests.apache_kafka.mixed import metadata_records
from tests.apache_kafka.zookeeper_mode import broker_of_zookeeper
from tests.node.raw_zookeeper_client import ZooKeeperClient
from tests.node.zookeeper_server import RunningZookeeper

GENERATED = ("incarnationId", "port", "directories", "logDirs", "brokerEpoch")
OF_MIGRATION = (*LISTENERS, *MIGRATES, "controller.quorum.voters")


@dataclass(slots=True)
class TwoMigrations:
    """What ZooKeeper and the logs have: after the rollback, in the second dual write."""

    controller_epochs: list[int] = field(default_factory=list)
    """In each phase: ZooKeeper, first dual write, rolled back, second dual write."""
    rolled_back: Tree = field(default_factory=dict)
    dual: Tree = field(default_factory=dict)
    first_records: list[dict[str, Any]] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    producer_ids: list[int] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def migrate_twice(*, is_ours: bool) -> TwoMigrations:
    """Migrate, roll back, and migrate again; `is_ours`: the controllers. Raises Missing without
    Java or Maven.
    """
    with ExitStack() as stack:
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="kraftsim-second-migration-"))
        )
        zookeeper = RunningZookeeper(directory / "zookeeper")
        zookeeper.start()
        stack.callback(zookeeper.stop)
        broker = broker_of_zookeeper(zookeeper.port)
        stack.enter_context(broker)
        return _migrated_twice(
            stack,
            directory,
            zookeeper.port,
            broker,
            our_controller if is_ours else their_controller,
        )


def _migrated_twice(
    stack: ExitStack,
    directory: Path,
    zookeeper_port: int,
    broker: ApacheKafka,
    controller: StartsController,
) -> TwoMigrations:
    found, znodes = TwoMigrations(), Znodes(zookeeper_port)
    _furnish(broker.bootstrap)
    clients = Clients(broker.bootstrap)
    stack.callback(clients.end)
    wait_for(lambda: len(clients.producer_ids) > 3, "clients are running")
    (port,) = _free_ports(1)
    voters, cluster_id = f"{CONTROLLER_ID}@127.0.0.1:{port}", znodes.cluster_id()

    def note_epoch() -> None:
        found.controller_epochs.append(int(znodes.get(CONTROLLER_EPOCH) or b"-1"))

    note_epoch()
    for number in (1, 2):
        place = directory / f"controller-{number}"
        place.mkdir()
        with controller(port, zookeeper_port, cluster_id, place):
            wait_for(lambda: znodes.get(MIGRATION) is not None, "the controller has started")
            with clients.id_requests_paused:
                _restart(broker, as_migrating(voters))
                wait_for(lambda: znodes.migrated_until() > 0, "everything is migrated")
            _in_dual_write(znodes)
            _asked_again(clients)
            note_epoch()
            if number == 1:
                _change(broker, znodes)
            found.dual = znodes.tree()
        found.records = _records_of(place)
        if number == 1:
            found.first_records = found.records
            _roll_back(broker, znodes, zookeeper_port)
            _asked_again(clients)
            note_epoch()
            found.rolled_back = znodes.tree()
    clients.end()
    found.producer_ids, found.refused = clients.producer_ids, clients.refused
    return found


def _in_dual_write(znodes: Znodes) -> None:
    """Wait until the controller writes what it decides to ZooKeeper, too."""
    until = znodes.migrated_until()
    wait_for(lambda: znodes.migrated_until() > until + 2, "both are written")


def _asked_again(clients: Clients) -> None:
    """Wait for so many producer ids that the broker takes another block."""
    known = len(clients.producer_ids)
    wait_for(lambda: len(clients.producer_ids) > known + 5, "producer ids are returned")


def _change(broker: ApacheKafka, znodes: Znodes) -> None:
    """Make changes that only the first log decides, and that the second must have."""
    _create(broker.bootstrap, LATER_TOPIC, 2)
    path = f"/brokers/topics/{LATER_TOPIC}/partitions/1/state"
    wait_for(lambda: znodes.get(path), "a new topic is in ZooKeeper too")
    _configure(broker.bootstrap, ConfigResourceType.TOPIC, LATER_TOPIC, "retention.ms", "1800000")
    wait_for(
        lambda: b"1800000" in (znodes.get(f"/config/topics/{LATER_TOPIC}") or b""),
        "its configuration is too",
    )


def _roll_back(broker: ApacheKafka, znodes: Znodes, zookeeper_port: int) -> None:
    """The controller is stopped; delete its znodes, and restart the broker without migration."""
    with ZooKeeperClient(zookeeper_port) as client:
        for path in (CONTROLLER, MIGRATION):
            assert not client.ask(OpCode.DELETE, VersionedPath(path=path, version=-1)).header.error
    wait_for(lambda: znodes.get(CONTROLLER) is not None, "the broker is the controller")
    _restart(
        broker,
        lambda present: {key: value for key, value in present.items() if key not in OF_MIGRATION},
    )
    wait_for(lambda: znodes.get(CONTROLLER) is not None, "the broker is the controller")


def contents(tree: Tree) -> dict[str, object]:
    """The content of each znode without what differs in each run."""
    return {
        path: {key: settled(key, value) for key, value in json.loads(data).items()}
        if data is not None and data.startswith(b"{")
        else data
        for path, (data, _) in tree.items()
    }


def in_any_order(records: list[dict[str, Any]]) -> list[tuple[str, int, str]]:
    """The records of a log with topics by name, without generated ids, ports and broker epochs:
    the order of topics is that of a hash map.
    """
    names = {
        each["data"]["topicId"]: each["data"]["name"]
        for each in records
        if each["type"] == "TOPIC_RECORD"
    }

    def plain(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: plain(each, name) for name, each in sorted(value.items())}
        if isinstance(value, list):
            return [plain(each, key) for each in value]
        if key in GENERATED:
            return key
        return names.get(value, value) if isinstance(value, str) else value

    return sorted(
        (each["type"], each["version"], json.dumps(plain(each["data"]))) for each in records
    )


def _records_of(place: Path) -> list[dict[str, Any]]:
    log = place / "data" / "__cluster_metadata-0" / f"{0:020}.log"
    return [
        each
        for each in metadata_records(log, release=DEFAULT_RELEASE)
        if each["type"] != "NO_OP_RECORD"
    ]
