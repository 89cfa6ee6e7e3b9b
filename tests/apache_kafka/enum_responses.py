"""The responses of a node to each value of a one-byte field, which in requests is mostly an
enumeration: every such field, version and listener.

Requests are those of `tests.rights.bodies`, which name existing resources; only the one field
changes. Responses are written as error codes and texts, the types of configs and the lengths of
lists, by path.
Source: the message definitions; the node decides what an unknown value means.
"""

import re
import time
from collections.abc import Iterator
from typing import Final

from kraftsim.conformance.peer import Peer, PeerClosed, PeerSilent
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.codec.declaration import ArrayOf, Declaration, Primitive, StructureOf
from protocol.codec.tree import fields_of
from protocol.errors import ErrorCode
from protocol.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from protocol.messages.registry import request_class, response_class
from protocol.schema import Message, declaration_of
from tests.rights.answers import prepared, served
from tests.rights.bodies import Resources, body_of

VALUES: Final = (-128, -1, *range(18), 32, 100, 127)
"""Every value of Kafka's one-byte enumerations, and values around them."""
LISTENERS: Final = ("broker", "controller")
ANSWER_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 30.0
PAUSE_SECONDS: Final = 0.05
NODE: Final = re.compile(r"(node|controller) \d+")
Case = tuple[str, ApiKey, str, int, int]
"""Listener, API, field, version, value."""


def answers(target: Target, line: str) -> dict[Case, list[str]]:
    """Send every request to one node as a super user."""
    things, found = prepared(target), {}
    for listener, address in zip(LISTENERS, (target.address, target.controller), strict=True):
        with RetryingClient(target, address) as requester:
            for case, body in questions(listener, line, things):
                found[case] = requester.ask(body, case)
    return found


def questions(listener: str, line: str, things: Resources) -> Iterator[tuple[Case, Message]]:
    """Yield a request for each field, version and value."""
    for key, (first, last) in served(line, listener).items():
        for version in range(first, last + 1):
            for path, is_list in byte_fields(declaration_of(request_class(key)), version):
                for value in VALUES:
                    body = body_of(key, version, things)
                    if (
                        isinstance(body, AlterUserScramCredentialsRequest)
                        and path[0] == "upsertions"
                    ):
                        body.upsertions = [
                            ScramCredentialUpsertion(
                                name="bob", iterations=4096, salt=b"salt", salted_password=b"secret"
                            )
                        ]
                    changed = put(body, path, [value] if is_list else value)
                    assert changed, f"{key.name} v{version} has no {'.'.join(path)}"
                    yield (listener, key, ".".join(path), version, value), body


def byte_fields(
    declaration: Declaration, version: int, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yield the path of each one-byte field of a version, and whether it is a list."""
    for field in fields_of(declaration):
        if version not in field.versions:
            continue
        is_list = isinstance(field.type, ArrayOf)
        kind = field.type.element if isinstance(field.type, ArrayOf) else field.type
        if isinstance(kind, StructureOf):
            yield from byte_fields(declaration_of(kind.structure), version, (*path, field.name))
        elif kind is Primitive.INT8:
            yield (*path, field.name), is_list


def put(message: Message, path: tuple[str, ...], value: object) -> int:
    """Set a field in every element, and return their number."""
    places = [message]
    for name in path[:-1]:
        inner = [getattr(place, name) for place in places]
        places = [each for part in inner for each in (part if isinstance(part, list) else [part])]
    for place in places:
        setattr(place, path[-1], value)
    return len(places)


class RetryingClient:
    """One client that reconnects after the node closed the connection, and retries while a resigned
    controller is not active again.
    """

    def __init__(self, target: Target, address: str) -> None:
        self._target, self._address = target, address
        self._peer: Peer | None = None

    def __enter__(self) -> "RetryingClient":
        return self

    def __exit__(self, *_: object) -> None:
        if self._peer is not None:
            self._peer.close()

    def ask(self, body: Message, case: Case) -> list[str]:
        """Return the response."""
        give_up_at = time.monotonic() + RETRY_SECONDS
        while True:
            found = self._once(body, case)
            if time.monotonic() > give_up_at or not any(
                word.endswith(f"error_code={int(ErrorCode.NOT_CONTROLLER)}") for word in found
            ):
                return found
            time.sleep(PAUSE_SECONDS)

    def _once(self, body: Message, case: Case) -> list[str]:
        _, key, _, version, _ = case
        if self._peer is None:
            self._peer = self._target.peer(self._address, ANSWER_SECONDS)
        try:
            return sorted(
                set(words("", self._peer.ask(body, version, response_class(key)), version))
            )
        except (PeerClosed, PeerSilent) as failure:
            self._peer.close()
            self._peer = None
            return ["silent" if isinstance(failure, PeerSilent) else "closed"]


def words(path: str, answer: Message, version: int) -> Iterator[str]:
    """Yield the fields of a response, without node-specific values."""
    for field in fields_of(declaration_of(type(answer))):
        value = getattr(answer, field.name)
        if version not in field.versions:
            continue
        if field.name.endswith("error_code") or field.name == "config_type":
            yield f"{path}{field.name}={int(value)}"
        elif field.name.endswith("error_message"):
            yield f"{path}{field.name}={value if value is None else NODE.sub('a node', value)!r}"
        elif isinstance(field.type, ArrayOf):
            yield f"{path}{field.name}#{'null' if value is None else len(value)}"
            if isinstance(field.type.element, StructureOf):
                for each in value or ():
                    yield from words(f"{path}{field.name}[].", each, version)
        elif isinstance(field.type, StructureOf) and value is not None:
            yield from words(f"{path}{field.name}.", value, version)
