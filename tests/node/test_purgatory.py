"""Delayed operations, and the execution of a core's effects."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from kraftsim.server.pump import Pump, run_awaited
from kraftsim.server.purgatory import Purgatory
from kraftsim.world.interface import YieldPoint


@dataclass
class Wait:
    """Completes once allowed; stores how it ended."""

    may_complete: bool = False
    ended: list[str] = field(default_factory=list)

    def try_complete(self) -> bool:
        """Complete if allowed."""
        if self.may_complete:
            self.ended.append("completed")
        return self.may_complete

    def expire(self) -> None:
        """The timeout has passed."""
        self.ended.append("expired")


class AtOnce:
    """A world in which no thread is preempted."""

    def hand_over(self, place: YieldPoint, work: Callable[[], object]) -> None:
        """Do the work."""
        work()


async def test_operation_completes_by_its_first_trigger() -> None:
    """DelayedOperationPurgatory: immediately, by a change of a watched key, by timeout, or by
    cancellation; never twice.
    """
    purgatory: Purgatory[str] = Purgatory(AtOnce())
    at_once, by_key, by_time, by_leaving = Wait(may_complete=True), Wait(), Wait(), Wait()
    assert purgatory.try_complete_else_watch(at_once, ["a"], 20) is None
    purgatory.try_complete_else_watch(by_key, ["a", "b"], 20)
    purgatory.try_complete_else_watch(by_time, ["a"], 20)
    stay = purgatory.try_complete_else_watch(by_leaving, ["c"], 20)
    assert stay is not None and purgatory.watched_keys == ("a", "b", "c")
    by_key.may_complete = True
    purgatory.check("other")
    assert by_key.ended == []
    purgatory.check("b")
    purgatory.check("a")
    purgatory.leave(stay)
    await asyncio.sleep(0.05)
    assert [each.ended for each in (at_once, by_key, by_time, by_leaving)] == [
        ["completed"],
        ["completed"],
        ["expired"],
        [],
    ]
    assert not purgatory.watched_keys


async def test_stopped_node_discards_waiting_operations() -> None:
    """A stopped node sends no responses."""
    purgatory: Purgatory[str] = Purgatory(AtOnce())
    waits = [Wait(), Wait()]
    for wait in waits:
        purgatory.try_complete_else_watch(wait, ["a"], 10)
    purgatory.close()
    await asyncio.sleep(0.03)
    assert [wait.ended for wait in waits] == [[], []]


def test_effects_keep_their_order_when_one_causes_others() -> None:
    """Effects caused by an effect run after everything decided before."""
    done = list[str]()

    def carry_out(effect: str) -> None:
        done.append(effect)
        if effect == "a":
            pump.run(["c"])
            assert done == ["a"]

    pump: Pump[str] = Pump(carry_out)
    pump.run(["a", "b"])
    assert done == ["a", "b", "c"]


def test_effects_behind_one_that_raised_are_not_lost() -> None:
    """Effects queued by an earlier effect are executed with the next step."""
    done = list[str]()

    def carry_out(effect: str) -> None:
        if effect == "fails":
            pump.run(["queued"])
            raise OSError("the disk is full")
        done.append(effect)

    pump: Pump[str] = Pump(carry_out)
    with pytest.raises(OSError, match="full"):
        pump.run(["fails"])
    pump.run(["next"])
    assert done == ["queued", "next"]


async def test_outcome_of_an_awaited_effect_is_the_next_input() -> None:
    """Before any other input, and after the effects of its own step."""
    done = list[str]()

    def step(happened: str) -> list[str]:
        return {"begin": ["ask", "note"], "answered": ["end"]}[happened]

    async def carry_out(effect: str) -> str | None:
        await asyncio.sleep(0)
        done.append(effect)
        return "answered" if effect == "ask" else None

    await run_awaited(step, "begin", carry_out)
    assert done == ["ask", "note", "end"]
