"""The committed metadata image on a controller: the migration driver compares ZooKeeper with it,
and sends it to brokers.

Read from the log itself, whichever controller wrote it, so it contains nothing that could be
reverted.
Source: org.apache.kafka.image.loader.MetadataLoader.
"""

from collections.abc import Callable

from kraftsim.metadata.rules_image import ImageChanges, MetadataImage
from kraftsim.metadata.rules_registries import MetadataRecord
from kraftsim.raft.raft_node import RaftNode
from kraftsim.raft.rules_log import SnapshotId
from kraftsim.zookeeper.rules_znode_writes import Touched
from protocol.metadata.registrations import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from protocol.metadata.registry import parse_record
from protocol.records.batches import RecordBatch, split_batches

READ_BYTES = 256 * 1024
REGISTRATIONS = (
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    UnfenceBrokerRecord,
    RegisterControllerRecord,
)


class CommittedImage:
    """`advance` applies what was committed since; `touched` and `changes` describe that until they
    are taken.
    """

    def __init__(self, raft: RaftNode, new_image: Callable[[], MetadataImage]) -> None:
        self._raft = raft
        self._new_image = new_image
        self.image = self._watched_image()
        self.epoch = 0
        """The epoch of the last visible record."""
        self.offset = -1
        """The offset of the last visible record: records of an open metadata transaction are not
        visible.
        """
        self.touched = Touched()
        self.is_snapshot = False
        """Whether a snapshot has replaced the image since the changes were taken."""
        self.registration_count = 0
        """How often a broker or controller registration changed."""

    @property
    def has_metadata(self) -> bool:
        """Whether the log contains any metadata."""
        return bool(self.image.finalized_features)

    def advance(self) -> bool:
        """Apply the newly committed records; return whether there were any."""
        committed = self._raft.high_watermark or 0
        log = self._raft.quorum.log
        latest = log.latest_snapshot
        following = self.image.highest_offset + 1
        if (
            latest is not None
            and following < latest.end_offset
            and (following < log.start_offset or following == 0)
        ):
            self._load(latest)
            following = latest.end_offset
        if following >= committed:
            return False
        while following < committed and (
            data := self._raft.store.read(following, READ_BYTES, committed)
        ):
            for batch in split_batches(data):
                self._replay(batch)
                following = batch.next_offset
        return True

    def take(self) -> tuple[Touched, ImageChanges, bool]:
        """Return and reset what was touched, what changed, and whether a snapshot was loaded."""
        taken = self.touched, self.image.take_changes(), self.is_snapshot
        self.touched, self.is_snapshot = Touched(), False
        return taken

    def _load(self, snapshot: SnapshotId) -> None:
        self.image = self._watched_image()
        for batch in self._raft.store.snapshots.read(snapshot):
            if not batch.is_control:
                for record in batch.records():
                    assert record.value is not None, "a metadata record has a value"
                    self.image.load(parse_record(record.value))
        self.image.skip(snapshot.end_offset - 1)
        self.offset, self.epoch, self.is_snapshot = snapshot.end_offset - 1, snapshot.epoch, True
        self.touched = Touched()

    def _replay(self, batch: RecordBatch) -> None:
        if batch.is_control:
            self.image.skip(batch.last_offset)
        else:
            for record in batch.records():
                assert record.value is not None, "a metadata record has a value"
                self.image.replay(parse_record(record.value), record.offset)
        if not self.image.is_in_transaction:
            self.offset, self.epoch = batch.last_offset, batch.partition_leader_epoch

    def _watched_image(self) -> MetadataImage:
        image = self._new_image()

        def watch(record: MetadataRecord) -> None:
            self.touched.emit(record, image)
            self.registration_count += isinstance(record, REGISTRATIONS)

        image.before_applying = watch
        return image
