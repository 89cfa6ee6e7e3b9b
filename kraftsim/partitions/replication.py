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
from kraftsim.partitions.rules_follower import Following
from kraftsim.partitions.rules_leader import After, IsrProposal
from kraftsim.partitions.rules_replica import AgreedIsr
from kraftsim.partitions.throttles import ReplicationThrottle
from kraftsim.server.controller_channel import ControllerChannel
from kraftsim.server.outbound import VersionRange
from kraftsim.server.shell import NodeShell
from protocol.errors import ErrorCode
from protocol.messages.k56_alter_partition import (
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerState,
)
from protocol.schema import Message

PartitionKey = tuple[str, int]

# --------------------------------------------------------------------------------------------------
# Requests ISR changes from the controller: pending ones are sent in one AlterPartition, the next
# one is sent after its response
#
# Source: kafka.server.DefaultAlterPartitionManager (KIP-497).

RETRY_MS = 50
FIRST_WITH_EPOCHS = 3


class IsrChanges:
    """`on_moved` is called for partitions whose high watermark may have advanced."""

    def __init__(
        self,
        shell: NodeShell,
        channel: ControllerChannel,
        broker_epoch: Callable[[], int],
        on_moved: Callable[[PartitionKey], None],
    ) -> None:
        self._shell = shell
        self._channel = channel
        self._broker_epoch = broker_epoch
        self._on_moved = on_moved
        self._gathered: dict[PartitionKey, tuple[HostedPartition, IsrProposal]] = {}
        self._in_flight: dict[tuple[bytes, int], tuple[HostedPartition, IsrProposal]] | None = None

    def ask(self, hosted: HostedPartition, proposal: IsrProposal) -> None:
        """Queue a proposal.

        It replaces one of an earlier leader epoch that has not been sent yet.
        """
        self._gathered[hosted.topic, hosted.partition] = (hosted, proposal)
        self._send()

    def _send(self) -> None:
        if self._in_flight is not None or not self._gathered:
            return
        gathered, self._gathered = self._gathered, {}
        self._in_flight = {
            (hosted.topic_id, hosted.partition): (hosted, proposal)
            for hosted, proposal in gathered.values()
        }
        self._channel.send(self._request(), self._on_answer, _in_version)

    def _request(self) -> AlterPartitionRequest:
        assert self._in_flight, "at least one proposal is pending"
        own_id, own_epoch = self._shell.config.node_id, self._broker_epoch()
        topics: dict[bytes, AlterPartitionTopic] = {}
        for hosted, proposal in self._in_flight.values():
            topics.setdefault(hosted.topic_id, _topic_of(hosted)).partitions.append(
                AlterPartitionData(
                    partition_index=hosted.partition,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=self._in_sync(proposal, own_id, own_epoch),
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=own_id, broker_epoch=own_epoch, topics=list(topics.values())
        )

    def _in_sync(self, proposal: IsrProposal, own_id: int, own_epoch: int) -> list[BrokerState]:
        """Return the proposed ISR with the broker epoch under which each replica fetches."""
        isr = zip(proposal.isr, proposal.broker_epochs, strict=True)
        return [
            BrokerState(broker_id=each, broker_epoch=own_epoch if each == own_id else epoch)
            for each, epoch in isr
        ]

    def _on_answer(self, answer: Message | OSError) -> None:
        asked, self._in_flight = self._in_flight or {}, None
        outcomes: dict[tuple[bytes, int], AgreedIsr | ErrorCode] = {}
        if isinstance(answer, AlterPartitionResponse):
            whole = ErrorCode(answer.error_code)
            ids = {hosted.topic: hosted.topic_id for hosted, _ in asked.values()}
            for topic in answer.topics:
                for row in topic.partitions:
                    error = ErrorCode(row.error_code)
                    agreed = AgreedIsr(
                        leader_epoch=row.leader_epoch,
                        partition_epoch=row.partition_epoch,
                        isr=tuple(row.isr),
                    )
                    outcomes[ids.get(topic.topic_name, topic.topic_id), row.partition_index] = (
                        error if error is not ErrorCode.NONE else agreed
                    )
        else:
            whole = ErrorCode.REQUEST_TIMED_OUT
        for key, (hosted, proposal) in asked.items():
            outcome = (
                whole
                if whole is not ErrorCode.NONE
                else outcomes.get(key, ErrorCode.UNKNOWN_SERVER_ERROR)
            )
            if self._settle(hosted, proposal, outcome) is After.RETRY:
                self._gathered.setdefault((hosted.topic, hosted.partition), (hosted, proposal))
        if whole is ErrorCode.NONE:
            self._send()
        else:
            self._shell.tasks.spawn(self._send_later(), "isr-retry")

    def _settle(
        self, hosted: HostedPartition, proposal: IsrProposal, outcome: AgreedIsr | ErrorCode
    ) -> After:
        """Deliver the result of a proposal to its partition."""
        after = hosted.replica.on_isr_answer(proposal, outcome, self._shell.world.clock.wall_ms())
        if after is After.CHANGED:
            self._on_moved((hosted.topic, hosted.partition))
        return after

    async def _send_later(self) -> None:
        await asyncio.sleep(RETRY_MS / 1000)
        self._send()


def _topic_of(hosted: HostedPartition) -> AlterPartitionTopic:
    """Return a row with topic id and name; versions before 2 use the name."""
    return AlterPartitionTopic(topic_name=hosted.topic, topic_id=hosted.topic_id)


def _in_version(body: Message, version: int) -> Message:
    """Return a request for a version: before 3 the ISR has no broker epochs, and before 2 topics
    have names only.
    """
    assert isinstance(body, AlterPartitionRequest), "the channel sends AlterPartition only"
    if version >= FIRST_WITH_EPOCHS:
        return body
    topics = [
        AlterPartitionTopic(
            topic_name=topic.topic_name,
            topic_id=topic.topic_id,
            partitions=[
                AlterPartitionData(
                    partition_index=row.partition_index,
                    leader_epoch=row.leader_epoch,
                    new_isr=[each.broker_id for each in row.new_isr_with_epochs],
                    partition_epoch=row.partition_epoch,
                )
                for row in topic.partitions
            ],
        )
        for topic in body.topics
    ]
    return AlterPartitionRequest(
        broker_id=body.broker_id, broker_epoch=body.broker_epoch, topics=topics
    )


NO_BROKER_EPOCH = -1


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
