"""One story told to two controllers: brokers that are none register, and all that can befall topics and partitions is asked for in raw requests.

What a controller answers, and what it writes into its log for it, is put into words that are the same whoever tells them: topics by name and brokers'
lives by number, because ids and offsets are each controller's own. Requests go one after the other, so that it is known which records each one made.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kraftsim.conformance.peer import Peer
from kraftsim.core.metadata.image import MetadataImage
from kraftsim.core.metadata.partition_registration import PartitionRegistration
from protocol.batches import split_batches
from protocol.errors import ErrorCode
from protocol.message_json import message_to_json
from protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from protocol.messages.registry import response_class
from protocol.metadata.m00_register_broker import RegisterBrokerRecord
from protocol.metadata.m02_topic import TopicRecord
from protocol.metadata.m20_no_op import NoOpRecord
from protocol.metadata.m27_register_controller import RegisterControllerRecord
from protocol.metadata.registry import parse_record, record_version
from protocol.schema import Message, declaration_of
from protocol.uuids import METADATA_TOPIC_ID, ZERO_UUID, uuid_text

CLUSTER_ID = "a3JhZnRzaW0tY2x1c3RlcQ"
CAUGHT_UP = 1 << 40
"""A metadata offset that no controller has reached."""
FETCH_VERSION = 17
OBSERVER = -1
NOBODYS_ID = b"an id of no one."
LEFT_OUT = ("throttleTimeMs", "clientId")


@dataclass(frozen=True)
class Told:
    """What came of a request: the answer, and the records that it made, in no order."""

    answer: str
    records: tuple[str, ...]
    batches: tuple[int, ...]
    """How many records stand in each batch."""


class Session:
    """One controller, asked over one connection."""

    def __init__(self, address: str) -> None:
        self.image = MetadataImage()
        self._peer = Peer.at(address)
        self._names: dict[str, str] = {}
        self._lives: dict[int, str] = {}
        self._next_offset = 0
        self._last_epoch = self._leader_epoch = 0
        self.read()

    def close(self) -> None:
        """Give the connection up."""
        self._peer.close()

    # What requests are made of --------------------------------------------------------------------------------------------------------------------

    def topic_id(self, name: str) -> bytes:
        """Return the id of a topic; one that nobody has if there is none."""
        topic = self.image.topic(name)
        return NOBODYS_ID if topic is None else topic.topic_id

    def broker_epoch(self, broker_id: int) -> int:
        """Return the epoch of a broker's present life; -1 if it never registered."""
        broker = self.image.broker(broker_id)
        return -1 if broker is None else broker.broker_epoch

    def partitions(self) -> Mapping[tuple[str, int], PartitionRegistration]:
        """Return all partitions by topic name and number."""
        return {(topic.name, number): partition for topic in self.image.topics() for number, partition in sorted(topic.partitions.items())}

    # Asking ---------------------------------------------------------------------------------------------------------------------------------------

    def tell(self, asked: "Callable[[Session], tuple[Message, int]]") -> Told:
        """Ask, and tell what came of it."""
        body, version = asked(self)
        api_key = declaration_of(type(body)).api_key
        assert api_key is not None, "only requests are asked"
        answer = self._peer.ask(body, version, response_class(api_key))
        batches = self.read()
        records = sorted(self._record_words(*record) for batch in batches for record in batch)
        return Told(answer=self._words(message_to_json(answer, version)), records=tuple(records), batches=tuple(map(len, batches)))

    def read(self) -> list[list[tuple[Message, int]]]:
        """Read what the log has gained batch by batch, each record with its version, but for what controllers write by themselves."""
        gained: list[list[tuple[Message, int]]] = []
        while batches := self._fetch():
            for batch in split_batches(batches):
                self._next_offset, self._last_epoch = batch.last_offset + 1, batch.partition_leader_epoch
                if batch.is_control:
                    continue
                told: list[tuple[Message, int]] = []
                for record in batch.records():
                    assert record.value is not None
                    parsed = parse_record(record.value)
                    self.image.replay(parsed, record.offset)
                    if not isinstance(parsed, NoOpRecord | RegisterControllerRecord):
                        told.append((parsed, record_version(record.value)))
                        self._learn(parsed)
                gained += [told] if told else []
        return gained

    def _fetch(self) -> bytes:
        partition = FetchPartition(
            partition=0, current_leader_epoch=self._leader_epoch, fetch_offset=self._next_offset, last_fetched_epoch=self._last_epoch
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
            life = sum(told.startswith(f"{record.broker_id}/") for told in self._lives.values()) + 1
            self._lives.setdefault(record.broker_epoch, f"{record.broker_id}/{life}")

    # Words ----------------------------------------------------------------------------------------------------------------------------------------

    def _record_words(self, record: Message, version: int) -> str:
        return f"{type(record).__name__} v{version} {self._words(message_to_json(record, version))}"

    def _words(self, told: Any) -> str:
        return json.dumps(self._said(told), sort_keys=True)

    def _said(self, told: Any, key: str = "") -> Any:
        match told:
            case dict():
                return {name: self._said(value, name) for name, value in told.items() if name not in LEFT_OUT}
            case list():
                said = [self._said(value, key) for value in told]
                return sorted(said, key=json.dumps) if any(isinstance(value, dict) for value in said) else said
            case str() if told in self._names:
                return f"topic {self._names[told]}"
            case str() if key == "topicId" and told not in (uuid_text(NOBODYS_ID), uuid_text(ZERO_UUID)):
                return "drawn, and given to nobody"
            case int() if key == "brokerEpoch" and told in self._lives:
                return f"life {self._lives[told]}"
            case _:
                return told
