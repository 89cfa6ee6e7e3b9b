"""The events of an acknowledged record.

Source: ProducerBatch.completeFutureAndFireCallbacks, Sender.completeBatch.
"""

from kraftsim.clients.events import RecordAcknowledged, RecordReportedDuplicate
from kraftsim.clients.rules_producer_steps import RecordDelivered
from kraftsim.world.interface import World


def emit_delivered(world: World, client_id: str, delivered: RecordDelivered) -> None:
    """Emit that a record was acknowledged, preceded by the sequence number of its batch if that was
    a duplicate.
    """
    record = delivered.record
    topic, partition = record.where
    if delivered.duplicate_of is not None:
        producer_id, producer_epoch = delivered.duplicate_of
        world.emit(
            RecordReportedDuplicate(
                client_id=client_id,
                topic=topic,
                partition=partition,
                record_key=record.key,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=delivered.base_sequence,
            )
        )
    acknowledged = RecordAcknowledged(
        client_id=client_id,
        topic=topic,
        partition=partition,
        record_key=record.key,
        offset=delivered.offset,
    )
    world.emit(acknowledged)
