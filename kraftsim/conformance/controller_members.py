"""UnregisterBroker (64) and ControllerRegistration (70): the members of the cluster.

Source: KIP-631, KIP-919.
"""

from kraftsim.conformance.emulated_broker import CAUGHT_UP, throw_away_broker
from kraftsim.conformance.expect import expect, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k60_describe_cluster import (
    CONTROLLERS,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from protocol.messages.k64_unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from protocol.messages.k94_unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)

REQUIREMENTS = Requirements("controller", 6, "Members of the cluster")
UNREGISTER_CONTROLLER = "QuorumController.unregisterController"
UNREGISTER = "ReplicationControlManager.unregisterBroker"
UNKNOWN_ID = 999_999_999


def _unregister(target: Target, broker_id: int, address: str | None = None) -> int:
    with target.peer(address) as peer:
        version = target.newest(ApiKey.UNREGISTER_BROKER, address=address)
        return peer.ask(
            UnregisterBrokerRequest(broker_id=broker_id), version, UnregisterBrokerResponse
        ).error_code


@REQUIREMENTS.that(
    1,
    "unregistering an unregistered broker returns BROKER_ID_NOT_REGISTERED, on brokers and on "
    "controllers",
    source=UNREGISTER,
)
def unknown(target: Target) -> None:
    for address in (None, target.controller_address()):
        for broker_id in (UNKNOWN_ID, -1):
            expect_error(
                _unregister(target, broker_id, address),
                ErrorCode.BROKER_ID_NOT_REGISTERED,
                f"broker {broker_id}",
            )


@REQUIREMENTS.that(
    2,
    "a running broker can be unregistered, and is unknown afterwards",
    source=f"KIP-631; {UNREGISTER}",
)
def in_service(target: Target) -> None:
    with throw_away_broker(target) as broker:
        broker.registered()
        expect(
            not broker.heartbeat(offset=CAUGHT_UP, want_fence=False).is_fenced,
            "the broker is not unfenced",
        )
        expect_error(_unregister(target, broker.broker_id), ErrorCode.NONE, "the broker")
        expect_error(
            broker.heartbeat(offset=CAUGHT_UP).error_code,
            ErrorCode.STALE_BROKER_EPOCH,
            "a heartbeat of the broker",
        )
        expect_error(
            _unregister(target, broker.broker_id),
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            "the broker, a second time",
        )
        broker.registered(incarnation=2)


def not_through_brokers(target: Target) -> None:
    expect(
        ApiKey.CONTROLLER_REGISTRATION not in target.ranges(),
        "a broker offers ControllerRegistration",
    )
    expect(
        ApiKey.CONTROLLER_REGISTRATION in target.ranges(target.controller_address()),
        "the controller does not offer ControllerRegistration",
    )


@REQUIREMENTS.that(
    4,
    "unregistering an unregistered controller returns CONTROLLER_ID_NOT_REGISTERED, on brokers "
    "and on controllers",
    source=UNREGISTER_CONTROLLER,
    since="4.4",
)
def unknown_controller(target: Target) -> None:
    for address in (None, target.controller_address()):
        with target.peer(address) as peer:
            answer = peer.ask(
                UnregisterControllerRequest(controller_id=UNKNOWN_ID),
                0,
                UnregisterControllerResponse,
            )
        expect_error(
            answer.error_code, ErrorCode.CONTROLLER_ID_NOT_REGISTERED, "an unregistered controller"
        )


@REQUIREMENTS.that(
    5,
    "unregistering the active controller is rejected with INVALID_REQUEST",
    source=UNREGISTER_CONTROLLER,
    since="4.4",
)
def active_controller(target: Target) -> None:
    with target.peer(target.controller_address()) as peer:
        cluster = peer.ask(
            DescribeClusterRequest(endpoint_type=CONTROLLERS), 1, DescribeClusterResponse
        )
        answer = peer.ask(
            UnregisterControllerRequest(controller_id=cluster.controller_id),
            0,
            UnregisterControllerResponse,
        )
    expect_error(answer.error_code, ErrorCode.INVALID_REQUEST, "the active controller")
