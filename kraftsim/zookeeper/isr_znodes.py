"""ISR changes written by the leader itself: the partition state znode is set if it has the version
that the leader knows.

Used below inter.broker.protocol.version 2.7-IV2. The controller is notified by a notification znode
that batches the changes of an interval.
Source: kafka.server.ZkIsrManager, kafka.utils.ReplicationUtils.updateLeaderAndIsr,
ReplicaManager.maybePropagateIsrChanges.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.replication import RETRY_MS, IsrChanges
from kraftsim.partitions.rules_leader import After, IsrProposal
from kraftsim.partitions.rules_replica import AgreedIsr
from kraftsim.server.controller_channel import ControllerChannel
from kraftsim.server.shell import NodeShell
from kraftsim.zookeeper.client import ZookeeperRefused
from kraftsim.zookeeper.session import ZookeeperSession
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.messages.k56_alter_partition import BrokerState
from protocol.zookeeper.kafka_znodes import (
    ISR_CHANGE,
    PartitionStateZnode,
    build_partitions,
    state_path,
)
from protocol.zookeeper.op_codes import CreateMode, ZookeeperError

PROPAGATION_MS: Final = 2500
"""IsrChangePropagationConfig.checkIntervalMs."""
UNCHECKED_EPOCH: Final = -1
PartitionKey = tuple[str, int]


class IsrChangesWithoutEpochs(IsrChanges):
    """AlterPartition requests without broker epochs."""

    def _in_sync(self, proposal: IsrProposal, own_id: int, own_epoch: int) -> list[BrokerState]:
        return [BrokerState(broker_id=each, broker_epoch=UNCHECKED_EPOCH) for each in proposal.isr]


class IsrZnodes(IsrChanges):
    """`controller_epoch()` is the latest epoch known to this broker; it is written to the znode."""

    def __init__(
        self,
        shell: NodeShell,
        channel: ControllerChannel,
        session: ZookeeperSession,
        controller_epoch: Callable[[], int],
        on_moved: Callable[[PartitionKey], None],
    ) -> None:
        super().__init__(shell, channel, lambda: UNCHECKED_EPOCH, on_moved)
        self._session = session
        self._controller_epoch = controller_epoch
        self._changed: dict[PartitionKey, None] = {}
        self._is_propagating = False

    def ask(self, hosted: HostedPartition, proposal: IsrProposal) -> None:
        """Write an ISR to ZooKeeper."""
        self._shell.tasks.spawn(
            self._write(hosted, proposal), f"isr of {hosted.topic}-{hosted.partition}"
        )

    async def _write(self, hosted: HostedPartition, proposal: IsrProposal) -> None:
        """Write an ISR, and retry in the next session if this one expires: only this broker would
        ever report the outcome.
        """
        after = After.RETRY
        while after is After.RETRY:
            try:
                outcome = await self._set(hosted, proposal)
            except MalformedMessage:
                outcome = (
                    ErrorCode.INVALID_UPDATE_VERSION
                )  # the controller will send the current state
            except ZookeeperRefused as refused:
                is_over = refused.error == ZookeeperError.SESSION_EXPIRED
                outcome = (
                    ErrorCode.UNKNOWN_SERVER_ERROR if is_over else ErrorCode.INVALID_UPDATE_VERSION
                )
            if isinstance(outcome, AgreedIsr):
                self._add_changed(hosted)
            after = self._settle(hosted, proposal, outcome)
            if after is After.RETRY:
                await asyncio.sleep(RETRY_MS / 1000)
                await self._session.until_there_is_one()

    async def _set(self, hosted: HostedPartition, proposal: IsrProposal) -> AgreedIsr | ErrorCode:
        """Return the agreed ISR.

        INVALID_UPDATE_VERSION if a concurrent write came first, unless that was this broker's own
        write.
        """
        path = state_path(hosted.topic, hosted.partition)
        wanted = PartitionStateZnode(
            leader=self._shell.config.node_id,
            leader_epoch=proposal.leader_epoch,
            isr=list(proposal.isr),
            controller_epoch=self._controller_epoch(),
        )
        try:
            stat = await self._session.until_connected(
                lambda client: client.set(path, wanted.build(), proposal.partition_epoch)
            )
        except ZookeeperRefused as refused:
            if refused.error != ZookeeperError.BAD_VERSION:
                raise
            data, stat = await self._session.until_connected(lambda client: client.get(path))
            if PartitionStateZnode.parse(data or b"") != wanted:
                return ErrorCode.INVALID_UPDATE_VERSION
        return AgreedIsr(
            leader_epoch=proposal.leader_epoch,
            partition_epoch=stat.version,
            isr=tuple(proposal.isr),
        )

    def _add_changed(self, hosted: HostedPartition) -> None:
        self._changed[hosted.topic, hosted.partition] = None
        if not self._is_propagating:
            self._is_propagating = True
            self._shell.tasks.spawn(self._propagate(), "isr-change-propagation")

    async def _propagate(self) -> None:
        await asyncio.sleep(PROPAGATION_MS / 1000)
        self._is_propagating = False
        changed, self._changed = list(self._changed), {}
        try:
            await self._session.until_connected(
                lambda client: client.create(
                    ISR_CHANGE, build_partitions(changed), CreateMode.PERSISTENT_SEQUENTIAL
                )
            )
        except ZookeeperRefused:
            self._changed.update(dict.fromkeys(changed))  # included in the next notification
