"""faust-streaming #323: duplicated events, and a crash, when workers join or leave.

The app also consumes its output, so that Faust sends it in transactions (see faust_517.py). In a
rebalance a worker rewinds all of its partitions to the committed offsets. The transactions of those
that it keeps stay open with the output of the events that it reads again: the next commit has both.
A worker whose partitions went to another one crashes with ProducerFenced, and is restarted.
"""

from typing import Any

import pytest
from copied_once import OPTIONS, SINK, check
from faust_app import copier, corrected, topic, work

import kraftsim


def with_reader(app: Any) -> Any:
    """Let the app consume its output, too."""

    async def watch(stream: Any) -> None:
        async for _ in stream.events():
            pass

    app.agent(topic(app, SINK))(watch)
    return app


async def copy(host: kraftsim.AppHost) -> None:
    """An app whose output is in transactions."""
    await work(with_reader(copier(host)))


async def copy_corrected(host: kraftsim.AppHost) -> None:
    """The same, with the transactions aborted when partitions are revoked."""
    await work(with_reader(corrected(host)))


simulated: pytest.MarkDecorator = pytest.mark.kraftsim_simulation(**OPTIONS)


@simulated
async def test_as_reported(simulation: kraftsim.ApplicationRun) -> None:
    """The program of the ticket: fails."""
    await check(simulation, copy)


@simulated
async def test_corrected(simulation: kraftsim.ApplicationRun) -> None:
    """The corrected program: passes."""
    await check(simulation, copy_corrected)
