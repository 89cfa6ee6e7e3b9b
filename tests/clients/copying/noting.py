"""Writes the inputs and outputs of real clients, as seen by the harness, to the event log of a run, so that the analysis can check them too."""

import time
from itertools import count

from kraftsim.cluster.processes import ProcessCluster
from kraftsim.events.clients import RecordAcknowledged, RecordRead
from kraftsim.events.event import Event
from kraftsim.events.transactional_clients import CopyExpected, CopyRead
from kraftsim.world.real.world import RealWorld, real_world
from tests.clients.copying.story import Copying

INCARNATIONS = count(1)


def note_copies(cluster: ProcessCluster, copying: Copying) -> None:
    """Log the input records, and the output records that a read_committed consumer has read."""
    world = _harness(cluster)
    writer, reader = f"{copying.word}-writer", f"{copying.word}-reader"
    events: list[Event] = [CopyExpected(input_topic=copying.input, output_topic=copying.output)]
    events += [
        RecordAcknowledged(client_id=writer, topic=copying.input, partition=partition, record_key=key.decode(), offset=offset)
        for key, (partition, offset) in copying.writer.acknowledged.items()
    ]
    events += [
        RecordRead(client_id=reader, topic=copying.output, partition=partition, record_key=key.decode(), offset=offset, is_read_committed=True)
        for partition, offset, key in copying.places
    ]
    events.append(CopyRead(client_id=reader, topic=copying.output))
    for event in events:
        world.note(event)
    world.close()


def _harness(cluster: ProcessCluster) -> RealWorld:
    incarnation = next(INCARNATIONS)
    root = cluster.directory.root
    return real_world(
        run=cluster.spec.run,
        node="harness",
        incarnation=incarnation,
        data_dir=root / "data" / "harness",
        events_dir=cluster.directory.events,
        seed=0,
        started_ns=time.monotonic_ns(),
    )
