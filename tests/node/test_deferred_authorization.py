"""Entries removed by an authorizer check stay removed if the handler continues in later turns of
the loop, or decides again.
"""

from typing import Any

import pytest

from kraftsim.server.call import Answer, Call, Deferred, Handler, LargeCall
from kraftsim.server.rules_authentication import Principal
from kraftsim.server.security.controller_guards import authorize_new_partitions
from kraftsim.server.security.rights import GuardTable, guarded
from kraftsim.zookeeper.client import ZookeeperRefused
from protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.k30_create_acls import AclCreation, CreateAclsRequest
from protocol.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from protocol.requests import RequestHead
from protocol.zookeeper.op_codes import ZookeeperError
from tests.node.brokers import Client
from tests.node.zookeeper_mode_harness import Harness, zookeeper_harness

MINE, THEIRS = "mine", "theirs"
FAILED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROW = CreatePartitionsRequest(
    topics=[CreatePartitionsTopic(name=name, count=3, assignments=None) for name in (MINE, THEIRS)],
    timeout_ms=5000,
)


class AnyClient:
    """The parts of a connection that an authorizer check uses."""

    principal = Principal("User", "anybody")
    peer = "127.0.0.1:1"


class Rights:
    """Allows every client to alter one topic; also the parts of a node that `guarded` uses."""

    def __init__(self) -> None:
        self.security = self
        self.authorizer: Any = self

    def allows(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource: AclResourceType,
        name: str,
    ) -> bool:
        return name == MINE


@pytest.mark.parametrize("is_large", [False, True], ids=["small", "large"])
def test_resumed_handler_uses_the_entries_that_were_authorized(is_large: bool) -> None:
    """So does a later rejection: its response names each unauthorized entry once."""
    calls: list[Call] = []
    later = Deferred()

    def handle(node: object, call: Call) -> Deferred:
        calls.append(call)
        return later

    def refuse(call: Call, error: ErrorCode) -> Answer:
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(name=topic.name, error_code=error)
                for topic in call.body.topics
            ]
        )

    table: GuardTable[Any] = GuardTable({ApiKey.CREATE_PARTITIONS: authorize_new_partitions}, {})
    (handler,) = guarded(
        Rights(),  # type: ignore[arg-type]  # has only what the test uses
        table,
        [Handler(key=ApiKey.CREATE_PARTITIONS, handle=handle, refuse=refuse)],
    )
    head = RequestHead(int(ApiKey.CREATE_PARTITIONS), 3, 7, "test", 0)
    connection: Any = AnyClient()
    call = LargeCall(head, GROW, connection, None) if is_large else Call(head, GROW, connection)
    answer = handler.handle(object(), call)
    assert isinstance(answer, Deferred)
    (given,) = calls
    assert [topic.name for topic in given.body.topics] == [MINE]
    assert (type(given), given.api_version, given.correlation_id, given.client_id) == (
        type(call),
        3,
        7,
        "test",
    )
    assert given.principal == AnyClient.principal
    later.complete(refuse(given, ErrorCode.UNKNOWN_SERVER_ERROR))
    assert isinstance(answer.answer, CreatePartitionsResponse)
    assert [(row.name, row.error_code) for row in answer.answer.results] == [
        (MINE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (THEIRS, FAILED),
    ]


def change_beside(harness: Harness) -> list[str]:
    """Let ZooKeeper reject the next write of the controller, as if another client had written the
    znode before.
    """
    context = harness.controller_of(harness.leader or "").context
    assert context is not None
    metadata_writer: Any = context.metadata_writer
    carry = metadata_writer._carry
    refused: list[str] = []

    async def refuse_once(writes: Any) -> None:
        if not refused:
            refused.append(writes[0].path)
            raise ZookeeperRefused(ZookeeperError.BAD_VERSION, writes[0].path)
        await carry(writes)

    metadata_writer._carry = refuse_once
    return refused


def test_zookeeper_mode_controller_keeps_the_authorization_on_retry() -> None:
    """A write that conflicts in ZooKeeper is decided again, but not for topics that the client may
    not access.
    """
    name = "kafka.security.authorizer.AclAuthorizer"
    rule = AclCreation(
        resource_type=AclResourceType.TOPIC,
        resource_name=THEIRS,
        resource_pattern_type=AclPatternType.LITERAL,
        principal="User:somebody",
        host="*",
        operation=AclOperation.ALTER,
        permission_type=AclPermissionType.ALLOW,
    )
    with zookeeper_harness(
        1, authorizer_class_name=name, allow_everyone_if_no_acl_found="true"
    ) as harness:

        async def prepare(client: Client) -> None:
            topics = [
                CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                for name in (MINE, THEIRS)
            ]
            await client.ask(CreateTopicsRequest(topics=topics, timeout_ms=5000))
            made = await client.ask(CreateAclsRequest(creations=[rule]))
            assert [row.error_code for row in made.results] == [0]

        async def grow(client: Client) -> list[tuple[str, int]]:
            return [(row.name, row.error_code) for row in (await client.ask(GROW)).results]

        def partition_counts() -> dict[str, int]:
            (broker,) = harness.brokers.values()
            return {
                topic.name: len(topic.partitions)
                for topic in broker.image.topics()
                if topic.name in (MINE, THEIRS)
            }

        harness.run(prepare)
        refused = change_beside(harness)
        rows = harness.run(grow)
        assert refused
        assert partition_counts() == {MINE: 3, THEIRS: 1}
        assert rows == [(MINE, 0), (THEIRS, FAILED)]
