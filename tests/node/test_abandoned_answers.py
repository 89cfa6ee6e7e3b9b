"""Nobody waits for what nobody asks for any more, whichever came first; and a refusal that fails costs its request only."""

from types import SimpleNamespace
from typing import Any

import pytest

from kraftsim.node.call import Answer, Call, Deferred, Failed, Handler, completed_by
from kraftsim.node.controller.handlers.k58_envelope import _wrapped
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import CreateTopicsResponse
from protocol.messages.k58_envelope import EnvelopeResponse


@pytest.mark.parametrize("goes_first", [True, False])
def test_who_goes_away_before_an_answer_is_begun_abandons_it_too(goes_first: bool) -> None:
    """The client of a request that is looked at in slices may be gone when its answer is begun to be waited for."""
    inner, later, left = Deferred(), Deferred(), []
    inner.when_abandoned(lambda: left.append(True))
    if goes_first:
        later.abandon()
    completed_by(inner, later)
    if not goes_first:
        later.abandon()
    assert inner.is_abandoned
    assert left == [True]
    inner.complete(CreateTopicsResponse())
    assert later.answer is None


def test_who_has_an_answer_abandons_nothing() -> None:
    """What has been answered is over."""
    left: list[bool] = []
    answered = Deferred()
    answered.complete(CreateTopicsResponse())
    answered.abandon()
    answered.when_abandoned(lambda: left.append(True))
    assert not left


def test_an_envelope_whose_refusal_fails_is_answered() -> None:
    """The broker gets an error, and does not send the request again."""

    def refuse(call: Call, error: ErrorCode) -> Answer:
        raise ValueError("a body that cannot be refused")

    handler: Handler[Any] = Handler(key=ApiKey.CREATE_TOPICS, handle=lambda node, call: Deferred(), refuse=refuse)
    noted: list[Any] = []
    connection = SimpleNamespace(number=1, note=noted.append)
    call: Any = SimpleNamespace(connection=connection, api_key=int(ApiKey.CREATE_TOPICS), api_version=7, correlation_id=1)
    assert _wrapped(handler, call, Failed("the handler failed")) == EnvelopeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    assert [event.reason for event in noted] == ["the handler failed"]
