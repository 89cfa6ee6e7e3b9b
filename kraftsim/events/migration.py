"""The move of a cluster from ZooKeeper to KRaft, as the controllers that drive it see it.   Source: KIP-866."""

from kraftsim.events.event import Event


class MetadataCopyForgotten(Event):
    """A broker that migrates deleted what it had of the metadata log before, and begins its copy anew."""


class MigrationDriverMoved(Event):
    """The migration driver of this controller went from one state to another."""

    from_state: str
    to_state: str


class MigrationWaits(Event):
    """The migration driver cannot go on yet; it will look again."""

    state: str
    reason: str


class MigrationStateChanged(Event):
    """The metadata log says that a migration stands elsewhere: `migration_state` is the number of the record."""

    migration_state: int


class ZookeeperControllerClaimed(Event):
    """A controller of KRaft took /controller; `controller_epoch` is what /controller_epoch became."""

    controller_epoch: int
    kraft_controller_epoch: int


class MigrationPieceCopied(Event):
    """A piece of the copy is committed; it shows only at the end of all of it, if the log can have transactions."""

    record_count: int
    last_offset: int


class ZookeeperMetadataCopied(Event):
    """The log has what ZooKeeper had, up to the record that ended the copy; `next_producer_id` is null if no block was ever taken."""

    record_count: int
    last_offset: int
    next_producer_id: int | None


class ZnodesMirrored(Event):
    """ZooKeeper says what the log says up to an offset, inside; `operations` is a comma-separated list. A full comparison is one, too."""

    last_offset: int
    is_full: bool
    operations: str
    znode_count: int


class ProducerIdBlockMirrored(Event):
    """The block of producer ids in ZooKeeper was moved along with the log; both ends are inside."""

    first_producer_id: int
    last_producer_id: int


class BrokersTold(Event):
    """Requests to brokers in ZooKeeper mode were put on their way."""

    controller_epoch: int
    is_full: bool
    request_count: int


class ZookeeperCompared(Event):
    """The harness compared ZooKeeper with the log at the offset up to which ZooKeeper is in step; `what` is a comma-separated list of differences."""

    controller: str
    offset: int
    differences: int
    what: str
