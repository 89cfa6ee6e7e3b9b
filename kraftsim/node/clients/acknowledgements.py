"""What a producer notes of a record that was acknowledged.   Source: ProducerBatch.completeFutureAndFireCallbacks, Sender.completeBatch."""

from kraftsim.core.clients.producer_steps import RecordDelivered
from kraftsim.events.clients import RecordAcknowledged, RecordCalledDuplicate
from kraftsim.world.interface import World


def note_delivered(world: World, client_id: str, delivered: RecordDelivered) -> None:
    """Note that a record was acknowledged; before that, under which sequence its batch was called a duplicate, if it was."""
    record = delivered.record
    topic, partition = record.where
    if delivered.duplicate_of is not None:
        producer_id, producer_epoch = delivered.duplicate_of
        world.note(
            RecordCalledDuplicate(
                client_id=client_id,
                topic=topic,
                partition=partition,
                record_key=record.key,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=delivered.base_sequence,
            )
        )
    acknowledged = RecordAcknowledged(client_id=client_id, topic=topic, partition=partition, record_key=record.key, offset=delivered.offset)
    world.note(acknowledged)
