"""The migration of a cluster from ZooKeeper to KRaft, from the view of its controllers.

Source: KIP-866.
"""

from kraftsim.events.event import Event


class MetadataCopyForgotten(Event):
    """A migrating broker deleted its old metadata log, and replicates it from the start."""


class MigrationDriverMoved(Event):
    """The migration driver of this controller went from one state to another."""

    from_state: str
    to_state: str


class MigrationWaits(Event):
    """The migration driver cannot proceed yet; it will retry."""

    state: str
    reason: str


class MigrationStateChanged(Event):
    """The metadata log has a new migration state: `migration_state` is the number of the record."""

    migration_state: int


class ZookeeperControllerClaimed(Event):
    """A KRaft controller claimed /controller; `controller_epoch` is the new value of
    /controller_epoch.
    """

    controller_epoch: int
    kraft_controller_epoch: int


class MigrationPieceCopied(Event):
    """A batch of the metadata migration is committed; with metadata transactions it is visible only
    at the end of the migration.
    """

    record_count: int
    last_offset: int


class ZookeeperMetadataCopied(Event):
    """The metadata migration is complete, up to the record that ended it; `next_producer_id` is
    null if no block was ever allocated.
    """

    record_count: int
    last_offset: int
    next_producer_id: int | None


class ZnodesMirrored(Event):
    """ZooKeeper was updated from the log up to an offset (inclusive); `operations` is a
    comma-separated list.

    A full comparison is one, too.
    """

    last_offset: int
    is_full: bool
    operations: str
    znode_count: int


class ProducerIdBlockMirrored(Event):
    """The block of producer ids in ZooKeeper was updated from the log; both ends are inclusive."""

    first_producer_id: int
    last_producer_id: int


class BrokersNotified(Event):
    """Requests to brokers in ZooKeeper mode were sent."""

    controller_epoch: int
    is_full: bool
    request_count: int


class ZookeeperCompared(Event):
    """The harness compared ZooKeeper with the log at the offset of its last update; `what` is a
    comma-separated list of differences.
    """

    controller: str
    offset: int
    differences: int
    what: str


class MetadataCarriedOver(Event):
    """The harness compared the metadata log after a migration with the metadata that ZooKeeper had
    before; `what` is a comma-separated list of what is missing, other, or goes back.
    """

    controller: str
    differences: int
    what: str
