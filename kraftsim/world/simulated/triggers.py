"""Triggers in a run: a virtual time, the nth write or flush of a kind of file, the nth frame of an
API, the nth event of a kind, the first contact of a process with a service.

Crash windows are too short for random times: a fault that is tied to an operation of a node hits
them. An action runs inside the node's own call, at exactly that moment; it must not raise.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from kraftsim.events.event import Event
from kraftsim.world.simulated.disk_faults import FileClass
from kraftsim.world.simulated.frames import FrameSeen
from kraftsim.world.simulated.host import Process

if TYPE_CHECKING:
    from kraftsim.world.simulated.simulation import Simulation

Moment = Literal["before", "after"]


@dataclass(frozen=True, slots=True)
class TriggerContext:
    """The context in which a trigger fired: the host (None for a time trigger), the frame, and the
    host or store that was about to be contacted.
    """

    host: str | None = None
    frame: FrameSeen | None = None
    server: str | None = None


Action = Callable[[TriggerContext], object]


@dataclass(kw_only=True, slots=True)
class _Waiting:
    """A condition that counts down to its nth time."""

    action: Action
    nth: int

    def is_due(self) -> bool:
        self.nth -= 1
        return self.nth == 0


@dataclass(kw_only=True, slots=True)
class _DiskWaiting(_Waiting):
    operation: str
    moment: str
    kind: FileClass | None
    host: str | None


@dataclass(kw_only=True, slots=True)
class _FrameWaiting(_Waiting):
    api_key: int | None
    is_response: bool
    moment: str
    client: str | None
    server: str | None


@dataclass(kw_only=True, slots=True)
class _EventWaiting(_Waiting):
    kind: str
    host: str | None
    fields: Mapping[str, object] = field(default_factory=dict)


@dataclass(kw_only=True, slots=True)
class _ContactWaiting(_Waiting):
    is_client: Callable[[str], bool]
    is_service: Callable[[str], bool]
    api_key: int | None
    request: int


CONNECTS, STORE_CALL = -1, -2
"""In place of an API: a process opens a connection; it calls the object store."""
REMOTE_STORE: Final = "remote-store"
"""The name of the object store, which is no host, as a service."""


class Triggers:
    """All triggers of one simulation. Each fires once."""

    def __init__(self, simulation: "Simulation") -> None:
        self._simulation = simulation
        self._disk: list[_DiskWaiting] = []
        self._frames: tuple[_FrameWaiting, ...] = ()
        """Replaced on each change, so that an action may change them: every frame passes here."""
        self._events: dict[str, list[_EventWaiting]] = {}
        self._contacts: list[_ContactWaiting] = []
        self._contacted: dict[Process, dict[tuple[str, int], int]] | None = None
        """How often a process connected to each host, and sent requests of each API; None before
        `watch_contacts`. Only looked up by process, never iterated over.
        """
        self._followers: tuple[Callable[[FrameSeen, str], object], ...] = ()

    def at(self, at_ns: int, action: Action) -> None:
        """Act at a virtual time; in the next turn if it is past."""
        simulation = self._simulation
        simulation.loop.schedule(
            simulation.harness.process, max(at_ns, simulation.now_ns), action, TriggerContext()
        )

    def on_disk(
        self,
        action: Action,
        *,
        operation: Literal["write", "flush", "rename"],
        file_class: FileClass | None = None,
        host: str | None = None,
        nth: int = 1,
        moment: Moment = "after",
    ) -> None:
        """Act before or after the nth operation on a class of files, on one host or on any."""
        assert nth >= 1, "times are counted from 1"
        self._disk.append(
            _DiskWaiting(
                action=action,
                nth=nth,
                operation=operation,
                moment=moment,
                kind=file_class,
                host=host,
            )
        )
        for each in self._simulation.hosts.values():
            self.watch_disk(each.name)

    def on_frame(
        self,
        action: Action,
        *,
        api_key: int | None,
        is_response: bool = False,
        client: str | None = None,
        server: str | None = None,
        nth: int = 1,
        moment: Moment = "before",
    ) -> None:
        """Act before or after the nth request or response of an API.

        Before it, `trigger_context.frame` can be truncated, held or rewritten.
        """
        assert nth >= 1, "times are counted from 1"
        waiting = _FrameWaiting(
            action=action,
            nth=nth,
            api_key=api_key,
            is_response=is_response,
            moment=moment,
            client=client,
            server=server,
        )
        self._frames = (*self._frames, waiting)
        self._simulation.network.watch_frames(self._on_frame)

    def follow_frames(self, follower: Callable[[FrameSeen, str], object]) -> Callable[[], None]:
        """Call a function with every frame, before and after it is sent.

        Returns a function that cancels this.
        """
        self._followers = (*self._followers, follower)
        self._simulation.network.watch_frames(self._on_frame)

        def end() -> None:
            followers = list(self._followers)
            if follower in followers:
                followers.remove(follower)
                self._followers = tuple(followers)

        return end

    def on_event(
        self,
        action: Action,
        *,
        kind: str,
        host: str | None = None,
        nth: int = 1,
        fields: Mapping[str, object] | None = None,
    ) -> None:
        """Act right after the nth event of a kind, on one host or on any, with the given values in
        its fields.
        """
        assert nth >= 1, "times are counted from 1"
        assert kind in Event.kinds, f"unknown event {kind}"
        if kind not in self._events:
            self._simulation.observe(self._on_event, (Event.kinds[kind],))
        self._events.setdefault(kind, []).append(
            _EventWaiting(action=action, nth=nth, kind=kind, host=host, fields=fields or {})
        )

    def watch_contacts(self) -> None:
        """Count from now on what each process contacts: `on_contact` knows what is the first time
        only of processes that started since.
        """
        if self._contacted is None:
            self._contacted = {}
            self._simulation.network.on_contact = self.tell_contact
            self.follow_frames(self._on_request)

    def on_contact(
        self,
        action: Action,
        *,
        is_client: Callable[[str], bool],
        is_service: Callable[[str], bool],
        api_key: int | None = None,
        request: int = 1,
        nth: int = 1,
    ) -> None:
        """Act before a process of some hosts connects to a service for the first time (request 0),
        or sends it its request of that number, for the nth process that does.
        """
        assert nth >= 1 and request >= 0, "times are counted from 1"
        self.watch_contacts()
        self._contacts.append(
            _ContactWaiting(
                action=action,
                nth=nth,
                is_client=is_client,
                is_service=is_service,
                api_key=api_key,
                request=request,
            )
        )

    def tell_contact(
        self, process: Process, server: str, api_key: int = CONNECTS, frame: FrameSeen | None = None
    ) -> None:
        """Count that a process is about to connect to another host, or to send it a request, and
        act first.
        """
        host = process.host.name
        if self._contacted is None or server == host:
            return
        counts = self._contacted.setdefault(process, {})
        for waiting in list(self._contacts):
            if (
                (waiting.request == 0) == (api_key == CONNECTS)
                and waiting.api_key in (None, api_key)
                and waiting.is_client(host)
                and waiting.is_service(server)
                and _count(counts, waiting) == max(0, waiting.request - 1)
                and waiting.is_due()
            ):
                self._contacts.remove(waiting)
                waiting.action(TriggerContext(host=host, frame=frame, server=server))
        counts[server, api_key] = counts.get((server, api_key), 0) + 1

    def tell_store_call(self, process: Process) -> None:
        """Count that a process is about to call an object store, and act first."""
        self.tell_contact(process, REMOTE_STORE, STORE_CALL)

    def _on_request(self, frame: FrameSeen, moment: str) -> None:
        if moment == "before" and not frame.is_response:
            self.tell_contact(frame.transport.process, frame.server, frame.api_key, frame)

    def watch_disk(self, host_name: str) -> None:
        """Watch the disk of a host from now on, if there are disk triggers."""
        if self._disk:
            durable = self._simulation.hosts[host_name].durable
            durable.watch = lambda operation, kind, moment: self._on_disk(
                host_name, operation, kind, moment
            )

    def _on_disk(self, host: str, operation: str, kind: FileClass, moment: str) -> None:
        for waiting in list(self._disk):
            fits = (
                waiting.operation == operation
                and waiting.moment == moment
                and waiting.kind in (None, kind)
                and waiting.host in (None, host)
            )
            if fits and waiting.is_due():
                self._disk.remove(waiting)
                waiting.action(TriggerContext(host=host))

    def _on_frame(self, frame: FrameSeen, moment: str) -> None:
        for follower in self._followers:
            follower(frame, moment)
        for waiting in self._frames:
            if (
                waiting.moment == moment
                and waiting.is_response == frame.is_response
                and waiting.api_key in (None, frame.api_key)
                and waiting.client in (None, frame.client)
                and waiting.server in (None, frame.server)
                and waiting.is_due()
            ):
                self._frames = tuple(each for each in self._frames if each is not waiting)
                waiting.action(TriggerContext(host=frame.transport.process.host.name, frame=frame))

    def _on_event(self, node: str, incarnation: int, n: int, t_ns: int, event: Event) -> None:
        for waiting in list(self._events.get(type(event).__name__, ())):
            fits = waiting.host in (None, node) and all(
                getattr(event, name, None) == value for name, value in waiting.fields.items()
            )
            if fits and waiting.is_due():
                self._events[waiting.kind].remove(waiting)
                waiting.action(
                    TriggerContext(host=node if node in self._simulation.hosts else None)
                )


def _count(counts: Mapping[tuple[str, int], int], waiting: _ContactWaiting) -> int:
    """Return how often a process has contacted a service in the way that a trigger waits for."""
    return sum(
        times
        for (server, api_key), times in counts.items()
        if (waiting.request == 0) == (api_key == CONNECTS)
        and waiting.api_key in (None, api_key)
        and waiting.is_service(server)
    )
