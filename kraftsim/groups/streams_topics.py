"""Internal topics of streams groups: a coordinator asks the controller for those that a topology
lacks, with the principal of the member whose heartbeat found it.

One request at a time creates a topic. A failed one is remembered for two heartbeat intervals, in
which it is not repeated and members are informed of the reason.
Source: kafka.server.DefaultAutoTopicCreationManager.createStreamsInternalTopics,
org.apache.kafka.server.ExpiringErrorCache.
"""

from collections.abc import Iterable
from copy import copy
from typing import Final

from kraftsim.groups.rules_streams_topology import InternalTopic
from kraftsim.server.call import Answer, Call, Deferred, Encoded
from kraftsim.server.forwarding import RequestForwarder
from kraftsim.world.interface import Clock
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.requests import decode_response_body

CREATE_VERSION: Final = 7
BROKERS_REPLICATION: Final = -1
NO_CORRELATION_ID: Final = bytes(4)
ERRORS_MAX: Final = 1000
"""How many failed topics are remembered."""


class StreamsTopicCreation:
    """Topics that are being created, and the reasons of failures until they expire."""

    def __init__(self, clock: Clock, request_timeout_ms: int) -> None:
        self._clock = clock
        self._request_timeout_ms = request_timeout_ms
        self._in_flight: dict[str, None] = {}
        self._errors: dict[str, tuple[int, str]] = {}
        """By topic: when the error expires, and its message."""

    def create(
        self,
        forwarding: RequestForwarder,
        call: Call,
        topics: Iterable[InternalTopic],
        lasts_ms: int,
    ) -> None:
        """Create topics, unless their creation is in progress or has just failed."""
        now_ms = self._clock.monotonic_ms()
        self._forget_expired(now_ms)
        wanted = [
            topic
            for topic in topics
            if topic.name not in self._errors and topic.name not in self._in_flight
        ]
        if not wanted:
            return
        names = [topic.name for topic in wanted]
        self._in_flight.update(dict.fromkeys(names))
        asked = copy(call)
        asked.api_key, asked.api_version = ApiKey.CREATE_TOPICS, CREATE_VERSION
        asked.body = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in wanted], timeout_ms=self._request_timeout_ms
        )
        later = Deferred()
        later.attach(lambda: self._on_answer(names, later.answer, lasts_ms))
        forwarding.forward(asked, later, lambda _, error: _refused(names, error))

    def errors(self, names: Iterable[str]) -> dict[str, str]:
        """Return why topics could not be created, as far as it is remembered."""
        self._forget_expired(self._clock.monotonic_ms())
        return {name: self._errors[name][1] for name in names if name in self._errors}

    def _on_answer(self, names: list[str], answer: Answer | None, lasts_ms: int) -> None:
        for name in names:
            self._in_flight.pop(name, None)
        if isinstance(answer, Encoded):
            answer = decode_response_body(
                ApiKey.CREATE_TOPICS, CREATE_VERSION, NO_CORRELATION_ID + answer.rest
            )
        if isinstance(answer, CreateTopicsResponse):
            for row in answer.topics:
                if row.error_code != ErrorCode.NONE:
                    why = row.error_message or ErrorCode(row.error_code).name
                    self._remember(row.name, why, lasts_ms)

    def _remember(self, name: str, why: str, lasts_ms: int) -> None:
        self._errors.pop(name, None)
        self._errors[name] = (self._clock.monotonic_ms() + lasts_ms, why)
        while len(self._errors) > ERRORS_MAX:
            del self._errors[next(iter(self._errors))]

    def _forget_expired(self, now_ms: int) -> None:
        for name in [name for name, (until, _) in self._errors.items() if until <= now_ms]:
            del self._errors[name]


def _creatable(topic: InternalTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor or BROKERS_REPLICATION,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in topic.configs],
    )


def _refused(names: Iterable[str], error: ErrorCode) -> CreateTopicsResponse:
    rows = [CreatableTopicResult(name=name, error_code=error) for name in names]
    return CreateTopicsResponse(topics=rows)
