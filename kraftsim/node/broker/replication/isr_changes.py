"""Asks the controller for other sets of in-sync replicas: whatever has gathered goes into one AlterPartition, and the next one waits for its answer.

Source: kafka.server.DefaultAlterPartitionManager (KIP-497).
"""

import asyncio
from collections.abc import Callable

from kraftsim.core.partitions.in_sync_replicas import After, IsrProposal
from kraftsim.core.partitions.partition_replica import AgreedIsr
from kraftsim.node.broker.hosted_partition import HostedPartition
from kraftsim.node.controller_channel import ControllerChannel
from kraftsim.node.shell import NodeShell
from protocol.errors import ErrorCode
from protocol.messages.k56_alter_partition import (
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerState,
)
from protocol.schema import Message

RETRY_MS = 50
PartitionKey = tuple[str, int]


class IsrChanges:
    """`on_moved` hears of partitions whose high watermark may have moved."""

    def __init__(
        self, shell: NodeShell, channel: ControllerChannel, broker_epoch: Callable[[], int], on_moved: Callable[[PartitionKey], None]
    ) -> None:
        self._shell = shell
        self._channel = channel
        self._broker_epoch = broker_epoch
        self._on_moved = on_moved
        self._gathered: dict[PartitionKey, tuple[HostedPartition, IsrProposal]] = {}
        self._in_flight: dict[tuple[bytes, int], tuple[HostedPartition, IsrProposal]] | None = None

    def ask(self, hosted: HostedPartition, proposal: IsrProposal) -> None:
        """Ask for a set. A proposal of an earlier leader epoch that has not left yet is forgotten."""
        self._gathered[hosted.topic, hosted.partition] = (hosted, proposal)
        self._send()

    def _send(self) -> None:
        if self._in_flight is not None or not self._gathered:
            return
        gathered, self._gathered = self._gathered, {}
        self._in_flight = {(hosted.topic_id, hosted.partition): (hosted, proposal) for hosted, proposal in gathered.values()}
        self._channel.send(self._request(), self._on_answer)

    def _request(self) -> AlterPartitionRequest:
        assert self._in_flight, "there is something to ask for"
        own_id, own_epoch = self._shell.config.node_id, self._broker_epoch()
        topics: dict[bytes, AlterPartitionTopic] = {}
        for hosted, proposal in self._in_flight.values():
            isr = zip(proposal.isr, proposal.broker_epochs, strict=True)
            topics.setdefault(hosted.topic_id, AlterPartitionTopic(topic_id=hosted.topic_id)).partitions.append(
                AlterPartitionData(
                    partition_index=hosted.partition,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[BrokerState(broker_id=each, broker_epoch=own_epoch if each == own_id else epoch) for each, epoch in isr],
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(broker_id=own_id, broker_epoch=own_epoch, topics=list(topics.values()))

    def _on_answer(self, answer: Message | OSError) -> None:
        asked, self._in_flight = self._in_flight or {}, None
        outcomes: dict[tuple[bytes, int], AgreedIsr | ErrorCode] = {}
        if isinstance(answer, AlterPartitionResponse):
            whole = ErrorCode(answer.error_code)
            for topic in answer.topics:
                for row in topic.partitions:
                    error = ErrorCode(row.error_code)
                    agreed = AgreedIsr(leader_epoch=row.leader_epoch, partition_epoch=row.partition_epoch, isr=tuple(row.isr))
                    outcomes[topic.topic_id, row.partition_index] = error if error is not ErrorCode.NONE else agreed
        else:
            whole = ErrorCode.REQUEST_TIMED_OUT
        now_ms = self._shell.world.clock.wall_ms()
        for key, (hosted, proposal) in asked.items():
            outcome = whole if whole is not ErrorCode.NONE else outcomes.get(key, ErrorCode.UNKNOWN_SERVER_ERROR)
            after = hosted.replica.on_isr_answer(proposal, outcome, now_ms)
            if after is After.RETRY:
                self._gathered.setdefault((hosted.topic, hosted.partition), (hosted, proposal))
            elif after is After.CHANGED:
                self._on_moved((hosted.topic, hosted.partition))
        if whole is ErrorCode.NONE:
            self._send()
        else:
            self._shell.tasks.spawn(self._send_later(), "isr-retry")

    async def _send_later(self) -> None:
        await asyncio.sleep(RETRY_MS / 1000)
        self._send()
