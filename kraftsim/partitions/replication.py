"""Replication of a broker: fetches the partitions that it follows, and maintains the ISR of those
that it leads.

Source: kafka.server.{ReplicaManager, ReplicaFetcherManager}, Partition.isReplicaIsrEligible
(KIP-841, KIP-903).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from zlib import crc32

from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.partitions.fetcher import FetcherPorts, Rebuild, ReplicaFetcher
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.isr_changes import IsrChanges
from kraftsim.partitions.rules_follower import Following
from kraftsim.partitions.rules_leader import IsrProposal
from kraftsim.partitions.throttles import ReplicationThrottle
from kraftsim.server.outbound import VersionRange
from kraftsim.server.shell import NodeShell

NO_BROKER_EPOCH = -1
PartitionKey = tuple[str, int]


class Replication:
    """`on_moved` is called for partitions whose visible range or role has changed."""

    def __init__(
        self,
        shell: NodeShell,
        *,
        image: Callable[[], MetadataImage],
        broker_epoch: Callable[[], int],
        own_versions: Mapping[int, VersionRange],
        changes: IsrChanges,
        on_moved: Callable[[PartitionKey], None],
        disk_failed: Callable[[str, str, OSError], None],
        throttle: ReplicationThrottle,
        rebuild: Rebuild,
    ) -> None:
        self._shell = shell
        self._throttle = throttle
        self._rebuild = rebuild
        self._image = image
        self._broker_epoch = broker_epoch
        self._own_versions = dict(own_versions)
        self._on_moved = on_moved
        self._disk_failed = disk_failed
        self._changes = changes
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._place: dict[PartitionKey, ReplicaFetcher] = {}
        self.directory_id = bytes(16)
        """The id of the data directory; set once the broker has loaded it."""

    # Following
    # ----------------------------------------------------------------------------------------------

    async def follow(self, hosted: HostedPartition, following: Following) -> None:
        """Fetch a partition from its current leader, if there is one."""
        key = (hosted.topic, hosted.partition)
        self.leave(key)
        fetcher = self._fetcher(following.leader_id, key)
        step = following.begin()
        if step is not None:
            await fetcher.truncate(hosted, step)
        if following.leader_id >= 0 and hosted.replica.following is following:
            self._place[key] = fetcher
            fetcher.add(hosted, following)

    def leave(self, key: PartitionKey) -> None:
        """Stop to fetch a partition."""
        fetcher = self._place.pop(key, None)
        if fetcher is not None:
            fetcher.remove(key)

    def leave_idle(self) -> None:
        """Shut down fetchers without partitions: an unanswered request of one would delay the
        partitions that its leader gets later.

        Source: AbstractFetcherManager.shutdownIdleFetcherThreads.
        """
        for place, fetcher in list(self._fetchers.items()):
            if fetcher.is_idle:
                fetcher.stop()
                del self._fetchers[place]

    def close(self) -> None:
        """Shut down all fetchers."""
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._place.clear()

    def abort(self) -> None:
        """Close every connection at once, like a killed process."""
        for fetcher in self._fetchers.values():
            fetcher.abort()

    def _fetcher(self, leader_id: int, key: PartitionKey) -> ReplicaFetcher:
        topic, partition = key
        number = (crc32(topic.encode()) + partition) % self._shell.config.num_replica_fetchers
        fetcher = self._fetchers.get((leader_id, number))
        if fetcher is None:
            ports = FetcherPorts(
                address=lambda: self._address(leader_id),
                broker_epoch=self._broker_epoch,
                directory_id=self.directory_id,
                own_versions=self._own_versions,
                on_moved=self._on_moved,
                disk_failed=self._disk_failed,
                throttle=self._throttle,
                rebuild=self._rebuild,
            )
            fetcher = self._fetchers[leader_id, number] = ReplicaFetcher(
                self._shell, leader_id, number, ports
            )
        return fetcher

    def _address(self, broker_id: int) -> tuple[str, int] | None:
        registered = self._image().broker(broker_id)
        if registered is None or registered.fenced:
            return None
        found = registered.listener(self._shell.config.inter_broker_listener_name)
        return None if found is None else (found.host, found.port)

    # Leading
    # ----------------------------------------------------------------------------------------------

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Return whether a follower may join the ISR: unfenced, not in controlled shutdown, and
        with the registered broker epoch.
        """
        registered = self._image().broker(broker_id)
        if registered is None or registered.fenced or registered.in_controlled_shutdown:
            return False
        return broker_epoch in (NO_BROKER_EPOCH, registered.broker_epoch)

    def is_stale(self, broker_id: int, broker_epoch: int) -> bool:
        """Return whether a follower fetches with the broker epoch of an earlier incarnation."""
        registered = self._image().broker(broker_id)
        return (
            registered is not None
            and broker_epoch != NO_BROKER_EPOCH
            and registered.broker_epoch > broker_epoch
        )

    def ask(self, hosted: HostedPartition, proposal: IsrProposal | None) -> None:
        """Propose an ISR change to the controller."""
        if proposal is not None:
            self._changes.ask(hosted, proposal)

    async def shrink(self, hosted: Callable[[], Iterable[HostedPartition]]) -> None:
        """Periodically remove lagging followers from the ISR; checked every half of
        replica.lag.time.max.ms.
        """
        while True:
            await asyncio.sleep(max(self._shell.config.replica_lag_time_max_ms // 2, 1) / 1000)
            now_ms = self._shell.world.clock.wall_ms()
            for each in list(hosted()):
                self.ask(each, each.replica.shrinking(now_ms))
                if each.replica.is_leader and each.replica.advance(
                    now_ms
                ):  # replicas that were recently in sync no longer hold it back
                    self._on_moved((each.topic, each.partition))
