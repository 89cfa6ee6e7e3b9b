"""Reads a topic through each of its replicas: whichever one leads, the same records are read.

A consumer reads from the leader, so every broker is restarted in turn, stopped or killed, and the
topic is read again each time. With read_committed the transaction indexes that a broker has rebuilt
are compared, too.
Source: KIP-98; kafka.tools.ReplicaVerificationTool.
"""

from collections.abc import Sequence

from kraftsim.clients.reader import ReadRecord
from kraftsim.cluster.scenario import ScenarioEnvironment, ScenarioFailed
from kraftsim.lab.workloads.phases import replicas_settle

Places = dict[tuple[int, int], str]
"""(partition, offset) -> key of a record that was read."""
KILLED_SHARE = 0.5


async def read_through_each_replica(
    stage: ScenarioEnvironment, topic: str, partitions: int, *, read_committed: bool
) -> None:
    """Read a topic, and again after the restart of each broker; nothing else writes to it.

    Raises ScenarioFailed if two reads differ where both logs have records, LivenessLost if a
    replica does not catch up.
    """
    random = stage.random(f"restarts for {topic}")
    first: Places | None = None
    for number, name in enumerate(("", *stage.spec.broker_names)):
        if name:
            if random.random() < KILLED_SHARE:
                await stage.kill(name)
            await stage.restart(name)
            await stage.wait_for_brokers()
            await stage.elect_preferred_leaders()
        await replicas_settle(stage, topic, partitions)
        reader = stage.reader(f"{topic}-reader-{number}", read_committed=read_committed)
        records = await reader.read_all(topic, range(partitions))
        await reader.close()
        places = {(record.partition, record.offset): record.key for record in records}
        if first is None:
            first = places
        else:
            _compare(topic, first, places, _starts(records), name)


def _compare(
    topic: str, former: Places, places: Places, starts: dict[int, int], restarted: str
) -> None:
    for where in sorted({*former, *places}):
        partition, offset = where
        if offset >= starts.get(partition, 0) and former.get(where) != places.get(where):
            raise ScenarioFailed(
                f"{topic}-{partition}, offset {offset}: {former.get(where)} was read first, and "
                f"{places.get(where)} after the restart of {restarted}"
            )


def _starts(records: Sequence[ReadRecord]) -> dict[int, int]:
    """Return the first offset that was read of each partition: retention may have moved it."""
    found: dict[int, int] = {}
    for record in records:
        found[record.partition] = min(record.offset, found.get(record.partition, record.offset))
    return found
