"""Waiting for propagation: a broker applies what the controller has committed with a delay."""

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


def settled(
    look: Callable[[], T], is_there: Callable[[T], bool], what: str, seconds: float = SETTLE_SECONDS
) -> T:
    """Poll until the condition is true, and return the value. Raises Unmet after a time-out."""
    give_up_at = time.monotonic() + seconds
    while True:
        seen = look()
        if is_there(seen):
            return seen
        if time.monotonic() > give_up_at:
            raise Unmet(f"{what} timed out: last seen {seen!r}")
        time.sleep(PAUSE_SECONDS)


def own_broker_id(target: Target) -> int:
    """Return the id of the broker at the target's address.

    Raises Unmet if its address is not in the cluster's Metadata.
    """
    with target.peer() as peer:
        answer = peer.ask(
            MetadataRequest(topics=[]), target.newest(ApiKey.METADATA), MetadataResponse
        )
    found = [
        broker.node_id
        for broker in answer.brokers
        if f"{broker.host}:{broker.port}" == target.address
    ]
    if not found and len(answer.brokers) == 1:
        found = [answer.brokers[0].node_id]
    if not found:
        raise Unmet(f"{target.address} is no broker of its cluster")
    return found[0]
