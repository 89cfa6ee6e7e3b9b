"""Where a broker has its metadata from, how it comes into service, and whom it asks for decisions: the part of it that a migration exchanges.

A KRaft broker copies the metadata log and is kept alive by heartbeats (`quorum_source.py`); before, controllers told brokers what to do, and
ZooKeeper knew who was alive (`kraftsim/node/zookeeper_mode/broker_mode.py`). Everything else of a broker is the same.
Source: kafka.server.{BrokerServer, KafkaServer}.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kraftsim.core.metadata.image import ImageChanges, MetadataImage
from kraftsim.node.broker.cluster_features import ClusterFeatures
from kraftsim.node.broker.forwarding import Refuse
from kraftsim.node.broker.log_directory import LogDirectory
from kraftsim.node.broker.partitions import Partitions
from kraftsim.node.broker.producer_ids import BlockChannel
from kraftsim.node.broker.replication.isr_changes import IsrChanges
from kraftsim.node.broker.replication.replication import Replication
from kraftsim.node.broker.topic_creation import TopicCreation
from kraftsim.node.call import Answer, Call, Deferred
from kraftsim.node.controller_channel import ActiveController, ControllerChannel
from kraftsim.node.outbound import VersionRange
from kraftsim.node.security.rights import GuardTable
from protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from kraftsim.node.broker.broker import Broker

NO_CONTROLLER = -1


class Decisions(Protocol):
    """Whoever decides what only a controller can."""

    def forward(self, call: Call, later: Deferred, refuse: Refuse) -> None:
        """Complete `later` with the controller's answer to the request of `call`, or with `refuse(call, error)` if there is none."""
        ...


class MetadataSource(Protocol):
    """One of them per broker, chosen by its properties. The order of its life: prepare, load, begin; then leave, stop, finish, or abort."""

    active_controller: ActiveController
    controller_versions: Mapping[int, VersionRange]
    """What this broker can ask a controller."""
    apis: Mapping[ApiKey, VersionRange]
    """What the release of the broker offers in this mode."""
    supported_features: Mapping[str, VersionRange]
    features: ClusterFeatures
    partitions: type[Partitions]
    replication: type[Replication]
    guards: "GuardTable[Broker]"
    """Which right each API needs, where the broker has an authorizer."""

    @property
    def image(self) -> MetadataImage:
        """What is known of the cluster."""
        ...

    @property
    def broker_epoch(self) -> int:
        """The epoch of this incarnation's registration, by which the controller of now knows it; -1 before it has one."""
        ...

    @property
    def shutdown_epoch(self) -> int:
        """The epoch that a clean stop leaves behind."""
        ...

    def isr_changes(self, channel: ControllerChannel) -> IsrChanges:
        """Make what asks for other sets of in-sync replicas."""
        ...

    def decisions(self, channel: ControllerChannel) -> Decisions:
        """Make what hands requests to the controller."""
        ...

    def topic_creation(self, channel: ControllerChannel) -> TopicCreation:
        """Make what has topics created that clients ask for."""
        ...

    def block_channel(self, channel: ControllerChannel) -> BlockChannel:
        """Make the way by which producer ids are asked for."""
        ...

    def told_controller(self, alive: Sequence[int]) -> int:
        """Return whom clients are told to be the controller, of the brokers that they can reach; -1: nobody."""
        ...

    def with_configs(self, topics: Collection[str], answer: Callable[[], Answer]) -> Answer | Deferred:
        """Return `answer()` once the image has the configs of topics that hold now."""
        ...

    async def prepare(self) -> None:
        """Learn what must be known before anything else, such as the cluster's id. Raises ConfigError, OSError kinds."""
        ...

    async def load(self, directory_id: bytes, previous_broker_epoch: int) -> None:
        """Read what the last run left. Raises ConfigError, OSError kinds; then nothing is left open."""
        ...

    def begin(self) -> None:
        """Register, and follow the metadata."""
        ...

    def directory_failed(self, directory: LogDirectory) -> None:
        """Tell the controller that what lies in a directory is to be led by others."""
        ...

    async def on_published(self, image: MetadataImage, changes: ImageChanges) -> None:
        """The broker has acted by a change."""
        ...

    async def leave(self) -> None:
        """Let the controller move everything away before the broker stops."""
        ...

    async def stop(self) -> None:
        """Talk to nobody any more, except to hold what must be held until the logs are closed."""
        ...

    async def finish(self) -> None:
        """Let go of the rest: the tasks of the node have ended and its logs are closed."""
        ...

    def abort(self) -> None:
        """Let go at once, as a process that dies."""
        ...
