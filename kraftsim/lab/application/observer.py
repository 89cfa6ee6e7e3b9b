"""Attaches the observer of clients to a simulated host: what the clients of an application send and
learn becomes events in the log of that host.

The observer sees the bytes of each connection that the host opens: those it writes before a fault
touches them, and those it receives after all faults did. When the process ends, transactions whose
end it did not learn have the outcome `unknown`.
"""

from kraftsim.clients.rules_observed_frames import ClientObserver
from kraftsim.clients.rules_observed_producers import Emit
from kraftsim.events.event import Event
from kraftsim.world.simulated import Host, Simulation
from kraftsim.world.simulated.host import ConnectionEnd
from kraftsim.world.simulated.network import ResponseDiscarder
from kraftsim.world.simulated.transport import SimulatedTransport

ATTACHMENT = "observed-clients"


def observe_clients(simulation: Simulation, host: Host) -> None:
    """Emit events of what clients on a host send and receive from now on, through all its
    processes; a second call for the same host does nothing.
    """
    observed = simulation.attachments.setdefault(ATTACHMENT, {})
    assert isinstance(observed, dict), "the observers by the names of their hosts"
    if host.name in observed:
        return

    def emit(event: Event) -> None:
        simulation.world_of(host).emit(event)

    observed[host.name] = attach_observer(host, emit)


def attach_observer(host: Host, emit: Emit) -> ClientObserver:
    """Observe the clients on a host, and pass their events to `emit`, which must not raise."""
    observer = ClientObserver(host.name, emit)

    def attach(transport: ConnectionEnd) -> None:
        assert isinstance(transport, SimulatedTransport), "the only kind of connection"
        address, port = transport.remote
        is_copy = isinstance(transport.get_protocol(), ResponseDiscarder)
        transport.tap = observer.connect(f"{address}:{port}", is_copy=is_copy)

    host.on_connect.append(attach)
    host.on_end.append(observer.ended)
    return observer
