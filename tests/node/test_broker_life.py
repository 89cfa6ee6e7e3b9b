"""A broker starts, is killed, restarts, follows a restarted controller, and stops cleanly."""

import asyncio

import pytest

from kraftsim.metadata.events import (
    BrokerEpochReceived,
    BrokerFenced,
    BrokerRegistered,
    MetadataApplied,
)
from kraftsim.metadata.rules_image import ImageChanges, MetadataImage, snapshot_records
from kraftsim.partitions.events import LeaderElected, LeadershipLost
from kraftsim.raft.events import MetadataTruncated, OtherClusterAnswered
from kraftsim.raft.rules_log import RaftLog
from kraftsim.raft.rules_roles import Leadership
from kraftsim.server.broker import Broker
from kraftsim.server.events import DiskFailed, LogRecovered, NodeFailed, NodeReady, NodeStopped
from kraftsim.server.identity import ForeignDirectory
from kraftsim.server.lifecycle import RegistrationTimedOut
from kraftsim.world.simulated import FileClass, Simulation
from kraftsim.world.simulated.disk_faults import FlushRefusal, Full
from protocol.errors import ErrorCode
from protocol.metadata.registrations import RegisterBrokerRecord
from protocol.records.batches import split_batches
from protocol.storage.text_files import parse_clean_shutdown
from tests.node.brokers import (
    CONTROLLER_HOST,
    Client,
    Cluster,
    batch,
    broker_config,
    running_cluster,
)
from tests.node.controllers import parts

OTHER_CLUSTER = "b3RoZXItY2x1c3Rlci1pZA"


async def create_and_fill(client: Client) -> None:
    """Create t with one partition and append five idempotent batches of two records."""
    await client.create_topic("t")
    for number in range(5):
        answer = await client.produce(
            batch(2, producer_id=7, producer_epoch=0, base_sequence=2 * number)
        )
        assert (answer.error_code, answer.base_offset) == (0, 2 * number)


def create_and_fill_somewhere(cluster: Cluster) -> str:
    """Create t in a cluster of several brokers, fill it, and return its leader."""

    async def create(client: Client) -> None:
        await client.create_topic("t")

    async def fill(client: Client) -> None:
        for number in range(5):
            assert (
                await client.produce(
                    batch(2, producer_id=7, producer_epoch=0, base_sequence=2 * number)
                )
            ).base_offset == 2 * number

    cluster.run(create)
    leader = next(name for name in cluster.broker_names if cluster.emitted(LeaderElected, name))
    cluster.run(fill, leader)
    return leader


async def read_all(client: Client) -> list[int]:
    """Return the base offsets of all batches of t-0, once the broker leads it again."""
    while (answer := await client.fetch(0)).error_code:
        await asyncio.sleep(0.1)
    return [each.base_offset for each in split_batches(bytes(answer.records or b""))]


async def repeat_last(client: Client) -> tuple[int, int]:
    """Send the last batch once more."""
    answer = await client.produce(batch(2, producer_id=7, producer_epoch=0, base_sequence=8))
    return answer.error_code, answer.base_offset


def test_broker_registers_catches_up_and_is_unfenced() -> None:
    """KIP-631: the broker epoch is the offset of the registration; ready means unfenced."""
    with running_cluster(2) as cluster:
        assert len({event.broker_epoch for event in cluster.emitted(BrokerEpochReceived)}) == 2, (
            "each registration has an offset of its own"
        )
        assert (
            len(cluster.emitted(NodeReady, "broker-1"))
            == len(cluster.emitted(NodeReady, "broker-2"))
            == 1
        )
        assert cluster.simulation.now_ns < 1_000_000_000


def test_records_and_producer_state_survive_kill_9() -> None:
    """The page cache outlives the process: acknowledged records are there, and a duplicate batch is
    still recognised.
    """
    with running_cluster() as cluster:
        cluster.run(create_and_fill)
        cluster.kill("broker-1")
        cluster.simulation.restart("broker-1")
        cluster.wait_ready("broker-1")
        assert cluster.run(read_all) == [0, 2, 4, 6, 8]
        assert cluster.run(repeat_last) == (0, 8)
        recovered = cluster.emitted(LogRecovered)[-1]
        assert (recovered.next_offset, recovered.truncated_bytes, recovered.clean) == (10, 0, False)
        assert len(cluster.emitted(LeaderElected)) == 2


def test_killed_broker_re_registers_after_its_session_at_the_latest() -> None:
    """101 DUPLICATE_BROKER_REGISTRATION until the session expires; the backoff doubles from 100 ms
    (BrokerLifecycleManager).
    """
    with running_cluster() as cluster:
        before_ns = cluster.simulation.now_ns
        cluster.kill("broker-1")
        cluster.simulation.restart("broker-1")
        cluster.wait_ready("broker-1")
        assert 8 < (cluster.simulation.now_ns - before_ns) / 1e9 < 14


def test_clean_stop_moves_leadership_and_writes_the_clean_shutdown_file() -> None:
    """Controlled shutdown, then .kafka_cleanshutdown with the broker epoch (KIP-966); the next
    start skips recovery and is ready at once.
    """
    with running_cluster() as cluster:
        cluster.run(create_and_fill)
        epoch = cluster.brokers["broker-1"].broker_epoch
        before_ns = cluster.simulation.now_ns
        cluster.stop("broker-1")
        assert (cluster.simulation.now_ns - before_ns) / 1e9 < 3
        assert [event.reason for event in cluster.emitted(NodeStopped)] == ["stopped"]
        assert len(cluster.emitted(LeadershipLost)) == 1
        assert [event.reason for event in cluster.emitted(BrokerFenced)] == ["shut down"]
        world = cluster.simulation.restart("broker-1").world
        assert world is not None
        disk = world.disk
        assert parse_clean_shutdown(disk.read(".kafka_cleanshutdown")) == epoch
        cluster.wait_ready("broker-1", limit_s=2)
        assert not disk.exists(".kafka_cleanshutdown")
        assert cluster.run(read_all) == [0, 2, 4, 6, 8]
        assert cluster.run(repeat_last) == (0, 8)
        assert cluster.emitted(LogRecovered)[-1].clean


def test_broker_that_stops_before_it_has_caught_up_recovers_its_logs_next_time() -> None:
    """Without a controller it opens no log: its clean stop says nothing about them, and writes no
    checkpoint (LogManager.loadLogsCompletedFlags).
    """
    checkpoint = "replication-offset-checkpoint"
    with running_cluster() as cluster:
        cluster.run(create_and_fill)
        cluster.simulation.run_for(6)
        cluster.kill("broker-1")
        files = cluster.simulation.host("broker-1").durable.names
        before = bytes(files[checkpoint].cache)
        cluster.kill(CONTROLLER_HOST)
        cluster.simulation.restart("broker-1")
        cluster.simulation.run_for(10)
        cluster.stop("broker-1")
        assert ".kafka_cleanshutdown" not in files
        assert bytes(files[checkpoint].cache) == before
        cluster.simulation.restart(CONTROLLER_HOST)
        cluster.simulation.restart("broker-1")
        cluster.wait_ready("broker-1")
        assert not cluster.emitted(LogRecovered)[-1].clean
        assert cluster.run(read_all) == [0, 2, 4, 6, 8]
        assert cluster.run(repeat_last) == (0, 8)


def test_records_acknowledged_after_a_flush_survive_a_power_loss() -> None:
    """log.flush.interval.messages=1: the response is sent only after the flush; by default, as in
    Kafka, it is not.
    """
    for interval, survives in (("1", True), ("1000000", False)):
        with running_cluster(log_flush_interval_messages=interval) as cluster:
            cluster.run(create_and_fill)
            cluster.kill("broker-1", power_loss=True)
            cluster.simulation.restart("broker-1")
            cluster.wait_ready("broker-1")
            found = cluster.run(read_all)
            assert (found == [0, 2, 4, 6, 8]) == survives


def test_restarted_controller_is_found_again() -> None:
    """Requests wait in the channel, heartbeats continue, the metadata log is fetched in the new
    epoch; no broker registers again.
    """
    with running_cluster() as cluster:
        cluster.run(create_and_fill)
        cluster.kill(CONTROLLER_HOST)
        cluster.simulation.run_for(3)
        assert cluster.run(read_all) == [0, 2, 4, 6, 8]
        cluster.simulation.restart(CONTROLLER_HOST)
        cluster.simulation.run_for(5)

        async def work(client: Client) -> None:
            await client.create_topic("after")
            assert (await client.produce(batch(), "after")).error_code == 0
            assert await client.fresh_producer_id() >= 0

        cluster.run(work)
        assert len(cluster.emitted(BrokerEpochReceived)) == 1
        applied = [event.next_offset for event in cluster.emitted(MetadataApplied)]
        assert applied == sorted(applied)


def test_broker_fenced_after_a_pause_serves_again_without_a_restart() -> None:
    """A pause of 20 s ends the session; the next heartbeat requests unfencing, and the broker leads
    again in a new epoch.
    """
    with running_cluster(2) as cluster:
        leader = create_and_fill_somewhere(cluster)
        cluster.simulation.pause(leader)
        cluster.simulation.run_for(20)
        cluster.simulation.resume(leader)
        cluster.simulation.run_for(5)
        assert cluster.run(read_all, leader) == [0, 2, 4, 6, 8]
        assert [event.leader_epoch for event in cluster.emitted(LeaderElected, leader)] == [0, 2]


def test_directory_of_another_cluster_or_node_is_rejected() -> None:
    """meta.properties: one clear line, and the directory is unchanged."""
    with running_cluster() as cluster:
        cluster.stop("broker-1")
        world = cluster.simulation.restart("broker-1").world
        assert world is not None
        cluster.wait_ready("broker-1")
        for config, line in (
            (broker_config(2, "broker-1"), "belongs to node 1, not to 2 (node.id)"),
            (
                broker_config(1, "broker-1", kraftsim_cluster_id="other"),
                "not to other (kraftsim.cluster.id)",
            ),
        ):
            with pytest.raises(ForeignDirectory, match=r"log\.dirs: .* belongs to") as refused:
                cluster.simulation.run_until(
                    cluster.simulation.spawn(
                        "broker-1", Broker(world, config, cluster.parts).start()
                    )
                )
            assert line in str(refused.value)


@pytest.mark.parametrize("refusal", ["write", "flush"])
def test_disk_error_stops_the_broker(refusal: str) -> None:
    """Kafka halts when its only log directory fails: what cannot be stored must not be
    acknowledged.
    """
    with running_cluster(log_flush_interval_messages="1") as cluster:
        cluster.run(create_and_fill)
        faults = cluster.simulation.host("broker-1").durable.faults
        if refusal == "flush":
            faults.refusals.append(
                FlushRefusal(kind=FileClass.PARTITION_LOG, record_effect=lambda effect: None)
            )
        else:
            faults.full.append(Full(record_effect=lambda effect: None))

        async def work(client: Client) -> None:
            with pytest.raises(OSError):
                await client.produce(batch())

        cluster.run(work)
        assert len(cluster.emitted(NodeFailed)) == 1
        assert [event.operation for event in cluster.emitted(DiskFailed)] == [refusal]


def test_broker_that_cannot_register_stops_with_an_error() -> None:
    """initial.broker.registration.timeout.ms: the node fails, and the readiness wait raises."""
    with Simulation(1) as simulation:
        simulation.add_host(CONTROLLER_HOST)
        simulation.add_host("broker-1")
        config = broker_config(1, "broker-1", initial_broker_registration_timeout_ms="5000")
        broker = Broker(simulation.world_of("broker-1"), config, parts())

        async def live() -> None:
            await broker.start()
            with pytest.raises(
                RegistrationTimedOut,
                match="no controller accepted the registration within 5000 ms: ",
            ):
                await broker.ready()
            assert isinstance(await broker.failed(), RegistrationTimedOut)

        simulation.run_until(simulation.spawn("broker-1", live()), limit_s=10)


def test_broker_of_another_cluster_stops_with_an_error() -> None:
    """The quorum rejects its Fetch, so it never learns the leader. One event reports it at once, as
    one log line; Kafka logs a line per request.
    """
    with running_cluster() as cluster:
        world = cluster.simulation.world_of("client")
        config = broker_config(
            2,
            "client",
            initial_broker_registration_timeout_ms="5000",
            kraftsim_cluster_id=OTHER_CLUSTER,
        )
        broker = Broker(world, config, cluster.parts)

        async def live() -> BaseException:
            await broker.start()
            return await broker.failed()

        failure = cluster.simulation.run_until(
            cluster.simulation.spawn("client", live()), limit_s=10
        )
        assert isinstance(failure, RegistrationTimedOut)
        assert str(failure).endswith(
            "within 5000 ms: the quorum answered Fetch with INCONSISTENT_CLUSTER_ID"
        )
        (refusal,) = cluster.emitted(OtherClusterAnswered)
        assert (refusal.own_cluster_id, refusal.error_code) == (
            OTHER_CLUSTER,
            ErrorCode.INCONSISTENT_CLUSTER_ID,
        )


def test_broker_re_registers_only_when_directories_become_supported() -> None:
    """BrokerRegistrationTracker: the metadata.version supports directories, the registration has
    none. It is the same incarnation and remains leader.
    """
    with running_cluster() as cluster:
        cluster.run(create_and_fill)
        broker = cluster.brokers["broker-1"]
        (first,) = cluster.emitted(BrokerEpochReceived)
        records = list(snapshot_records(broker.image))
        registered = next(record for record in records if isinstance(record, RegisterBrokerRecord))

        def publish(**changes: object) -> int:
            image = MetadataImage()
            for record in records:
                image.load(record)
            cluster.simulation.run_until(
                # arg-type: keyword arguments of several types
                cluster.simulation.spawn("broker-1", broker.publish(image, ImageChanges(**changes)))  # type: ignore[arg-type]
            )
            cluster.simulation.run_for(5)
            return len(cluster.emitted(BrokerEpochReceived))

        assert publish(features=True) == 1
        registered.log_dirs = []
        assert publish(registries=True) == 1
        assert publish(features=True) == 2
        own = broker.image.broker(1)
        assert (
            own is not None and own.directories and own.incarnation_id == registered.incarnation_id
        )
        assert own.broker_epoch == broker.broker_epoch == first.broker_epoch, (
            "an incarnation keeps its epoch"
        )
        assert len(cluster.emitted(BrokerRegistered)) == 2
        assert cluster.run(repeat_last) == (0, 8)
        assert len(cluster.emitted(LeaderElected)) == 1


def test_broker_stops_without_a_controller_after_one_session() -> None:
    """No controller can move its leadership; the logs are still closed cleanly."""
    with running_cluster() as cluster:
        cluster.run(create_and_fill)
        cluster.kill(CONTROLLER_HOST)
        before_ns = cluster.simulation.now_ns
        cluster.stop("broker-1")
        assert 8.9 < (cluster.simulation.now_ns - before_ns) / 1e9 < 9.5
        assert cluster.emitted(NodeStopped)


class CountsBeforeTheFlush(Leadership):
    """The bug of KAFKA-10533."""

    def _counted_end_offset(self, log: RaftLog) -> int:
        return log.end_offset


def test_broker_halts_when_the_quorum_loses_committed_records() -> None:
    """With a controller that commits too early: the log would have to be truncated below its high
    watermark, which a restarted broker does not know. After the restart it follows again.
    """
    with Simulation(3) as simulation:
        cluster = Cluster(simulation, 1, "3.9", {})
        cluster.parts = parts(leadership=CountsBeforeTheFlush)
        cluster.start()
        cluster.run(create_and_fill)
        simulation.host(CONTROLLER_HOST).durable.flush_ns = (400_000_000, 400_000_000)

        async def ask_for_a_block(client: Client) -> None:
            while await client.fresh_producer_id() != 0:
                pass

        cluster.run(ask_for_a_block)
        simulation.run_for(0.05)
        cluster.kill(CONTROLLER_HOST, power_loss=True)
        simulation.host(CONTROLLER_HOST).durable.flush_ns = (1_000_000, 1_000_000)
        simulation.restart(CONTROLLER_HOST)
        simulation.run_for(5)
        (halted,) = cluster.emitted(NodeFailed)
        assert "below the high watermark" in halted.reason
        cluster.kill("broker-1")
        simulation.restart("broker-1")
        cluster.wait_ready("broker-1")
        assert [event.end_offset for event in cluster.emitted(MetadataTruncated, "broker-1")]
        assert cluster.run(read_all) == [0, 2, 4, 6, 8]


def test_same_seed_gives_the_same_history() -> None:
    """Determinism of brokers: the event logs are byte-identical."""

    def history() -> bytes:
        with running_cluster(2, seed=11) as cluster:
            leader = create_and_fill_somewhere(cluster)
            cluster.kill(leader)
            cluster.simulation.run_for(3)
            cluster.simulation.restart(leader)
            cluster.simulation.run_for(20)
            return cluster.simulation.event_bytes()

    assert history() == history()
