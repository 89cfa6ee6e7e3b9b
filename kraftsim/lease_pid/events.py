"""Events of servers and clients of lease_pid.   Source: the lease_pid draft."""

from kraftsim.events.event import Event


class LeaseIdsReserved(Event):
    """A server has reserved the numbers first_number .. next_number - 1 from the counter in
    ZooKeeper.
    """

    first_number: int
    next_number: int


class LeaseGranted(Event):
    """lease_pid was answered; is_new: the id was not used before; is_check: the request changed
    nothing.
    """

    topic: str
    partition: int
    producer_id: int
    generation: int
    sequence_number: int
    is_new: bool
    is_check: bool


class LeasedMessageRefused(Event):
    """A message was not appended: another generation, a number out of order, or an unknown (or
    expired) producer.
    """

    topic: str
    partition: int
    producer_id: int
    generation: int
    sequence_number: int
    error_code: int


class LeasedMessageRepeated(Event):
    """A message was in the log already."""

    topic: str
    partition: int
    producer_id: int
    sequence_number: int


class LeasedProducersExpired(Event):
    """A server expired producers that were idle for the expiration time."""

    topic: str
    partition: int
    producers: int


class LeasedPartitionLed(Event):
    """A server leads a partition from now on."""

    topic: str
    partition: int
    leader_epoch: int
    end_offset: int


class LeasedLogTruncated(Event):
    """A follower's log diverged from its leader's, and was truncated."""

    topic: str
    partition: int
    end_offset: int


class LeasedServerRecovered(Event):
    """A server has loaded its files: the number of messages in its logs, and how many of them it
    replayed behind its snapshot.
    """

    messages: int
    replayed: int
    producers: int
