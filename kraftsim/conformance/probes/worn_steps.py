"""Steps for states that only time brings: nearly exhausted epochs, expired transactional ids,
another transaction.version.

32,766 epoch bumps take too long, so the epochs of a name are used up by a record of
`__transaction_state` that an administrator writes and a coordinator loads when its node restarts:
`wear_out` before, `worn` as the first step of a probe afterwards.
Source: KIP-360, KIP-890; TransactionLog, AdminUtils.ADMIN_CLIENT_ID.
"""

import itertools
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kraftsim.conformance.batches import ALL, TIMEOUT_MS, wall_ms
from kraftsim.conformance.expect import Unmet, error_name
from kraftsim.conformance.peer import request_bytes
from kraftsim.conformance.probes.conversation import (
    NotOffered,
    ProbeConversation,
    give_up_at,
    named,
    pause_until,
)
from kraftsim.conformance.probes.transaction_steps import MINUTE_MS, Identified
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.coordinator.registry import build_record
from protocol.coordinator.transactions import TransactionLogKey, TransactionLogValue
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.k57_update_features import (
    SAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from protocol.records.batches import build_batch
from protocol.records.record import Record
from protocol.requests import decode_response

TOPIC = "__transaction_state"
ADMIN_CLIENT_ID = "__admin_client"
"""A client with this client id may write to internal topics."""
PRODUCE_VERSION = 9
PLAIN_VALUE = 0
TRANSACTION_VERSION = "transaction.version"
RANGES_FROM_ZERO_SINCE = 4
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worn(Identified):
    """A name with a record at an epoch.

    `status` is that of the record: 0 Empty, 5 CompleteAbort.
    """

    at_epoch: int
    number: int
    timeout_ms: int = MINUTE_MS
    status: int = 0

    @property
    def worn_id(self) -> str:
        """The transactional id."""
        return f"worn-{self.number}-{self.at_epoch}"

    def words(self) -> str:
        """Return the state as text."""
        status = "" if self.status == 0 else f", status {self.status}"
        timeout = "" if self.timeout_ms == MINUTE_MS else f", timeout {self.timeout_ms}"
        return f"A record with epoch {self.at_epoch}{self.client_text()}{timeout}{status}"

    def put(self, conversation: ProbeConversation) -> str:
        """Take the name, and get its producer id. Raises NotOffered if there is no such record."""
        version = conversation.offered(ApiKey.DESCRIBE_TRANSACTIONS, 0)
        asked = DescribeTransactionsRequest(transactional_ids=[self.worn_id])
        row = conversation.peer.ask(
            asked, version, DescribeTransactionsResponse
        ).transaction_states[0]
        if row.error_code or row.producer_epoch != self.at_epoch:
            raise NotOffered(
                f"{self.worn_id} has no exhausted epochs here: {named(row.error_code)}, epoch "
                f"{row.producer_epoch}"
            )
        own = conversation.producer(self.client_name)
        own.transactional_id, own.producer_id, own.producer_epoch = (
            self.worn_id,
            row.producer_id,
            row.producer_epoch,
        )
        return (
            f"{row.transaction_state}, {conversation.letter(row.producer_id)} epoch "
            f"{row.producer_epoch}"
        )


def worn(at_epoch: int, **rest: object) -> Worn:
    """Return a unique name, at an epoch."""
    # arg-type: keyword arguments of several types
    return Worn(at_epoch=at_epoch, number=next(_numbers), **rest)  # type: ignore[arg-type]


def wear_out(target: Target, names: Iterable[Worn]) -> None:
    """Write the records, each with a producer id of its own.

    The node loads them on its next start. Raises Unmet if it rejects one.
    """
    with target.peer() as peer:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
        partitions = len(
            peer.ask(asked, target.newest(ApiKey.METADATA, 9), MetadataResponse)
            .topics[0]
            .partitions
        )
        for each in names:
            batch = build_batch([_record(each, target.producer_id()[0])])
            row = PartitionProduceData(
                index=abs(_java_hash(each.worn_id)) % partitions, records=batch
            )
            produce = ProduceRequest(
                acks=ALL,
                timeout_ms=TIMEOUT_MS,
                topic_data=[TopicProduceData(name=TOPIC, partition_data=[row])],
            )
            peer.send_bytes(request_bytes(produce, PRODUCE_VERSION, each.number, ADMIN_CLIENT_ID))
            _, answer = decode_response(ApiKey.PRODUCE, PRODUCE_VERSION, peer.receive_frame())
            assert isinstance(answer, ProduceResponse), "a Produce has the response one"
            code = answer.responses[0].partition_responses[0].error_code
            if code:
                raise Unmet(f"{each.worn_id} was not written: {error_name(code)}")


def _record(each: Worn, producer_id: int) -> Record:
    value = TransactionLogValue(
        producer_id=producer_id,
        producer_epoch=each.at_epoch,
        transaction_timeout_ms=each.timeout_ms,
        transaction_status=each.status,
        transaction_partitions=[] if each.status else None,
        transaction_last_update_timestamp_ms=wall_ms(),
        transaction_start_timestamp_ms=-1,
    )
    key, content = build_record(
        TransactionLogKey(transactional_id=each.worn_id), value, PLAIN_VALUE
    )
    return Record(timestamp=wall_ms(), key=key, value=content)


def _java_hash(text: str) -> int:
    """Return the result of Java's String.hashCode for an ASCII string."""
    hashed = 0
    for letter in text.encode("ascii"):
        hashed = (31 * hashed + letter) & 0xFFFFFFFF
    found: int = struct.unpack(">i", hashed.to_bytes(4))[0]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """A second producer with the current name, id and epoch of another one, which does not get the
    later responses.
    """

    client_name: str = "b"
    of: str = "a"

    def words(self) -> str:
        """Return the state as text."""
        return f"{self.client_name} has the state of {self.of}"

    def put(self, conversation: ProbeConversation) -> str:
        """Store it."""
        conversation.producers[self.client_name] = replace(conversation.producer(self.of))
        return "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone(Identified):
    """DescribeTransactions of one producer's transactional id, repeated until it is unknown."""

    def words(self) -> str:
        """Return the request as text."""
        return f"DescribeTransactions{self.client_text()}, until it has expired"

    def put(self, conversation: ProbeConversation) -> str:
        """Send the request."""
        version = conversation.offered(ApiKey.DESCRIBE_TRANSACTIONS, 0)
        asked = DescribeTransactionsRequest(transactional_ids=[self.transactional_id(conversation)])
        deadline = give_up_at()
        while True:
            row = conversation.peer.ask(
                asked, version, DescribeTransactionsResponse
            ).transaction_states[0]
            if row.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return named(row.error_code)
            pause_until(deadline, f"{self.words()}, last {row.transaction_state}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """No request for a while."""

    ms: int

    def words(self) -> str:
        """Return that no request is sent."""
        return f"{self.ms} ms pass"

    def put(self, conversation: ProbeConversation) -> str:
        """Wait."""
        time.sleep(self.ms / 1000)
        return "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """UpdateFeatures: the cluster changes to another level of transaction.version, and back when
    the probe is over.
    """

    level: int

    def words(self) -> str:
        """Return the request as text."""
        return f"UpdateFeatures: {TRANSACTION_VERSION} {self.level}"

    def put(self, conversation: ProbeConversation) -> str:
        """Send the request, and wait until the node reports the level.

        Raises NotOffered if there is no such level.
        """
        present, highest = _levels(conversation)
        if highest < self.level:
            raise NotOffered(f"{TRANSACTION_VERSION} goes to {highest}")
        returned = _finalize(conversation, present, self.level)
        conversation.at_end.append(lambda: _finalize(conversation, self.level, present))
        return returned


def _finalize(conversation: ProbeConversation, present: int, level: int) -> str:
    kind = UPGRADE if level > present else SAFE_DOWNGRADE
    row = FeatureUpdateKey(feature=TRANSACTION_VERSION, max_version_level=level, upgrade_type=kind)
    answer = conversation.peer.ask(
        UpdateFeaturesRequest(feature_updates=[row]),
        conversation.target.newest(ApiKey.UPDATE_FEATURES),
        UpdateFeaturesResponse,
    )
    if answer.error_code:
        return named(answer.error_code)
    deadline = give_up_at()
    while _levels(conversation)[0] != level:
        pause_until(deadline, f"{TRANSACTION_VERSION} {level}")
    return "ok"


def _levels(conversation: ProbeConversation) -> tuple[int, int]:
    """Return the finalized and the highest supported level."""
    version = conversation.target.newest(ApiKey.API_VERSIONS, RANGES_FROM_ZERO_SINCE)
    answer = conversation.peer.ask(
        ApiVersionsRequest(client_software_name="kraftsim", client_software_version="1"),
        version,
        ApiVersionsResponse,
    )
    supported = [
        row.max_version for row in answer.supported_features if row.name == TRANSACTION_VERSION
    ]
    finalized = [
        row.max_version_level
        for row in answer.finalized_features
        if row.name == TRANSACTION_VERSION
    ]
    return (finalized or [0])[0], (supported or [0])[0]
