"""Finalized features from /feature: clients receive them with the version of the znode as their
epoch.

Source: kafka.server.FinalizedFeatureChangeListener (2.7), KIP-584.
"""

import asyncio
from collections.abc import Callable

from kraftsim.metadata.metadata_source import ClusterFeatures
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.server.api_offer import NO_FEATURES_EPOCH, FinalizedFeatures
from kraftsim.world.interface import World
from kraftsim.zookeeper.client import ZookeeperRefused
from kraftsim.zookeeper.events import ZnodeNotUnderstood
from kraftsim.zookeeper.session import ZookeeperSession
from protocol.malformed import MalformedMessage
from protocol.zookeeper.kafka_znodes import FEATURE, FeatureZnode
from protocol.zookeeper.op_codes import EventType, ZookeeperError

NO_QUORUM = 0


class ZookeeperFeatures(ClusterFeatures):
    """The latest content of /feature; empty until the znode is written."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        super().__init__(image, lambda: NO_QUORUM)
        self.read = FinalizedFeatures({}, NO_FEATURES_EPOCH)

    def level(self, name: str) -> int:
        """Return the finalized level of a feature; 0 if it has none."""
        return self.read.levels.get(name, 0)

    def finalized(self) -> FinalizedFeatures:
        """Return all levels, and the version of the znode."""
        return self.read


class FeatureWatch:
    """Keeps the features up to date."""

    def __init__(self, world: World, session: ZookeeperSession, features: ClusterFeatures) -> None:
        assert isinstance(features, ZookeeperFeatures), "these are kept up to date"
        self._world = world
        self._session = session
        self._features = features
        self._has_changed = asyncio.Event()
        session.listen(self._on_event)

    async def read(self) -> None:
        """Read the znode and watch it, or watch for its creation. Raises ZookeeperRefused."""
        while True:
            try:
                data, stat = await self._session.until_connected(
                    lambda client: client.get(FEATURE, watch=True)
                )
                break
            except ZookeeperRefused as refused:
                if refused.error != ZookeeperError.NO_NODE:
                    raise
            if (
                await self._session.until_connected(
                    lambda client: client.exists(FEATURE, watch=True)
                )
                is None
            ):
                self._features.read = FinalizedFeatures({}, NO_FEATURES_EPOCH)
                return
        try:
            self._features.read = FinalizedFeatures(
                FeatureZnode.parse(data or b"").levels, stat.version
            )
        except MalformedMessage as malformed:
            self._world.emit(ZnodeNotUnderstood(path=FEATURE, reason=malformed.reason))

    async def run(self) -> None:
        """Follow changes until cancelled."""
        while True:
            await self._has_changed.wait()
            self._has_changed.clear()
            try:
                await self.read()
            except ZookeeperRefused as refused:
                if refused.error != ZookeeperError.SESSION_EXPIRED:
                    raise  # the next session reads it again

    def _on_event(self, event_type: EventType, path: str) -> None:
        if path == FEATURE:
            self._has_changed.set()
