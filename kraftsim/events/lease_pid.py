"""What happens at servers and clients of lease_pid.   Source: the lease_pid draft."""

from kraftsim.events.event import Event


class LeaseIdsReserved(Event):
    """A server has taken numbers first_number .. next_number - 1 from the counter in ZooKeeper."""

    first_number: int
    next_number: int


class LeaseGranted(Event):
    """lease_pid was answered; is_new says that nobody had the id before, is_check that nothing was to change."""

    topic: str
    partition: int
    producer_id: int
    generation: int
    sequence_number: int
    is_new: bool
    is_check: bool


class LeasedMessageRefused(Event):
    """A message was not appended: another generation, a number out of order, or a producer that is not known (any more)."""

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
    """A server has forgotten producers that it had not seen for the time of disuse."""

    topic: str
    partition: int
    producers: int


class LeasedPartitionLed(Event):
    """A server leads a partition from now on."""

    topic: str
    partition: int
    leader_epoch: int
    end_offset: int


class LeasedLogCut(Event):
    """A follower's log was another one than its leader's, and was cut."""

    topic: str
    partition: int
    end_offset: int


class LeasedServerRecovered(Event):
    """A server has read its files: how many messages its logs hold, and how many of them it had to replay behind its snapshot."""

    messages: int
    replayed: int
    producers: int
