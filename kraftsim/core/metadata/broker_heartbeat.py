"""What a heartbeat makes of a broker: the table of KIP-631.

Source: org.apache.kafka.controller.BrokerHeartbeatManager.calculateNextBrokerState.
"""

from dataclasses import dataclass
from enum import Enum

from kraftsim.core.metadata.broker_registration import BrokerRegistration


class BrokerControlState(Enum):
    """What the controller lets a broker do."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    """The answer. A broker that must wait with its shutdown asks again."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerWish:
    """What a heartbeat says, and what the controller knows beside it.

    is_caught_up: the broker has read its own registration. others_are_caught_up: all active brokers have read what its shutdown changed; this and
    leads_partitions count only for a broker that wants to shut down, or is about to.
    """

    wants_fence: bool
    wants_shut_down: bool
    is_caught_up: bool
    leads_partitions: bool
    others_are_caught_up: bool


def control_state(broker: BrokerRegistration, *, is_leaving: bool) -> BrokerControlState:
    """Return the state that a broker is in. `is_leaving`: its controlled shutdown began under this controller, and under this registration.

    What the registration says of a controlled shutdown does not count here: a broker must say to every new controller that it wants to go.
    """
    if broker.fenced:
        return BrokerControlState.FENCED
    return BrokerControlState.CONTROLLED_SHUTDOWN if is_leaving else BrokerControlState.UNFENCED


def next_state(current: BrokerControlState, wish: BrokerWish) -> BrokerControlState:
    """Return the state after a heartbeat. SHUTDOWN_NOW is an answer, never a state that lasts."""
    match current, wish.wants_fence, wish.wants_shut_down:
        case BrokerControlState.FENCED, _, True:
            return BrokerControlState.SHUTDOWN_NOW
        case BrokerControlState.FENCED, False, False if wish.is_caught_up:
            return BrokerControlState.UNFENCED
        case BrokerControlState.FENCED, _, _:
            return BrokerControlState.FENCED
        case BrokerControlState.UNFENCED, True, True:
            return BrokerControlState.SHUTDOWN_NOW
        case BrokerControlState.UNFENCED, True, False:
            return BrokerControlState.FENCED
        case BrokerControlState.UNFENCED, False, True:
            return BrokerControlState.CONTROLLED_SHUTDOWN if wish.leads_partitions else BrokerControlState.SHUTDOWN_NOW
        case BrokerControlState.UNFENCED, _, _:
            return BrokerControlState.UNFENCED
        case _ if wish.leads_partitions or not wish.others_are_caught_up:
            return BrokerControlState.CONTROLLED_SHUTDOWN
        case _:
            return BrokerControlState.SHUTDOWN_NOW
