"""A cluster for tests of the HTTP API itself: it records the verbs, and its state is fixed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

import httpx

from kraftsim.cluster.cluster_operations import (
    ImposedCondition,
    NodeOutcome,
    NotInThisCluster,
    UnknownTarget,
)
from kraftsim.cluster.manual_faults import NotPossible
from kraftsim.control.access import HttpAddress
from kraftsim.control.application import ControlApplication
from kraftsim.control.controlled import Verb, condition_entry, fault_entry, verb_statuses
from kraftsim.control.state.cluster_snapshot import (
    ClusterSnapshot,
    NetworkConditionEntry,
    NodeCondition,
    NodeStatus,
    PartitionStatus,
    QuorumReplicaStatus,
    QuorumStatus,
    RequestFaultEntry,
    TopicStatus,
    VerbStatus,
)
from kraftsim.control.state.event_logs import NodeCounters
from kraftsim.lab.faults.field import Condition, Effect
from kraftsim.lab.faults.rules_request_faults import (
    RequestFault,
    RequestFaultStatus,
    RequestRules,
)

TOKEN = "correct-horse-battery-staple"
PORT = 8123
HOST = f"127.0.0.1:{PORT}"
NODE = "broker-1"
ORDERS = TopicStatus(
    name="orders",
    is_internal=False,
    partitions=(PartitionStatus(partition=0, leader=1, leader_epoch=3, replicas=(1, 2), isr=(1,)),),
)
QUORUM = QuorumStatus(
    leader=101,
    leader_epoch=1,
    high_watermark=7,
    replicas=(QuorumReplicaStatus(node_id=101, is_voter=True, log_end_offset=7, lag=0),),
)


class FakeCluster:
    """`Controlled` without a cluster; `done` has the verbs that were carried out. A target that
    begins with `no-` is unknown, `busy` cannot be acted on now.
    """

    mode = "processes"
    name = "fake"
    place = "runs/fake"

    def __init__(self, events: Path | None = None) -> None:
        self.events = events
        self.done: list[tuple[object, ...]] = []
        self.missing: dict[Verb, str] = {}
        self.rules = RequestRules()
        self._imposed: dict[int, ImposedCondition] = {}

    def _do(self, verb: Verb, target: str, *rest: object) -> list[NodeOutcome]:
        if verb in self.missing:
            raise NotInThisCluster(self.missing[verb])
        if target.startswith("no-"):
            raise UnknownTarget(f"no node is called {target}")
        if target == "busy":
            raise NotPossible("busy is down; start it by: kraftsim restart busy --data DATA")
        self.done.append((verb.value, target, *rest))
        return [NodeOutcome(node=target, changed=True, text=f"{target} {verb.value}")]

    async def kill(self, target: str) -> list[NodeOutcome]:
        return self._do(Verb.KILL, target)

    async def stop(self, target: str) -> list[NodeOutcome]:
        return self._do(Verb.STOP, target)

    async def restart(
        self, target: str, release: str | None, settings: Mapping[str, str]
    ) -> list[NodeOutcome]:
        return self._do(Verb.RESTART, target, release, dict(settings))

    async def upgrade(self, target: str, release: str) -> list[NodeOutcome]:
        return self._do(Verb.UPGRADE, target, release)

    async def pause(self, target: str) -> list[NodeOutcome]:
        return self._do(Verb.PAUSE, target)

    async def resume(self, target: str) -> list[NodeOutcome]:
        return self._do(Verb.RESUME, target)

    async def fail_disk(self, target: str, fault: str) -> list[NodeOutcome]:
        return self._do(Verb.FAIL_DISK, target, fault)

    async def impose(self, target: str, condition: Condition) -> list[ImposedCondition]:
        self._do(Verb.CUT if condition.holds else Verb.SLOW, target)
        number = len(self._imposed) + 1
        imposed = ImposedCondition(number=number, target=target, condition=condition, since_ms=1)
        self._imposed[number] = imposed
        return [imposed]

    def imposed(self) -> Sequence[ImposedCondition]:
        return tuple(self._imposed.values())

    async def lift(self, number: int) -> Effect:
        if self._imposed.pop(number, None) is None:
            raise UnknownTarget(f"no condition of links has the number {number}")
        return Effect(touched_bytes=5, connections=1)

    async def reset(self, target: str) -> Effect:
        self._do(Verb.RESET, target)
        return Effect(closed=2)

    async def heal(self, targets: Sequence[str]) -> int:
        count = len(self._imposed)
        self._imposed.clear()
        return count

    async def inject(self, fault: RequestFault) -> RequestFaultStatus:
        if Verb.INJECT in self.missing:
            raise NotInThisCluster(self.missing[Verb.INJECT])
        return self._status(self.rules.add(fault, 0))

    async def end_fault(self, number: int) -> RequestFaultStatus:
        self._status(number)
        self.rules.remove(number)
        return self._status(number)

    async def end_faults(self) -> int:
        running = [each.number for each in self.rules.status(0) if not each.is_over]
        self.rules.clear()
        return len(running)

    async def refresh(self) -> tuple[RequestFaultStatus, ...]:
        return self.rules.status(0)

    def _status(self, number: int) -> RequestFaultStatus:
        for status in self.rules.status(0):
            if status.number == number:
                return status
        raise UnknownTarget(f"no fault of requests has the number {number}")

    def nodes(self) -> tuple[NodeStatus, ...]:
        return (NodeStatus(name=NODE, node_id=1, role="broker", condition=NodeCondition.UP),)

    def request_faults(self) -> tuple[RequestFaultEntry, ...]:
        return tuple(map(fault_entry, self.rules.status(0)))

    def network(self) -> tuple[NetworkConditionEntry, ...]:
        return tuple(map(condition_entry, self._imposed.values()))

    def verbs(self) -> tuple[VerbStatus, ...]:
        return verb_statuses(self.missing)


class FixedSnapshots:
    """Returns one snapshot."""

    def __init__(self) -> None:
        self.last = ClusterSnapshot(
            taken_ms=1,
            took_ms=1.5,
            name="fake",
            bootstrap="127.0.0.1:9092",
            nodes=(
                NodeStatus(name=NODE, node_id=1, role="broker", condition=NodeCondition.UP),
                NodeStatus(name="broker-2", node_id=2, role="broker", condition=NodeCondition.DOWN),
            ),
            topics=(ORDERS,),
            quorum=QUORUM,
            missing={"groups": "broker-1 does not offer ListGroups"},
        )
        self.counters: Mapping[str, NodeCounters] = {}

    async def snapshot(self) -> ClusterSnapshot:
        return self.last


class Api:
    """The application of a fake cluster, and a client that talks to it without a socket."""

    def __init__(
        self,
        events: Path | None = None,
        *,
        address: HttpAddress | None = None,
        heartbeat_seconds: float = 15,
    ) -> None:
        self.cluster = FakeCluster(events)
        self.snapshots = FixedSnapshots()
        self.application = ControlApplication(
            self.cluster,
            self.snapshots,
            address=address or HttpAddress("127.0.0.1", PORT),
            token=TOKEN,
            heartbeat_seconds=heartbeat_seconds,
        )
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.application.app, raise_app_exceptions=False),
            base_url=f"http://{HOST}",
        )

    async def ask(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        token: str | None = TOKEN,
        **options: object,
    ) -> httpx.Response:
        """Send a request with the token, or with another one or none."""
        own = [] if token is None else [("Authorization", f"Bearer {token}")]
        given = headers.items() if isinstance(headers, Mapping) else headers
        # arg-type: options of httpx, passed on as they are
        return await self.client.request(
            method,
            path,
            headers=[*own, *given],
            **options,  # type: ignore[arg-type]
        )


Scope = dict[str, object]


async def asked_raw(
    api: Api, scope: Scope, pieces: Sequence[bytes] = (b"",), pause: Callable[[], object] = bool
) -> tuple[int, bytes]:
    """Send a request below httpx, which would not send such a one; return status and body."""
    waiting: AsyncIterator[dict[str, object]] = _received(pieces, pause)
    sent: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        return await anext(waiting)

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    whole = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/v1/nodes",
        "raw_path": b"/v1/nodes",
        "query_string": b"",
        "root_path": "",
        "headers": [],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", PORT),
        **scope,
    }
    # arg-type: Starlette's messages are mutable mappings of anything
    await api.application.app(whole, receive, send)  # type: ignore[arg-type]
    assert isinstance(sent[0]["status"], int)
    return sent[0]["status"], b"".join(
        body for message in sent[1:] if isinstance(body := message.get("body", b""), bytes)
    )


async def _received(
    pieces: Sequence[bytes], pause: Callable[[], object]
) -> AsyncIterator[dict[str, object]]:
    for number, piece in enumerate(pieces, 1):
        yield {"type": "http.request", "body": piece, "more_body": number < len(pieces)}
    pause()
    while True:
        await asyncio.sleep(3600)
