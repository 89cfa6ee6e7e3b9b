"""What clients did and were told. A record is named by (topic, key); `attempt` tells retries apart."""

from kraftsim.events.event import Event


class ClientStarted(Event):
    """A workload client began."""

    client_id: str
    library: str


class ClientInitialized(Event):
    """A client holds a producer id."""

    client_id: str
    producer_id: int
    producer_epoch: int


class RecordSent(Event):
    """A client handed a record to its producer, within a transaction ('' without). The outcome is unknown until acknowledged or failed."""

    client_id: str
    topic: str
    partition: int
    record_key: str
    transaction: str = ""


class RecordAcknowledged(Event):
    """A client was told that its record is in the log at `offset` (-1: the broker did not say)."""

    client_id: str
    topic: str
    partition: int
    record_key: str
    offset: int


class RecordCalledDuplicate(Event):
    """A leader answered DUPLICATE_SEQUENCE_NUMBER for the batch of this record, and the client counts it as acknowledged.

    `base_sequence` is that of the batch. Brokers of Apache Kafka do not answer so since 1.0; the variant of KIP-758 does.
    """

    client_id: str
    topic: str
    partition: int
    record_key: str
    producer_id: int
    producer_epoch: int
    base_sequence: int


class RecordFailed(Event):
    """A client gave up on a record: it may or may not be in the log."""

    client_id: str
    topic: str
    partition: int
    record_key: str
    error_code: int
    reason: str


class RecordRead(Event):
    """A consumer returned a record to the application; is_read_committed: one that leaves out what is aborted or not decided."""

    client_id: str
    topic: str
    partition: int
    record_key: str
    offset: int
    is_read_committed: bool = False


class ClientStopped(Event):
    """A workload client is done."""

    client_id: str
    reason: str
