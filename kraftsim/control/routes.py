"""All routes of the HTTP API, as one table: the application serves them, and the OpenAPI document
describes them.

A route that a cluster does not have in its mode answers 409 with the reason.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from kraftsim.cluster.cluster_operations import ImposedCondition, NodeOutcome
from kraftsim.control.calls import (
    CallRefused,
    DiskFaultBody,
    HealBody,
    HttpCall,
    LinkBody,
    RequestFaultBody,
    RequestFaultText,
    RestartBody,
    SlowBody,
    UpgradeBody,
    request_fault_of,
)
from kraftsim.control.controlled import Controlled, ControlledDescription
from kraftsim.control.state.cluster_snapshot import (
    ClusterSnapshot,
    GroupStatus,
    LiveCheckStatus,
    NodeStatus,
    ProducerIdBlockStatus,
    ProducerStatus,
    QuorumStatus,
    SeenInvariantViolation,
    TopicStatus,
    TransactionStatus,
)
from kraftsim.control.state.event_logs import NodeCounters
from kraftsim.control.state.snapshot_reader import with_conditions
from kraftsim.lab.faults.field import Condition, Effect
from kraftsim.lab.faults.request_fault_text import request_fault_text
from kraftsim.lab.faults.rules_request_faults import RequestFault, RequestFaultStatus, RequestHit
from kraftsim.version import __version__

V1: Final = "/v1"


class Snapshots(Protocol):
    """Takes snapshots of a cluster."""

    async def snapshot(self) -> ClusterSnapshot:
        """Return one that is at most a second old."""
        ...

    @property
    def counters(self) -> Mapping[str, NodeCounters]:
        """What nodes have counted, by their names; empty without event logs."""
        ...


class Context(Protocol):
    """What handlers work on."""

    controlled: Controlled
    snapshots: Snapshots

    def stream_events(self, call: HttpCall) -> AsyncIterator[bytes]:
        """Return the server-sent events that a call wants. Raises CallRefused."""
        ...


# Answers
# --------------------------------------------------------------------------------------------------


class NodeOutcomes(msgspec.Struct, frozen=True, kw_only=True):
    """What a verb did to each node."""

    nodes: tuple[NodeOutcome, ...]


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes and their conditions."""

    nodes: tuple[NodeStatus, ...]


class ImposedConditions(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of links that are in force."""

    conditions: tuple[ImposedCondition, ...]


class Healed(msgspec.Struct, frozen=True, kw_only=True):
    """How many conditions of links ended."""

    healed: int


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How many faults of requests ended."""

    ended: int


class RequestFaultReport(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of requests, also as text, and what became of it: how many requests have matched, on
    how many it took effect, the last of these, and whether it is over.
    """

    number: int
    text: str
    fault: RequestFault
    matched: int
    effects: int
    is_over: bool
    recent_hits: tuple[RequestHit, ...]


class RequestFaultReports(msgspec.Struct, frozen=True, kw_only=True):
    """The faults of requests that wait, and the last ones that are over, by number."""

    request_faults: tuple[RequestFaultReport, ...]


class Topics(msgspec.Struct, frozen=True, kw_only=True):
    """Topics; `missing` says what could not be read, and why."""

    topics: tuple[TopicStatus, ...]
    missing: dict[str, str]


class Producers(msgspec.Struct, frozen=True, kw_only=True):
    """Producer states of all partitions; `missing` says what could not be read, and why."""

    producers: tuple[ProducerStatus, ...]
    missing: dict[str, str]


class TransactionStates(msgspec.Struct, frozen=True, kw_only=True):
    """Transactional ids; `missing` says what could not be read, and why."""

    transactions: tuple[TransactionStatus, ...]
    missing: dict[str, str]


class Groups(msgspec.Struct, frozen=True, kw_only=True):
    """Groups; `missing` says what could not be read, and why."""

    groups: tuple[GroupStatus, ...]
    missing: dict[str, str]


class ProducerIdBlocks(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks of producer ids; `missing` says what could not be read, and why."""

    blocks: tuple[ProducerIdBlockStatus, ...]
    missing: dict[str, str]


class Violations(msgspec.Struct, frozen=True, kw_only=True):
    """Violated invariants, and what was checked; `checks` is null without event logs."""

    violations: tuple[SeenInvariantViolation, ...]
    checks: LiveCheckStatus | None
    missing: dict[str, str]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """That HTTP is served."""

    status: str


# Handlers
# --------------------------------------------------------------------------------------------------


def report_of(status: RequestFaultStatus) -> RequestFaultReport:
    """Return a fault of requests as the API shows it."""
    return RequestFaultReport(
        number=status.number,
        text=request_fault_text(status.fault),
        fault=status.fault,
        matched=status.matched,
        effects=status.effects,
        is_over=status.is_over,
        recent_hits=status.recent_hits,
    )


async def _describe(context: Context, call: HttpCall) -> ControlledDescription:
    snapshot = await context.snapshots.snapshot()
    controlled = context.controlled
    return ControlledDescription(
        name=controlled.name,
        mode=controlled.mode,
        bootstrap=snapshot.bootstrap,
        version=__version__,
        verbs=controlled.verbs(),
    )


async def _nodes(context: Context, call: HttpCall) -> Nodes:
    snapshot = await context.snapshots.snapshot()
    # A snapshot may be a second old; whether a process runs is known without one.
    return Nodes(nodes=with_conditions(snapshot.nodes, context.controlled.nodes()))


async def _kill(context: Context, call: HttpCall) -> NodeOutcomes:
    return NodeOutcomes(nodes=tuple(await context.controlled.kill(call.path["node"])))


async def _stop(context: Context, call: HttpCall) -> NodeOutcomes:
    return NodeOutcomes(nodes=tuple(await context.controlled.stop(call.path["node"])))


async def _restart(context: Context, call: HttpCall) -> NodeOutcomes:
    body = call.of(RestartBody)
    done = await context.controlled.restart(call.path["node"], body.release, body.settings)
    return NodeOutcomes(nodes=tuple(done))


async def _upgrade(context: Context, call: HttpCall) -> NodeOutcomes:
    body = call.of(UpgradeBody)
    done = await context.controlled.upgrade(call.path["node"], body.release)
    return NodeOutcomes(nodes=tuple(done))


async def _pause(context: Context, call: HttpCall) -> NodeOutcomes:
    return NodeOutcomes(nodes=tuple(await context.controlled.pause(call.path["node"])))


async def _resume(context: Context, call: HttpCall) -> NodeOutcomes:
    return NodeOutcomes(nodes=tuple(await context.controlled.resume(call.path["node"])))


async def _fail_disk(context: Context, call: HttpCall) -> NodeOutcomes:
    fault = call.of(DiskFaultBody).fault
    return NodeOutcomes(nodes=tuple(await context.controlled.fail_disk(call.path["node"], fault)))


async def _network(context: Context, call: HttpCall) -> ImposedConditions:
    return ImposedConditions(conditions=tuple(context.controlled.imposed()))


async def _cut(context: Context, call: HttpCall) -> ImposedConditions:
    target = call.of(LinkBody).target
    done = await context.controlled.impose(target, Condition(holds=True))
    return ImposedConditions(conditions=tuple(done))


async def _slow(context: Context, call: HttpCall) -> ImposedConditions:
    body = call.of(SlowBody)
    if not (body.latency_ms or body.jitter_ms or body.bytes_per_second):
        raise CallRefused(
            400, "this slows nothing", "give latency_ms, jitter_ms or bytes_per_second"
        )
    condition = Condition(
        latency_ms=body.latency_ms,
        jitter_ms=body.jitter_ms,
        bytes_per_second=body.bytes_per_second,
    )
    return ImposedConditions(
        conditions=tuple(await context.controlled.impose(body.target, condition))
    )


async def _reset(context: Context, call: HttpCall) -> Effect:
    return await context.controlled.reset(call.of(LinkBody).target)


async def _heal(context: Context, call: HttpCall) -> Healed:
    return Healed(healed=await context.controlled.heal(call.of(HealBody).nodes))


async def _lift(context: Context, call: HttpCall) -> Effect:
    return await context.controlled.lift(call.number("number"))


async def _inject(context: Context, call: HttpCall) -> RequestFaultReport:
    assert call.body is not None, "the route has a body"
    return report_of(await context.controlled.inject(request_fault_of(call.body)))


async def _faults(context: Context, call: HttpCall) -> RequestFaultReports:
    statuses = await context.controlled.refresh()
    return RequestFaultReports(request_faults=tuple(map(report_of, statuses)))


async def _fault(context: Context, call: HttpCall) -> RequestFaultReport:
    number = call.number("number")
    for status in await context.controlled.refresh():
        if status.number == number:
            return report_of(status)
    raise CallRefused(404, f"no fault of requests has the number {number}", "list them with GET")


async def _end_fault(context: Context, call: HttpCall) -> RequestFaultReport:
    return report_of(await context.controlled.end_fault(call.number("number")))


async def _end_faults(context: Context, call: HttpCall) -> Ended:
    return Ended(ended=await context.controlled.end_faults())


async def _state(context: Context, call: HttpCall) -> ClusterSnapshot:
    await context.controlled.refresh()
    return await context.snapshots.snapshot()


async def _topics(context: Context, call: HttpCall) -> Topics:
    snapshot = await context.snapshots.snapshot()
    return Topics(topics=snapshot.topics, missing=_of(snapshot, "topics"))


async def _topic(context: Context, call: HttpCall) -> TopicStatus:
    snapshot = await context.snapshots.snapshot()
    for topic in snapshot.topics:
        if topic.name == call.path["topic"]:
            return topic
    raise CallRefused(
        404,
        f"there is no topic {call.path['topic'][:249]!r}",
        snapshot.missing.get("topics", "GET /v1/topics lists them"),
    )


async def _producers(context: Context, call: HttpCall) -> Producers:
    snapshot = await context.snapshots.snapshot()
    return Producers(producers=snapshot.producers, missing=_of(snapshot, "producers"))


async def _transactions(context: Context, call: HttpCall) -> TransactionStates:
    snapshot = await context.snapshots.snapshot()
    return TransactionStates(
        transactions=snapshot.transactions, missing=_of(snapshot, "transactions")
    )


async def _groups(context: Context, call: HttpCall) -> Groups:
    snapshot = await context.snapshots.snapshot()
    return Groups(groups=snapshot.groups, missing=_of(snapshot, "groups"))


async def _blocks(context: Context, call: HttpCall) -> ProducerIdBlocks:
    snapshot = await context.snapshots.snapshot()
    return ProducerIdBlocks(blocks=snapshot.blocks, missing=_of(snapshot, "blocks"))


async def _quorum(context: Context, call: HttpCall) -> QuorumStatus:
    snapshot = await context.snapshots.snapshot()
    if snapshot.quorum is None:
        reason = snapshot.missing.get("quorum", "this cluster has no metadata quorum")
        raise CallRefused(409, reason, "GET /v1/nodes shows the controller in ZooKeeper mode")
    return snapshot.quorum


async def _violations(context: Context, call: HttpCall) -> Violations:
    snapshot = await context.snapshots.snapshot()
    return Violations(
        violations=() if snapshot.checks is None else snapshot.checks.violations,
        checks=snapshot.checks,
        missing=_of(snapshot, "checks"),
    )


async def _metrics(context: Context, call: HttpCall) -> bytes:
    from kraftsim.control.metrics import NodeDoesNotRun, NoSuchNode, exposition

    await context.controlled.refresh()
    snapshot = await context.snapshots.snapshot()
    try:
        return exposition(snapshot, context.snapshots.counters, call.query.get("node"))
    except NoSuchNode as unknown:
        raise CallRefused(404, str(unknown), "GET /v1/nodes has the nodes") from unknown
    except NodeDoesNotRun as down:  # as a target of its own, which would not answer
        raise CallRefused(503, str(down), "POST /v1/nodes/NODE/restart starts it") from down


async def _events(context: Context, call: HttpCall) -> AsyncIterator[bytes]:
    return context.stream_events(call)


async def _health(context: Context, call: HttpCall) -> Health:
    return Health(status="ok")


def _of(snapshot: ClusterSnapshot, part: str) -> dict[str, str]:
    return {name: reason for name, reason in snapshot.missing.items() if name == part}


# The table
# --------------------------------------------------------------------------------------------------

Handler = Callable[[Context, HttpCall], Awaitable[object]]
JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"
PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
PLAIN: Final = "text/plain"


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument of a route: in its path, in its query, or in a header."""

    name: str
    about: str
    where: str = "path"
    schema: Mapping[str, object] = field(default_factory=lambda: {"type": "string"})
    example: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A method of a path. `bodies` are the types that its body may have, () if it has none; `can`
    maps each status of a refusal of its own to its reason.
    """

    method: str
    path: str
    name: str
    summary: str
    tag: str
    handler: Handler
    answer: type[msgspec.Struct] | None = None
    about: str = ""
    bodies: tuple[type[msgspec.Struct], ...] = ()
    needs_body: bool = False
    takes_text: bool = False
    parameters: tuple[Parameter, ...] = ()
    status: int = 200
    media: str = JSON
    refusals: Mapping[int, str] = field(default_factory=dict)
    is_public: bool = False


NODE: Final = Parameter(
    "node",
    "A node, a pattern (`broker-*`), several with commas, or `leader`: the active controller.",
    example="broker-1",
)
NUMBER: Final = Parameter(
    "number", "The number that the list has.", schema={"type": "integer", "minimum": 1}, example=1
)
UNKNOWN_NODE: Final = "no such node; the error lists the nodes"
NOT_HERE: Final = "not possible in this cluster or in its present state; the error says why"
NO_NUMBER: Final = "no such number"


def _node_route(
    verb: str,
    summary: str,
    handler: Handler,
    *,
    about: str = "",
    body: type[msgspec.Struct] | None = None,
    needs_body: bool = False,
) -> Route:
    return Route(
        method="POST",
        path=f"{V1}/nodes/{{node}}/{verb}",
        name=verb,
        summary=summary,
        tag="nodes",
        handler=handler,
        answer=NodeOutcomes,
        about=about,
        bodies=() if body is None else (body,),
        needs_body=needs_body,
        parameters=(NODE,),
        refusals={404: UNKNOWN_NODE, 409: NOT_HERE},
    )


def _link_route(
    verb: str,
    summary: str,
    handler: Handler,
    body: type[msgspec.Struct],
    answer: type[msgspec.Struct],
) -> Route:
    return Route(
        method="POST",
        path=f"{V1}/network/{verb}",
        name=verb,
        summary=summary,
        tag="network",
        handler=handler,
        answer=answer,
        bodies=(body,),
        needs_body=body is not HealBody,
        refusals={404: UNKNOWN_NODE, 409: NOT_HERE},
    )


def _read(
    path: str,
    name: str,
    summary: str,
    handler: Handler,
    answer: type[msgspec.Struct],
    *,
    tag: str = "state",
    parameters: tuple[Parameter, ...] = (),
    refusals: Mapping[int, str] | None = None,
    is_public: bool = False,
) -> Route:
    return Route(
        method="GET",
        path=path,
        name=name,
        summary=summary,
        tag=tag,
        handler=handler,
        answer=answer,
        parameters=parameters,
        refusals=refusals or {},
        is_public=is_public,
    )


ROUTES: Final = (
    _read(
        f"{V1}/cluster",
        "describe",
        "What is controlled, and the verbs it has",
        _describe,
        ControlledDescription,
    ),
    _read(f"{V1}/nodes", "nodes", "All nodes and whether they run", _nodes, Nodes, tag="nodes"),
    _node_route("kill", "Kill nodes with SIGKILL", _kill, about="They stay down until a restart."),
    _node_route("stop", "Stop nodes cleanly", _stop, about="They stay down until a restart."),
    _node_route(
        "restart",
        "Restart nodes on their disks",
        _restart,
        about="A node that is up is stopped cleanly first. Release and settings hold from then on. "
        "Answers when the nodes serve, or says which do not yet.",
        body=RestartBody,
    ),
    _node_route(
        "upgrade",
        "Restart nodes with another release, as in a rolling upgrade",
        _upgrade,
        about="Brokers, then controllers, the active one last; each when the one before serves and "
        "every replica is in sync. Stops at a node that does not get there. `*` is all nodes.",
        body=UpgradeBody,
        needs_body=True,
    ),
    _node_route("pause", "Pause processes with SIGSTOP", _pause),
    _node_route(
        "resume",
        "Resume paused processes with SIGCONT",
        _resume,
        about="`*` is all that are paused.",
    ),
    _node_route(
        "disk",
        "Damage the disks of nodes that are down",
        _fail_disk,
        about="`lost-disk` empties a disk, `bit-rot` flips a bit in the largest segment. Other "
        "faults of disks are possible in simulation only: 409.",
        body=DiskFaultBody,
        needs_body=True,
    ),
    _read(
        f"{V1}/network",
        "network",
        "The conditions of links in force",
        _network,
        ImposedConditions,
        tag="network",
    ),
    _link_route("cut", "Interrupt links until they are healed", _cut, LinkBody, ImposedConditions),
    _link_route(
        "slow", "Delay or limit links until they are healed", _slow, SlowBody, ImposedConditions
    ),
    _link_route("reset", "Reset the connections of links, once", _reset, LinkBody, Effect),
    _link_route(
        "heal", "End all conditions of links, or those of some nodes", _heal, HealBody, Healed
    ),
    Route(
        method="DELETE",
        path=f"{V1}/network/{{number}}",
        name="lift",
        summary="End one condition of links",
        tag="network",
        handler=_lift,
        answer=Effect,
        parameters=(NUMBER,),
        refusals={404: NO_NUMBER, 409: NOT_HERE},
    ),
    _read(
        f"{V1}/request-faults",
        "request_faults",
        "The faults of requests, and what they took effect on",
        _faults,
        RequestFaultReports,
        tag="request faults",
    ),
    Route(
        method="POST",
        path=f"{V1}/request-faults",
        name="inject",
        summary="Add a fault of requests",
        tag="request faults",
        about="As JSON with fields, as JSON with `text`, or as text/plain: "
        "`EndTxn error=CONCURRENT_TRANSACTIONS times=3`.",
        handler=_inject,
        answer=RequestFaultReport,
        bodies=(RequestFaultText, RequestFaultBody),
        needs_body=True,
        takes_text=True,
        status=201,
        refusals={409: NOT_HERE},
    ),
    Route(
        method="DELETE",
        path=f"{V1}/request-faults",
        name="end_faults",
        summary="End all faults of requests",
        tag="request faults",
        handler=_end_faults,
        answer=Ended,
        refusals={409: NOT_HERE},
    ),
    _read(
        f"{V1}/request-faults/{{number}}",
        "request_fault",
        "One fault of requests",
        _fault,
        RequestFaultReport,
        tag="request faults",
        parameters=(NUMBER,),
        refusals={404: NO_NUMBER},
    ),
    Route(
        method="DELETE",
        path=f"{V1}/request-faults/{{number}}",
        name="end_fault",
        summary="End a fault of requests; what it holds goes on",
        tag="request faults",
        handler=_end_fault,
        answer=RequestFaultReport,
        parameters=(NUMBER,),
        refusals={404: NO_NUMBER, 409: NOT_HERE},
    ),
    _read(f"{V1}/state", "state", "Everything, at one moment", _state, ClusterSnapshot),
    _read(f"{V1}/topics", "topics", "Topics, leaders, in-sync replicas, offsets", _topics, Topics),
    _read(
        f"{V1}/topics/{{topic}}",
        "topic",
        "One topic",
        _topic,
        TopicStatus,
        parameters=(Parameter("topic", "The name of a topic.", example="orders"),),
        refusals={404: "no such topic"},
    ),
    _read(f"{V1}/producers", "producers", "Producer states of partitions", _producers, Producers),
    _read(
        f"{V1}/transactions", "transactions", "Transactional ids", _transactions, TransactionStates
    ),
    _read(f"{V1}/groups", "groups", "Groups", _groups, Groups),
    _read(
        f"{V1}/producer-id-blocks", "blocks", "Blocks of producer ids", _blocks, ProducerIdBlocks
    ),
    _read(
        f"{V1}/quorum",
        "quorum",
        "The metadata quorum",
        _quorum,
        QuorumStatus,
        refusals={409: "no metadata quorum, or it does not answer"},
    ),
    _read(
        f"{V1}/violations",
        "violations",
        "Invariants that the running cluster has violated",
        _violations,
        Violations,
    ),
    Route(
        method="GET",
        path=f"{V1}/events",
        name="events",
        summary="Events of all nodes as server-sent events",
        tag="events",
        about="In order of time, one line of JSON each; a comment every 15 s while nothing "
        "happens. A client that sends the id of its last event as Last-Event-ID goes on behind "
        "it, without a gap.",
        handler=_events,
        media=EVENT_STREAM,
        parameters=(
            Parameter("node", "Nodes or patterns, with commas.", "query", example="broker-1"),
            Parameter("kind", "Kinds of events, with commas.", "query", example="LeaderElected"),
            Parameter(
                "from",
                "`now` (default), `start`, or ms since the run began.",
                "query",
                example="start",
            ),
            Parameter(
                "follow",
                "`false` ends with what there is.",
                "query",
                {"type": "boolean", "default": True},
                example=False,
            ),
            Parameter("Last-Event-ID", "The id of the last event that arrived.", "header"),
        ),
        refusals={409: "no event logs here", 429: "too many streams are open"},
    ),
    Route(
        method="GET",
        path="/metrics",
        name="metrics",
        summary="Metrics for Prometheus, under the names of Kafka's JMX exporter",
        tag="state",
        about="Of all nodes with the label `node`, or of one node without it, as a target of its "
        "own.",
        handler=_metrics,
        media=PROMETHEUS,
        parameters=(Parameter("node", "One node.", "query", example="broker-1"),),
        refusals={404: "no such node", 503: "the node does not run"},
    ),
    _read(
        "/healthz", "healthz", "That HTTP is served", _health, Health, tag="server", is_public=True
    ),
)
