"""Abandoned responses: work stops when its client is gone, in either order; and a failing error
response affects only its request.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from kraftsim.server.call import Answer, Call, Deferred, Failed, Handler, completed_by
from kraftsim.server.controller_handlers.k58_envelope import _wrapped
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import CreateTopicsResponse
from protocol.messages.k58_envelope import EnvelopeResponse


@pytest.mark.parametrize("is_first", [True, False])
def test_disconnect_before_the_response_is_created_abandons_it_too(is_first: bool) -> None:
    """The client of a request that is processed in slices may disconnect before its response is
    awaited.
    """
    inner, later, left = Deferred(), Deferred(), []
    inner.when_abandoned(lambda: left.append(True))
    if is_first:
        later.abandon()
    completed_by(inner, later)
    if not is_first:
        later.abandon()
    assert inner.is_abandoned
    assert left == [True]
    inner.complete(CreateTopicsResponse())
    assert later.answer is None


def test_completed_response_is_not_abandoned() -> None:
    """What has been answered is over."""
    left: list[bool] = []
    answered = Deferred()
    answered.complete(CreateTopicsResponse())
    answered.abandon()
    answered.when_abandoned(lambda: left.append(True))
    assert not left


def test_envelope_whose_error_response_fails_is_answered() -> None:
    """The broker gets an error, and does not send the request again."""

    def refuse(call: Call, error: ErrorCode) -> Answer:
        raise ValueError("a body that cannot be refused")

    handler: Handler[Any] = Handler(
        key=ApiKey.CREATE_TOPICS, handle=lambda node, call: Deferred(), refuse=refuse
    )
    emitted: list[Any] = []
    connection = SimpleNamespace(number=1, emit=emitted.append)
    call: Any = SimpleNamespace(
        connection=connection, api_key=int(ApiKey.CREATE_TOPICS), api_version=7, correlation_id=1
    )
    assert _wrapped(handler, call, Failed("the handler failed")) == EnvelopeResponse(
        error_code=ErrorCode.UNKNOWN_SERVER_ERROR
    )
    assert [event.reason for event in emitted] == ["the handler failed"]
