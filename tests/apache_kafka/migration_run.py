"""One complete migration from ZooKeeper to KRaft with running clients, recorded.

Broker, controller and ZooKeeper are each ours or Apache's (Kafka 3.9.1, ZooKeeper 3.8.4). An
idempotent producer writes and producer ids are requested throughout.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from kraftsim.conformance.peer import Peer
from protocol.config_resources import ConfigResourceType
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
    QuotaAlteration,
)
from protocol.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from protocol.schema import Message
from protocol.zookeeper.znodes import Stat
from tests.apache_kafka.class_path import DEFAULT_RELEASE
from tests.apache_kafka.harness import ApacheKafka, _formatted, _free_ports
from tests.apache_kafka.migration_nodes import (
    CONTROLLER_ID,
    Znodes,
    as_kraft,
    as_migrating,
    controller_properties,
    set_properties,
    wait_for,
)
from tests.apache_kafka.mixed import SMALL_JVM, OurNode, metadata_records
from tests.apache_kafka.recording_proxy import RecordingProxy
from tests.apache_kafka.zookeeper import ApacheZookeeper
from tests.apache_kafka.zookeeper_mode import broker_of_zookeeper
from tests.node.zookeeper_server import RunningZookeeper

TOPIC, LATER_TOPIC = "mig", "dual"
PARTITIONS = 3
CONTROL_KEYS = (4, 5, 6)
TOPIC_ALREADY_EXISTS = 36
QUIET = {"log_level": 0}
Tree = dict[str, tuple[bytes | None, Stat]]
StartsController = Callable[[int, int | None, str, Path], AbstractContextManager[object]]


@dataclass(slots=True)
class Recording:
    """The record of a migration: znodes at four times, the records of the log, requests to the
    broker, writes to ZooKeeper in order.
    """

    before: Tree = field(default_factory=dict)
    waiting: Tree = field(default_factory=dict)
    dual: Tree = field(default_factory=dict)
    mirrored: Tree = field(default_factory=dict)
    after: Tree = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)
    requests: list[tuple[int, str, Message]] = field(default_factory=list)
    writes: list[tuple[str, str]] = field(default_factory=list)
    """(operation, path), since the start of the controller."""
    later: list[tuple[str, str]] = field(default_factory=list)
    """The same since the broker was restarted in KRaft mode."""
    producer_ids: list[int] = field(default_factory=list)
    acknowledged: int = 0
    refused: list[str] = field(default_factory=list)
    read: dict[int, list[int]] = field(default_factory=dict)


class Clients:
    """A producer that writes continuously, and a client that requests producer ids continuously;
    both in their own threads.
    """

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.sent = [0] * PARTITIONS
        self.acknowledged = 0
        self.refused: list[str] = []
        self.producer_ids: list[int] = []
        self.id_requests_paused = threading.Lock()
        """While it is held, no producer id is requested."""
        self._stop = threading.Event()
        self._producer = Producer(
            {
                **QUIET,
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 300_000,
            }
        )
        self._threads = [
            threading.Thread(target=each, daemon=True) for each in (self._produce, self._ask)
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Wait for records in flight."""
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
        assert self._producer.flush(60) == 0, "records are still in flight"

    def read_back(self) -> dict[int, list[int]]:
        """Return the records of each partition, in order."""
        consumer = Consumer(
            {
                **QUIET,
                "bootstrap.servers": self.bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
            }
        )
        consumer.assign(
            [TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
        )
        found: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        give_up_at, wanted = time.monotonic() + 30, sum(self.sent)
        while sum(map(len, found.values())) < wanted and time.monotonic() < give_up_at:
            for message in consumer.consume(1000, 0.2):
                assert message.error() is None, message.error()
                value, partition = message.value(), message.partition()
                assert value is not None and partition is not None
                found[partition].append(int(value))
        assert not consumer.consume(1, 0.5), "no record is duplicated"
        consumer.close()
        return found

    def _produce(self) -> None:
        number = 0
        while not self._stop.is_set():
            partition = number % PARTITIONS
            self._producer.produce(
                TOPIC,
                b"%d" % self.sent[partition],
                partition=partition,
                on_delivery=self._on_delivery,
            )
            self.sent[partition] += 1
            number += 1
            self._producer.poll(0.01)

    def _on_delivery(self, error: object, _: object) -> None:
        self.acknowledged += error is None
        if error is not None:
            self.refused.append(str(error))

    def _ask(self) -> None:
        while not self._stop.is_set():
            try:
                with Peer.at(self.bootstrap, timeout_seconds=3) as peer:
                    for _ in range(100):
                        with self.id_requests_paused:
                            answer = peer.ask(
                                InitProducerIdRequest(
                                    transactional_id=None, transaction_timeout_ms=1000
                                ),
                                4,
                                InitProducerIdResponse,
                            )
                        if answer.error_code == 0:
                            self.producer_ids.append(answer.producer_id)
                        self._stop.wait(0.02)
            except (OSError, TimeoutError):
                self._stop.wait(0.1)


@contextmanager
def their_controller(
    port: int, zookeeper_port: int | None, cluster_id: str, directory: Path
) -> Iterator[ApacheKafka]:
    """Run a controller of Apache Kafka on existing or new data; without a ZooKeeper it finalizes a
    migration.
    """
    data = directory / "data"
    if not data.exists():
        shutil.copytree(_formatted(DEFAULT_RELEASE), data)
        (data / "meta.properties").write_text(
            f"version=1\ncluster.id={cluster_id}\nnode.id={CONTROLLER_ID}\n"
        )
    properties = {
        key: value
        for key, value in controller_properties(port, zookeeper_port, cluster_id).items()
        if not key.startswith("kraftsim.")
    }
    properties["log.dirs"] = str(data)
    (directory / "server.properties").write_text(
        "".join(f"{key}={value}\n" for key, value in properties.items())
    )
    node = ApacheKafka(
        settings={"process.roles": "controller"},
        jvm=SMALL_JVM,
        controller_port=port,
        directory=directory,
    )
    node.start()
    try:
        yield node
    finally:
        node.stop()


@contextmanager
def our_controller(
    port: int, zookeeper_port: int | None, cluster_id: str, directory: Path
) -> Iterator[OurNode]:
    """Run a controller of ours, likewise."""
    properties = controller_properties(port, zookeeper_port, cluster_id)
    node = OurNode(
        directory / "ours",
        properties,
        data=directory / "data",
        exists=(directory / "ours").exists(),
    )
    with node:
        yield node


class OurServer(ApacheKafka):
    """A broker of ours in place of one of theirs: with the same directory and property file."""

    def start(self) -> None:
        """Start the node and return when it responds."""
        self._launched = time.monotonic()
        with open(self.directory / "server.log", "ab") as log:
            command = [
                sys.executable,
                "-m",
                "kraftsim",
                "node",
                str(self.directory / "server.properties"),
            ]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.wait()


def broker_of_ours(zookeeper_port: int) -> ApacheKafka:
    """Return a broker of ours, not started yet, with the configuration of one of theirs."""
    theirs = broker_of_zookeeper(zookeeper_port)
    return OurServer(settings=theirs.settings, port=theirs.port, directory=theirs.directory)


def migrate(
    *,
    is_ours: bool,
    broker: Callable[[int], ApacheKafka] = broker_of_zookeeper,
    on_apache_zookeeper: bool = False,
) -> Recording:
    """Run the whole migration; `is_ours`: the controller. Raises Missing without Java or Maven."""
    with ExitStack() as stack:
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="kraftsim-migration-"))
        )
        zookeeper = (
            ApacheZookeeper() if on_apache_zookeeper else RunningZookeeper(directory / "zookeeper")
        )
        zookeeper.start()
        stack.callback(zookeeper.stop)
        return _migrated(
            stack,
            directory,
            zookeeper.port,
            broker(zookeeper.port),
            our_controller if is_ours else their_controller,
        )


def _migrated(
    stack: ExitStack,
    directory: Path,
    zookeeper_port: int,
    broker: ApacheKafka,
    controller: StartsController,
) -> Recording:
    found = Recording()
    with stack:
        proxy = stack.enter_context(RecordingProxy(CONTROL_KEYS))
        proxy.target = broker.port
        set_properties(
            broker,
            lambda present: {
                **present,
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}",
            },
        )
        stack.enter_context(broker)
        znodes = Znodes(zookeeper_port)
        _furnish(broker.bootstrap)
        clients = Clients(broker.bootstrap)
        stack.callback(clients.end)
        wait_for(
            lambda: len(clients.producer_ids) > 3 and clients.acknowledged > 20,
            "clients are running",
        )
        found.before = znodes.tree()
        (port,) = _free_ports(1)
        voters, cluster_id = f"{CONTROLLER_ID}@127.0.0.1:{port}", znodes.cluster_id()
        (directory / "controller").mkdir()
        began = len(_writes(directory))
        with controller(port, zookeeper_port, cluster_id, directory / "controller"):
            wait_for(lambda: znodes.get("/migration") is not None, "the controller has started")
            found.waiting = znodes.tree()
            proxy.requests.clear()
            # otherwise the next block is allocated by ZooKeeper or KRaft, depending on the speed of
            # the restart
            with clients.id_requests_paused:
                _restart(broker, as_migrating(voters))
                wait_for(lambda: znodes.migrated_until() > 0, "everything is migrated")
            migrated_offset = znodes.migrated_until()
            wait_for(
                lambda: znodes.migrated_until() > migrated_offset + 2,
                "both are written to ZooKeeper",
            )
            found.dual = znodes.tree()
            _create(broker.bootstrap, LATER_TOPIC, 2)
            wait_for(
                lambda: znodes.get(f"/brokers/topics/{LATER_TOPIC}/partitions/1/state"),
                "a new topic is in ZooKeeper too",
            )
            _configure(
                broker.bootstrap, ConfigResourceType.TOPIC, LATER_TOPIC, "retention.ms", "1800000"
            )
            wait_for(
                lambda: b"1800000" in (znodes.get(f"/config/topics/{LATER_TOPIC}") or b""),
                "its configuration is too",
            )
            wait_for(lambda: clients.producer_ids[-1] >= 1000, "ids come from KRaft")
            time.sleep(1.0)
            found.mirrored, found.requests = znodes.tree(), list(proxy.requests)
            ended = len(_writes(directory))
            _restart(broker, as_kraft(voters))
            acknowledged = clients.acknowledged
            wait_for(
                lambda: clients.acknowledged > acknowledged + 20, "the broker serves in KRaft mode"
            )
        with controller(port, None, cluster_id, directory / "controller"):
            acknowledged, ids = clients.acknowledged, len(clients.producer_ids)
            wait_for(
                lambda: (
                    clients.acknowledged > acknowledged + 20 and len(clients.producer_ids) > ids
                ),
                "clients continue without ZooKeeper",
            )
            clients.end()
            found.read = clients.read_back()
            found.after = znodes.tree()
        written = _writes(directory)
        found.writes, found.later = written[began:ended], written[ended:]
        log = directory / "controller" / "data" / "__cluster_metadata-0" / f"{0:020}.log"
        found.records = [
            each
            for each in metadata_records(log, release=DEFAULT_RELEASE)
            if each["type"] != "NO_OP_RECORD"
        ]
        found.producer_ids, found.acknowledged, found.refused = (
            clients.producer_ids,
            clients.acknowledged,
            clients.refused,
        )
        assert found.read == {
            number: list(range(count)) for number, count in enumerate(clients.sent)
        }, "nothing is lost, duplicated or out of order"
    return found


def _restart(broker: ApacheKafka, change: Any) -> None:
    broker.stop()
    set_properties(broker, change)
    broker.start()


def _furnish(address: str) -> None:
    """Create everything that is migrated: topics, configurations, a quota, a credential."""
    _create(address, TOPIC, PARTITIONS, {"retention.ms": "3600000"})
    _configure(address, ConfigResourceType.BROKER, "", "log.cleaner.threads", "2")
    entity = [
        EntityData(entity_type="user", entity_name="alice"),
        EntityData(entity_type="client-id", entity_name="c1"),
    ]
    quota = QuotaAlteration(
        entity=entity, ops=[OpData(key="producer_byte_rate", value=5_000_000.0, remove=False)]
    )
    bob = ScramCredentialUpsertion(
        name="bob", mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
    )
    with Peer.at(address) as peer:
        assert (
            peer.ask(AlterClientQuotasRequest(entries=[quota]), 1, AlterClientQuotasResponse)
            .entries[0]
            .error_code
            == 0
        )
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[bob])
        assert peer.ask(request, 0, AlterUserScramCredentialsResponse).results[0].error_code == 0


def _create(
    address: str, name: str, partitions: int, configs: dict[str, str] | None = None
) -> None:
    settings = [
        CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
    ]
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, configs=settings
    )

    def is_created() -> bool:
        with Peer.at(address) as peer:
            answer = peer.ask(
                CreateTopicsRequest(topics=[topic], timeout_ms=15_000), 7, CreateTopicsResponse
            )
        return answer.topics[0].error_code in (0, TOPIC_ALREADY_EXISTS)

    wait_for(is_created, f"{name} can be created")


def _configure(
    address: str, resource_type: ConfigResourceType, name: str, key: str, value: str
) -> None:
    resource = AlterConfigsResource(
        resource_type=int(resource_type),
        resource_name=name,
        configs=[AlterableConfig(name=key, config_operation=0, value=value)],
    )
    with Peer.at(address) as peer:
        answer = peer.ask(
            IncrementalAlterConfigsRequest(resources=[resource]), 1, IncrementalAlterConfigsResponse
        )
    assert answer.responses[0].error_code == 0, answer


def _writes(directory: Path) -> list[tuple[str, str]]:
    """Return the operations on znodes in order, from the events of the server."""
    found = []
    for file in sorted((directory / "zookeeper" / "events").glob("*.jsonl")):
        events = (json.loads(line) for line in file.read_text().splitlines())
        found += [
            (event["change"], event["path"]) for event in events if event["kind"] == "ZnodeChanged"
        ]
    return found
