"""A request is overtaken: the network delays it and its connection, while later requests of the
same API reach the server on other connections.

A client that timed out has retried by then; the old request is processed after the new one, and its
answer is lost. On one connection TCP keeps the order; between connections nothing does. With
`overtaken_by` 0 the request is delayed while the fault lasts.

BrokerRegistration is excluded unless `api_key` names that API: if the request of a killed process
arrives after that of the next one, the killed incarnation is registered, and the running one gets
STALE_BROKER_EPOCH until it is restarted, in Apache Kafka as well.
"""

import asyncio
from collections.abc import Callable

from kraftsim.lab.faults.awaited_frame import API_KEY, apis_of, await_frame, held_frame
from kraftsim.lab.faults.fault import EVERYWHERE, Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.fault_space import BROKER_REGISTRATION
from kraftsim.lab.faults.field import SocketInjection, Watch
from kraftsim.lab.faults.injection import Injection
from kraftsim.world.simulated import FrameSeen


def inject(injection: Injection) -> None:
    """Hold the request of the trigger, or the target's next one, until others have overtaken it; it
    is effective when it is released after that.
    """
    releases: list[Callable[[], None]] = []

    def act(frame: FrameSeen) -> bool:
        if _is_spared(frame.api_key, injection.number_or_none(API_KEY)):
            return False
        release = frame.hold()
        releases.append(release)
        wanted = injection.integer("overtaken_by")
        is_same_client = injection.flag("same_client")

        def look(other: FrameSeen, moment: str) -> None:
            nonlocal wanted
            if (
                moment != "after"
                or other.is_response
                or (other.api_key, other.server) != (frame.api_key, frame.server)
            ):
                return
            if other.transport is frame.transport or (
                is_same_client and other.client != frame.client
            ):
                return
            wanted -= 1
            if wanted == 0:
                end()
                injection.after(injection.integer("after_ms"), let_go)

        def let_go() -> None:
            if not injection.is_over:
                injection.record_effect(
                    f"a request of API {frame.api_key} was overtaken by "
                    f"{injection.integer('overtaken_by')} later ones"
                )
            release()

        end = injection.simulation.triggers.follow_frames(look)
        injection.finally_(end)
        return True

    def deliver() -> None:
        if releases and not injection.integer("overtaken_by"):
            injection.record_effect("a request was delayed in the network")
        for release in releases:
            release()

    await_frame(injection, act, is_response=False, apis=apis_of(injection))
    injection.lasting(deliver, injection.integer("duration_ms"))


async def over_sockets(injection: SocketInjection) -> None:
    """Hold the request in the proxy until others of its API have passed on other connections."""
    frame = await held_frame(injection, is_response=False)
    if frame is None:
        return
    if _is_spared(frame.api_key, injection.number_or_none(API_KEY)):
        await frame.let_pass()
        return
    await frame.send()
    if not injection.integer("overtaken_by"):
        await asyncio.sleep(injection.integer("duration_ms") / 1000)
        injection.record_effect("a request was delayed in the network")
        return
    watch = Watch(
        api_key=frame.api_key,
        client=frame.client if injection.flag("same_client") else None,
        server=frame.server,
        not_connection=frame.connection,
        nth=injection.integer("overtaken_by"),
        moment="after",
    )
    other = await injection.before_it_ends(
        injection.field.next_frame(watch), injection.integer("duration_ms")
    )
    if other is not None:
        await other.let_pass()
        await asyncio.sleep(injection.integer("after_ms") / 1000)
        injection.record_effect(
            f"a request of API {frame.api_key} was overtaken by "
            f"{injection.integer('overtaken_by')} later ones"
        )


def _is_spared(api_key: int, wanted: int | None) -> bool:
    return api_key == BROKER_REGISTRATION != wanted


FAULT = FaultKind(
    name="overtaken-request",
    title="an overtaken request",
    family=Family.PROTOCOL,
    inject=inject,
    over_sockets=over_sockets,
    modes=EVERYWHERE,
    params={
        "api_key": None,
        "asked_by_server": False,
        "overtaken_by": 1,
        "same_client": True,
        "after_ms": 20,
        "duration_ms": 30_000,
    },
    triggers_on=("time", "frame", "event", "state"),
    draws={
        "overtaken_by": OneOf((1, 1, 2, 5)),
        "same_client": OneOf((True, False)),
        "after_ms": OneOf((5, 20, 500)),
        "duration_ms": Between(1000, 30_000),
    },
)
