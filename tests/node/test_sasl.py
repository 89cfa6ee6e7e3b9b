"""SASL in virtual time: nodes that authenticate to each other, and clients with expiring
sessions.
"""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

import pytest

from kraftsim.server.events_connections import AuthenticationRefused
from kraftsim.server.outbound import Disconnected, PeerConnection
from kraftsim.server.rules_authentication import PlainClient
from kraftsim.server.security.login import AuthenticationFailed, LinkSecurity
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import MetadataRequest
from protocol.messages.k17_sasl_handshake import SaslHandshakeRequest
from protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from protocol.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from tests.node.brokers import BROKER_PORT, Client, Cluster, batch, running_cluster

T = TypeVar("T")

JAAS = 'x.PlainLoginModule required username="node" password="p" user_node="p" user_alice="a";'
SETTINGS = {
    "listener_security_protocol_map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl_enabled_mechanisms": "PLAIN",
    "sasl_mechanism_inter_broker_protocol": "PLAIN",
    "sasl_mechanism_controller_protocol": "PLAIN",
    "listener_name_plaintext_plain_sasl_jaas_config": JAAS,
    "listener_name_controller_plain_sasl_jaas_config": JAAS,
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:node",
}


def as_user(user: str, password: str) -> LinkSecurity:
    return LinkSecurity(None, "PLAIN", lambda: PlainClient(user, password))


async def connected(user: str, password: str) -> PeerConnection:
    connection = PeerConnection(
        "broker-1", BROKER_PORT, client_id="test", security=as_user(user, password)
    )
    await connection.connect()
    return connection


def in_cluster(cluster: Cluster, work: Coroutine[object, object, T]) -> T:
    result = cluster.simulation.run_until(cluster.simulation.spawn("client", work), limit_s=120)
    assert cluster.simulation.troubles == []
    return result


def test_authenticated_brokers_and_controller_replicate() -> None:
    with running_cluster(2, settings=SETTINGS) as cluster:

        async def work() -> int:
            client = Client(await connected("node", "p"))
            both = CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])
            strict = CreatableTopicConfig(name="min.insync.replicas", value="2")
            topic = CreatableTopic(
                name="t",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[both],
                configs=[strict],
            )
            made = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
            assert [each.error_code for each in made.topics] == [0]
            await asyncio.sleep(2)
            answer = await client.produce(batch())
            client.connection.close()
            return answer.error_code

        assert in_cluster(cluster, work()) == 0


def test_wrong_password_is_answered_after_100_ms() -> None:
    with running_cluster(1, settings=SETTINGS) as cluster:

        async def work() -> float:
            begun = asyncio.get_running_loop().time()
            with pytest.raises(AuthenticationFailed, match="Invalid username or password"):
                await connected("alice", "guess")
            return asyncio.get_running_loop().time() - begun

        assert 0.1 <= in_cluster(cluster, work()) < 0.2
        (refused,) = cluster.emitted(AuthenticationRefused)
        assert (refused.sasl_mechanism, refused.listener) == ("PLAIN", "PLAINTEXT")
        assert "guess" not in refused.reason


def test_expired_session_ends_with_the_next_request_unless_reauthenticated() -> None:
    with running_cluster(1, settings=SETTINGS, connections_max_reauth_ms="5000") as cluster:

        async def work() -> list[object]:
            found: list[object] = []
            connection = await connected("alice", "a")
            connection._renew_at = float("inf")  # this client waits too long
            for token in (b"\0alice\0a", b"\0node\0p"):
                await asyncio.sleep(4)
                found.append(
                    (
                        await connection.request(
                            SaslHandshakeRequest(mechanism="PLAIN"), api_version=1
                        )
                    ).error_code
                )
                answer = await connection.request(SaslAuthenticateRequest(auth_bytes=token))
                found.append((answer.error_code, answer.session_lifetime_ms, answer.error_message))
            late = await connected("alice", "a")
            late._renew_at = float("inf")
            found.append(len((await late.request(MetadataRequest(topics=[]))).brokers))
            await asyncio.sleep(5.1)
            with pytest.raises(Disconnected):
                await late.request(MetadataRequest(topics=[]))
            return found

        changed = "Cannot change principals during re-authentication from User.alice: User.node"
        expected = [0, (0, 5000, ""), 0, (int(ErrorCode.SASL_AUTHENTICATION_FAILED), 0, changed), 1]
        assert in_cluster(cluster, work()) == expected


def test_own_client_reconnects_before_its_session_expires() -> None:
    with running_cluster(1, settings=SETTINGS, connections_max_reauth_ms="5000") as cluster:

        async def work() -> list[bool]:
            connection = await connected("alice", "a")
            seen = [connection.is_open]
            await asyncio.sleep(4.5)
            seen.append(connection.is_open)
            with pytest.raises(Disconnected, match="is about to expire"):
                await connection.request(MetadataRequest(topics=[]))
            return seen

        assert in_cluster(cluster, work()) == [True, False]
