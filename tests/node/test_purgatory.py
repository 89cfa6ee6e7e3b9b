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


@dataclass
class ChangesItsKey(Wait):
    """A wait whose attempt changes a key it watches, as a read does whose disk fails."""

    change: Callable[[], None] = lambda: None
    allowed_by_change: bool = False
    has_changed: bool = False

    def try_complete(self) -> bool:
        """Change the key once, then complete if allowed."""
        before = self.may_complete
        if not self.has_changed:
            self.has_changed = True
            self.may_complete = self.may_complete or self.allowed_by_change
            self.change()
        if before:
            self.ended.append("completed")
        return before


@pytest.mark.parametrize("allowed_by_change", [False, True])
async def test_operation_whose_attempt_changes_its_key_completes_once(
    *, allowed_by_change: bool
) -> None:
    """DelayedOperation.safeTryComplete: by the attempt under way, or by one after it if only the
    change allows it.
    """
    purgatory: Purgatory[str] = Purgatory(AtOnce())
    wait = ChangesItsKey(has_changed=True)
    other = Wait()
    purgatory.try_complete_else_watch(wait, ["a", "b"], 20)
    purgatory.try_complete_else_watch(other, ["b"], 20)
    wait.has_changed, wait.may_complete = False, not allowed_by_change
    wait.allowed_by_change = allowed_by_change
    other.may_complete = True
    wait.change = lambda: purgatory.check("b")
    purgatory.check("a")
    assert wait.ended == ["completed"] and other.ended == ["completed"]
    await asyncio.sleep(0.03)
    assert wait.ended == ["completed"] and not purgatory.watched_keys


async def test_operation_is_completed_once_if_the_change_of_another_key_comes_from_its_filter() -> (
    None
):
    """A Fetch reads to find out whether a key matters, and this read may fail, too."""
    purgatory: Purgatory[str] = Purgatory(AtOnce())
    wait = Wait()

    def may_matter(key: str) -> bool:
        if key == "a":
            purgatory.check("b")
        return True

    purgatory.try_complete_else_watch(wait, ["a", "b"], 20, may_matter)
    wait.may_complete = True
    purgatory.check("a")
    assert wait.ended == ["completed"] and not purgatory.watched_keys


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
