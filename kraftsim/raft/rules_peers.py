"""The requests to other replicas, one in flight to each, with a backoff after failures.

Source: org.apache.kafka.raft.RequestManager.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from kraftsim.raft.rules_effects import Send
from kraftsim.raft.rules_voters import Address
from protocol.schema import Message


class _Peer(Struct):
    """The state of a connection."""

    in_flight: int | None = None
    backs_off_until_ms: int = 0


class Peers:
    """The requests of one replica. Check `is_ready` before `send`."""

    def __init__(self, retry_backoff_ms: int) -> None:
        self._retry_backoff_ms = retry_backoff_ms
        self._peers: dict[int, _Peer] = {}
        self._asked: dict[int, tuple[int, Message]] = {}
        self._next_number = 0

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        """Return whether a request may be sent to a node now."""
        peer = self._peers.get(node_id)
        return peer is None or (peer.in_flight is None and peer.backs_off_until_ms <= now_ms)

    def is_backing_off(self, node_id: int, now_ms: int) -> bool:
        """Return whether a node is in its backoff after a failure."""
        peer = self._peers.get(node_id)
        return peer is not None and peer.backs_off_until_ms > now_ms

    def ready_at_ms(self, node_id: int) -> int | None:
        """Return when a node is ready again; None while a response is pending."""
        peer = self._peers.get(node_id)
        if peer is None:
            return 0
        return None if peer.in_flight is not None else peer.backs_off_until_ms

    def send(self, node_id: int, address: Address, body: Message) -> Send:
        """Build a request. The caller has checked `is_ready`."""
        peer = self._peers.get(node_id) or self._new_peer(node_id)
        assert peer.in_flight is None, f"node {node_id} has a request in flight"
        self._next_number += 1
        peer.in_flight = self._next_number
        self._asked[self._next_number] = (node_id, body)
        return Send(self._next_number, node_id, address, body)

    def is_expected(self, number: int) -> bool:
        """Return whether a response is still expected: not after `forget_all`, which starts every
        epoch and role.
        """
        peer = self._peers.get(self._asked[number][0])
        return peer is not None and peer.in_flight == number

    def take(self, number: int, *, failed_at_ms: int | None = None) -> tuple[int, Message]:
        """Return (node, request) of a completed request."""
        node_id, body = self._asked.pop(number)
        peer = self._peers.get(node_id) or self._new_peer(node_id)
        if peer.in_flight == number:
            peer.in_flight = None
            if failed_at_ms is not None:
                peer.backs_off_until_ms = failed_at_ms + self._retry_backoff_ms
        return node_id, body

    def back_off(self, node_id: int, now_ms: int) -> None:
        """Start the backoff of a node: its response was not useful."""
        (self._peers.get(node_id) or self._new_peer(node_id)).backs_off_until_ms = (
            now_ms + self._retry_backoff_ms
        )

    def forget_all(self) -> None:
        """Reset at the start of a role or epoch: pending responses are ignored, and backoffs
        end.
        """
        self._peers.clear()

    def is_awaiting_any(self) -> bool:
        """Return whether a request is in flight."""
        return any(peer.in_flight is not None for peer in self._peers.values())

    def some_ready(
        self, node_ids: Sequence[int], now_ms: int, draw: Callable[[int], int]
    ) -> int | None:
        """Return a random node of those that are ready; None if there are none."""
        ready = [node_id for node_id in node_ids if self.is_ready(node_id, now_ms)]
        return ready[draw(len(ready))] if ready else None

    def _new_peer(self, node_id: int) -> _Peer:
        peer = self._peers[node_id] = _Peer()
        return peer
