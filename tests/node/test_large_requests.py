"""The cost of a request is linear in its entries: each array of each API, counted and not timed.

Counted are function calls, and comparisons of the values that the client sent: a list lookup
compares without a call. With linear cost the increase from 2n to 4n entries is twice that from n to
2n; with quadratic cost it is four times.

No request blocks the loop either: calls are also counted per callback of the loop, and the longest
one may grow by only a few calls per entry. Work in threads is not counted, because it does not
block the loop.
"""

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator
from contextvars import Context
from inspect import getclosurevars
from types import FrameType
from typing import Any, Final

import pytest

from kraftsim.core import decision
from kraftsim.metadata import metadata_publisher
from kraftsim.partitions.broker_handlers import k00_produce
from kraftsim.server import broker as broker_module
from kraftsim.server import controller as controller_module
from kraftsim.server import dispatch, large_requests, slices
from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.server.outbound import PeerConnection
from kraftsim.server.security.rights import AskedRights, Guard, GuardTable
from kraftsim.server.shell import NodeShell
from kraftsim.share_groups import state_persister
from kraftsim.world.simulated.host import current_process
from kraftsim.world.simulated.loop import VirtualLoop
from kraftsim.world.simulated.world import SimulatedWorld
from protocol.api_keys import ApiKey
from protocol.codec.tree import fields_of
from protocol.messages.k18_api_versions import ApiVersionsRequest
from protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from protocol.schema import Message, declaration_of
from tests.node.brokers import CONTROLLER_HOST, CONTROLLER_PORT, Client, Cluster, running_cluster
from tools.bench.large_requests import PARTITIONS, TOPIC, LargeRequest, every_array

COUNT: Final = 100
RATIO_MAX: Final = 2.5
NOISE_COUNT: Final = 2_000
"""Other activity in a cluster meanwhile: heartbeats, fetches.

A quadratic term below this is not detected.
"""
RELEASE: Final = "4.4"
REQUESTER: Final = "test"
SHARE_STATES: Final = {
    f"share_coordinator_state_topic_{name}": "1"
    for name in ("num_partitions", "replication_factor", "min_isr")
}
"""Without its topic, a share coordinator is looked up for half a minute."""
LEFT_OUT: Final = {
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
}
"""Requests that would change the cluster membership."""
CALLS_PER_ENTRY_MAX: Final = 27
"""So many calls of the longest callback take 2 to 4 us: 40 to 80 ms for 20,000 entries."""
WRITTEN_WHOLE: Final = {ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 30}
"""One batch of the metadata log for all entries, however many: at 20,000 writing and replaying it
takes 100 to 140 ms.
"""
SHORT_SLICE: Final = 20
LOOP_CODE: Final = VirtualLoop._run.__code__
ASIDE_CODE: Final = SimulatedWorld.aside.__code__
comparisons = 0
preparing: list[bool] = []
"""It keeps a reference when values are replaced by counted ones, which no node does."""


class Text(str):
    """A string that a client sent; its comparisons are counted."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        global comparisons
        comparisons += 1
        return str.__eq__(self, other)


class Number(int):
    """A number that a client sent; its comparisons are counted."""

    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        global comparisons
        comparisons += 1
        return int.__eq__(self, other)


COMPARING_TEXTS: Final = Text.__eq__.__code__
COMPARING_NUMBERS: Final = Number.__eq__.__code__
"""Of the values of this test alone: strings and numbers compare without a call."""


def counted(value: Any) -> Any:
    """Return a value whose comparisons are counted; messages are changed in place."""
    if type(value) is str:
        return Text(value)
    if type(value) is int:
        return Number(value)
    if type(value) is list:
        return [counted(each) for each in value]
    if (
        hasattr(type(value), "__slots__")
        and not isinstance(value, bytes | memoryview | bool)
        and value is not None
    ):
        for field in fields_of(declaration_of(type(value))):
            replaced = counted(getattr(value, field.name))
            if replaced is not getattr(value, field.name):
                setattr(value, field.name, replaced)
    return value


class SomeRights:
    """Allows a client everything with an even number in its name, or nothing."""

    def __init__(self) -> None:
        self.lets_some = True

    def allows(
        self, principal: object, host: str, operation: int, resource: int, name: str
    ) -> bool:
        """Decide by the name alone."""
        return self.lets_some and name[-1:] not in tuple("13579")

    def allows_any(self, principal: object, host: str, operation: int, resource: int) -> bool:
        """Decide likewise for any resource."""
        return self.lets_some


@pytest.fixture(scope="module")
def rights() -> SomeRights:
    """The authorizer of the cluster."""
    return SomeRights()


@pytest.fixture(scope="module")
def cluster(rights: SomeRights) -> Iterator[Cluster]:
    """A cluster whose handlers count comparisons, and authorize only the client of the test."""

    def guarded(
        shell: NodeShell, table: GuardTable[Any], handlers: Iterable[Handler[Any]]
    ) -> tuple[Handler[Any], ...]:
        return tuple(
            _counting(handler, table.guards.get(handler.key), rights) for handler in handlers
        )

    with pytest.MonkeyPatch.context() as patched:
        for module in (slices, large_requests, k00_produce, state_persister):
            patched.setattr(module, "ENTRIES_PER_SLICE", SHORT_SLICE)
        patched.setattr(dispatch, "LARGE_REQUEST_BYTES", SHORT_SLICE)
        patched.setattr(decision, "ENTRIES_PER_STEP", SHORT_SLICE)
        patched.setattr(metadata_publisher, "RECORDS_PER_TURN", SHORT_SLICE)
        patched.setattr(broker_module, "guarded", guarded)
        patched.setattr(controller_module, "guarded", guarded)
        with running_cluster(
            release_name=RELEASE, auto_create_topics_enable="false", settings=SHARE_STATES
        ) as running:
            running.run(lambda client: client.create_topic(TOPIC, PARTITIONS))
            yield running


def _counting(handler: Handler[Any], guard: Guard[Any] | None, rights: SomeRights) -> Handler[Any]:
    def handle(node: Any, call: Call) -> Answer | Deferred:
        if call.client_id != REQUESTER or call.api_key in (ApiKey.API_VERSIONS, ApiKey.ENVELOPE):
            return handler.handle(node, call)
        preparing.append(True)
        call.body = counted(call.body)
        preparing.clear()
        return (
            handler.handle(node, call)
            if guard is None
            # arg-type: stands between the server and its handler
            else guard(AskedRights(node, call, handler, rights))  # type: ignore[arg-type]
        )

    return Handler(key=handler.key, handle=handle, refuse=handler.refuse, slices=handler.slices)


class Work:
    """Counts calls: all of them, and those of the longest callback of a node."""

    def __init__(self) -> None:
        self.calls = 0
        self.longest = 0
        self._callback = 0
        self._is_counted = False

    def on_event(self, frame: FrameType, event: str, argument: Any) -> None:
        """Count a call; a call of `Context.run` by the loop starts a callback, and one of `work` in
        `aside` ends its counted part.

        It runs millions of times: reading `f_code` calls the audit hook of the simulation, and a
        set of code objects would hash their constants.
        """
        is_apart = False
        if event == "c_call":
            self.calls += 1
            if (
                isinstance(getattr(argument, "__self__", None), Context)
                and frame.f_code is LOOP_CODE
            ):
                self._callback = 0
                self._is_counted = argument.__self__[current_process].host.name != "client"
        elif event == "call":
            self.calls += 1
            code = frame.f_code
            is_apart = code is COMPARING_TEXTS or code is COMPARING_NUMBERS
            if (
                code.co_name == "<lambda>"
                and frame.f_back is not None
                and frame.f_back.f_code is ASIDE_CODE
            ):
                self._is_counted = False
        else:
            return
        if self._is_counted and not preparing and not is_apart:
            self._callback += 1
            if self._callback > self.longest:
                self.longest = self._callback


def work_of(
    cluster: Cluster, host: str, port: int, request: LargeRequest, entries: int
) -> tuple[int, int]:
    """Return the work that a request causes in the cluster: calls and comparisons in all, and the
    calls of the longest callback.
    """
    global comparisons
    work = Work()

    async def ask(client: Client) -> None:
        connection = PeerConnection(host, port, client_id=REQUESTER)
        await connection.connect()
        try:
            await connection.request(request.of(entries), api_version=request.version)
        except OSError:
            pass  # the node has closed the connection: that is a valid response, too
        finally:
            connection.close()

    comparisons = 0
    sys.setprofile(work.on_event)
    try:
        cluster.run(ask)
    finally:
        sys.setprofile(None)
    return work.calls + comparisons, work.longest


def served(cluster: Cluster, host: str, port: int) -> dict[ApiKey, int]:
    """Return the latest version of each API that a node offers."""

    async def ask(client: Client) -> Message:
        connection = PeerConnection(host, port, client_id=REQUESTER)
        await connection.connect()
        answer: Message = await connection.request(
            ApiVersionsRequest(client_software_name="a", client_software_version="1"), api_version=3
        )
        connection.close()
        return answer

    rows = cluster.run(ask).api_keys
    return {ApiKey(row.api_key): row.max_version for row in rows if row.api_key not in LEFT_OUT}


def faults_of(
    cluster: Cluster, host: str, port: int, skipped: Callable[[ApiKey], bool] = lambda key: False
) -> list[str]:
    """Return each request whose work grows faster than its entries."""
    found = []
    for key, version in served(cluster, host, port).items():
        for request in () if skipped(key) else every_array(key, version):
            work_of(cluster, host, port, request, 1)  # the first one creates codecs
            counted = [work_of(cluster, host, port, request, COUNT << step) for step in range(3)]
            work, longest = [each[0] for each in counted], [each[1] for each in counted]
            first, second = work[1] - work[0], work[2] - work[1]
            if second > RATIO_MAX * max(first, 0) + NOISE_COUNT:
                found.append(f"{request.label}: {work}")
            if longest[2] - longest[1] > WRITTEN_WHOLE.get(key, CALLS_PER_ENTRY_MAX) * 2 * COUNT:
                found.append(f"{request.label} holds the loop: {longest} calls in one callback")
    return found


@pytest.mark.parametrize("lets_some", [True, False])
def test_work_for_a_request_is_linear_in_its_entries(
    cluster: Cluster, rights: SomeRights, lets_some: bool
) -> None:
    """At the broker, and through it at the controller: for a client with access to half of the
    entries, and for one with none.
    """
    rights.lets_some = lets_some
    faults = faults_of(cluster, "broker-1", 9092)
    assert not faults, "\n".join(faults)


def test_controller_work_is_linear_in_the_entries(cluster: Cluster, rights: SomeRights) -> None:
    """The APIs that only controllers serve."""
    rights.lets_some = True
    at_broker = served(cluster, "broker-1", 9092)
    faults = faults_of(cluster, CONTROLLER_HOST, CONTROLLER_PORT, lambda key: key in at_broker)
    assert not faults, "\n".join(faults)


def test_concurrent_large_requests_block_the_loop_no_longer_than_one(
    cluster: Cluster, rights: SomeRights
) -> None:
    """The writes of one decision do not restart the others, which would all run in one turn.

    This test is last: the topics that it creates add work to later measurements, for example to
    snapshots.
    """
    rights.lets_some = True
    version = served(cluster, CONTROLLER_HOST, CONTROLLER_PORT)[ApiKey.CREATE_TOPICS]
    alone, together = (longest_of_new_topics(cluster, version, clients) for clients in (1, 4))
    assert together < 1.2 * alone, (alone, together)


def longest_of_new_topics(cluster: Cluster, version: int, clients: int) -> int:
    """Let clients create many topics each at the same time, and return the calls of the longest
    callback.
    """
    work, are_there, there_count = Work(), asyncio.Event(), 0
    aside = SimulatedWorld.aside

    async def all_at_once(world: SimulatedWorld, decode: Callable[[], Any]) -> Any:
        """Decode nothing until all requests have arrived: in virtual time each would complete
        before the next arrives.
        """
        nonlocal there_count
        head = getclosurevars(decode).nonlocals.get("head")
        if head is None or head.api_key != ApiKey.CREATE_TOPICS:
            return await aside(world, decode)
        there_count += 1
        if there_count == clients:
            are_there.set()
        await are_there.wait()
        return await aside(world, decode)

    async def create(number: int) -> None:
        rows = [
            CreatableTopic(
                name=f"new-{clients}-{number}-{row}", num_partitions=1, replication_factor=1
            )
            for row in range(2 * COUNT)
        ]
        connection = PeerConnection(CONTROLLER_HOST, CONTROLLER_PORT, client_id="creator")
        await connection.connect()
        answer = await connection.request(
            CreateTopicsRequest(topics=rows, timeout_ms=60_000), api_version=version
        )
        assert {row.error_code for row in answer.topics} == {0}
        connection.close()

    async def create_all(client: Client) -> None:
        await asyncio.gather(*(create(number) for number in range(clients)))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SimulatedWorld, "aside", all_at_once)
        sys.setprofile(work.on_event)
        try:
            cluster.run(create_all)
        finally:
            sys.setprofile(None)
    return work.longest
