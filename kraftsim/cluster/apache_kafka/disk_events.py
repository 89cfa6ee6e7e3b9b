"""Events that the disks of brokers and controllers show after a run, where no node has emitted any.

Invariants need them to excuse what Kafka permits: an unclean election and a deleted topic are in
the metadata log, a cleaned log is in the checkpoint of the log cleaner. Registrations and blocks of
producer ids are there, too. An epoch of a transactional id that decreases in the coordinator's log
counts as a change that the coordinator gave up: what it believed is on no disk.
Source: KIP-631, KIP-730, org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile,
kafka.log.LogCleanerManager.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from kraftsim.events.event import Event
from kraftsim.metadata.events import BrokerRegistered, PartitionChanged, TopicDeleted
from kraftsim.metadata.rules_image import NO_OFFSET, MetadataImage, last_metadata_log
from kraftsim.metadata.rules_partition_changes import partition_changed_event
from kraftsim.partitions.events import FinalTransaction, LeaderElected
from kraftsim.producer_ids.events import ProducerIdBlockAllocated
from kraftsim.producer_ids.rules_allocation import BLOCK_SIZE
from kraftsim.server.events import SegmentsCleaned
from kraftsim.transactions.events import TransactionChangeGivenUp
from protocol.metadata.controller import ProducerIdsRecord
from protocol.metadata.registrations import RegisterBrokerRecord
from protocol.metadata.topics import RECOVERING, PartitionChangeRecord, RemoveTopicRecord
from protocol.schema import Message
from protocol.storage.file_names import CLEANER_OFFSETS, parse_partition_directory_name
from protocol.storage.text_files import (
    LEADER_EPOCHS,
    parse_leader_epoch_checkpoint,
    parse_offset_checkpoint,
)
from protocol.uuids import uuid_text

UNKNOWN: Final = -1


def disk_events(
    logs: Mapping[str, Path], metadata: Mapping[str, bytes], transactions: Iterable[Event]
) -> Iterator[Event]:
    """Yield the events of a run that the disks show.

    `logs` are the log directories of the brokers by their names; `metadata` maps
    'NODE/__cluster_metadata-0/FILE' to bytes; of `transactions`, the FinalTransaction events are
    read. Raises MalformedMessage or MalformedFile (ValueErrors) for a file that cannot be read.
    """
    unclean: dict[tuple[str, int], dict[int, None]] = {}
    for event in metadata_events(metadata):
        if isinstance(event, PartitionChanged) and event.leader_recovery_state == RECOVERING:
            unclean.setdefault((event.topic, event.partition), {})[event.leader_epoch] = None
        yield event
    for directory in logs.values():
        yield from _cleaned(directory)
        yield from _unclean_leaders(directory, unclean)
    yield from given_up_changes(transactions)


def metadata_events(files: Mapping[str, bytes]) -> Iterator[Event]:
    """Yield registrations, blocks of producer ids, changes of partitions and deletions of topics,
    from the longest metadata log among the controllers' disks.
    """
    image = MetadataImage()
    found: list[Event] = []
    at_offset = NO_OFFSET

    def watch(record: Message) -> None:
        event = _event_of(record, image, at_offset)
        if event is not None and at_offset != NO_OFFSET:
            found.append(event)

    image.before_applying = watch
    for offset, record in last_metadata_log(files):
        at_offset = offset
        if offset == NO_OFFSET:
            image.load(record)
        else:
            image.replay(record, offset)
    yield from found


def _event_of(record: Message, image: MetadataImage, offset: int) -> Event | None:
    match record:
        case RegisterBrokerRecord():
            return BrokerRegistered(
                broker_id=record.broker_id,
                broker_epoch=record.broker_epoch,
                incarnation_id=uuid_text(record.incarnation_id),
                fenced=record.fenced,
            )
        case ProducerIdsRecord():
            return ProducerIdBlockAllocated(
                broker_id=record.broker_id,
                broker_epoch=record.broker_epoch,
                first_producer_id=record.next_producer_id - BLOCK_SIZE,
                next_producer_id=record.next_producer_id,
                offset=offset,
            )
        case PartitionChangeRecord():
            topic = image.topic_by_id(record.topic_id)
            assert topic is not None, "a partition belongs to a topic"
            changed = topic.partitions[record.partition_id].changed_by(record)
            return partition_changed_event(
                (record.topic_id, record.partition_id), topic.name, changed
            )
        case RemoveTopicRecord():
            topic = image.topic_by_id(record.topic_id)
            assert topic is not None, "the removed topic exists"
            return TopicDeleted(
                topic=topic.name,
                topic_id=uuid_text(topic.topic_id),
                partition_count=len(topic.partitions),
            )
        case _:
            return None


def _cleaned(directory: Path) -> Iterator[SegmentsCleaned]:
    file = directory / CLEANER_OFFSETS
    if not file.exists():
        return
    for (topic, partition), offset in parse_offset_checkpoint(
        file.read_bytes(), CLEANER_OFFSETS
    ).items():
        yield SegmentsCleaned(
            topic=topic,
            partition=partition,
            first_offset=0,
            next_offset=offset,
            segment_count=UNKNOWN,
        )


def _unclean_leaders(
    directory: Path, unclean: Mapping[tuple[str, int], Mapping[int, None]]
) -> Iterator[LeaderElected]:
    """Yield where the logs of leaders ended that were elected uncleanly: a replica records the
    start offset of each leader epoch.
    """
    for file in sorted(directory.glob(f"*/{LEADER_EPOCHS}")):
        name = parse_partition_directory_name(file.parent.name)
        epochs = {} if name is None else unclean.get((name.topic, name.partition), {})
        if name is None or not epochs:
            continue
        for start in parse_leader_epoch_checkpoint(file.read_bytes()):
            if start.leader_epoch in epochs:
                yield LeaderElected(
                    topic=name.topic,
                    partition=name.partition,
                    leader_epoch=start.leader_epoch,
                    next_offset=start.start_offset,
                )


def given_up_changes(events: Iterable[Event]) -> Iterator[TransactionChangeGivenUp]:
    """Yield a change that was given up for each record of a transactional id after which the epoch
    of the same producer id is lower.
    """
    last: dict[tuple[str, int, str], FinalTransaction] = {}
    for event in events:
        if not isinstance(event, FinalTransaction):
            continue
        of = (event.broker, event.partition, event.transactional_id)
        before = last.get(of)
        last[of] = event
        if (
            before is not None
            and before.producer_id == event.producer_id
            and before.producer_epoch > event.producer_epoch
        ):
            yield TransactionChangeGivenUp(
                transactional_id=event.transactional_id,
                partition=event.partition,
                coordinator_epoch=UNKNOWN,
                offset=before.offset,
                error_code=UNKNOWN,
            )
