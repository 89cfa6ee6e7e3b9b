"""The clusters that `fuzz.answers` asks, and how a hostile client gets in: through a broker and a controller, with and without an authorizer."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import CONTROLLER_PORT_DISTANCE, ClusterSpec
from protocol.api_keys import ApiKey
from protocol.messages.k17_sasl_handshake import SaslHandshakeRequest
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.requests import decode_response, request_chunks
from protocol.schema import Message, declaration_of

HEALTHY_TOPIC = "healthy"
TOPICS = (HEALTHY_TOPIC, "fuzzed", "secret")
OPEN, GUARDED = "open", "guarded"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="a" user_admin="a" user_bob="b";'
TOKEN = b"\0bob\0b"
"""Of a client that has no right at all."""
SECURITY = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,WATCHED:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": JAAS,
    "listener.name.watched.plain.sasl.jaas.config": JAAS,
    "controller.listener.names": "CONTROLLER,WATCHED",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Where a hostile client connects. `offered`: API key to first and last version."""

    name: str
    host: str
    port: int
    is_sasl: bool
    offered: Mapping[int, tuple[int, int]]

    @property
    def is_disruptive_allowed(self) -> bool:
        """Whether requests may be sent that end service where the client has the right to them."""
        return self.is_sasl

    async def log_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Be bob, where the listener asks for a name."""
        if not self.is_sasl:
            return
        await _asked(reader, writer, SaslHandshakeRequest(mechanism="PLAIN"), 1)
        answer = await _asked(reader, writer, SaslAuthenticateRequest(auth_bytes=TOKEN), 2)
        assert isinstance(answer, SaslAuthenticateResponse) and not answer.error_code, f"bob cannot log in: {answer}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A cluster that has topics; `names` and `ids` are of those that may be deleted. The first listener is that of a broker, and asks for no name."""

    listeners: list[Listener]
    names: tuple[str, ...]
    ids: tuple[bytes, ...]


def clusters(brokers: int = 1) -> dict[str, ClusterSpec]:
    """Return one cluster without an authorizer and one with, on free ports."""
    port = free_port_range(2 * brokers + 4)
    guarded = port + 2
    plain, sasl = f"127.0.0.1:{guarded}", f"127.0.0.1:{guarded + 1}"
    control, watched = (f"127.0.0.1:{guarded + CONTROLLER_PORT_DISTANCE + distance}" for distance in (0, 1))
    own = {
        "broker-1": {"listeners": f"PLAINTEXT://{plain},SASL://{sasl}"},
        "controller-101": {"listeners": f"CONTROLLER://{control},WATCHED://{watched}"},
    }
    return {
        OPEN: ClusterSpec(brokers=brokers, port=port),
        GUARDED: ClusterSpec(brokers=brokers, port=guarded, settings=SECURITY, node_settings=own),
    }


async def prepared(name: str, spec: ClusterSpec) -> Prepared:
    """Make topics, and learn what each listener offers."""
    ports = {"broker": (spec.port, False), "controller": (spec.port + CONTROLLER_PORT_DISTANCE, False)}
    if name == GUARDED:
        ports |= {"broker as bob": (spec.port + 1, True), "controller as bob": (spec.port + CONTROLLER_PORT_DISTANCE + 1, True)}
    listeners = []
    for what, (port, is_sasl) in ports.items():
        answer = await _once(spec.host, port, ApiVersionsRequest(client_software_name="fuzz", client_software_version="1"), 3)
        assert isinstance(answer, ApiVersionsResponse), "ApiVersions was asked"
        offered = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        listeners.append(Listener(name=f"{name} {what}", host=spec.host, port=port, is_sasl=is_sasl, offered=offered))
    wanted = [CreatableTopic(name=topic, num_partitions=1, replication_factor=1) for topic in TOPICS]
    made = await _once(spec.host, spec.port, CreateTopicsRequest(topics=wanted, timeout_ms=5000), 7)
    assert isinstance(made, CreateTopicsResponse), "CreateTopics was asked"
    named = [topic for topic in made.topics if topic.name != HEALTHY_TOPIC]
    return Prepared(listeners, tuple(topic.name for topic in named), tuple(topic.topic_id for topic in named))


async def _once(host: str, port: int, body: Message, version: int) -> Message:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        return await _asked(reader, writer, body, version)
    finally:
        writer.close()


async def _asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: Message, version: int) -> Message:
    message_class: type = type(body)
    key = ApiKey(declaration_of(message_class).api_key or 0)
    writer.write(b"".join(request_chunks(key, version, 0, "fuzz", body)))
    async with asyncio.timeout(10):
        return decode_response(key, version, await reader.readexactly(int.from_bytes(await reader.readexactly(4))))[1]
