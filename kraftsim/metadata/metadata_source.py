"""The part of a broker that differs between KRaft and ZooKeeper mode: its metadata, its
registration, and its controller requests.

A KRaft broker replicates the metadata log and stays registered by heartbeats (`quorum_source.py`).
A ZooKeeper-mode broker receives metadata from the controller and is alive by its ZooKeeper session
(`kraftsim/zookeeper/broker_mode.py`). Everything else of a broker is the same.
Source: kafka.server.{BrokerServer, KafkaServer}.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from kraftsim.metadata.rules_described_configs import BrokerSettings
from kraftsim.metadata.rules_image import ImageChanges, MetadataImage
from kraftsim.metadata.rules_versions import KRAFT_VERSION
from kraftsim.metadata.topic_creation import TopicCreation
from kraftsim.partitions.log_directory import LogDirectory, PartitionKey
from kraftsim.partitions.partitions import Partitions
from kraftsim.partitions.replication import IsrChanges, Replication
from kraftsim.producer_ids.broker import BlockChannel
from kraftsim.raft.snapshotting import Snapshotting
from kraftsim.releases.release import Release
from kraftsim.server.api_offer import FinalizedFeatures
from kraftsim.server.call import Answer, Deferred
from kraftsim.server.controller_channel import ActiveController, ControllerChannel
from kraftsim.server.endpoints import ListenerEndpoint
from kraftsim.server.forwarding import RequestForwarder
from kraftsim.server.outbound import VersionRange
from kraftsim.server.security.rights import GuardedBroker, GuardTable
from kraftsim.server.shell import NodeShell
from protocol.api_keys import ApiKey

# --------------------------------------------------------------------------------------------------
# The finalized feature levels as a broker knows them; it reports them to clients and is governed
# by them
#
# They follow the metadata log, so they can change while the broker runs.
# Source: KIP-584, org.apache.kafka.metadata.MetadataCache.features.


class ClusterFeatures:
    """`kraft_version` returns the level of kraft.version, which is in the voter set and not in a
    FeatureLevelRecord.
    """

    def __init__(
        self, image: Callable[[], MetadataImage], kraft_version: Callable[[], int]
    ) -> None:
        self._image = image
        self._kraft_version = kraft_version

    def level(self, name: str) -> int:
        """Return the finalized level of a feature such as transaction.version; 0 where it has
        none.
        """
        return self._kraft_version() if name == KRAFT_VERSION else self._image().level_of(name)

    def finalized(self) -> FinalizedFeatures:
        """Return all levels and the offset of the last applied metadata record; empty before any
        record is applied.
        """
        image = self._image()
        levels, kraft_version = image.finalized_features, self._kraft_version()
        if levels and kraft_version:
            levels = {**levels, KRAFT_VERSION: kraft_version}
        return FinalizedFeatures(levels, image.highest_offset)


# --------------------------------------------------------------------------------------------------
# The source itself, and what it uses of its broker

NO_CONTROLLER = -1


class SourceParts(Protocol):
    """The replaceable classes of a metadata source."""

    @property
    def release(self) -> Release:
        """The emulated release: its APIs and features."""
        ...

    @property
    def metadata_image(self) -> type[MetadataImage]:
        """The image that records are replayed into."""
        ...

    @property
    def snapshotting(self) -> type[Snapshotting]:
        """Writes the snapshots of the metadata log."""
        ...

    @property
    def has_pre_vote(self) -> bool:
        """Whether the quorum has the pre-vote phase (KIP-996)."""
        ...


class SourceHost(Protocol):
    """The broker of a metadata source: what the source reads of it, and reports to it."""

    @property
    def shell(self) -> NodeShell:
        """World, configuration, tasks and security of the node."""
        ...

    @property
    def parts(self) -> SourceParts:
        """The replaceable classes of the node."""
        ...

    @property
    def incarnation_id(self) -> bytes:
        """The id of this incarnation in its registration."""
        ...

    @property
    def addresses(self) -> Mapping[str, ListenerEndpoint]:
        """Listener name -> endpoint that it is bound to."""
        ...

    @property
    def partitions(self) -> Partitions:
        """The hosted partitions; they exist once the source is made."""
        ...

    def settings(self) -> BrokerSettings:
        """Return the effective broker configuration."""
        ...

    def on_partition_changed(self, key: PartitionKey) -> None:
        """Re-check the requests that watch a partition."""
        ...

    def start_serving(self) -> None:
        """Serve clients."""
        ...

    def startup_completed(self) -> None:
        """Startup has completed."""
        ...

    async def publish(self, image: MetadataImage, changes: ImageChanges) -> None:
        """Apply the changes of a metadata image."""
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
    guards: GuardTable[GuardedBroker]
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


class SourceBroker(Protocol):
    """A broker that reports its controller, or waits for configs."""

    @property
    def source(self) -> MetadataSource:
        """Its metadata."""
        ...
