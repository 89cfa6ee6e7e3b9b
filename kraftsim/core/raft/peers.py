"""One request at a time to each other replica, and a pause after one that failed.   Source: org.apache.kafka.raft.RequestManager."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from kraftsim.core.raft.effects import Send
from kraftsim.core.raft.voter_set import Address
from protocol.schema import Message


class _Peer(Struct):
    """How a connection is doing."""

    in_flight: int | None = None
    backs_off_until_ms: int = 0


class Peers:
    """The requests of one replica to others. Whoever sends asks `is_ready` first."""

    def __init__(self, retry_backoff_ms: int) -> None:
        self._retry_backoff_ms = retry_backoff_ms
        self._peers: dict[int, _Peer] = {}
        self._asked: dict[int, tuple[int, Message]] = {}
        self._next_number = 0

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        """Tell whether a request may go to a node now."""
        peer = self._peers.get(node_id)
        return peer is None or (peer.in_flight is None and peer.backs_off_until_ms <= now_ms)

    def is_backing_off(self, node_id: int, now_ms: int) -> bool:
        """Tell whether the last request to a node failed just now."""
        peer = self._peers.get(node_id)
        return peer is not None and peer.backs_off_until_ms > now_ms

    def ready_at_ms(self, node_id: int) -> int | None:
        """Return when a node may be asked again; None while an answer is awaited."""
        peer = self._peers.get(node_id)
        if peer is None:
            return 0
        return None if peer.in_flight is not None else peer.backs_off_until_ms

    def send(self, node_id: int, address: Address, body: Message) -> Send:
        """Make a request out. The caller has asked `is_ready` before."""
        peer = self._peers.get(node_id) or self._new_peer(node_id)
        assert peer.in_flight is None, f"node {node_id} is asked already"
        self._next_number += 1
        peer.in_flight = self._next_number
        self._asked[self._next_number] = (node_id, body)
        return Send(self._next_number, node_id, address, body)

    def is_expected(self, number: int) -> bool:
        """Tell whether an answer is awaited still: not after `forget_all`, with which every epoch and every role begins."""
        peer = self._peers.get(self._asked[number][0])
        return peer is not None and peer.in_flight == number

    def take(self, number: int, *, failed_at_ms: int | None = None) -> tuple[int, Message]:
        """Return (node, request) of a request that has its outcome."""
        node_id, body = self._asked.pop(number)
        peer = self._peers.get(node_id) or self._new_peer(node_id)
        if peer.in_flight == number:
            peer.in_flight = None
            if failed_at_ms is not None:
                peer.backs_off_until_ms = failed_at_ms + self._retry_backoff_ms
        return node_id, body

    def back_off(self, node_id: int, now_ms: int) -> None:
        """Leave a node alone for a moment: its answer was of no use."""
        (self._peers.get(node_id) or self._new_peer(node_id)).backs_off_until_ms = now_ms + self._retry_backoff_ms

    def forget_all(self) -> None:
        """Begin another role or epoch: what is still under way is not waited for any more, and no peer is backed off from."""
        self._peers.clear()

    def is_awaiting_any(self) -> bool:
        """Tell whether a request is under way."""
        return any(peer.in_flight is not None for peer in self._peers.values())

    def some_ready(self, node_ids: Sequence[int], now_ms: int, draw: Callable[[int], int]) -> int | None:
        """Return one of several nodes that may be asked now, drawn; None if none may."""
        ready = [node_id for node_id in node_ids if self.is_ready(node_id, now_ms)]
        return ready[draw(len(ready))] if ready else None

    def _new_peer(self, node_id: int) -> _Peer:
        peer = self._peers[node_id] = _Peer()
        return peer
