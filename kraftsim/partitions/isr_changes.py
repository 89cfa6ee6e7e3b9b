"""Requests ISR changes from the controller: pending ones are sent in one AlterPartition, the next
one is sent after its response.

Source: kafka.server.DefaultAlterPartitionManager (KIP-497).
"""

import asyncio
from collections.abc import Callable

from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.rules_leader import After, IsrProposal
from kraftsim.partitions.rules_replica import AgreedIsr
from kraftsim.server.controller_channel import ControllerChannel
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

RETRY_MS = 50
FIRST_WITH_EPOCHS = 3
PartitionKey = tuple[str, int]


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
