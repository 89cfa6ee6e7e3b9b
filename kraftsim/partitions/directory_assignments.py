"""Reports to the controller which log directory hosts each replica, so that it can move leadership
when a directory fails.

Pending assignments are sent in one AssignReplicasToDirs; the next one is sent after its response.
Source: kafka.server.AssignmentsManager (KIP-858).
"""

import asyncio
from collections.abc import Callable

from kraftsim.server.controller_channel import ControllerChannel
from kraftsim.server.shell import NodeShell
from protocol.errors import ErrorCode
from protocol.messages.k73_assign_replicas_to_dirs import (
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from protocol.schema import Message

RETRY_MS = 100
ReplicaId = tuple[bytes, int]
"""Topic id and partition."""
OnAssigned = Callable[[ErrorCode], None]
GIVEN_UP = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNSUPPORTED_VERSION,
)
"""Errors that are not retried."""


class DirectoryAssignments:
    """`assign` queues an assignment; the latest one of each replica is sent."""

    def __init__(
        self, shell: NodeShell, channel: ControllerChannel, broker_epoch: Callable[[], int]
    ) -> None:
        self._shell = shell
        self._channel = channel
        self._broker_epoch = broker_epoch
        self._gathered: dict[ReplicaId, tuple[bytes, OnAssigned]] = {}
        self._in_flight: dict[ReplicaId, tuple[bytes, OnAssigned]] | None = None

    def assign(
        self,
        topic_id: bytes,
        partition: int,
        directory_id: bytes,
        on_end: OnAssigned = lambda error: None,
    ) -> None:
        """Queue an assignment.

        `on_end` is called with NONE once the controller has it, or with the error that is not
        retried.
        """
        self._gathered[topic_id, partition] = (directory_id, on_end)
        self._shell.settle_soon(self._send)

    def _send(self) -> None:
        if self._in_flight is not None or not self._gathered or self._shell.is_dead:
            return
        self._in_flight, self._gathered = self._gathered, {}
        directories: dict[bytes, dict[bytes, AssignedTopic]] = {}
        for (topic_id, partition), (directory_id, _) in self._in_flight.items():
            topics = directories.setdefault(directory_id, {})
            row = topics.setdefault(topic_id, AssignedTopic(topic_id=topic_id))
            row.partitions.append(AssignedPartition(partition_index=partition))
        asked = [
            AssignedDirectory(id=directory_id, topics=list(topics.values()))
            for directory_id, topics in directories.items()
        ]
        request = AssignReplicasToDirsRequest(
            broker_id=self._shell.config.node_id,
            broker_epoch=self._broker_epoch(),
            directories=asked,
        )
        self._channel.send(request, self._on_answer)

    def _on_answer(self, answer: Message | OSError) -> None:
        asked, self._in_flight = self._in_flight or {}, None
        whole, errors = ErrorCode.REQUEST_TIMED_OUT, dict[ReplicaId, ErrorCode]()
        if isinstance(answer, AssignReplicasToDirsResponse):
            whole = ErrorCode(answer.error_code)
            for directory in answer.directories:
                for topic in directory.topics:
                    errors |= {
                        (topic.topic_id, row.partition_index): ErrorCode(row.error_code)
                        for row in topic.partitions
                    }
        must_retry = False
        for replica, (directory_id, on_end) in asked.items():
            error = (
                whole
                if whole is not ErrorCode.NONE
                else errors.get(replica, ErrorCode.UNKNOWN_SERVER_ERROR)
            )
            if error is ErrorCode.NONE or error in GIVEN_UP:
                on_end(error)
            elif replica not in self._gathered:
                self._gathered[replica] = (directory_id, on_end)
                must_retry = True
        if must_retry:
            self._shell.tasks.spawn(self._send_later(), "directory-assignment-retry")
        else:
            self._send()

    async def _send_later(self) -> None:
        await asyncio.sleep(RETRY_MS / 1000)
        self._send()
