"""Events of the controller, and of brokers that load its metadata.

Source: KIP-500, KIP-631, org.apache.kafka.controller.
"""

from kraftsim.events.event import Event


class ControllerElected(Event):
    """This controller is the active one of an epoch.

    `leader_id` is its own id, `voter_count` the number of voters (0 in ZooKeeper mode).
    """

    leader_epoch: int
    epoch_start_offset: int
    leader_id: int = -1
    voter_count: int = 0


class ControllerResigned(Event):
    """This controller is no longer active."""

    leader_epoch: int
    reason: str


class MetadataAppended(Event):
    """Records were appended to the metadata log; offsets are inclusive.

    `record_kinds` is a comma-separated list.
    """

    leader_epoch: int
    first_offset: int
    last_offset: int
    record_kinds: str


class MetadataCommitted(Event):
    """The high watermark of the metadata log advanced: every offset below it is committed."""

    leader_epoch: int
    high_watermark: int


class MetadataReverted(Event):
    """Uncommitted state was reverted down to an offset."""

    to_offset: int


class BrokerRegistered(Event):
    """A broker's registration was committed.

    `fenced`: it may not serve clients yet, like every new incarnation.
    """

    broker_id: int
    broker_epoch: int
    incarnation_id: str
    fenced: bool = True


class BrokerRegistrationRefused(Event):
    """A registration was answered with an error."""

    broker_id: int
    error_code: int
    reason: str


class BrokerUnfenced(Event):
    """The controller unfenced a broker."""

    broker_id: int
    broker_epoch: int


class BrokerFenced(Event):
    """The controller fenced a broker.

    `session_timeout_ms`: the time-out of its heartbeats; 0 if that was not the reason.
    """

    broker_id: int
    broker_epoch: int
    reason: str
    session_timeout_ms: int = 0


class TopicCreated(Event):
    """A topic was created in the metadata log."""

    topic: str
    topic_id: str
    partition_count: int


class TopicDeleted(Event):
    """A topic and its partitions were deleted from the metadata log."""

    topic: str
    topic_id: str
    partition_count: int


class PartitionCreated(Event):
    """A partition was created in the metadata log, with leader epoch 0 and partition epoch 0.

    `isr` and `replicas` are comma-separated broker ids.
    """

    topic: str
    topic_id: str
    partition: int
    leader: int
    isr: str
    replicas: str


class PartitionChanged(Event):
    """The state of a partition after a committed change.

    Lists are comma-separated broker ids; leader -1: there is no leader.

    leader_recovery_state 1: the leader was elected uncleanly and has not yet reported the end of
    its recovery.
    """

    topic: str
    topic_id: str
    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: int
    isr: str
    replicas: str
    adding_replicas: str
    removing_replicas: str


class TopicRefused(Event):
    """CreateTopics was answered with an error for a topic."""

    topic: str
    error_code: int
    reason: str


class BrokerEpochReceived(Event):
    """A broker's own registration was accepted."""

    broker_epoch: int


class MetadataApplied(Event):
    """A broker applied the metadata log up to an offset (exclusive end: next_offset)."""

    next_offset: int


class FeatureLevelChanged(Event):
    """The cluster finalized another level of a feature; level 0: the feature is removed."""

    feature: str
    level: int
    previous_level: int


class ConfigChanged(Event):
    """A configuration of a topic (2), a broker (4; no name: all of them) or another resource was
    set or removed.

    The value of a secret is null.
    """

    resource_type: int
    resource_name: str
    name: str
    value: str | None
    is_removed: bool


class BrokerUnregistered(Event):
    """A broker was unregistered."""

    broker_id: int
    broker_epoch: int


class ControllerRegistered(Event):
    """A controller's registration was committed."""

    controller_id: int
    incarnation_id: str


class ControllerUnregistered(Event):
    """A controller's registration was removed."""

    controller_id: int


class ClientQuotaChanged(Event):
    """A quota of an entity was set or removed.

    The entity is a comma-separated list of type=name, sorted; a default has no name.
    """

    entity: str
    key: str
    value: str | None
    is_removed: bool


class QuotaInEffect(Event):
    """A broker enforces another quota of users or client ids from now on; without a value: none.

    The fields are those of ClientQuotaChanged.
    """

    entity: str
    key: str
    value: str | None


class TopicConfigInEffect(Event):
    """The leader of a partition uses another value of its topic's own configuration from now on;
    without a value: that of its broker.

    A leader begins with those of its broker.
    """

    topic: str
    partition: int
    name: str
    value: str | None


class ScramCredentialChanged(Event):
    """A user's SCRAM credential was set or removed.

    Mechanism 1: SCRAM-SHA-256, 2: SCRAM-SHA-512.
    """

    user: str
    mechanism: int
    is_removed: bool
