"""A broker keeps a replica of the metadata log: it starts from it, recovers it, replaces it by
snapshots, and follows the current leader.
"""

from collections.abc import Awaitable, Callable

import pytest

from kraftsim.clients.producer_id_client import InitProducerIdClient
from kraftsim.cluster.simulation import SimulatedCluster
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.metadata.events import BrokerEpochReceived, ControllerElected, MetadataApplied
from kraftsim.metadata.rules_image import snapshot_records
from kraftsim.raft.events import SnapshotLoaded, SnapshotWritten
from kraftsim.server.events import LogRecovered, NodeFailed, NodeReady
from kraftsim.world.simulated import Simulation
from protocol.records.batches import split_batches
from protocol.storage.file_names import METADATA_TOPIC
from protocol.storage.quorum_state import parse_quorum_state
from tests.node.brokers import CONTROLLER_HOST, Client, Cluster, running_cluster

LOG = "__cluster_metadata-0/00000000000000000000.log"
QUORUM_STATE = "__cluster_metadata-0/quorum-state"
MANY_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "2000"}


def content(cluster: Cluster, host: str, path: str = LOG) -> bytes:
    """The bytes of a file as the processes of a host see it."""
    return bytes(cluster.simulation.host(host).durable.names[path].cache)


def names(cluster: Cluster, host: str, suffix: str) -> list[str]:
    """The names of the metadata log files with this suffix."""
    return sorted(
        path
        for path in cluster.simulation.host(host).durable.names
        if path.startswith(METADATA_TOPIC) and path.endswith(suffix)
    )


def create(*topics: str) -> Callable[[Client], Awaitable[None]]:
    """A coroutine that creates topics."""

    async def work(client: Client) -> None:
        for topic in topics:
            await client.create_topic(topic)

    return work


def restart(cluster: Cluster, name: str, *, power_loss: bool = False) -> None:
    """Kill a node and start it again."""
    cluster.kill(name, power_loss=power_loss)
    cluster.simulation.restart(name)


def same_image(cluster: Cluster, one: str, other: str) -> bool:
    """Whether two brokers have the same image."""
    first, second = (list(snapshot_records(cluster.brokers[name].image)) for name in (one, other))
    return first == second


def test_broker_stores_the_metadata_log_in_kafkas_layout() -> None:
    """The same bytes as the leader's, and a quorum-state with the leader and no vote."""
    with running_cluster() as cluster:
        cluster.run(create("t"))
        cluster.simulation.run_for(1)
        own, leaders = content(cluster, "broker-1"), content(cluster, CONTROLLER_HOST)
        assert own and leaders.startswith(own) and len(leaders) - len(own) < 500
        state = parse_quorum_state(content(cluster, "broker-1", QUORUM_STATE))
        assert (state.leader_id, state.leader_epoch, state.voted_id) == (101, 1, -1)
        held = names(cluster, "broker-1", "")
        assert {
            "__cluster_metadata-0/leader-epoch-checkpoint",
            "__cluster_metadata-0/partition.metadata",
            LOG,
            QUORUM_STATE,
        } <= set(held)


@pytest.mark.parametrize("power_loss", [False, True])
def test_restarted_broker_reads_its_log_and_fetches_the_rest(power_loss: bool) -> None:
    """Records that a power loss removed or tore are fetched again: an observer need not flush."""
    with running_cluster(2) as cluster:
        cluster.run(create("t"), "broker-2")
        before = content(cluster, "broker-1")
        restart(cluster, "broker-1", power_loss=power_loss)
        cluster.wait_ready("broker-1")
        recovered = [
            event
            for event in cluster.emitted(LogRecovered, "broker-1")
            if event.topic == METADATA_TOPIC
        ]
        assert recovered[0].next_offset == 0
        assert power_loss or recovered[1].next_offset > 5
        cluster.run(create("after"), "broker-2")
        cluster.simulation.run_for(1)
        own = content(cluster, "broker-1")
        assert len(own) > len(before) and content(cluster, CONTROLLER_HOST).startswith(own)
        assert same_image(cluster, "broker-1", "broker-2")


@pytest.mark.parametrize("torn_bytes", [1, 60, 200])
def test_torn_tail_of_the_metadata_log_is_truncated_and_fetched_again(torn_bytes: int) -> None:
    """An incomplete batch at the end is no batch."""
    with running_cluster() as cluster:
        cluster.run(create("t"))
        cluster.kill("broker-1")
        inode = cluster.simulation.host("broker-1").durable.names[LOG]
        del inode.cache[-torn_bytes:]
        cluster.simulation.restart("broker-1")
        cluster.wait_ready("broker-1")
        recovered = [
            event
            for event in cluster.emitted(LogRecovered, "broker-1")
            if event.topic == METADATA_TOPIC
        ]
        assert recovered[1].truncated_bytes > 0
        cluster.simulation.run_for(1)
        assert content(cluster, CONTROLLER_HOST).startswith(content(cluster, "broker-1"))


@pytest.mark.parametrize("is_whole", [False, True])
def test_metadata_log_ends_where_a_segment_lost_its_end(is_whole: bool) -> None:
    """A power loss may leave a later segment: it is useless without the preceding records, even if
    the gap is between two batches.
    """
    with running_cluster(metadata_log_segment_bytes="1000") as cluster:
        cluster.run(create("t"))
        cluster.simulation.run_for(20)
        cluster.kill("broker-1")
        segments = names(cluster, "broker-1", ".log")
        assert len(segments) > 3
        inode = cluster.simulation.host("broker-1").durable.names[segments[1]]
        *_, last = split_batches(bytes(inode.cache))
        del inode.cache[last.position + (0 if is_whole else 10) :]
        cluster.simulation.restart("broker-1")
        cluster.simulation.run_for(0.001)
        assert names(cluster, "broker-1", ".log") == segments[:2]
        cluster.wait_ready("broker-1")
        cluster.simulation.run_for(1)
        theirs, own = (
            b"".join(content(cluster, host, path) for path in names(cluster, host, ".log"))
            for host in (CONTROLLER_HOST, "broker-1")
        )
        assert len(own) > 2000 and theirs.startswith(own)


def test_completed_segment_is_flushed() -> None:
    """An observer flushes nothing else, and a power loss removes no more than the last segment."""
    with running_cluster(metadata_log_segment_bytes="1000") as cluster:
        cluster.simulation.run_for(40)
        *complete, _ = names(cluster, "broker-1", ".log")
        before = {path: content(cluster, "broker-1", path) for path in complete[:-1]}
        assert len(before) > 2
        cluster.kill("broker-1", power_loss=True)
        assert {
            path: content(cluster, "broker-1", path)
            for path in names(cluster, "broker-1", ".log")
            if path in before
        } == before


def test_without_a_controller_only_the_own_snapshot_is_loaded() -> None:
    """Later records of the log may be uncommitted.

    With a controller the broker continues from there.
    """
    with running_cluster(
        settings={name.replace(".", "_"): value for name, value in MANY_SNAPSHOTS.items()}
    ) as cluster:
        cluster.run(create("t"))
        cluster.simulation.run_for(30)
        cluster.kill(CONTROLLER_HOST)
        restart(cluster, "broker-1")
        cluster.simulation.run_for(5)
        broker, written = cluster.brokers["broker-1"], cluster.emitted(SnapshotWritten, "broker-1")
        assert len(written) > 1
        assert broker.image.topic("t") is not None
        assert broker.image.highest_offset == written[-1].end_offset - 1
        assert not cluster.is_running("broker-1")
        cluster.simulation.restart(CONTROLLER_HOST)
        cluster.wait_ready("broker-1")
        assert broker.image.highest_offset >= written[-1].end_offset


def test_broker_that_was_away_for_long_fetches_the_leaders_snapshot() -> None:
    """The records it lacks are deleted; after the snapshot its state is current, and its log begins
    there.
    """
    settings = {
        **MANY_SNAPSHOTS,
        "metadata.max.retention.bytes": "0",
        "metadata.log.segment.bytes": "1000",
    }
    with running_cluster(
        2, settings={name.replace(".", "_"): value for name, value in settings.items()}
    ) as cluster:
        cluster.run(create("t"), "broker-2")
        cluster.kill("broker-1")
        cluster.run(create("u"), "broker-2")
        cluster.simulation.run_for(60)
        cluster.simulation.restart("broker-1")
        cluster.wait_ready("broker-1")
        (loaded,) = cluster.emitted(SnapshotLoaded, "broker-1")
        cluster.simulation.run_for(1)
        assert loaded.end_offset in {
            event.end_offset for event in cluster.emitted(SnapshotWritten, CONTROLLER_HOST)
        }
        assert (
            min(
                int(path.split("/")[1].split(".")[0]) for path in names(cluster, "broker-1", ".log")
            )
            >= loaded.end_offset
        )
        assert same_image(cluster, "broker-1", "broker-2")
        applied = [event.next_offset for event in cluster.emitted(MetadataApplied, "broker-1")]
        assert applied[-1] >= loaded.end_offset


def test_broker_deletes_metadata_log_segments_before_its_snapshots() -> None:
    """metadata.max.retention.bytes applies to its log as to the leader's."""
    settings = {
        **MANY_SNAPSHOTS,
        "metadata.max.retention.bytes": "5000",
        "metadata.log.segment.bytes": "1000",
    }
    with running_cluster(
        settings={name.replace(".", "_"): value for name, value in settings.items()}
    ) as cluster:
        cluster.simulation.run_for(400)
        assert len(cluster.emitted(SnapshotWritten, "broker-1")) > 5
        assert len(names(cluster, "broker-1", ".checkpoint")) <= 3
        assert LOG not in names(cluster, "broker-1", ".log")
        kept = sum(
            len(content(cluster, "broker-1", path)) for path in names(cluster, "broker-1", ".log")
        )
        assert kept < 10_000
        restart(cluster, "broker-1")
        cluster.wait_ready("broker-1")
        assert not cluster.emitted(NodeFailed)


@pytest.mark.parametrize("first_voters", [0, 3])
def test_broker_follows_the_next_leader(first_voters: int) -> None:
    """With voters in the configuration (0), or in the log with only bootstrap servers in the
    configuration: no broker registers again.
    """
    with Simulation(5) as simulation:
        spec = ClusterSpec(brokers=1, controllers=3, first_voters=first_voters)
        cluster = SimulatedCluster(spec, simulation)
        seen: dict[type, list[tuple[str, object]]] = {
            ControllerElected: [],
            BrokerEpochReceived: [],
            NodeReady: [],
        }
        simulation.observe(
            lambda node, incarnation, n, t_ns, event: seen.get(type(event), []).append(
                (node, event)
            )
        )
        simulation.add_host("asker")
        cluster.start()
        simulation.run_until(cluster.wait_until_ready(), limit_s=60)
        world = simulation.world_of("asker")

        async def ask_for_many() -> list[int]:
            client = InitProducerIdClient(
                world, bootstrap=cluster.addresses, client_id="asker", retry_backoff_ms=20
            )
            found = await client.ask(1500)
            await client.close()
            return found

        before = simulation.run_until(simulation.spawn("asker", ask_for_many()), limit_s=120)
        first_leader = seen[ControllerElected][-1][0]
        simulation.kill(cluster.hosts[first_leader].name)
        simulation.run_for(10)
        assert seen[ControllerElected][-1][0] != first_leader
        after = simulation.run_until(simulation.spawn("asker", ask_for_many()), limit_s=120)
        assert not set(before) & set(after)
        assert len(seen[BrokerEpochReceived]) == 1
        assert cluster.failures == []
        own = [path for path in cluster.hosts["broker-1"].durable.names if path.endswith(LOG)]
        epochs = {
            each.partition_leader_epoch
            for each in split_batches(bytes(cluster.hosts["broker-1"].durable.names[own[0]].cache))
        }
        assert len(epochs) >= 2
