"""DescribeCluster (60), on brokers and on controllers.

Source: KIP-700, KIP-919, kafka.server.AuthHelper.computeDescribeClusterResponse.
"""

from kraftsim.conformance.emulated_broker import cluster_id_of
from kraftsim.conformance.expect import expect, expect_equal, expect_error, settled
from kraftsim.conformance.peer import split_address
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k60_describe_cluster import (
    BROKERS,
    CONTROLLERS,
    OPERATIONS_NOT_ASKED_FOR,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

REQUIREMENTS = Requirements("cluster", 1, "DescribeCluster")
AUTH = "kafka.server.AuthHelper.computeDescribeClusterResponse"
ALL_OPERATIONS = 8096
KINDS_SINCE = 1


def _ask(
    target: Target,
    version: int,
    kind: int = BROKERS,
    *,
    address: str | None = None,
    operations: bool = False,
) -> DescribeClusterResponse:
    asked = DescribeClusterRequest(
        endpoint_type=kind if version >= KINDS_SINCE else BROKERS,
        include_cluster_authorized_operations=operations,
    )
    with target.peer(address) as peer:
        return peer.ask(asked, version, DescribeClusterResponse)


@REQUIREMENTS.that(
    1,
    "a broker returns the cluster id, the running brokers, and one of them as the controller",
    source="KIP-700",
)
def brokers(target: Target) -> None:
    for version in target.versions(ApiKey.DESCRIBE_CLUSTER):
        answer = _ask(target, version)
        expect_error(answer.error_code, ErrorCode.NONE, f"version {version}")
        expect_equal(
            (answer.cluster_id, answer.error_message),
            (cluster_id_of(target), None),
            f"version {version}: id of the cluster, message",
        )
        expect(
            target.address in [f"{broker.host}:{broker.port}" for broker in answer.brokers],
            f"version {version}: the broker does not list itself",
        )
        expect(
            answer.controller_id in [broker.broker_id for broker in answer.brokers],
            f"version {version}: controller {answer.controller_id}",
        )
        expect_equal(
            answer.cluster_authorized_operations,
            OPERATIONS_NOT_ASKED_FOR,
            f"version {version}: operations that were not requested",
        )


@REQUIREMENTS.that(
    2,
    "authorized operations are returned on request: all of them without an authorizer",
    source="KIP-430",
)
def operations(target: Target) -> None:
    for version in target.versions(ApiKey.DESCRIBE_CLUSTER):
        expect_equal(
            _ask(target, version, operations=True).cluster_authorized_operations,
            ALL_OPERATIONS,
            f"version {version}",
        )


@REQUIREMENTS.that(
    3,
    "a broker returns MISMATCHED_ENDPOINT_TYPE for the controller endpoint type, and "
    "UNSUPPORTED_ENDPOINT_TYPE for an unknown one",
    source=AUTH,
    since="3.7",
)
def another_kind(target: Target) -> None:
    why = (
        "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type "
        "CONTROLLER"
    )
    for version in target.versions(ApiKey.DESCRIBE_CLUSTER, since=KINDS_SINCE):
        for kind, error, words in (
            (CONTROLLERS, ErrorCode.MISMATCHED_ENDPOINT_TYPE, why),
            (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "Unsupported endpoint type 3"),
        ):
            answer = _ask(target, version, kind)
            expect_equal(
                (answer.error_code, answer.error_message),
                (int(error), words),
                f"version {version}, endpoint type {kind}",
            )


@REQUIREMENTS.that(
    4,
    "a controller returns the registered controllers, and the active one",
    source="KIP-919",
    since="3.7",
)
def controllers(target: Target) -> None:
    address = target.controller_address()
    for version in target.versions(ApiKey.DESCRIBE_CLUSTER, since=KINDS_SINCE, address=address):
        answer = _led(target, version, address)
        expect_equal(
            (answer.error_code, answer.endpoint_type),
            (0, CONTROLLERS),
            f"version {version}: error, endpoint type",
        )
        expect_equal(
            answer.cluster_id, cluster_id_of(target), f"version {version}: id of the cluster"
        )
        ports = [broker.port for broker in answer.brokers]
        expect(
            split_address(address)[1] in ports,
            f"version {version}: the controller does not list itself",
        )


def _led(target: Target, version: int, address: str) -> DescribeClusterResponse:
    """Return the response of a controller once it contains the active controller."""
    return settled(
        lambda: _ask(target, version, CONTROLLERS, address=address),
        lambda answer: answer.controller_id >= 0,
        "a controller",
    )


@REQUIREMENTS.that(
    5,
    "a controller returns MISMATCHED_ENDPOINT_TYPE for the broker endpoint type, and in version "
    "0 INVALID_REQUEST",
    source=AUTH,
    since="3.7",
)
def no_brokers(target: Target) -> None:
    address = target.controller_address()
    for version in target.versions(ApiKey.DESCRIBE_CLUSTER, address=address):
        expected = (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if version >= KINDS_SINCE
            else ErrorCode.INVALID_REQUEST
        )
        expect_error(
            _ask(target, version, BROKERS, address=address).error_code,
            expected,
            f"version {version}",
        )
