"""Producer ids: blocks on the controller, blocks on a broker, and the single ids that clients
received.

Source: KIP-730.
"""

from kraftsim.events.event import Event


class ProducerIdBlockAllocated(Event):
    """The ids first_producer_id .. next_producer_id - 1 are allocated to a broker.

    `given_by` is the allocator: 'quorum' for a record of the metadata log at `offset`; for a znode,
    the 'controller' that answers AllocateProducerIds, or the 'broker' itself; 'itself' for a broker
    that sends no request, a variant of KIP-730 (offset and broker_epoch are -1 in both).
    """

    broker_id: int
    broker_epoch: int
    first_producer_id: int
    next_producer_id: int
    offset: int
    given_by: str = "quorum"


class ProducerIdBlockRequested(Event):
    """A broker sent AllocateProducerIds.

    `last_producer_id`: the last id that it had taken from a block by then (-1: none), which may be
    the one whose client is answered right after.
    """

    broker_epoch: int
    last_producer_id: int = -1


class ProducerIdBlockReceived(Event):
    """A broker received a block as its next one."""

    first_producer_id: int
    next_producer_id: int


class ProducerIdBlockRefused(Event):
    """AllocateProducerIds came back with an error, timed out, or contained a block that the broker
    must not use.
    """

    error_code: int
    reason: str


class ProducerIdReturned(Event):
    """InitProducerId was answered without error.

    `fresh`: the id is from a block (not one that the producer had before).
    """

    producer_id: int
    producer_epoch: int
    fresh: bool
    transactional_id: str | None = None
    client_id: str | None = None


class ProducerIdSpent(Event):
    """An id was taken from a block, and may never be returned: for a 'new transactional id' that is
    not stored yet, for an 'exhausted epoch', or for a 'closed connection'.
    """

    producer_id: int
    reason: str
    transactional_id: str | None = None


class InitProducerIdRefused(Event):
    """InitProducerId was answered with an error."""

    error_code: int
    transactional_id: str | None = None
    client_id: str | None = None
