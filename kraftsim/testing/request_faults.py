"""Faults of requests from a test: `cluster.inject_error("EndTxn", "CONCURRENT_TRANSACTIONS",
times=3)` and the like, and what they return.

    with cluster.drop_reply("Produce", topic="orders") as fault:
        producer.produce("orders", b"once")
        producer.flush()
    assert fault.took_effect
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Final, TypedDict, Unpack

from kraftsim.lab.faults.rules_request_faults import (
    RequestAction,
    RequestFault,
    RequestHit,
    api_key_of,
    error_code_of,
)

WAIT_SECONDS: Final = 10.0


class RequestMatch(TypedDict, total=False):
    """Which requests a fault is about; what is not given is any.

    `topic` and `partition`: requests that name it, also among others; a topic must exist if clients
    name it by its id (Fetch and Produce from version 13). `client_id`, `transactional_id`, `group`
    and `node` (the server, such as "broker-1") may be patterns with `*`. `sender` is "clients", the
    name of a node, or None for any. The fault begins with the `nth` request that matches, 1 by
    default, and is over after `times` of them, 1 by default; None is no limit.
    """

    topic: str
    partition: int
    client_id: str
    transactional_id: str
    group: str
    node: str
    sender: str | None
    nth: int
    times: int | None


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

    def begun(self, *, end: Callable[[], None], settle: Callable[[], None]) -> None:
        """The cluster carries it out; `settle` returns when all effects so far are reported."""
        self._end, self._settle = end, settle

    def report(self, hit: RequestHit) -> None:
        """It has taken effect; called on any thread."""
        with self._changed:
            self._hits.append(hit)
            self._changed.notify_all()


def _nothing() -> None:
    """What ends or reports a fault that the cluster does not carry out yet."""


def _fault(
    action: RequestAction,
    api: str | int,
    match: RequestMatch,
    *,
    error: str | int = 0,
    delay_ms: float = 0,
    done: bool = False,
) -> RequestFault:
    if "partition" in match and "topic" not in match:
        raise ValueError("a partition needs its topic")
    return RequestFault(
        action=action,
        api=None if api == "*" else api_key_of(api),
        error=error_code_of(error),
        delay_ms=delay_ms,
        done=done,
        **match,
    )


def error_fault(api: str | int, error: str | int, match: RequestMatch) -> RequestFault:
    """Return a fault that answers with an error. Raises ValueError, also for NONE."""
    if error_code_of(error) == 0:
        raise ValueError("NONE is no error")
    return _fault(RequestAction.ERROR, api, match, error=error)


class RequestFaultVerbs(ABC):
    """The faults of requests, for blocking tests. `api` is Kafka's name of a request ("EndTxn"),
    its key, or "*"; the keywords are those of RequestMatch.

    All raise ValueError for an unknown API or error, and FaultNotPossible for a cluster of
    processes without `network_faults`, or with TLS.
    """

    @abstractmethod
    def inject(self, fault: RequestFault) -> InjectedFault:
        """Add a fault of requests that is made by hand."""

    def inject_error(
        self, api: str | int, error: str | int, **match: Unpack[RequestMatch]
    ) -> InjectedFault:
        """Answer with an error of Kafka, by its name or number, and do not do what was asked. All
        topics and partitions of the request get it. A request that has no place for an error is
        not matched.
        """
        return self.inject(error_fault(api, error, match))

    def drop_request(self, api: str | int, **match: Unpack[RequestMatch]) -> InjectedFault:
        """Lose requests before they are served: no answer comes, nor to anything behind it on its
        connection, until the client gives up.
        """
        return self.inject(_fault(RequestAction.DROP, api, match))

    def drop_reply(self, api: str | int, **match: Unpack[RequestMatch]) -> InjectedFault:
        """Serve requests, and lose the answers; the connection is silent from then on."""
        return self.inject(_fault(RequestAction.DROP, api, match, done=True))

    def delay_request(
        self, api: str | int, delay_ms: float, **match: Unpack[RequestMatch]
    ) -> InjectedFault:
        """Let requests, and everything behind them on their connections, arrive later; not at all
        if the client has gone by then.
        """
        return self.inject(_fault(RequestAction.DELAY, api, match, delay_ms=delay_ms))

    def delay_reply(
        self, api: str | int, delay_ms: float, **match: Unpack[RequestMatch]
    ) -> InjectedFault:
        """Serve requests, and let the answers arrive later."""
        return self.inject(_fault(RequestAction.DELAY, api, match, delay_ms=delay_ms, done=True))

    def duplicate_request(
        self, api: str | int, *, after_ms: float = 0, **match: Unpack[RequestMatch]
    ) -> InjectedFault:
        """Serve requests twice, as after a retry of the network; the second answer is discarded.
        It takes effect when the copy is answered.
        """
        return self.inject(_fault(RequestAction.DUPLICATE, api, match, delay_ms=after_ms))

    def disconnect(
        self, api: str | int, *, done: bool = False, **match: Unpack[RequestMatch]
    ) -> InjectedFault:
        """End the connection instead of an answer; with `done` the request is served before."""
        return self.inject(_fault(RequestAction.DISCONNECT, api, match, done=done))


class AsyncRequestFaultVerbs(ABC):
    """The same as coroutines."""

    @abstractmethod
    async def inject(self, fault: RequestFault) -> InjectedFault:
        """See `Cluster.inject`."""

    async def inject_error(
        self, api: str | int, error: str | int, **match: Unpack[RequestMatch]
    ) -> InjectedFault:
        """See `Cluster.inject_error`."""
        return await self.inject(error_fault(api, error, match))

    async def drop_request(self, api: str | int, **match: Unpack[RequestMatch]) -> InjectedFault:
        """See `Cluster.drop_request`."""
        return await self.inject(_fault(RequestAction.DROP, api, match))

    async def drop_reply(self, api: str | int, **match: Unpack[RequestMatch]) -> InjectedFault:
        """See `Cluster.drop_reply`."""
        return await self.inject(_fault(RequestAction.DROP, api, match, done=True))

    async def delay_request(
        self, api: str | int, delay_ms: float, **match: Unpack[RequestMatch]
    ) -> InjectedFault:
        """See `Cluster.delay_request`."""
        return await self.inject(_fault(RequestAction.DELAY, api, match, delay_ms=delay_ms))

    async def delay_reply(
        self, api: str | int, delay_ms: float, **match: Unpack[RequestMatch]
    ) -> InjectedFault:
        """See `Cluster.delay_reply`."""
        return await self.inject(
            _fault(RequestAction.DELAY, api, match, delay_ms=delay_ms, done=True)
        )

    async def duplicate_request(
        self, api: str | int, *, after_ms: float = 0, **match: Unpack[RequestMatch]
    ) -> InjectedFault:
        """See `Cluster.duplicate_request`."""
        return await self.inject(_fault(RequestAction.DUPLICATE, api, match, delay_ms=after_ms))

    async def disconnect(
        self, api: str | int, *, done: bool = False, **match: Unpack[RequestMatch]
    ) -> InjectedFault:
        """See `Cluster.disconnect`."""
        return await self.inject(_fault(RequestAction.DISCONNECT, api, match, done=done))
