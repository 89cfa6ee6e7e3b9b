"""The host of an application of a scenario: a simulated host in simulation, this process elsewhere.

Its clients are kraftsim's own in every mode.

What an application does between its requests runs on that host, too: see `run`.
"""

from collections.abc import Awaitable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kraftsim.clients.group_consumer import GroupConsumerClient
from kraftsim.clients.rules_group_member import MemberSettings
from kraftsim.clients.rules_transaction_steps import TransactionalSettings
from kraftsim.clients.transactional_producer import TransactionalClient
from kraftsim.events.event import Event
from kraftsim.server.parts import Parts
from kraftsim.world.interface import World

T = TypeVar("T")


class Runner(Protocol):
    """Runs a coroutine on a host."""

    def __call__(self, work: Coroutine[object, object, T]) -> Awaitable[T]:
        """Run it."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientHost:
    """One host with an application on it."""

    name: str
    world: World
    bootstrap: Sequence[tuple[str, int]]
    frame_events: bool
    parts: Parts
    run_there: Runner

    def run(self, work: Coroutine[object, object, T]) -> Awaitable[T]:
        """Run a coroutine on this host."""
        return self.run_there(work)

    def emit(self, event: Event) -> None:
        """Emit an event to the log of this host."""
        self.world.emit(event)

    def transactional_producer(
        self, client_id: str, settings: TransactionalSettings, *, names_member: bool = True
    ) -> TransactionalClient:
        """Return a new producer.

        `names_member` False: offsets are committed as by pre-KIP-447 clients.
        """
        return TransactionalClient(
            self.world,
            bootstrap=self.bootstrap,
            client_id=client_id,
            settings=settings,
            frame_events=self.frame_events,
            names_member=names_member,
            rules=self.parts.transactional_producer,
        )

    def group_consumer(
        self, client_id: str, settings: MemberSettings, *, require_stable: bool = True
    ) -> GroupConsumerClient:
        """Return a new consumer.

        `require_stable` False: it fetches offsets as pre-KIP-447 clients do.
        """
        return GroupConsumerClient(
            self.world,
            bootstrap=self.bootstrap,
            client_id=client_id,
            settings=settings,
            frame_events=self.frame_events,
            require_stable=require_stable,
        )


async def here(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine in this process."""
    return await work
