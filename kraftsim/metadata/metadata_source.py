"""The part of a broker that differs between KRaft and ZooKeeper mode: its metadata, its
registration, and its controller requests.

A KRaft broker replicates the metadata log and stays registered by heartbeats (`quorum_source.py`).
A ZooKeeper-mode broker receives metadata from the controller and is alive by its ZooKeeper session
(`kraftsim/zookeeper/broker_mode.py`). Everything else of a broker is the same.
Source: kafka.server.{BrokerServer, KafkaServer}.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kraftsim.metadata.cluster_features import ClusterFeatures
from kraftsim.metadata.rules_image import ImageChanges, MetadataImage
from kraftsim.metadata.topic_creation import TopicCreation
from kraftsim.partitions.isr_changes import IsrChanges
from kraftsim.partitions.log_directory import LogDirectory
from kraftsim.partitions.partitions import Partitions
from kraftsim.partitions.replication import Replication
from kraftsim.producer_ids.broker import BlockChannel
from kraftsim.server.call import Answer, Call, Deferred
from kraftsim.server.controller_channel import ActiveController, ControllerChannel
from kraftsim.server.forwarding import Refuse
from kraftsim.server.outbound import VersionRange
from kraftsim.server.security.rights import GuardTable
from protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from kraftsim.server.broker import Broker

NO_CONTROLLER = -1


class RequestForwarder(Protocol):
    """Forwards the requests that only the controller can process."""

    def forward(self, call: Call, later: Deferred, refuse: Refuse) -> None:
        """Complete `later` with the controller's response to the request of `call`, or with
        `refuse(call, error)` if there is none.
        """
        ...


class MetadataSource(Protocol):
    """One per broker, chosen by its properties.

    Its lifecycle: prepare, load, begin; then leave, stop, finish, or abort.
    """

    active_controller: ActiveController
    controller_versions: Mapping[int, VersionRange]
    """The request versions that this broker can send to a controller."""
    apis: Mapping[ApiKey, VersionRange]
    """The APIs that the emulated release serves in this mode."""
    supported_features: Mapping[str, VersionRange]
    features: ClusterFeatures
    partitions: type[Partitions]
    replication: type[Replication]
    guards: "GuardTable[Broker]"
    """The authorizer check of each API, if the broker has an authorizer."""

    @property
    def image(self) -> MetadataImage:
        """The current metadata image."""
        ...

    @property
    def broker_epoch(self) -> int:
        """The epoch of this incarnation's registration at the current controller; -1 before it is
        registered.
        """
        ...

    @property
    def shutdown_epoch(self) -> int:
        """The broker epoch that a clean shutdown stores."""
        ...

    def isr_changes(self, channel: ControllerChannel) -> IsrChanges:
        """Create the component that requests ISR changes."""
        ...

    def decisions(self, channel: ControllerChannel) -> RequestForwarder:
        """Create the component that forwards requests to the controller."""
        ...

    def topic_creation(self, channel: ControllerChannel) -> TopicCreation:
        """Create the component that auto-creates topics."""
        ...

    def block_channel(self, channel: ControllerChannel) -> BlockChannel:
        """Create the channel that allocates producer id blocks."""
        ...

    def reported_controller(self, alive: Sequence[int]) -> int:
        """Return the controller id reported to clients, out of the brokers that they can reach; -1:
        none.
        """
        ...

    def with_configs(
        self, topics: Collection[str], answer: Callable[[], Answer]
    ) -> Answer | Deferred:
        """Return `answer()` once the image has the current configs of topics."""
        ...

    async def prepare(self) -> None:
        """Read what is required before loading, such as the cluster id.

        Raises ConfigError or OSError.
        """
        ...

    async def load(self, directory_id: bytes, previous_broker_epoch: int) -> None:
        """Load the state of the last run.

        Raises ConfigError or OSError; everything is closed then.
        """
        ...

    def begin(self) -> None:
        """Register, and start to follow the metadata."""
        ...

    def directory_failed(self, directory: LogDirectory) -> None:
        """Report a failed log directory to the controller, which elects other leaders for its
        replicas.
        """
        ...

    async def on_published(self, image: MetadataImage, changes: ImageChanges) -> None:
        """The broker has applied a change of the metadata."""
        ...

    async def leave(self) -> None:
        """Controlled shutdown: wait until the controller has moved all leaderships away."""
        ...

    async def stop(self) -> None:
        """Close all connections, except those that must stay until the logs are closed."""
        ...

    async def finish(self) -> None:
        """Release the rest: the tasks of the node have ended and its logs are closed."""
        ...

    def abort(self) -> None:
        """Release everything at once, like a killed process."""
        ...
