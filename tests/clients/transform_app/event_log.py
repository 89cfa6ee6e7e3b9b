"""Writes the inputs and outputs of real clients, as seen by the harness, to the event log of a run,
so that the analysis can check them too.
"""

import time
from itertools import count

from kraftsim.clients.events import RecordAcknowledged, RecordRead
from kraftsim.clients.events_transactions import CopyExpected, CopyRead
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.events.event import Event
from kraftsim.world.real.world import RealWorld, real_world
from tests.clients.transform_app.scenario import TransformApp

INCARNATIONS = count(1)


def log_outputs(cluster: ProcessCluster, transform_app: TransformApp) -> None:
    """Log the input records, and the output records that a read_committed consumer has read."""
    world = _harness(cluster)
    writer, reader = f"{transform_app.word}-writer", f"{transform_app.word}-reader"
    events: list[Event] = [
        CopyExpected(input_topic=transform_app.input, output_topic=transform_app.output)
    ]
    events += [
        RecordAcknowledged(
            client_id=writer,
            topic=transform_app.input,
            partition=partition,
            record_key=key.decode(),
            offset=offset,
        )
        for key, (partition, offset) in transform_app.writer.acknowledged.items()
    ]
    events += [
        RecordRead(
            client_id=reader,
            topic=transform_app.output,
            partition=partition,
            record_key=key.decode(),
            offset=offset,
            is_read_committed=True,
        )
        for partition, offset, key in transform_app.places
    ]
    events.append(CopyRead(client_id=reader, topic=transform_app.output))
    for event in events:
        world.emit(event)
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
