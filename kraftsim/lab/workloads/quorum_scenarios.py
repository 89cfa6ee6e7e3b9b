"""What scenarios about quorums have in common: short time-outs, the invariants of the Raft protocol
that each run must exercise, and bounds that hold while only the scenario's own faults last.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from kraftsim.cluster.scenario import Mode, ScenarioEnvironment, within
from kraftsim.lab.faults.fault import Fault
from kraftsim.world.interface import stream

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream comes from the seed)

PROVEN: Final = (
    "one-leader-per-epoch",
    "one-vote-per-epoch",
    "metadata-log-matching",
    "high-watermark-monotonic",
    "high-watermark-flushed",
    "leader-completeness",
    "leader-elected-by-majority",
    "pre-vote-before-election",
    "high-watermark-monotonic-across-epochs",
    "stale-epochs-refused",
    "producer-id-blocks-disjoint",
    "producer-id-unique",
    "recovers-after-heal",
)
QUICK_SESSIONS: Final = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
QUICK_ELECTIONS: Final = {
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.election.backoff.max.ms": "300",
    "controller.quorum.fetch.timeout.ms": "800",
}
QUICKER_ELECTIONS: Final = {
    "controller.quorum.election.timeout.ms": "400",
    "controller.quorum.election.backoff.max.ms": "200",
    "controller.quorum.fetch.timeout.ms": "600",
}
SMALL_BLOCKS: Final = {
    "kraftsim.producer.id.control": "resizable",
    "kraftsim.producer.id.block.size": "10",
}
"""Small blocks, so that brokers allocate producer ids all the time."""
SETTINGS: Final = {
    **QUICK_SESSIONS,
    **QUICKER_ELECTIONS,
    "controller.quorum.election.backoff.max.ms": "400",
    "controller.socket.timeout.ms": "1500",
    **SMALL_BLOCKS,
}
"""Of the scenarios that exercise all of them."""


def unhurried(drawn: Mapping[str, str]) -> dict[str, str]:
    """Return settings with which followers keep up with an idle leader on slow links and disks: one
    that gets a single record per Fetch takes 50 ms for each, as long as a leader of these scenarios
    takes to write the next one.
    """
    is_slow = drawn.get("controller.quorum.fetch.max.bytes") == "1"
    return {"metadata.max.idle.interval.ms": "200"} if is_slow else {}


OwnFaults = Callable[["Random", Mode], tuple[Fault, ...]]


def has_only(stage: ScenarioEnvironment, own: OwnFaults) -> bool:
    """Return whether a run has no other faults than those that its scenario draws with `own`: then
    its bounds hold while they last.
    """
    drawn = own(stream(stage.seed, "harness", 1, "faults"), stage.mode)
    return all(fault in drawn for fault in stage.faults)


async def served_in_time(
    stage: ScenarioEnvironment, what: str, wait: Awaitable[object], seconds: float, own: OwnFaults
) -> None:
    """Wait for something, with a bound in virtual time, where only faults cause delays.

    With random faults beside the scenario's own there is none before they are healed (see
    `under_faults`). Raises LivenessLost.
    """
    if stage.mode is Mode.SIM and has_only(stage, own):
        await within(stage, what, wait, seconds)
    else:
        await wait
