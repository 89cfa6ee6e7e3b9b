"""Follows the metadata log: fetches from the controller without end, and hands on what is committed.

The broker is an observer: it names its id, is never counted for the high watermark, and learns of it with the next answer. Nothing is kept on disk;
a start reads the log again from its beginning.

Source: org.apache.kafka.raft.KafkaRaftClient, org.apache.kafka.image.loader.MetadataLoader.
"""

import asyncio
from collections.abc import Awaitable, Callable

from kraftsim.events.metadata import MetadataApplied, MetadataReverted
from kraftsim.node.broker.metadata_cursor import Committed, CommittedLost, MetadataCursor, Outcome, WrongLeader
from kraftsim.node.controller_channel import ControllerFinder
from kraftsim.node.endpoints import Voter
from kraftsim.node.outbound import PeerConnection, VersionRange
from kraftsim.node.shell import NodeShell
from protocol.api_keys import ApiKey
from protocol.batches import RecordBatch
from protocol.disk.file_names import METADATA_TOPIC
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData, ReplicaState
from protocol.schema import Message
from protocol.uuids import METADATA_TOPIC_ID

MAX_WAIT_MS = 500
"""MAX_FETCH_WAIT_MS of the raft client."""
MAX_BYTES = 8 * 1024 * 1024
"""MAX_FETCH_SIZE_BYTES."""
FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_REPLICA_STATE = 15
OnCommitted = Callable[[tuple[RecordBatch, ...]], Awaitable[None]]


class MetadataFollower:
    """The task that keeps the broker's metadata up to date. `on_reset` makes room for a log that begins again from offset 0."""

    def __init__(
        self,
        shell: NodeShell,
        own_versions: dict[int, VersionRange] | None,
        finder: ControllerFinder,
        on_committed: OnCommitted,
        on_reset: Callable[[], None],
    ) -> None:
        self._shell = shell
        self._config = shell.config
        self._own_versions = own_versions
        self._on_committed = on_committed
        self._on_reset = on_reset
        self._cursor = MetadataCursor()
        self._finder = finder
        self._voters = shell.config.first_asked
        self._voter_index = 0
        self._connection: PeerConnection | None = None
        self._requests: dict[int, FetchRequest] = {}

    async def run(self) -> None:
        """Fetch and apply until cancelled. Raises what applying raises: a disk that refuses, a record that nobody here understands."""
        while True:
            try:
                outcome = self._cursor.on_answer(await self._fetch())
            except (OSError, MalformedMessage):
                self._leave_connection()
                self._voter_index = (self._voter_index + 1) % len(self._voters)
                await self._back_off()
            else:
                await self._act_on(outcome)

    def close(self) -> None:
        """End the connection to the controller."""
        self._leave_connection()

    def abort(self) -> None:
        """End the connection as a process that dies."""
        if self._connection is not None:
            self._connection.abort()

    async def _fetch(self) -> PartitionData:
        connection = await self._connected()
        timeout_ms = self._config.controller_quorum_request_timeout_ms
        answer: Message = await connection.request(self._request(connection.version_for(ApiKey.FETCH)), timeout_ms)
        assert isinstance(answer, FetchResponse), "Fetch was asked"
        if answer.error_code != ErrorCode.NONE or not answer.responses or not answer.responses[0].partitions:
            raise ConnectionError(f"the controller answered Fetch with error {answer.error_code}")
        return answer.responses[0].partitions[0]

    async def _act_on(self, outcome: Outcome) -> None:
        match outcome:
            case Committed(batches):
                self._finder.learned(self._voters[self._voter_index].node_id)
                if batches:
                    await self._on_committed(batches)
                    self._shell.world.note(MetadataApplied(next_offset=self._cursor.applied_next_offset))
            case WrongLeader(leader_id):
                self._finder.learned(leader_id)
                self._turn_to(leader_id)
                await self._back_off()
            case CommittedLost(to_offset):
                # Kafka's broker dies here. A quorum that lost committed records is what some bug switches are about; the broker starts over instead.
                self._shell.world.note(MetadataReverted(to_offset=to_offset))
                leader_epoch = self._cursor.leader_epoch
                self._cursor = MetadataCursor()
                self._cursor.leader_epoch = leader_epoch
                self._on_reset()

    async def _back_off(self) -> None:
        await asyncio.sleep(self._config.controller_quorum_retry_backoff_ms / 1000)

    def _request(self, version: int) -> FetchRequest:
        """Return the request for what comes next. One object per version serves for all: it is encoded when it is sent."""
        request = self._requests.get(version)
        if request is None:
            request = self._requests[version] = self._new_request(version)
        partition = request.topics[0].partitions[0]
        partition.current_leader_epoch = self._cursor.leader_epoch
        partition.fetch_offset = self._cursor.fetched_next_offset
        partition.last_fetched_epoch = self._cursor.last_fetched_epoch
        return request

    def _new_request(self, version: int) -> FetchRequest:
        with_state = version >= FIRST_VERSION_WITH_REPLICA_STATE
        with_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS
        request = FetchRequest(
            cluster_id=self._config.cluster_id,
            replica_id=-1 if with_state else self._config.node_id,
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            topics=[
                FetchTopic(
                    topic="" if with_ids else METADATA_TOPIC,
                    topic_id=METADATA_TOPIC_ID if with_ids else bytes(16),
                    partitions=[FetchPartition(partition=0, partition_max_bytes=MAX_BYTES)],
                )
            ],
        )
        if with_state:
            request.replica_state = ReplicaState(replica_id=self._config.node_id)
        return request

    async def _connected(self) -> PeerConnection:
        if self._connection is None or not self._connection.is_open:
            voter: Voter = self._voters[self._voter_index]
            self._connection = PeerConnection(
                voter.host,
                voter.port,
                client_id=f"raft-client-{self._config.node_id}",
                world=self._shell.world,
                own_versions=self._own_versions,
                frame_events=self._config.frame_events,
                number=self._shell.next_connection_number(),
            )
            await self._connection.connect(timeout_ms=self._config.controller_quorum_request_timeout_ms)
        return self._connection

    def _turn_to(self, leader_id: int) -> None:
        """Ask the leader that was named, or the next voter where none was."""
        known = [index for index, voter in enumerate(self._voters) if voter.node_id == leader_id]
        chosen = known[0] if known else (self._voter_index + 1) % len(self._voters)
        if chosen != self._voter_index:
            self._voter_index = chosen
            self._leave_connection()

    def _leave_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
