"""Faults of requests from a test: `cluster.inject_error("EndTxn", "CONCURRENT_TRANSACTIONS",
times=3)` and the like, and what they return.

    with cluster.drop_reply("Produce", topic="orders") as fault:
        producer.produce("orders", b"once")
        producer.flush()
    assert fault.took_effect

`cluster.inject` takes the text form of any of them: `cluster.inject("EndTxn drop=reply nth=2")`.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Final, Generic, TypedDict, TypeVar, Unpack

from kraftsim.lab.faults.request_fault_text import parse_request_fault
from kraftsim.lab.faults.rules_request_faults import (
    RequestAction,
    RequestFault,
    RequestFaultStatus,
    RequestHit,
    api_key_of,
    error_code_of,
)

WAIT_SECONDS: Final = 10.0
Injected_co = TypeVar("Injected_co", covariant=True)
"""What `inject` returns."""


class RequestMatch(TypedDict, total=False):
    """Which requests a fault is about; what is not given is any.

    `version_min` and `version_max`: the first and last version of the requests. `topic` and
    `partition`: requests that name it, also among others; in a cluster of processes a topic must
    exist if clients name it by its id (Fetch and Produce from version 13). `client_id`,
    `transactional_id`, `group` and `node` (the server, such as "broker-1") may be patterns with
    `*`. `sender` is "clients", the name of a node, or None for any. The fault begins with the `nth`
    request that matches, 1 by default, and is over after `times` of them, 1 by default; None is no
    limit. Of these it is only about a `share`, above 0 and up to 1, that the seed of the cluster
    chooses. It ends by itself after `duration_ms`.
    """

    version_min: int
    version_max: int
    topic: str
    partition: int
    client_id: str
    transactional_id: str
    group: str
    node: str
    sender: str | None
    nth: int
    times: int | None
    share: float
    duration_ms: float


class InjectedFault:
    """A fault of requests: it is over after `times` requests, at `end`, at the end of its `with`
    block, and when the cluster heals or stops.
    """

    def __init__(self, fault: RequestFault) -> None:
        self.fault = fault
        self._hits: list[RequestHit] = []
        self._changed = threading.Condition()
        self._end: Callable[[], None] = _nothing
        self._settle: Callable[[], None] = _nothing
        self._look: Callable[[], RequestFaultStatus | None] = _unknown
        self._matched = 0

    def __repr__(self) -> str:
        return f"<{self.fault}: {len(self._hits)} effects>"

    def __enter__(self) -> "InjectedFault":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    async def __aenter__(self) -> "InjectedFault":
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.end)

    @property
    def hits(self) -> tuple[RequestHit, ...]:
        """The requests that it has taken effect on, in order: each with node, api, api_version and
        client_id.
        """
        self._settle()
        with self._changed:
            return tuple(self._hits)

    @property
    def effects(self) -> int:
        """How often it has taken effect."""
        return len(self.hits)

    @property
    def matched(self) -> int:
        """How many requests it was about, whether it took effect on them or not; those after it was
        over do not count.
        """
        status = self._look()
        if status is not None:
            self._matched = status.matched
        return self._matched

    @property
    def took_effect(self) -> bool:
        """Whether it has taken effect at all."""
        return bool(self.hits)

    def wait(self, effects: int = 1, *, seconds: float = WAIT_SECONDS) -> None:
        """Return when it has taken effect so often. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._hits) >= effects, seconds):
                raise TimeoutError(
                    f"{self.fault}: it has taken effect {len(self._hits)} times within "
                    f"{seconds:g} s, not {effects}"
                )

    async def wait_async(self, effects: int = 1, *, seconds: float = WAIT_SECONDS) -> None:
        """The same as a coroutine."""
        await asyncio.to_thread(self.wait, effects, seconds=seconds)

    def end(self) -> None:
        """End it; a second time does nothing."""
        self._end()

    def begun(
        self,
        *,
        end: Callable[[], None],
        settle: Callable[[], None],
        look: Callable[[], RequestFaultStatus | None],
    ) -> None:
        """The cluster carries it out; `settle` returns when all effects so far are reported, and
        `look` what the cluster has counted, None once it has ended.
        """
        self._end, self._settle, self._look = end, settle, look

    def report(self, hit: RequestHit) -> None:
        """It has taken effect; called on any thread."""
        with self._changed:
            self._hits.append(hit)
            self._changed.notify_all()


def _nothing() -> None:
    """What ends or reports a fault that the cluster does not carry out yet."""


def _unknown() -> None:
    """Nothing is counted of it."""


def request_fault_of(fault: RequestFault | str) -> RequestFault:
    """Return a fault that may be given by its text. Raises ValueError."""
    return parse_request_fault(fault) if isinstance(fault, str) else fault


class _Amounts(TypedDict, total=False):
    """What an action needs beside the match."""

    error: int
    done: bool
    delay_ms: float
    wait_ms: float
    overtaken_by: int
    after_bytes: int | None
    throttle_ms: int
    bytes_per_second: int


def _fault(
    action: RequestAction, api: str | int, match: RequestMatch, **amounts: Unpack[_Amounts]
) -> RequestFault:
    return RequestFault(
        action=action, api=None if api == "*" else api_key_of(api), **amounts, **match
    )


def error_fault(api: str | int, error: str | int, match: RequestMatch) -> RequestFault:
    """Return a fault that answers with an error. Raises ValueError, also for NONE."""
    return _fault(RequestAction.ERROR, api, match, error=error_code_of(error))


class RequestFaultVerbs(ABC, Generic[Injected_co]):
    """The faults of requests: each returns an InjectedFault, or a coroutine that does. `api` is
    Kafka's name of a request ("EndTxn"), its key, or "*"; the keywords are those of RequestMatch.

    All raise ValueError for an unknown API or error, and FaultNotPossible for a cluster of
    processes without `network_faults`, or with TLS.
    """

    @abstractmethod
    def inject(self, fault: RequestFault | str) -> Injected_co:
        """Add a fault of requests that is made by hand, or that a text says."""

    def inject_error(
        self, api: str | int, error: str | int, **match: Unpack[RequestMatch]
    ) -> Injected_co:
        """Answer with an error of Kafka, by its name or number, and do not do what was asked. All
        topics and partitions of the request get it. A request that has no place for an error is
        not matched.
        """
        return self.inject(error_fault(api, error, match))

    def drop_request(self, api: str | int, **match: Unpack[RequestMatch]) -> Injected_co:
        """Lose requests before they are served: no answer comes, nor to anything behind it on its
        connection, until the client gives up.
        """
        return self.inject(_fault(RequestAction.DROP, api, match))

    def drop_reply(self, api: str | int, **match: Unpack[RequestMatch]) -> Injected_co:
        """Serve requests, and lose the answers; the connection is silent from then on."""
        return self.inject(_fault(RequestAction.DROP, api, match, done=True))

    def delay_request(
        self, api: str | int, delay_ms: float, **match: Unpack[RequestMatch]
    ) -> Injected_co:
        """Let requests, and everything behind them on their connections, arrive later; not at all
        if the client has gone by then.
        """
        return self.inject(_fault(RequestAction.DELAY, api, match, delay_ms=delay_ms))

    def delay_reply(
        self, api: str | int, delay_ms: float, **match: Unpack[RequestMatch]
    ) -> Injected_co:
        """Serve requests, and let the answers arrive later."""
        return self.inject(_fault(RequestAction.DELAY, api, match, delay_ms=delay_ms, done=True))

    def duplicate_request(
        self, api: str | int, *, after_ms: float = 0, **match: Unpack[RequestMatch]
    ) -> Injected_co:
        """Serve requests twice, as after a retry of the network; the second answer is discarded.
        It takes effect when the copy is answered.
        """
        return self.inject(_fault(RequestAction.DUPLICATE, api, match, delay_ms=after_ms))

    def disconnect(
        self,
        api: str | int,
        *,
        done: bool = False,
        after_bytes: int | None = None,
        **match: Unpack[RequestMatch],
    ) -> Injected_co:
        """End the connection instead of an answer; with `done` the request is served before. With
        `after_bytes` the node, or with `done` the client, gets exactly so many bytes of the frame.
        """
        return self.inject(
            _fault(RequestAction.DISCONNECT, api, match, done=done, after_bytes=after_bytes)
        )

    def reorder_request(
        self,
        api: str | int,
        *,
        overtaken_by: int = 1,
        wait_ms: float = 0,
        **match: Unpack[RequestMatch],
    ) -> Injected_co:
        """Let requests wait until others of their API have overtaken them at the node, on other
        connections; for `wait_ms` at most, if that is not 0.
        """
        return self.inject(
            _fault(RequestAction.REORDER, api, match, overtaken_by=overtaken_by, wait_ms=wait_ms)
        )

    def reorder_reply(
        self,
        api: str | int,
        *,
        overtaken_by: int = 1,
        wait_ms: float = 0,
        **match: Unpack[RequestMatch],
    ) -> Injected_co:
        """Serve requests, and let the answers wait until others of their API were answered."""
        return self.inject(
            _fault(
                RequestAction.REORDER,
                api,
                match,
                overtaken_by=overtaken_by,
                wait_ms=wait_ms,
                done=True,
            )
        )

    def truncate_request(
        self, api: str | int, after_bytes: int, **match: Unpack[RequestMatch]
    ) -> Injected_co:
        """Let only the beginning of requests arrive, in frames of that size. A node closes the
        connection of a request that it cannot read.
        """
        return self.inject(_fault(RequestAction.TRUNCATE, api, match, after_bytes=after_bytes))

    def truncate_reply(
        self, api: str | int, after_bytes: int, **match: Unpack[RequestMatch]
    ) -> Injected_co:
        """Serve requests, and let only the beginning of the answers arrive, in such frames."""
        return self.inject(
            _fault(RequestAction.TRUNCATE, api, match, after_bytes=after_bytes, done=True)
        )

    def throttle(
        self, api: str | int, throttle_ms: int, **match: Unpack[RequestMatch]
    ) -> Injected_co:
        """Serve requests, put a throttle time into the answers, and read no more of their
        connections for so long, as Kafka does with a client above its quota.
        """
        return self.inject(_fault(RequestAction.THROTTLE, api, match, throttle_ms=throttle_ms))

    def slow_down(
        self,
        api: str | int,
        bytes_per_second: int,
        *,
        done: bool = False,
        **match: Unpack[RequestMatch],
    ) -> Injected_co:
        """Let requests, or with `done` the answers, take as long as their bytes take at a rate."""
        return self.inject(
            _fault(RequestAction.THROTTLE, api, match, bytes_per_second=bytes_per_second, done=done)
        )

    def blackhole(self, api: str | int = "*", **match: Unpack[RequestMatch]) -> Injected_co:
        """Let the connections of clients carry nothing, present and future ones, until the fault
        ends: of all clients that match, or, with an API or a subject, of those that send such a
        request.
        """
        return self.inject(_fault(RequestAction.BLACKHOLE, api, match))
