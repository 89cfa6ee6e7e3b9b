"""The same requests to two controllers: fake brokers register, and every change of topics and
partitions is requested with raw requests.

The responses of a controller and its log records are converted to a text that does not depend on
the controller: topics by name and incarnations of brokers by number, because ids and offsets
differ. Requests are sent one at a time, so the records of each request are known.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kraftsim.conformance.peer import Peer
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.metadata.rules_registrations import PartitionRegistration
from protocol.errors import ErrorCode
from protocol.message_json import message_to_json
from protocol.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from protocol.messages.registry import response_class
from protocol.metadata.controller import NoOpRecord
from protocol.metadata.registrations import RegisterBrokerRecord, RegisterControllerRecord
from protocol.metadata.registry import parse_record, record_version
from protocol.metadata.topics import TopicRecord
from protocol.records.batches import split_batches
from protocol.schema import Message, declaration_of
from protocol.uuids import METADATA_TOPIC_ID, ZERO_UUID, uuid_text

CLUSTER_ID = "a3JhZnRzaW0tY2x1c3RlcQ"
CAUGHT_UP = 1 << 40
"""A metadata offset that no controller has reached."""
FETCH_VERSION = 17
OBSERVER = -1
UNUSED_ID = b"an id of no one."
LEFT_OUT = ("throttleTimeMs", "clientId")


@dataclass(frozen=True)
class Result:
    """The result of a request: the response, and the records that it caused, unordered."""

    answer: str
    records: tuple[str, ...]
    batches: tuple[int, ...]
    """The number of records in each batch."""


class Session:
    """One controller, over one connection."""

    def __init__(self, address: str) -> None:
        self.image = MetadataImage()
        self._peer = Peer.at(address)
        self._names: dict[str, str] = {}
        self._incarnations: dict[int, str] = {}
        self._next_offset = 0
        self._last_epoch = self._leader_epoch = 0
        self.read()

    def close(self) -> None:
        """Close the connection."""
        self._peer.close()

    # Parts of requests
    # ----------------------------------------------------------------------------------------------

    def topic_id(self, name: str) -> bytes:
        """Return the id of a topic; an unused one if the topic does not exist."""
        topic = self.image.topic(name)
        return UNUSED_ID if topic is None else topic.topic_id

    def broker_epoch(self, broker_id: int) -> int:
        """Return the epoch of a broker's current incarnation; -1 if it never registered."""
        broker = self.image.broker(broker_id)
        return -1 if broker is None else broker.broker_epoch

    def partitions(self) -> Mapping[tuple[str, int], PartitionRegistration]:
        """Return all partitions by topic name and number."""
        return {
            (topic.name, number): partition
            for topic in self.image.topics()
            for number, partition in sorted(topic.partitions.items())
        }

    # Requests
    # ----------------------------------------------------------------------------------------------

    def send(self, asked: "Callable[[Session], tuple[Message, int]]") -> Result:
        """Send a request and return its result."""
        body, version = asked(self)
        api_key = declaration_of(type(body)).api_key
        assert api_key is not None, "only requests are sent"
        answer: Message = self._peer.ask(body, version, response_class(api_key))
        batches = self.read()
        records = sorted(self._record_text(*record) for batch in batches for record in batch)
        return Result(
            answer=self._words(message_to_json(answer, version)),
            records=tuple(records),
            batches=tuple(map(len, batches)),
        )

    def read(self) -> list[list[tuple[Message, int]]]:
        """Read the new batches of the log, each record with its version, without those that
        controllers write by themselves.
        """
        gained: list[list[tuple[Message, int]]] = []
        while batches := self._fetch():
            for batch in split_batches(batches):
                self._next_offset, self._last_epoch = (
                    batch.last_offset + 1,
                    batch.partition_leader_epoch,
                )
                if batch.is_control:
                    continue
                records: list[tuple[Message, int]] = []
                for record in batch.records():
                    assert record.value is not None
                    parsed = parse_record(record.value)
                    self.image.replay(parsed, record.offset)
                    if not isinstance(parsed, NoOpRecord | RegisterControllerRecord):
                        records.append((parsed, record_version(record.value)))
                        self._learn(parsed)
                gained += [records] if records else []
        return gained

    def _fetch(self) -> bytes:
        partition = FetchPartition(
            partition=0,
            current_leader_epoch=self._leader_epoch,
            fetch_offset=self._next_offset,
            last_fetched_epoch=self._last_epoch,
        )
        request = FetchRequest(
            cluster_id=CLUSTER_ID,
            replica_state=ReplicaState(replica_id=OBSERVER),
            max_wait_ms=0,
            min_bytes=0,
            topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
        )
        answer = self._peer.ask(request, FETCH_VERSION, FetchResponse)
        data = answer.responses[0].partitions[0]
        if data.error_code == ErrorCode.FENCED_LEADER_EPOCH:
            self._leader_epoch = data.current_leader.leader_epoch
            return self._fetch()
        assert (answer.error_code, data.error_code) == (0, 0), answer
        return bytes(data.records or b"")

    def _learn(self, record: Message) -> None:
        if isinstance(record, TopicRecord):
            self._names[uuid_text(record.topic_id)] = record.name
        if isinstance(record, RegisterBrokerRecord):
            number = (
                sum(text.startswith(f"{record.broker_id}/") for text in self._incarnations.values())
                + 1
            )
            self._incarnations.setdefault(record.broker_epoch, f"{record.broker_id}/{number}")

    # Texts
    # ----------------------------------------------------------------------------------------------

    def _record_text(self, record: Message, version: int) -> str:
        return f"{type(record).__name__} v{version} {self._words(message_to_json(record, version))}"

    def _words(self, content: Any) -> str:
        return json.dumps(self._said(content), sort_keys=True)

    def _said(self, content: Any, key: str = "") -> Any:
        match content:
            case dict():
                return {
                    name: self._said(value, name)
                    for name, value in content.items()
                    if name not in LEFT_OUT
                }
            case list():
                said = [self._said(value, key) for value in content]
                return (
                    sorted(said, key=json.dumps)
                    if any(isinstance(value, dict) for value in said)
                    else said
                )
            case str() if content in self._names:
                return f"topic {self._names[content]}"
            case str() if key == "topicId" and content not in (
                uuid_text(UNUSED_ID),
                uuid_text(ZERO_UUID),
            ):
                return "generated, not assigned"
            case int() if key == "brokerEpoch" and content in self._incarnations:
                return f"incarnation {self._incarnations[content]}"
            case _:
                return content
