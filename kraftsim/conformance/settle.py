"""Waiting until a node has heard of what was changed: what the controller has committed, a broker knows a moment later."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from kraftsim.conformance.expect import Unmet
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.messages.k03_metadata import MetadataRequest, MetadataResponse

T = TypeVar("T")
SETTLE_SECONDS: Final = 10.0
PAUSE_SECONDS: Final = 0.02


def settled(look: Callable[[], T], is_there: Callable[[T], bool], what: str, seconds: float = SETTLE_SECONDS) -> T:
    """Look again and again until it is there, and return what was seen. Raises Unmet if it never is."""
    give_up_at = time.monotonic() + seconds
    while True:
        seen = look()
        if is_there(seen):
            return seen
        if time.monotonic() > give_up_at:
            raise Unmet(f"{what} did not come: last seen {seen!r}")
        time.sleep(PAUSE_SECONDS)


def own_broker_id(target: Target) -> int:
    """Return the id of the broker that is asked. Raises Unmet if its address is none of those that the cluster tells."""
    with target.peer() as peer:
        answer = peer.ask(MetadataRequest(topics=[]), target.newest(ApiKey.METADATA), MetadataResponse)
    found = [broker.node_id for broker in answer.brokers if f"{broker.host}:{broker.port}" == target.address]
    if not found and len(answer.brokers) == 1:
        found = [answer.brokers[0].node_id]
    if not found:
        raise Unmet(f"{target.address} is no broker of its cluster")
    return found[0]
