"""An emulated broker that only registers with the controller: the client of the checks of the
controller listener.

Its id is high and unique. It is fenced at the end, and unregistered if the controller supports
that.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kraftsim.conformance.expect import Unmet, error_name, expect_error
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import MetadataRequest, MetadataResponse
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.k62_broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.k64_unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from protocol.messages.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

FIRST_ID = 1_000_000_000
IDS = 1_000_000_000
FEATURES_SINCE = 3
LEVEL_ZERO_SINCE = 4
"""The first version of BrokerRegistration with features whose minimum level is 0."""
LOG_DIRS_SINCE = 2
CLUSTER_ID_SINCE = 2
CAUGHT_UP = 1 << 40
"""A metadata offset above that of any controller."""


class ThrowAwayBroker:
    """One broker id, and a connection to the controller."""

    def __init__(self, target: Target, peer: Peer) -> None:
        self.broker_id = FIRST_ID + time.time_ns() // 1000 % IDS
        self.epoch = -1
        self._target = target
        self._peer = peer
        self._address = target.controller_address()
        self._version = target.newest(ApiKey.BROKER_REGISTRATION, address=self._address)
        self._heartbeat_version = target.newest(ApiKey.BROKER_HEARTBEAT, address=self._address)
        self._cluster_id = cluster_id_of(target)
        self._features = _features(target, lowest=0 if self._version >= LEVEL_ZERO_SINCE else 1)

    def request(self, incarnation: int = 1) -> BrokerRegistrationRequest:
        """Return a valid registration."""
        asked = BrokerRegistrationRequest(
            broker_id=self.broker_id,
            cluster_id=self._cluster_id,
            incarnation_id=uuid_of(self.broker_id, incarnation),
            listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=9, security_protocol=0)],
            features=list(self._features),
        )
        if self._version >= LOG_DIRS_SINCE:
            asked.log_dirs = [uuid_of(self.broker_id, 1000)]
        return asked

    def register(
        self, asked: BrokerRegistrationRequest | None = None
    ) -> BrokerRegistrationResponse:
        """Send BrokerRegistration."""
        return self._peer.ask(asked or self.request(), self._version, BrokerRegistrationResponse)

    def registered(self, incarnation: int = 1) -> int:
        """Register, which must succeed, and return the broker epoch."""
        answer = self.register(self.request(incarnation))
        expect_error(answer.error_code, ErrorCode.NONE, "the registration of a broker")
        self.epoch = answer.broker_epoch
        return self.epoch

    def heartbeat(
        self,
        *,
        epoch: int | None = None,
        offset: int = 0,
        want_fence: bool = True,
        want_shut_down: bool = False,
    ) -> BrokerHeartbeatResponse:
        """Send a heartbeat; by default one that stays fenced."""
        asked = BrokerHeartbeatRequest(
            broker_id=self.broker_id,
            broker_epoch=self.epoch if epoch is None else epoch,
            current_metadata_offset=offset,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
        )
        return self._peer.ask(asked, self._heartbeat_version, BrokerHeartbeatResponse)

    def allocate(self, epoch: int | None = None) -> AllocateProducerIdsResponse:
        """Ask for a block of producer ids."""
        asked = AllocateProducerIdsRequest(
            broker_id=self.broker_id, broker_epoch=self.epoch if epoch is None else epoch
        )
        version = self._target.newest(ApiKey.ALLOCATE_PRODUCER_IDS, address=self._address)
        return self._peer.ask(asked, version, AllocateProducerIdsResponse)

    def leave(self) -> None:
        """Become fenced and unregistered."""
        if self.epoch < 0:
            return
        self.heartbeat(offset=CAUGHT_UP)
        if ApiKey.UNREGISTER_BROKER in self._target.ranges(self._address):
            answer = self._peer.ask(
                UnregisterBrokerRequest(broker_id=self.broker_id), 0, UnregisterBrokerResponse
            )
            if answer.error_code != ErrorCode.NONE:
                raise Unmet(
                    f"the broker {self.broker_id} could not be unregistered: "
                    f"{error_name(answer.error_code)} {answer.error_message}"
                )


@contextmanager
def throw_away_broker(target: Target) -> Iterator[ThrowAwayBroker]:
    """Yield a broker that is not registered yet, and remove it at the end."""
    with target.controller_peer() as peer:
        broker = ThrowAwayBroker(target, peer)
        yield broker
        broker.leave()


def cluster_id_of(target: Target) -> str:
    """Return the cluster id. Raises Unmet if a broker does not return it."""
    with target.peer() as peer:
        version = target.newest(ApiKey.METADATA)
        answer = peer.ask(MetadataRequest(topics=[]), version, MetadataResponse)
    if version < CLUSTER_ID_SINCE or answer.cluster_id is None:
        raise Unmet("a broker does not return the cluster id")
    return answer.cluster_id


def uuid_of(broker_id: int, number: int) -> bytes:
    """Return 16 unique bytes."""
    return broker_id.to_bytes(6) + os.getpid().to_bytes(4) + number.to_bytes(6)


def _features(target: Target, lowest: int) -> list[Feature]:
    """Return the features that a real broker of this cluster supports: the controller registers no
    broker that supports less.
    """
    with target.peer() as peer:
        version = target.newest(ApiKey.API_VERSIONS)
        if version < FEATURES_SINCE:
            raise Unmet("a broker does not return its supported features")
        answer = peer.ask(
            ApiVersionsRequest(client_software_name="kraftsim", client_software_version="1.0"),
            version,
            ApiVersionsResponse,
        )
    return [
        Feature(
            name=row.name,
            min_supported_version=row.min_version,
            max_supported_version=row.max_version,
        )
        for row in answer.supported_features
        if row.min_version >= lowest
    ]
