"""The clusters of the corpus: each run starts one, does to it what operators and accidents do, and
copies its log directories at several moments.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kraftsim.conformance.marker_client import TransactionAt
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.target import Target, TargetTopic
from protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.records.batches import build_batch
from protocol.records.record import Record
from tests.apache_kafka.class_path import DEFAULT_RELEASE, NEWEST_RELEASE
from tests.apache_kafka.harness import ApacheKafka, _formatted, run_tool
from tests.apache_kafka.migration_nodes import (
    CONTROLLER_ID,
    LISTENERS,
    MIGRATES,
    Znodes,
    controller_properties,
    wait_for,
)
from tests.apache_kafka.tiered import tiered_settings
from tools.audit_corpus.brokers import JVM, KRAFT, ZOOKEEPER, CorpusCluster, is_of_4
from tools.audit_corpus.load import (
    CODED,
    COPIES,
    ORDERS,
    PLAIN,
    SHORT,
    TABLE,
    Load,
    background,
    wait_until,
)
from tools.audit_corpus.situations import Expected, Recorder, Stopped

OLD_RELEASE: Final = "2.8.2"
TIERED_RELEASES: Final = (DEFAULT_RELEASE, "4.1.2")
COMPACTION_SECONDS: Final = 4.0
HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Run:
    """One cluster: what `make --only` names, its release and mode, and what is done to it."""

    name: str
    release: str
    mode: str
    act: Callable[[Path, Recorder], None]


@contextmanager
def workspace() -> Iterator[Path]:
    """Yield a directory for the nodes, and delete it afterwards."""
    place = Path(tempfile.mkdtemp(prefix="kraftsim-audit-corpus-"))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def all_dirs(cluster: CorpusCluster, *numbers: int) -> dict[int, list[Path]]:
    """Return the log directories by node, of all nodes or of some."""
    return {number: cluster.data(number) for number in numbers or cluster.numbers}


# --- one broker -----------------------------------------------------------------------------------


def one_broker(place: Path, recorder: Recorder) -> None:
    """One broker, with two log directories where the release can have them."""
    release, mode = recorder.release, recorder.mode
    is_early = mode == KRAFT and release == OLD_RELEASE
    cluster = CorpusCluster(place, release, mode=mode, directories=1 if is_early else 2)
    with cluster:
        load = Load(cluster, seed=11, transactions=not is_early)
        load.create_topics()
        load.burst()
        recorder.copy(
            "running", "copied while the broker ran", all_dirs(cluster), stopped=Stopped.RUNNING
        )
        cluster.stop()
        recorder.copy(
            "stopped",
            "stopped after a bit of everything",
            all_dirs(cluster),
            stopped=Stopped.CLEANLY,
        )
        cluster.start()
        _compact_and_trim(load, is_early=is_early)
        recorder.copy(
            "compacting",
            "copied while the cleaner and retention work",
            all_dirs(cluster),
            stopped=Stopped.RUNNING,
        )
        cluster.stop()
        recorder.copy(
            "compacted",
            "compacted, records deleted, segments expired",
            all_dirs(cluster),
            stopped=Stopped.CLEANLY,
        )
        cluster.start()
        load.delete(SHORT, CODED)
        load.create_topics([SHORT, CODED])
        if not is_early:
            load.move_directory(1, ORDERS, str(cluster.data(1)[0]))
            load.move_directory(1, PLAIN, str(cluster.data(1)[1]))
            recorder.copy(
                "moving",
                "copied while replicas move to another log directory",
                all_dirs(cluster),
                stopped=Stopped.RUNNING,
            )
        load.burst(2)
        cluster.stop()
        recorder.copy(
            "recreated",
            "topics deleted and created again, replicas moved",
            all_dirs(cluster),
            stopped=Stopped.CLEANLY,
        )
        cluster.start()
        with background(load, ORDERS):
            load.burst(3)
            if not is_early:
                load.abandon("left-open", timeout_ms=600_000)
            cluster.kill()
            killed = recorder.copy(
                "killed", "kill -9 under load", all_dirs(cluster), stopped=Stopped.KILLED
            )
            cluster.start()
        recorder.power_cut(killed, "power-cut", "half of what was not flushed is gone")
        recorder.power_cut(
            killed, "power-cut-zeros", "zeros in place of what was not flushed", zeros=True
        )
        load.burst(4)
        cluster.stop()
        recorder.copy(
            "recovered",
            "stopped after recovery from kill -9",
            all_dirs(cluster),
            stopped=Stopped.CLEANLY,
        )
        if is_early:
            return
        cluster.set_properties(
            1,
            {
                "producer.id.expiration.ms": "1500",
                "producer.id.expiration.check.interval.ms": "500",
                "transactional.id.expiration.ms": "1500",
                "transaction.remove.expired.transaction.cleanup.interval.ms": "700",
                "offsets.retention.check.interval.ms": "1000",
            },
        )
        cluster.start()
        load.transact("soon-expired", 3)
        load.write(PLAIN, 40)
        time.sleep(3.5)
        load.transact("not-expired", 2)
        load.write(PLAIN, 40, enable_idempotence=False)
        cluster.stop()
        recorder.copy(
            "expired",
            "producers and transactional ids have expired",
            all_dirs(cluster),
            stopped=Stopped.CLEANLY,
        )


def _compact_and_trim(load: Load, *, is_early: bool) -> None:
    for number in range(2):
        load.write(TABLE, 400, keys=15, tombstones=0.2, enable_idempotence=not is_early)
        load.write(SHORT, 400, enable_idempotence=not is_early)
        if not is_early:
            load.transact("compacted", 12, topics=(ORDERS,), count=6)
            load.copy_exactly_once("copiers", 5)
        load.consume("readers", PLAIN, CODED, count=100)
        if number == 0 and not is_early:
            load.abandon("timed-out", timeout_ms=1500)
            if is_of_4(load.cluster.release):
                load.configure("__consumer_offsets", segment_ms="800")
                load.configure("__transaction_state", segment_ms="800")
        time.sleep(1.5)
    load.delete_records(PLAIN, fraction=0.6)
    load.delete_records(ORDERS, fraction=0.3)
    load.write(TABLE, 200, keys=15, tombstones=0.2, enable_idempotence=not is_early)
    time.sleep(COMPACTION_SECONDS)


def old_formats(place: Path, recorder: Recorder) -> None:
    """A broker with the message formats 0 and 1, which 2.8 still writes."""
    settings = {"inter.broker.protocol.version": "2.8"}
    with CorpusCluster(place, recorder.release, mode=ZOOKEEPER, settings=settings) as cluster:
        load = Load(cluster, seed=12)
        for name, version in (("first", "0.9.0"), ("second", "0.10.2"), ("third", "2.8")):
            load.create(name, 1, {"message.format.version": version, "segment.bytes": "16384"})
            for codec in ("none", "gzip", "snappy", "lz4"):
                load.write(
                    name, 50, headers=False, enable_idempotence=False, compression_type=codec
                )
        load.consume("old-readers", "first", "second", "third", count=300)
        cluster.stop()
        recorder.copy(
            "stopped", "message formats 0, 1 and 2", all_dirs(cluster), stopped=Stopped.CLEANLY
        )
        cluster.start()
        load.configure("first", message_format_version="2.8")
        load.write("first", 60)
        cluster.kill()
        recorder.copy(
            "upgraded",
            "a topic goes from message format 0 to 2, then kill -9",
            all_dirs(cluster),
            stopped=Stopped.KILLED,
        )


# --- three brokers --------------------------------------------------------------------------------


def three_brokers(place: Path, recorder: Recorder) -> None:
    """Three brokers: replication, failures and reassignments."""
    settings = {"unclean.leader.election.enable": "false"}
    cluster = CorpusCluster(place, recorder.release, mode=recorder.mode, size=3, settings=settings)
    with cluster:
        load = Load(cluster, seed=13)
        load.create_topics()
        load.burst()
        load.read_from_followers(ORDERS)
        recorder.copy(
            "running",
            "copied one broker after the other while all ran",
            all_dirs(cluster),
            stopped=Stopped.RUNNING,
        )
        cluster.stop()
        recorder.copy("stopped", "all stopped", all_dirs(cluster), stopped=Stopped.CLEANLY)
        cluster.start()
        _leader_changes(cluster, load, recorder)
        _reassign(cluster, load, recorder)
        _kill(cluster, load, recorder)
        _elect_uncleanly(cluster, load, recorder)


def _leader_changes(cluster: CorpusCluster, load: Load, recorder: Recorder) -> None:
    with background(load):
        for number in (1, 2, 3):
            cluster.stop([number])
            time.sleep(0.5)
            load.write(ORDERS, 30)
            cluster.start([number])
            wait_until(lambda: _is_in_sync(load, ORDERS, 3), "all replicas are in sync")
            load.elect(ORDERS)
        recorder.copy(
            "leader-changes",
            "every broker was restarted; copied while they ran",
            all_dirs(cluster),
            stopped=Stopped.RUNNING,
        )
        cluster.kill([2])
        time.sleep(0.5)
        recorder.copy(
            "one-killed",
            "one broker killed under load, the others run",
            all_dirs(cluster),
            stopped=Stopped.MIXED,
        )
        load.write(ORDERS, 60)
        recorder.copy(
            "two-of-three",
            "the disks of the killed broker are missing",
            all_dirs(cluster, 1, 3),
            stopped=Stopped.RUNNING,
        )
        cluster.start([2])
        wait_until(lambda: _is_in_sync(load, ORDERS, 3), "all replicas are in sync")
    cluster.stop()
    recorder.copy(
        "after-leader-changes",
        "all stopped after leader changes",
        all_dirs(cluster),
        stopped=Stopped.CLEANLY,
    )
    cluster.start()


def _reassign(cluster: CorpusCluster, load: Load, recorder: Recorder) -> None:
    load.create("wandering", 2, assignment=[[1], [1]])
    load.write("wandering", 200, partition=0)
    load.transact("wanderer", 4, topics=(ORDERS,))
    load.reassign("wandering", [2, 3])
    load.write("wandering", 100, partition=1)
    load.reassign("wandering", [3, 1])
    load.reassign(PLAIN, [1, 2])
    load.delete(COPIES)
    load.create_topics([COPIES])
    load.burst(2)
    cluster.stop()
    recorder.copy(
        "reassigned",
        "partitions moved between brokers, a topic created again",
        all_dirs(cluster),
        stopped=Stopped.CLEANLY,
    )
    cluster.start()


def _kill(cluster: CorpusCluster, load: Load, recorder: Recorder) -> None:
    with background(load):
        for number in (1, 3):
            cluster.kill([number])
            time.sleep(1.0)
            cluster.start([number])
            wait_until(lambda: _is_in_sync(load, ORDERS, 3), "all replicas are in sync")
        load.burst(3)
        cluster.kill()
        killed = recorder.copy(
            "all-killed",
            "kill -9 of all under load, after two failovers",
            all_dirs(cluster),
            stopped=Stopped.KILLED,
        )
        cluster.start()
        recorder.power_cut(killed, "all-power-cut", "all lose half of what was not flushed")
        wait_until(lambda: _is_in_sync(load, ORDERS, 3), "all replicas are in sync")
    cluster.stop()
    recorder.copy(
        "recovered", "all stopped after recovery", all_dirs(cluster), stopped=Stopped.CLEANLY
    )
    cluster.start()


def _elect_uncleanly(cluster: CorpusCluster, load: Load, recorder: Recorder) -> None:
    load.create("risky", 1, {"unclean.leader.election.enable": "true"}, assignment=[[2, 3]])
    load.write("risky", 50, partition=0)
    cluster.stop([3])
    load.write("risky", 40, partition=0)
    time.sleep(1.0)
    cluster.stop([2])
    cluster.start([3])
    load.elect("risky", unclean=True)
    wait_until(lambda: load.leaders("risky").get(0) == 3, "3 leads uncleanly")
    load.write("risky", 30, partition=0)
    time.sleep(1.0)
    recorder.copy(
        "unclean",
        "an unclean leader lacks records that only the old leader has",
        all_dirs(cluster),
        stopped=Stopped.MIXED,
        expected=Expected.LOST,
    )
    cluster.start([2])
    wait_until(lambda: _is_in_sync(load, "risky", 2), "both replicas are in sync")
    cluster.stop()
    recorder.copy(
        "after-unclean",
        "the old leader has truncated its log",
        all_dirs(cluster),
        stopped=Stopped.CLEANLY,
    )


def _is_in_sync(load: Load, topic: str, count: int) -> bool:
    try:
        return all(len(isr) == count for _, isr in load.replicas(topic).values())
    except (OSError, TimeoutError, StopIteration):
        return False


# --- special clusters -----------------------------------------------------------------------------


def upgrade(place: Path, recorder: Recorder) -> None:
    """A rolling upgrade of three nodes, and of the features afterwards."""
    with CorpusCluster(place, recorder.release, size=3) as cluster:
        load = Load(cluster, seed=14)
        load.create_topics()
        load.burst()
        with background(load):
            for number in (1, 2, 3):
                cluster.stop([number])
                cluster.use_release(number, NEWEST_RELEASE)
                cluster.start([number])
                wait_until(lambda: _is_in_sync(load, ORDERS, 3), "all replicas are in sync")
                if number == 2:
                    recorder.copy(
                        "half",
                        "two of three brokers run the new release",
                        all_dirs(cluster),
                        stopped=Stopped.RUNNING,
                    )
        cluster.release = NEWEST_RELEASE
        cluster.stop()
        recorder.copy(
            "before-features",
            "all brokers run the new release with old features",
            all_dirs(cluster),
            stopped=Stopped.CLEANLY,
            release=NEWEST_RELEASE,
        )
        cluster.start()
        run_tool(
            NEWEST_RELEASE,
            "features",
            "--bootstrap-server",
            cluster.bootstrap,
            "upgrade",
            "--release-version",
            NEWEST_RELEASE.rpartition(".")[0],
        )
        load.burst(2)
        recorder.copy(
            "features-running",
            "features upgraded, copied while the brokers ran",
            all_dirs(cluster),
            stopped=Stopped.RUNNING,
            release=NEWEST_RELEASE,
        )
        cluster.stop()
        recorder.copy(
            "features",
            "stopped after the upgrade of features",
            all_dirs(cluster),
            stopped=Stopped.CLEANLY,
            release=NEWEST_RELEASE,
        )


def migration(place: Path, recorder: Recorder) -> None:
    """A broker goes from ZooKeeper to KRaft, with a controller of its own."""
    with CorpusCluster(place, recorder.release, mode=ZOOKEEPER) as cluster:
        load = Load(cluster, seed=15)
        load.create_topics()
        load.burst()
        assert cluster.zookeeper is not None, "the cluster is in ZooKeeper mode"
        znodes = Znodes(cluster.zookeeper.port)
        controller = _controller(place, cluster, znodes.cluster_id())
        try:
            wait_for(lambda: znodes.get("/migration") is not None, "the controller has started")
            voters = f"{CONTROLLER_ID}@127.0.0.1:{controller.controller_port}"
            joins = {**LISTENERS, "controller.quorum.voters": voters}
            cluster.stop()
            cluster.set_properties(1, {**joins, **MIGRATES})
            cluster.start()
            wait_for(lambda: znodes.migrated_until() > 0, "everything is migrated")
            load.create("later", 2)
            load.burst(2)
            both = {**all_dirs(cluster), CONTROLLER_ID: [controller.data]}
            recorder.copy(
                "dual-write",
                "metadata goes to ZooKeeper and to KRaft",
                both,
                stopped=Stopped.RUNNING,
            )
            cluster.stop()
            cluster.set_properties(
                1,
                {
                    "process.roles": "broker",
                    "node.id": "1",
                    "broker.id": None,
                    "zookeeper.connect": None,
                    "zookeeper.metadata.migration.enable": None,
                },
            )
            cluster.start()
            load.burst(3)
            controller.stop()
            _without_zookeeper(controller)
            controller.start()
            load.burst(4)
            cluster.stop()
            controller.stop()
            recorder.copy("migrated", "finalized and stopped", both, stopped=Stopped.CLEANLY)
        finally:
            controller.stop(cleanly=False)


def _controller(place: Path, cluster: CorpusCluster, cluster_id: str) -> ApacheKafka:
    """Start a controller that waits for brokers to migrate."""
    assert cluster.zookeeper is not None, "the cluster is in ZooKeeper mode"
    directory = place / "controller"
    data = directory / "data"
    shutil.copytree(_formatted(cluster.release), data)
    (data / "meta.properties").write_text(
        f"version=1\ncluster.id={cluster_id}\nnode.id={CONTROLLER_ID}\n"
    )
    port = cluster.port + 9
    properties = {
        key: value
        for key, value in controller_properties(port, cluster.zookeeper.port, cluster_id).items()
        if not key.startswith("kraftsim.")
    }
    properties["log.dirs"] = str(data)
    (directory / "server.properties").write_text(
        "".join(f"{key}={value}\n" for key, value in properties.items())
    )
    node = ApacheKafka(
        release=cluster.release,
        settings={"process.roles": "controller"},
        jvm=JVM,
        controller_port=port,
        directory=directory,
    )
    node.start()
    return node


def _without_zookeeper(controller: ApacheKafka) -> None:
    file = controller.directory / "server.properties"
    file.write_text(
        "".join(
            f"{line}\n"
            for line in file.read_text().splitlines()
            if not line.startswith("zookeeper.")
        )
    )


def tiered(place: Path, recorder: Recorder) -> None:
    """A broker that uploads segments to a directory (LocalTieredStorage) and deletes local ones."""
    store = place / "store"
    store.mkdir()
    settings = tiered_settings(store, recorder.release)
    with CorpusCluster(place, recorder.release, settings=settings) as cluster:
        load = Load(cluster, seed=16)
        small = (
            {"internal.segment.bytes": "20000", "segment.ms": "1500"}
            if is_of_4(recorder.release)
            else {"segment.bytes": "20000"}
        )
        keeps = {**small, "remote.storage.enable": "true", "file.delete.delay.ms": "300"}
        load.create_topics()
        load.create(
            "archive", 2, {**keeps, "local.retention.bytes": "30000", "retention.bytes": "-1"}
        )
        load.create(
            "fading", 1, {**keeps, "local.retention.bytes": "1", "retention.bytes": "60000"}
        )
        _archive(load)
        recorder.copy(
            "uploading",
            "copied while segments are uploaded",
            all_dirs(cluster),
            stopped=Stopped.RUNNING,
            remote=store,
        )
        time.sleep(4)
        cluster.stop()
        recorder.copy(
            "tiered",
            "stopped with remote segments",
            all_dirs(cluster),
            stopped=Stopped.CLEANLY,
            remote=store,
        )
        cluster.start()
        _archive(load)
        load.delete_records("archive", fraction=0.4)
        time.sleep(5)
        cluster.stop()
        recorder.copy(
            "trimmed",
            "remote segments were deleted by retention and DeleteRecords",
            all_dirs(cluster),
            stopped=Stopped.CLEANLY,
            remote=store,
        )
        cluster.start()
        load.delete("fading")
        time.sleep(4)
        _archive(load, ["archive"])
        cluster.kill()
        recorder.copy(
            "killed",
            "a tiered topic was deleted; kill -9",
            all_dirs(cluster),
            stopped=Stopped.KILLED,
            remote=store,
        )


def _archive(load: Load, topics: list[str] | None = None) -> None:
    load.burst()
    for name in topics or ["archive", "fading"]:
        for _ in range(3):
            load.write(name, 250, partition=0)
            time.sleep(0.3)
    producer = load.transactional("archivist")
    for number in range(6):
        producer.begin_transaction()
        for _ in range(30):
            producer.produce("archive", load.value(), partition=1)
        producer.flush(30)
        (producer.abort_transaction if number % 3 == 2 else producer.commit_transaction)(30)


def hanging(place: Path, recorder: Recorder) -> None:
    """A transactional batch of which no coordinator knows (KAFKA-14402), and its end by
    WriteTxnMarkers (KIP-664).
    """
    settings = {
        "transaction.partition.verification.enable": "false",
        "transaction.max.timeout.ms": "900000",
    }
    with CorpusCluster(place, recorder.release, mode=recorder.mode, settings=settings) as cluster:
        load = Load(cluster, seed=17)
        load.create_topics()
        load.burst()
        target = Target(cluster.address(1))
        topic = TargetTopic(name=ORDERS, topic_id=bytes(16), leader=cluster.address(1))
        transaction = TransactionAt(target, topic)
        producer_id, producer_epoch = transaction.producer
        written = int(time.time() * 1000) - HOUR_MS
        records = [Record(timestamp=written, value=b"lost call %d" % each) for each in range(3)]
        data = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        rows = [PartitionProduceData(index=1, records=data)]
        request = ProduceRequest(
            transactional_id=transaction.id.name,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=ORDERS, partition_data=rows)],
        )
        with Peer.at(cluster.address(1)) as peer:
            answer = peer.ask(request, 8, ProduceResponse)
        (row,) = answer.responses[0].partition_responses
        assert row.error_code == 0, answer
        load.write(ORDERS, 40)
        load.transact("others", 4, topics=(ORDERS,))
        what = {
            "topic": ORDERS,
            "partition": "1",
            "producer_id": str(producer_id),
            "producer_epoch": str(producer_epoch),
            "start_offset": str(row.base_offset),
        }
        recorder.copy(
            "open-running",
            "a hanging transaction, copied while the broker ran",
            all_dirs(cluster),
            stopped=Stopped.RUNNING,
            expected=Expected.HANGING,
            findings=[what],
        )
        cluster.stop()
        recorder.copy(
            "open",
            "a hanging transaction",
            all_dirs(cluster),
            stopped=Stopped.CLEANLY,
            expected=Expected.HANGING,
            findings=[what],
        )
        cluster.start()
        _abort(cluster, producer_id, producer_epoch)
        load.burst(2)
        cluster.stop()
        recorder.copy(
            "aborted",
            "an operator has aborted the hanging transaction",
            all_dirs(cluster),
            stopped=Stopped.CLEANLY,
        )


def _abort(cluster: CorpusCluster, producer_id: int, producer_epoch: int) -> None:
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        coordinator_epoch=0,
        topics=[WritableTxnMarkerTopic(name=ORDERS, partition_indexes=[1])],
    )

    def is_aborted() -> bool:
        with Peer.at(cluster.address(1)) as peer:
            answer = peer.ask(WriteTxnMarkersRequest(markers=[marker]), 1, WriteTxnMarkersResponse)
        return answer.markers[0].topics[0].partitions[0].error_code == 0

    wait_until(is_aborted, "the transaction is aborted")


RUNS: Final = (
    Run("one-2.8.2-zookeeper", OLD_RELEASE, ZOOKEEPER, one_broker),
    Run("one-2.8.2-kraft", OLD_RELEASE, KRAFT, one_broker),
    Run("one-3.9.1-zookeeper", DEFAULT_RELEASE, ZOOKEEPER, one_broker),
    Run("one-3.9.1-kraft", DEFAULT_RELEASE, KRAFT, one_broker),
    Run("one-4.4.0-kraft", NEWEST_RELEASE, KRAFT, one_broker),
    Run("formats-2.8.2-zookeeper", OLD_RELEASE, ZOOKEEPER, old_formats),
    Run("three-2.8.2-zookeeper", OLD_RELEASE, ZOOKEEPER, three_brokers),
    Run("three-3.9.1-kraft", DEFAULT_RELEASE, KRAFT, three_brokers),
    Run("three-4.4.0-kraft", NEWEST_RELEASE, KRAFT, three_brokers),
    Run("upgrade-3.9.1-kraft", DEFAULT_RELEASE, KRAFT, upgrade),
    Run("migration-3.9.1-zookeeper", DEFAULT_RELEASE, ZOOKEEPER, migration),
    *(Run(f"tiered-{release}-kraft", release, KRAFT, tiered) for release in TIERED_RELEASES),
    Run("hanging-2.8.2-zookeeper", OLD_RELEASE, ZOOKEEPER, hanging),
    Run("hanging-3.9.1-kraft", DEFAULT_RELEASE, KRAFT, hanging),
    Run("hanging-4.4.0-kraft", NEWEST_RELEASE, KRAFT, hanging),
)
