"""Attaches the observer of clients to a simulated host: what the clients of an application are told
becomes events in the log of that host.

The observer sees the bytes of each connection that the host opens: those it writes before a fault
touches them, and those it receives after all faults did. When the process ends, transactions whose
end it was not told have the outcome `unknown`.
"""

from kraftsim.clients.rules_observed_frames import ClientObserver
from kraftsim.events.event import Event
from kraftsim.world.simulated import Host, Simulation
from kraftsim.world.simulated.network import ResponseDiscarder
from kraftsim.world.simulated.transport import SimulatedTransport


def observe_clients(simulation: Simulation, host: Host) -> None:
    """Emit events of what clients on a host send and receive from now on, through all its
    processes. A second call for the same host does nothing.
    """
    observed: set[str] = simulation.attachments.setdefault(__name__, set())  # type: ignore[assignment]  # for membership only
    if host.name in observed:
        return
    observed.add(host.name)

    def emit(event: Event) -> None:
        simulation.world_of(host).emit(event)

    observer = ClientObserver(host.name, emit)

    def attach(transport: SimulatedTransport) -> None:
        address, port = transport.remote
        is_copy = isinstance(transport.get_protocol(), ResponseDiscarder)
        transport.tap = observer.connect(f"{address}:{port}", is_copy=is_copy)

    host.on_connect.append(attach)
    host.on_end.append(observer.ended)
