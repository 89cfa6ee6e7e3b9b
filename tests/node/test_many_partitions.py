"""The cost of many partitions at a broker: once per partition when all change, and nothing when
only one does.
"""

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from kraftsim.partitions.broker_handlers import k01_fetch
from kraftsim.partitions.replication import IsrChanges
from kraftsim.partitions.rules_reading import decide_read
from kraftsim.server.tasks import AT_ONCE, NodeTasks, at_once
from kraftsim.zookeeper.client import SessionState
from kraftsim.zookeeper.rules_znode_writes import WriteKind, ZnodeOperation, ZnodeWrite
from kraftsim.zookeeper.znode_writer import IN_FLIGHT_MAX, MigrationWriter
from protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from protocol.schema import Message
from protocol.zookeeper.op_codes import OpCode
from protocol.zookeeper.znodes import Asked
from tests.node.brokers import Client, Cluster, batch, running_cluster

PARTITIONS = 40
RECORDS = 20


class Checks:
    """How often a partition was checked for a fetch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._count = 0
        real = decide_read

        def counted(*arguments: object, **named: object) -> object:
            self._count += 1
            return real(*arguments, **named)  # type: ignore[arg-type]  # passed on as they came

        monkeypatch.setattr(k01_fetch, "decide_read", counted)

    def since_then(self) -> int:
        """Return the count since the last call."""
        count, self._count = self._count, 0
        return count


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three brokers and a topic with all partitions on each."""
    with running_cluster(3) as running:

        async def make(client: Client) -> None:
            topic = CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=3)
            answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
            assert answer.topics[0].error_code == 0

        running.run(make)
        running.simulation.run_until(lambda: all_in_sync(running), limit_s=60)
        running.simulation.run_for(2)
        yield running


def all_in_sync(cluster: Cluster) -> bool:
    """Return whether every leader has three replicas in sync."""
    hosted = [each for broker in cluster.brokers.values() for each in broker.partitions.hosted()]
    led = [each.replica.leader_state for each in hosted if each.replica.leader_state is not None]
    return (
        len(hosted) == 3 * PARTITIONS
        and len(led) == PARTITIONS
        and all(len(leader_state.in_sync) == 3 for leader_state in led)
    )


def test_leader_checks_only_changed_partitions_of_a_waiting_fetch(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that fails and returns changes every partition: checking all of them for each change
    would be quadratic.
    """
    looks = Checks(monkeypatch)
    cluster.simulation.run_for(10)
    assert looks.since_then() <= PARTITIONS, "nothing changes"

    async def write(client: Client) -> None:
        led = next(
            each
            for each in cluster.brokers["broker-1"].partitions.hosted()
            if each.replica.is_leader
        )
        for _ in range(RECORDS):
            assert (await client.produce(batch(), partition=led.partition)).error_code == 0

    cluster.run(write)
    assert RECORDS <= looks.since_then() <= 20 * RECORDS, "one partition changes"
    cluster.stop("broker-3")
    assert looks.since_then() <= 10 * PARTITIONS, "every partition changes once or twice"
    cluster.simulation.restart("broker-3")
    cluster.wait_ready("broker-3")
    cluster.simulation.run_until(lambda: all_in_sync(cluster), limit_s=60)
    assert looks.since_then() <= 10 * PARTITIONS, "every partition changes once or twice"


def test_followers_receive_every_record_though_most_partitions_are_idle(cluster: Cluster) -> None:
    """Cached rows become invalid with the first record, and high watermarks arrive."""
    leader = cluster.brokers["broker-1"]
    led = [each for each in leader.partitions.hosted() if each.replica.is_leader]

    async def write(client: Client) -> None:
        for each in led:
            assert (await client.produce(batch(2), partition=each.partition)).error_code == 0

    for times in (1, 2):
        cluster.run(write)
        cluster.simulation.run_for(2)
        for name in ("broker-2", "broker-3"):
            replicas = [cluster.brokers[name].partitions.find("t", each.partition) for each in led]
            assert [
                (each.replica.log_end_offset, each.replica.high_watermark)
                for each in replicas
                if each is not None
            ] == [(2 * times, 2 * times) for _ in led]


def test_leader_sends_all_isr_changes_in_one_request_at_a_time(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One AlterPartition per broker is in flight, with all changes that have accumulated
    (DefaultAlterPartitionManager).
    """
    under_way: dict[int, int] = {}
    sizes: list[int] = []
    real_request, real_answer = IsrChanges._request, IsrChanges._on_answer

    def request(changes: IsrChanges) -> object:
        under_way[id(changes)] = under_way.get(id(changes), 0) + 1
        assert under_way[id(changes)] == 1, "a second one before the response to the first"
        built = real_request(changes)
        sizes.append(sum(len(topic.partitions) for topic in built.topics))
        return built

    def on_answer(changes: IsrChanges, answer: Message | OSError) -> None:
        under_way[id(changes)] -= 1
        real_answer(changes, answer)

    monkeypatch.setattr(IsrChanges, "_request", request)
    monkeypatch.setattr(IsrChanges, "_on_answer", on_answer)
    cluster.stop("broker-3")
    asked_by_leaving = len(sizes)
    assert asked_by_leaving <= 6, f"{sizes} while a follower is about to go and may not come back"
    cluster.simulation.restart("broker-3")
    cluster.wait_ready("broker-3")
    cluster.simulation.run_until(lambda: all_in_sync(cluster), limit_s=60)
    assert sum(sizes[asked_by_leaving:]) >= PARTITIONS
    assert len(sizes) - asked_by_leaving <= 8, (
        f"{sizes[asked_by_leaving:]} to let it join everywhere"
    )


async def test_waiting_work_is_awaited_together_and_yields_to_others() -> None:
    """A few at a time, all in the end, and a failure is reported."""
    running = most = done = 0

    async def work() -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        done += 1

    await at_once([work] * (2 * AT_ONCE + 1))
    assert (most, done) == (AT_ONCE, 2 * AT_ONCE + 1)

    async def fails() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        await at_once([work, fails])


async def test_long_running_tasks_are_cancelled_last() -> None:
    """What a controller does while its broker closes logs."""
    tasks = NodeTasks(lambda failure: None)
    ordinary, lasting = (
        tasks.spawn(asyncio.sleep(60), "ordinary"),
        tasks.spawn(asyncio.sleep(60), "lasting", lasts=True),
    )
    await tasks.join()
    assert (ordinary.cancelled(), lasting.done()) == (True, False)
    await tasks.join_all()
    assert lasting.cancelled()


async def test_partition_state_znodes_are_written_ten_at_a_time() -> None:
    """And the last step of an operation writes /migration when all others are done
    (retryMigrationRequestsUntilConnected).
    """
    asked: list[tuple[int, Sequence[Asked]]] = []
    running = 0

    class Ensemble:
        state = SessionState.CONNECTED

        async def multi(self, requests: Sequence[Asked]) -> list[object]:
            nonlocal running
            running += 1
            asked.append((running, requests))
            await asyncio.sleep(0)
            running -= 1
            return [(OpCode.CHECK, None), (OpCode.CHECK, None), (OpCode.CHECK, None)]

    # arg-type: has only what the test uses
    writer = MigrationWriter(Ensemble(), epoch_version=1, migration_version=7)  # type: ignore[arg-type]
    writes = tuple(
        ZnodeWrite(
            kind=WriteKind.SET, path=f"/brokers/topics/t/partitions/{number}/state", data=b"{}"
        )
        for number in range(25)
    )
    await writer.carry_out(ZnodeOperation(name="UpdatePartitions", writes=writes), b"migration")
    assert max(count for count, _ in asked) == IN_FLIGHT_MAX
    last_count, last = asked[-1]
    assert len(asked) == 25 and last_count == 1
    assert last[1][0] == OpCode.SET_DATA and all(
        requests[1][0] == OpCode.CHECK for _, requests in asked[:-1]
    )
