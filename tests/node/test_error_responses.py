"""A node can reject whatever it serves: in every offered version, in the format of each API, and
with the intended error.
"""

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kraftsim.catalogue import Catalogue
from kraftsim.releases.release import release
from kraftsim.server.broker import Broker
from kraftsim.server.call import Call, Closing, Encoded, Handler, NoAnswer
from kraftsim.server.connection import ServerConnection
from kraftsim.server.controller import Controller
from kraftsim.server.forwarding import broker_handlers
from kraftsim.server.rules_authentication import ANONYMOUS
from protocol import request_class
from protocol.api_keys import ApiKey
from protocol.codec.tree import ArrayLayout, StructureLayout, layout_of
from protocol.errors import ErrorCode
from protocol.examples import example
from protocol.messages.registry import versions_of
from protocol.requests import RequestHead, decode_response, response_chunks

SIZE_BYTES = 4
REPORTS_SINCE = {ApiKey.DESCRIBE_LOG_DIRS: 3}
"""Older responses have no top-level error, and Kafka omits it (KIP-827)."""
CONTROLLER_HANDLERS: tuple[Handler[Any], ...] = Catalogue(
    "kraftsim.*.controller_handlers", "HANDLER", Handler
).all()
SERVED = [
    pytest.param(handler, ranges[handler.key], id=f"{kind} {handler.key.name}")
    for kind, handlers, ranges in (
        ("controller", CONTROLLER_HANDLERS, release("3.9").controller_apis),
        ("broker", broker_handlers(), release("3.9").broker_apis),
    )
    for handler in handlers
    if handler.refuse is not None and handler.key in ranges
]


def errors_in(message: Any) -> set[int]:
    """Every error code in a message, at any depth."""
    found: set[int] = set()
    for name in type(message).__slots__:
        value = getattr(message, name)
        if name in ("error_code", "partition_error_code"):
            found.add(value)
        for each in value if isinstance(value, list) else [value]:
            if hasattr(type(each), "__slots__") and "_tags" in type(each).__slots__:
                found |= errors_in(each)
    return found


def has_rows(request: Any, layout: StructureLayout) -> bool:
    """Whether every list of a request, also nested ones, names something that can fail by
    itself.
    """
    for field in layout.fields:
        if isinstance(field.type, ArrayLayout):
            rows = getattr(request, field.name)
            if not rows:
                return False
            element = field.type.element
            if isinstance(element, StructureLayout) and not all(
                has_rows(row, element) for row in rows
            ):
                return False
    return True


@pytest.mark.parametrize(("handler", "range_"), SERVED)
def test_every_error_response_is_readable_and_has_its_error(
    handler: Handler[Broker] | Handler[Controller], range_: tuple[int, int]
) -> None:
    """Twenty random requests of each version; a request rejected as a whole has no other error."""
    rng = random.Random(int(handler.key)).randrange
    assert handler.refuse is not None
    connection = cast(
        ServerConnection, SimpleNamespace(principal=ANONYMOUS)
    )  # delegation tokens name the requester
    first, last = (
        max(range_[0], versions_of(handler.key)[0]),
        min(range_[1], versions_of(handler.key)[1]),
    )
    for version in range(first, last + 1):
        layout = layout_of(request_class(handler.key), version)
        for _ in range(20):
            body = example(layout, rng, unknown_tags=False)
            head = RequestHead(
                api_key=int(handler.key),
                api_version=version,
                correlation_id=7,
                client_id=None,
                body_position=0,
            )
            answer = handler.refuse(Call(head, body, connection), ErrorCode.NOT_CONTROLLER)
            if isinstance(answer, Encoded | Closing | NoAnswer):
                assert handler.key is ApiKey.PRODUCE, "every other API must have a response"
                continue
            frame = b"".join(response_chunks(int(handler.key), version, 7, answer))[SIZE_BYTES:]
            errors = errors_in(decode_response(int(handler.key), version, frame)[1])
            assert errors <= {ErrorCode.NONE, ErrorCode.NOT_CONTROLLER}
            if has_rows(body, layout) and version >= REPORTS_SINCE.get(handler.key, 0):
                assert ErrorCode.NOT_CONTROLLER in errors, (
                    f"version {version}: {body} is rejected without an error"
                )
