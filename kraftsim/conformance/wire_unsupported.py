"""Unsupported keys and versions close the connection without a response, except for ApiVersions.

Source: SocketServer.processCompletedReceives; RequestHeader.parse; ApiVersionManager.isApiEnabled.
"""

from kraftsim.conformance.expect import expect_equal
from kraftsim.conformance.peer import framed
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from kraftsim.conformance.wire_bytes import (
    NO_TAGS,
    NOT_AN_API,
    answer_on,
    closes,
    closes_after,
    head,
    metadata,
    still_answers,
)
from protocol.api_keys import ApiKey

REQUIREMENTS = Requirements("wire", 8, "Unsupported APIs and versions")
SOCKET_SERVER = "SocketServer.processCompletedReceives"
LISTENERS = "the listeners of each request's definition"
LAST_KEY_ASKED = 127
TELEMETRY = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)
"""Served, but advertised only by brokers with a client metrics receiver (KIP-714)."""
SOME_BODY = bytes(24)
BETWEEN_NODES = (
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.ENVELOPE,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALLOCATE_PRODUCER_IDS,
)
OF_ZOOKEEPER = (
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
)


@REQUIREMENTS.that(
    1, "a request with an unknown api key closes the connection", source=SOCKET_SERVER
)
def unknown_api_key(target: Target) -> None:
    closes(
        target,
        {
            f"api key {api_key}": head(api_key, 0)
            for api_key in (-1, -32768, 1000, NOT_AN_API, 32767)
        },
    )


@REQUIREMENTS.that(
    2,
    "every unadvertised API key closes the connection, except for those of telemetry",
    source=f"{SOCKET_SERVER}; KIP-714",
)
def keys_that_are_not_advertised(target: Target) -> None:
    absent = [
        key
        for key in range(LAST_KEY_ASKED + 1)
        if key not in target.ranges() and key not in TELEMETRY
    ]
    closes(target, {f"api key {key}": head(key, 0) + SOME_BODY for key in absent})


@REQUIREMENTS.that(
    3,
    "APIs between brokers and controllers are neither advertised to clients nor served",
    source=LISTENERS,
)
def apis_of_controllers(target: Target) -> None:
    expect_equal(
        [key.name for key in BETWEEN_NODES if key in target.ranges()],
        [],
        "APIs of controllers on a broker's listener",
    )
    closes(target, {key.name: head(key, 0) + SOME_BODY for key in BETWEEN_NODES})


@REQUIREMENTS.that(
    4, "APIs of ZooKeeper mode are neither advertised nor served", source="KIP-500; KIP-896"
)
def apis_of_zookeeper(target: Target) -> None:
    expect_equal(
        [key.name for key in OF_ZOOKEEPER if key in target.ranges()], [], "APIs of ZooKeeper mode"
    )
    closes(target, {key.name: head(key, 0) + SOME_BODY for key in OF_ZOOKEEPER})


@REQUIREMENTS.that(
    5,
    "a version above the advertised range closes the connection, for every API but ApiVersions",
    source=SOCKET_SERVER,
)
def versions_above(target: Target) -> None:
    for key, (_, last) in target.ranges().items():
        if key != ApiKey.API_VERSIONS:
            closes_after(
                target,
                framed(head(key, last + 1) + NO_TAGS + SOME_BODY),
                f"api key {key} version {last + 1}",
            )
    still_answers(target)


@REQUIREMENTS.that(
    6,
    "a version below the advertised range closes the connection, for every API but ApiVersions",
    source=SOCKET_SERVER,
)
def versions_below(target: Target) -> None:
    for key, (first, _) in target.ranges().items():
        if key != ApiKey.API_VERSIONS:
            closes_after(
                target,
                framed(head(key, first - 1) + SOME_BODY),
                f"api key {key} version {first - 1}",
            )
    still_answers(target)


@REQUIREMENTS.that(
    7, "an unsupported key or version closes only its own connection", source=SOCKET_SERVER
)
def only_its_own_connection(target: Target) -> None:
    with target.peer() as steady:
        answer_on(steady, metadata(1), "before")
        closes_after(target, framed(head(NOT_AN_API, 0)), "an unknown key on another connection")
        closes_after(
            target,
            framed(head(ApiKey.METADATA, 99) + NO_TAGS),
            "a future version on another connection",
        )
        answer_on(steady, metadata(2), "after")
