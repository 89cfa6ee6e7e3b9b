"""FindCoordinator (10): each group has one coordinator.

Source: KIP-98, KIP-699; KafkaApis.getCoordinator.
"""

from kraftsim.conformance.expect import expect_equal, expect_error
from kraftsim.conformance.group_client import find_coordinator
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k10_find_coordinator import (
    NO_NODE_ID,
    SHARE,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from protocol.uuids import uuid_text

REQUIREMENTS = Requirements("consumer-groups", 1, "FindCoordinator")
HANDLER = "KafkaApis.getCoordinator"
MANY_SINCE = 4
TYPED_SINCE = 1
SHARES_SINCE = 6
NO_SUCH_TYPE = 9


@REQUIREMENTS.that(
    1, "a group has one coordinator, the same in every version and on every request", source=HANDLER
)
def one(target: Target) -> None:
    group_id = target.fresh_name("group")
    address = find_coordinator(target, group_id)
    with target.peer() as peer:
        for version in target.versions(ApiKey.FIND_COORDINATOR):
            if version < MANY_SINCE:
                answer = peer.ask(
                    FindCoordinatorRequest(key=group_id), version, FindCoordinatorResponse
                )
                returned = (answer.error_code, f"{answer.host}:{answer.port}", answer.error_message)
                expect_equal(
                    returned,
                    (0, address, "NONE" if version >= TYPED_SINCE else ""),
                    f"version {version}: error, address, message",
                )
                continue
            answer = peer.ask(
                FindCoordinatorRequest(coordinator_keys=[group_id]),
                version,
                FindCoordinatorResponse,
            )
            rows = [
                (row.key, row.error_code, f"{row.host}:{row.port}") for row in answer.coordinators
            ]
            expect_equal(rows, [(group_id, 0, address)], f"version {version}: key, error, address")


@REQUIREMENTS.that(
    2,
    "several keys are returned in their order, and the empty one like any other",
    source="KIP-699",
)
def many(target: Target) -> None:
    groups = [target.fresh_name("group"), "", target.fresh_name("group")]
    for group_id in groups:
        find_coordinator(target, group_id)
    with target.peer() as peer:
        for version in target.versions(ApiKey.FIND_COORDINATOR, since=MANY_SINCE):
            answer = peer.ask(
                FindCoordinatorRequest(coordinator_keys=groups), version, FindCoordinatorResponse
            )
            rows = [(row.key, row.error_code, row.error_message) for row in answer.coordinators]
            expect_equal(
                rows,
                [(group_id, 0, "") for group_id in groups],
                f"version {version}: keys, errors, messages",
            )


@REQUIREMENTS.that(3, "an unknown key type returns INVALID_REQUEST", source=HANDLER)
def no_type(target: Target) -> None:
    with target.peer() as peer:
        for version in target.versions(ApiKey.FIND_COORDINATOR, since=TYPED_SINCE):
            if version < MANY_SINCE:
                answer = peer.ask(
                    FindCoordinatorRequest(key="k", key_type=NO_SUCH_TYPE),
                    version,
                    FindCoordinatorResponse,
                )
                error, node_id = answer.error_code, answer.node_id
            else:
                answer = peer.ask(
                    FindCoordinatorRequest(coordinator_keys=["k"], key_type=NO_SUCH_TYPE),
                    version,
                    FindCoordinatorResponse,
                )
                error, node_id = answer.coordinators[0].error_code, answer.coordinators[0].node_id
            expect_error(error, ErrorCode.INVALID_REQUEST, f"version {version}")
            expect_equal(node_id, NO_NODE_ID, f"version {version}: node")


@REQUIREMENTS.that(
    4,
    "a key of a share coordinator that is not group:topicId:partition returns INVALID_REQUEST",
    source="KIP-932; SharePartitionKey",
    since="4.0",
)
def broken_share_key(target: Target) -> None:
    name, topic_id = target.fresh_name("group"), uuid_text(target.topic().topic_id)
    keys = [
        name,
        f"{name}:{topic_id}",
        f":{topic_id}:0",
        f"{name}:{topic_id}:x",
        f"{name}:zz:0",
        f"{name}:{topic_id}:0:1",
    ]
    with target.peer() as peer:
        for version in target.versions(ApiKey.FIND_COORDINATOR, since=SHARES_SINCE):
            answer = peer.ask(
                FindCoordinatorRequest(coordinator_keys=keys, key_type=SHARE),
                version,
                FindCoordinatorResponse,
            )
            rows = [(row.error_code, row.error_message, row.node_id) for row in answer.coordinators]
            expect_equal(
                rows,
                [(int(ErrorCode.INVALID_REQUEST), "", NO_NODE_ID)] * len(keys),
                f"version {version}: errors, messages, nodes",
            )
