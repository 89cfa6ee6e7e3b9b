"""The state transitions of a broker on heartbeats: the table of KIP-631.

Source: org.apache.kafka.controller.BrokerHeartbeatManager.calculateNextBrokerState.
"""

from dataclasses import dataclass
from enum import Enum

from kraftsim.core.metadata.broker_registration import BrokerRegistration


class BrokerControlState(Enum):
    """The state of a broker on the controller."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    """The heartbeat response.

    A broker that must wait with its shutdown sends further heartbeats.
    """

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatTransition:
    """The input of a state transition: fields of the heartbeat, and state of the controller.

    is_caught_up: the broker has replayed its own registration. others_are_caught_up: all active
    brokers have replayed the changes of its shutdown; this and leads_partitions matter only for a
    broker in, or requesting, a controlled shutdown.
    """

    wants_fence: bool
    wants_shut_down: bool
    is_caught_up: bool
    leads_partitions: bool
    others_are_caught_up: bool


def control_state(broker: BrokerRegistration, *, is_leaving: bool) -> BrokerControlState:
    """Return the state of a broker.

    `is_leaving`: its controlled shutdown began under this controller and this registration.

    The registration's in_controlled_shutdown is not used: a broker requests its shutdown from every
    new controller.
    """
    if broker.fenced:
        return BrokerControlState.FENCED
    return BrokerControlState.CONTROLLED_SHUTDOWN if is_leaving else BrokerControlState.UNFENCED


def next_state(current: BrokerControlState, wish: HeartbeatTransition) -> BrokerControlState:
    """Return the state after a heartbeat. SHUTDOWN_NOW is a response, never a stored state."""
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
            return (
                BrokerControlState.CONTROLLED_SHUTDOWN
                if wish.leads_partitions
                else BrokerControlState.SHUTDOWN_NOW
            )
        case BrokerControlState.UNFENCED, _, _:
            return BrokerControlState.UNFENCED
        case _ if wish.leads_partitions or not wish.others_are_caught_up:
            return BrokerControlState.CONTROLLED_SHUTDOWN
        case _:
            return BrokerControlState.SHUTDOWN_NOW
