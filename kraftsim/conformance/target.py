"""The node that is checked, and what checks create on it: topics, producer ids, connections to a
partition's leader.
"""

import itertools
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kraftsim.conformance.expect import Inapplicable, Unmet, error_name
from kraftsim.conformance.peer import ANSWER_SECONDS, Peer, split_address
from kraftsim.conformance.transcript import Transcript
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages import registry
from protocol.messages.k02_list_offsets import (
    CONSUMER_REPLICA_ID,
    EARLIEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

SETTLE_SECONDS = 20.0
PAUSE_SECONDS = 0.02
TOPIC_IDS_SINCE = 10
"""The first version of Metadata with topic ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTopic:
    """A topic created for one check.

    `leader` is the address of the leader of its partition 0, `leader_id` its id.
    """

    name: str
    topic_id: bytes
    leader: str
    leader_id: int = -1


class Target:
    """A cluster, by the address of one of its brokers.

    `controller` is the address of its active controller's listener, `sasl` that of a listener with
    authentication, of a node with an authorizer; either may be missing.
    """

    def __init__(self, address: str, controller: str = "", sasl: str = "") -> None:
        split_address(address)
        if controller:
            split_address(controller)
        self.address = address
        self.controller = controller
        self.sasl = sasl
        self.sasl_controller = ""
        """A controller listener with authentication, if there is one."""
        self.transcript = Transcript()
        self._give_up_at: float | None = None
        self._numbers = itertools.count(1)
        self._ranges: dict[str, Mapping[int, tuple[int, int]]] = {}

    def begin(self, seconds: float) -> None:
        """Begin a check: its traffic is recorded from here on, and its time limit starts."""
        self.transcript = Transcript()
        self._give_up_at = time.monotonic() + seconds

    def end(self) -> None:
        """End a check: there is no time limit from here on."""
        self._give_up_at = None

    def peer(self, address: str | None = None, timeout_seconds: float = ANSWER_SECONDS) -> Peer:
        """Return a new connection to the node, or to another one of its cluster.

        Raises Unmet for an invalid address in a response.
        """
        try:
            host, port = split_address(address or self.address)
        except ValueError as strange:
            raise Unmet("an invalid address", "HOST:PORT", str(address)) from strange
        return Peer(host, port, timeout_seconds, self._give_up_at, self.transcript)

    def controller_peer(self) -> Peer:
        """Return a new connection to the controller.

        Raises Inapplicable if its address is not given.
        """
        return self.peer(self.controller_address())

    def controller_address(self) -> str:
        """Return the controller's address. Raises Inapplicable if it is not given."""
        if not self.controller:
            raise Inapplicable("no controller address is given")
        return self.controller

    def fresh_name(self, word: str = "conformance") -> str:
        """Return a name that is unused on this cluster."""
        return f"{word}-{os.getpid()}-{time.time_ns() // 1000}-{next(self._numbers)}"

    def ranges(self, address: str | None = None) -> Mapping[int, tuple[int, int]]:
        """Return what the node, or another one of its cluster, advertises: API key -> first and
        last version.
        """
        place = address or self.address
        if place not in self._ranges:
            with self.peer(place) as peer:
                answer = peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
            self._ranges[place] = {
                row.api_key: (row.min_version, row.max_version) for row in answer.api_keys
            }
        return self._ranges[place]

    def range_of(self, api_key: ApiKey, address: str | None = None) -> tuple[int, int]:
        """Return the first and last version of an API that the node advertises.

        Raises Unmet if it does not.
        """
        if api_key not in self.ranges(address):
            raise Unmet(f"{api_key.name} is not advertised")
        return self.ranges(address)[api_key]

    def versions(
        self, api_key: ApiKey, since: int = 0, address: str | None = None
    ) -> Iterator[int]:
        """Yield the versions of an API, from `since` on, that both sides support.

        Raises Inapplicable if there are none.
        """
        ours_first, ours_last = registry.versions_of(api_key)
        first, last = self.range_of(api_key, address)
        common = range(max(first, ours_first, since), min(last, ours_last) + 1)
        if not common:
            raise Inapplicable(
                f"{api_key.name} is offered in versions {first} to {last}, and needed in "
                f"{max(since, ours_first)} to {ours_last}"
            )
        return iter(common)

    def newest(self, api_key: ApiKey, until: int = 99, address: str | None = None) -> int:
        """Return the newest version of an API, not above `until`, that both sides support.

        Raises Inapplicable if there is none.
        """
        common = [
            version for version in self.versions(api_key, address=address) if version <= until
        ]
        if not common:
            raise Inapplicable(f"{api_key.name} is offered in no version up to {until}")
        return common[-1]

    def topic(
        self, partitions: int = 1, configs: Mapping[str, str] | None = None, name: str = ""
    ) -> TargetTopic:
        """Create a topic with one replica, by default with a new name; return when all its leaders
        respond and all brokers have its metadata. Retry while the node knows of no broker yet.
        """
        name = name or self.fresh_name()
        rows = [
            CreatableTopicConfig(name=key, value=value)
            for key, value in sorted((configs or {}).items())
        ]
        wanted = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, configs=rows
        )
        give_up_at = time.monotonic() + SETTLE_SECONDS
        version = self.newest(ApiKey.CREATE_TOPICS)
        with self.peer() as peer:
            while True:
                answer = peer.ask(
                    CreateTopicsRequest(topics=[wanted], timeout_ms=15000),
                    version,
                    CreateTopicsResponse,
                )
                code = answer.topics[0].error_code
                if code == ErrorCode.NONE:
                    return self.led_topic(name, partitions)
                if code != ErrorCode.INVALID_REPLICATION_FACTOR or time.monotonic() > give_up_at:
                    raise Unmet(
                        f"a topic could not be made: {error_name(code)} "
                        f"{answer.topics[0].error_message}"
                    )
                # A broker in ZooKeeper mode listens before its controller has sent it a list of
                # brokers, itself included: until then one replica is one too many.
                time.sleep(PAUSE_SECONDS)

    def producer_id(self) -> tuple[int, int]:
        """Return a new producer id and its epoch, with retries while the node fetches a block."""
        version = self.newest(ApiKey.INIT_PRODUCER_ID)
        give_up_at = time.monotonic() + SETTLE_SECONDS
        with self.peer() as peer:
            while True:
                answer = peer.ask(
                    InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60000),
                    version,
                    InitProducerIdResponse,
                )
                if answer.error_code == ErrorCode.NONE:
                    return answer.producer_id, answer.producer_epoch
                if (
                    answer.error_code
                    not in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REQUEST_TIMED_OUT)
                    or time.monotonic() > give_up_at
                ):
                    raise Unmet(
                        f"no producer id could be allocated: {error_name(answer.error_code)}"
                    )
                time.sleep(PAUSE_SECONDS)

    def led_topic(self, name: str, partitions: int) -> TargetTopic:
        """Return a topic once all its leaders respond and all brokers have its metadata.

        Raises Unmet after a time-out.
        """
        give_up_at = time.monotonic() + SETTLE_SECONDS
        version = self.newest(ApiKey.METADATA)
        asked = MetadataRequest(
            topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
        )
        while True:
            with self.peer() as peer:
                answer = peer.ask(asked, version, MetadataResponse)
            topic = answer.topics[0]
            addresses = {
                broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers
            }
            leader_ids = [
                row.leader_id
                for row in sorted(topic.partitions, key=lambda row: row.partition_index)
            ]
            led = [addresses[leader_id] for leader_id in leader_ids if leader_id in addresses]
            is_led = (
                topic.error_code == ErrorCode.NONE
                and len(led) == partitions
                and self._all_lead(name, led)
            )
            if is_led and self._all_know(asked, leader_ids, addresses.values()):
                return TargetTopic(
                    name=name, topic_id=topic.topic_id, leader=led[0], leader_id=leader_ids[0]
                )
            if time.monotonic() > give_up_at:
                raise Unmet(f"{name} got no leader: {error_name(topic.error_code)}")
            time.sleep(PAUSE_SECONDS)

    def _all_know(
        self, asked: MetadataRequest, leader_ids: list[int], brokers: Iterable[str]
    ) -> bool:
        """Return whether every other broker has the same leaders: the coordinator of the next
        request may be any of them.
        """
        version = self.newest(ApiKey.METADATA)
        for address in brokers:
            if address == self.address:
                continue
            with self.peer(address) as peer:
                found = peer.ask(asked, version, MetadataResponse).topics[0]
            if [
                row.leader_id
                for row in sorted(found.partitions, key=lambda row: row.partition_index)
            ] != leader_ids:
                return False
        return True

    def _all_lead(self, name: str, leaders: list[str]) -> bool:
        """Return whether the leaders respond as leaders: a broker's Metadata may contain a leader
        before it has become leader.
        """
        version = self.newest(ApiKey.LIST_OFFSETS)
        for index, leader in enumerate(leaders):
            row = ListOffsetsPartition(partition_index=index, timestamp=EARLIEST_TIMESTAMP)
            asked = ListOffsetsRequest(
                replica_id=CONSUMER_REPLICA_ID,
                topics=[ListOffsetsTopic(name=name, partitions=[row])],
            )
            with self.peer(leader) as peer:
                answer = peer.ask(asked, version, ListOffsetsResponse)
            if answer.topics[0].partitions[0].error_code != ErrorCode.NONE:
                return False
        return True


def own_broker_id(target: Target) -> int:
    """Return the id of the broker at the target's address.

    Raises Unmet if its address is not in the cluster's Metadata.
    """
    with target.peer() as peer:
        answer = peer.ask(
            MetadataRequest(topics=[]), target.newest(ApiKey.METADATA), MetadataResponse
        )
    found = [
        broker.node_id
        for broker in answer.brokers
        if f"{broker.host}:{broker.port}" == target.address
    ]
    if not found and len(answer.brokers) == 1:
        found = [answer.brokers[0].node_id]
    if not found:
        raise Unmet(f"{target.address} is no broker of its cluster")
    return found[0]
