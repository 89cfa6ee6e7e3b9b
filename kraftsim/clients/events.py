"""Requests of clients and administrators and their results, what an application says of itself, and
what a checker finds in the history of a workload's clients.

A record is identified by (topic, key); `attempt` distinguishes retries.
"""

from kraftsim.events.event import Event


class ClientStarted(Event):
    """A workload client started."""

    client_id: str
    library: str


class ClientInitialized(Event):
    """A client obtained a producer id."""

    client_id: str
    producer_id: int
    producer_epoch: int


class RecordSent(Event):
    """A client passed a record to its producer, within a transaction ('' without).

    The outcome is unknown until acknowledged or failed.
    """

    client_id: str
    topic: str
    partition: int
    record_key: str
    transaction: str = ""


class RecordAcknowledged(Event):
    """A record was acknowledged to its client: it is in the log at `offset` (-1: the response has
    none).
    """

    client_id: str
    topic: str
    partition: int
    record_key: str
    offset: int


class RecordReportedDuplicate(Event):
    """A leader answered DUPLICATE_SEQUENCE_NUMBER for the batch of this record, and the client
    counts it as acknowledged.

    `base_sequence` is that of the batch. Brokers of Apache Kafka do not send this error since 1.0;
    the variant of KIP-758 does.
    """

    client_id: str
    topic: str
    partition: int
    record_key: str
    producer_id: int
    producer_epoch: int
    base_sequence: int


class RecordFailed(Event):
    """A record failed at its client: it may or may not be in the log."""

    client_id: str
    topic: str
    partition: int
    record_key: str
    error_code: int
    reason: str


class RecordRead(Event):
    """A consumer returned a record to the application; is_read_committed: one that skips aborted
    and undecided transactions.
    """

    client_id: str
    topic: str
    partition: int
    record_key: str
    offset: int
    is_read_committed: bool = False


class ClientStopped(Event):
    """A workload client finished."""

    client_id: str
    reason: str


class ApplicationStarted(Event):
    """An instance of a user's program began to run on a simulated host, which `application` names;
    `function` is what it runs.
    """

    application: str
    function: str


class ApplicationEnded(Event):
    """An instance of a user's program ended: its reason is 'returned', 'cancelled', or its
    exception in one line.
    """

    application: str
    reason: str


class FactStated(Event):
    """A fact that a user's program states about its own work, for invariants of its own.

    `name` says what kind of fact it is ('charged'), `key` what it is about (an order), and `value`
    what is stated of it.
    """

    application: str
    name: str
    key: str
    value: str


class MetadataChangeSent(Event):
    """An administrator sends a request to create a topic (config_name ''), or to set one of its
    configurations (a null value deletes it). `request` counts the requests of the client.
    """

    client_id: str
    request: int
    topic: str
    config_name: str
    config_value: str | None


class MetadataChangeAnswered(Event):
    """The answer for the topic arrived; a request without an answer may or may not take effect."""

    client_id: str
    request: int
    topic: str
    error_code: int


class HistoryChecked(Event):
    """A checker has read the whole history of a workload: so many transactions and reads.

    `model` is the consistency model that it must meet: see `rules_history_anomalies.FORBIDDEN`.
    """

    workload: str
    model: str
    operation_count: int


class HistoryAnomalyFound(Event):
    """The history has an anomaly that its model forbids; `witness` has its steps."""

    workload: str
    anomaly: str
    key: str
    witness: str


class BranchRead(Event):
    """A reader has read all accounts of a branch of the bank, in one state: after a transfer."""

    client_id: str
    branch: int
    transfer: int
    total: int
    expected_total: int
