"""faust-streaming #517: duplicates after a worker was killed, whatever the isolation level.

With processing_guarantee="exactly_once" Faust commits offsets in a transaction, but sends the
output outside of it: its transaction manager asks the consumer's client for the partitions of the
output topic, and that client knows only topics that the app consumes. A read_committed consumer
sees the output of inputs whose offsets were never committed, and once more after the restart.
"""

import pytest
from copied_once import OPTIONS, check
from faust_app import copier, corrected, work

import kraftsim


async def copy(host: kraftsim.AppHost) -> None:
    """An app that passes events on, as in the ticket."""
    await work(copier(host))


async def copy_corrected(host: kraftsim.AppHost) -> None:
    """The same with the output in the transactions."""
    await work(corrected(host))


simulated: pytest.MarkDecorator = pytest.mark.kraftsim_simulation(**OPTIONS)


@simulated
async def test_as_reported(simulation: kraftsim.ApplicationRun) -> None:
    """The program of the ticket: fails."""
    await check(simulation, copy)


@simulated
async def test_corrected(simulation: kraftsim.ApplicationRun) -> None:
    """The corrected program: passes."""
    await check(simulation, copy_corrected)
