"""Whatever a node serves it can also refuse: in every version that is offered, in the form of each API, and with the error that was meant."""

import random
from typing import Any

import pytest

from kraftsim.catalogue import Catalogue
from kraftsim.core.security.principal import ANONYMOUS
from kraftsim.node.broker.forwarded import broker_handlers
from kraftsim.node.call import Call, Closing, Encoded, Handler, NoAnswer
from kraftsim.releases.catalogue import release
from protocol import request_class
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.examples import example
from protocol.messages.registry import versions_of
from protocol.requests import RequestHead, decode_response, response_chunks
from protocol.resolve import ArrayLayout, StructureLayout, layout_of

SIZE_BYTES = 4
TELLS_SINCE = {ApiKey.DESCRIBE_LOG_DIRS: 3}
"""Older answers have no place for an error of the whole request, and Kafka leaves it out (KIP-827)."""
CONTROLLER_HANDLERS: tuple[Handler[Any], ...] = Catalogue("kraftsim.node.controller.handlers", "HANDLER", Handler).all()
SERVED = [
    pytest.param(handler, ranges[handler.key], id=f"{kind} {handler.key.name}")
    for kind, handlers, ranges in (
        ("controller", CONTROLLER_HANDLERS, release("3.9").controller_apis),
        ("broker", broker_handlers(), release("3.9").broker_apis),
    )
    for handler in handlers
    if handler.refuse is not None and handler.key in ranges
]


class Connection:
    """As much of a connection as a refusal looks at: delegation tokens name who asked."""

    principal = ANONYMOUS


def errors_in(message: Any) -> set[int]:
    """Every error code in a message, wherever it stands."""
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
    """Whether every list of a request, also inside of others, names something that could be refused by itself."""
    for field in layout.fields:
        if isinstance(field.type, ArrayLayout):
            rows = getattr(request, field.name)
            if not rows:
                return False
            element = field.type.element
            if isinstance(element, StructureLayout) and not all(has_rows(row, element) for row in rows):
                return False
    return True


@pytest.mark.parametrize(("handler", "range_"), SERVED)
def test_every_refusal_can_be_read_and_says_why(handler, range_):
    """Twenty arbitrary requests of each version; what is refused as a whole names no other error."""
    dice = random.Random(int(handler.key)).randrange
    first, last = max(range_[0], versions_of(handler.key)[0]), min(range_[1], versions_of(handler.key)[1])
    for version in range(first, last + 1):
        layout = layout_of(request_class(handler.key), version)
        for _ in range(20):
            body = example(layout, dice, unknown_tags=False)
            head = RequestHead(api_key=int(handler.key), api_version=version, correlation_id=7, client_id=None, body_position=0)
            answer = handler.refuse(Call(head, body, Connection()), ErrorCode.NOT_CONTROLLER)
            if isinstance(answer, Encoded | Closing | NoAnswer):
                assert handler.key is ApiKey.PRODUCE, "nobody else may be left without a word"
                continue
            frame = b"".join(response_chunks(int(handler.key), version, 7, answer))[SIZE_BYTES:]
            errors = errors_in(decode_response(int(handler.key), version, frame)[1])
            assert errors <= {ErrorCode.NONE, ErrorCode.NOT_CONTROLLER}
            if has_rows(body, layout) and version >= TELLS_SINCE.get(handler.key, 0):
                assert ErrorCode.NOT_CONTROLLER in errors, f"version {version}: {body} is refused without a word"
