"""Three voters without a leader: which one times out first, which message arrives next, which is
lost, which voter loses power and restarts.

Messages between two nodes keep their order, as on a connection. Each node has its own clock, which
only its own timeouts advance.
Source: KIP-595, KIP-996.
"""

from collections.abc import Hashable
from dataclasses import fields, is_dataclass

from kraftsim.raft.rules_roles import Leader
from kraftsim.raft.rules_settings import RaftSettings
from tests.core.quorum_harness import HarnessNode
from tests.core.quorum_stepper import PendingMessage, Table, message_line


class Election:
    """The possible events; each kind of failure occurs a limited number of times. The harness
    asserts one leader per epoch, one vote per voter and epoch, and durable commits.
    """

    def __init__(
        self, *, has_pre_vote: bool = False, losses: int = 2, crashes: int = 1, time_outs: int = 4
    ) -> None:
        self._table = Table(size=3, settings=RaftSettings(has_pre_vote=has_pre_vote))
        self._losses, self._crashes, self._time_outs = losses, crashes, time_outs
        self._clocks = dict.fromkeys(self._table.nodes, 0)
        for node in self._table.nodes.values():
            node.start()

    def moves(self) -> list[str]:
        """See search.World."""
        found = []
        for node in self._table.nodes.values():
            if node.replica is None:
                found.append(f"start {node.id}")
                continue
            if self._time_outs and not isinstance(node.replica.quorum.role, Leader):
                found.append(f"time-out {node.id}")
            if self._crashes:
                found.append(f"power-loss {node.id}")
        for way in self._next_messages():
            found.append(f"deliver {way[0]}>{way[1]}")
            if self._losses:
                found.append(f"lose {way[0]}>{way[1]}")
        return found

    def make(self, move: str) -> None:
        """See search.World."""
        verb, _, word = move.partition(" ")
        if verb in ("deliver", "lose"):
            sender, receiver = word.split(">")
            message = self._next_messages()[int(sender), int(receiver)]
            if verb == "deliver":
                self._at(message.receiver)
                self._table.deliver(message)
            else:
                self._losses -= 1
                self._at(message.requester.id)
                self._table.lose(message)
            return
        node = self._table.nodes[int(word)]
        self._at(node.id)
        match verb:
            case "start":
                node.start()
            case "power-loss":
                self._crashes -= 1
                node.crash(power_loss=True)
            case _:
                self._time_outs -= 1
                self._clocks[node.id] = max(self._clocks[node.id], node.wake_ms)
                self._at(node.id)
                node.pump()

    def state(self) -> Hashable:
        """See search.World."""
        pending = tuple(
            sorted(
                (way, tuple(message_line(each) for each in found))
                for way, found in self._ways().items()
            )
        )
        nodes = tuple(self._inside(node) for node in self._table.nodes.values())
        return pending, nodes, self._losses, self._crashes, self._time_outs

    @property
    def leaders(self) -> dict[int, int]:
        """Epoch -> its leader."""
        return self._table.leaders

    def _at(self, node_id: int) -> None:
        self._table.now_ms = self._clocks[node_id]

    def _ways(self) -> dict[tuple[int, int], list[PendingMessage]]:
        ways: dict[tuple[int, int], list[PendingMessage]] = {}
        for message in self._table.pending:
            ways.setdefault((message.sender, message.receiver), []).append(message)
        return ways

    def _next_messages(self) -> dict[tuple[int, int], PendingMessage]:
        return {way: found[0] for way, found in sorted(self._ways().items())}

    def _inside(self, node: HarnessNode) -> Hashable:
        disk = (
            repr(node.disk.state),
            len(node.disk.batches),
            node.disk.flushed,
            tuple(map(hash, node.disk.batches)),
        )
        if node.replica is None:
            return disk
        quorum, now_ms = node.replica.quorum, self._clocks[node.id]
        peers = tuple(
            (
                key,
                peer.in_flight is not None,
                None if peer.backs_off_until_ms is None else peer.backs_off_until_ms > now_ms,
            )
            for key, peer in sorted(quorum.peers._peers.items())
        )
        log = (quorum.log.end_offset, quorum.log.flushed_end_offset, quorum.log.high_watermark)
        return (
            disk,
            _role_state(quorum.role, now_ms),
            peers,
            log,
            node.leads,
            node.wake_ms - now_ms,
            len(node.parked),
        )


def _role_state(value: object, now_ms: int) -> Hashable:
    """Return the state of a role, with deadlines relative to now."""
    if is_dataclass(value):
        return type(value).__name__, tuple(
            _moment(each.name, getattr(value, each.name), now_ms) for each in fields(value)
        )
    if hasattr(value, "followers"):
        return tuple((each.key.id, each.end_offset) for each in value.followers)
    return repr(value)


def _moment(name: str, value: object, now_ms: int) -> Hashable:
    return (
        value - now_ms
        if name.endswith("_ms") and isinstance(value, int)
        else _role_state(value, now_ms)
    )
