"""The controller and what brokers learn of it.   Source: KIP-500, KIP-631, org.apache.kafka.controller."""

from kraftsim.events.event import Event


class ControllerElected(Event):
    """This controller is the active one of an epoch. `leader_id` is its own id, `voter_count` how many vote; before KRaft nobody does."""

    leader_epoch: int
    epoch_start_offset: int
    leader_id: int = -1
    voter_count: int = 0


class ControllerResigned(Event):
    """This controller is no longer active."""

    leader_epoch: int
    reason: str


class MetadataAppended(Event):
    """Records went into the metadata log; offsets are inclusive. `record_kinds` is a comma-separated list."""

    leader_epoch: int
    first_offset: int
    last_offset: int
    record_kinds: str


class MetadataCommitted(Event):
    """The high watermark of the metadata log moved: every offset below it is committed."""

    leader_epoch: int
    high_watermark: int


class MetadataReverted(Event):
    """Uncommitted state was undone down to an offset."""

    to_offset: int


class BrokerRegistered(Event):
    """A broker's registration was committed. `fenced`: it may not serve clients yet, as every new incarnation."""

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
    """The controller lets a broker serve clients."""

    broker_id: int
    broker_epoch: int


class BrokerFenced(Event):
    """The controller took a broker out of service. `session_timeout_ms`: how long it must have been silent; 0 where its silence was not why."""

    broker_id: int
    broker_epoch: int
    reason: str
    session_timeout_ms: int = 0


class TopicCreated(Event):
    """A topic is in the metadata log."""

    topic: str
    topic_id: str
    partition_count: int


class TopicDeleted(Event):
    """A topic and its partitions are no longer in the metadata log."""

    topic: str
    topic_id: str
    partition_count: int


class PartitionCreated(Event):
    """A partition is in the metadata log, at leader epoch 0 and partition epoch 0. `isr` and `replicas` are comma-separated broker ids."""

    topic: str
    topic_id: str
    partition: int
    leader: int
    isr: str
    replicas: str


class PartitionChanged(Event):
    """What a partition is since a change of it was committed. Lists are comma-separated broker ids; leader -1: nobody leads.

    leader_recovery_state 1: the leader was elected uncleanly and has not yet said that it is done with that.
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
    """The cluster finalized another level of a feature; level 0: the feature is taken out."""

    feature: str
    level: int
    previous_level: int


class ConfigChanged(Event):
    """A configuration of a topic (2), a broker (4; no name: all of them) or another resource was set or removed. The value of a secret is null."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None
    is_removed: bool


class BrokerUnregistered(Event):
    """A broker is no member of the cluster any more."""

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
    """A quota of an entity was set or removed. The entity is type=name pairs between commas; a default has no name. The value is a number as text."""

    entity: str
    key: str
    value: str | None
    is_removed: bool


class ScramCredentialChanged(Event):
    """A user's SCRAM credential was set or removed. Mechanism 1: SCRAM-SHA-256, 2: SCRAM-SHA-512."""

    user: str
    mechanism: int
    is_removed: bool
