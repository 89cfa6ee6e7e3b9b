"""Log lines for operators: levels, rate limits, summaries, fencing and failed logins, and nothing
that a client can forge.
"""

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from structlog.testing import capture_logs

from kraftsim.events.event import Event
from kraftsim.partitions.events import BatchAppended, IsrChanged, LeaderElected
from kraftsim.server import operator_log
from kraftsim.server.events import FencedByController, UnfencedByController
from kraftsim.server.events_connections import ConnectionClosed, RequestRefused
from kraftsim.server.operator_log import LINES_MAX, MESSAGES, NAMED_MAX, OperatorLog
from kraftsim.world.human_log import STYLES, set_up_human_log
from kraftsim.world.real.world import RealClock
from tests.node.brokers import CONTROLLER_HOST, running_cluster

RESERVED = {"event", "level", "t", "time", "node", "incarnation"}
SAMPLES = {int: 3, str: "x", bool: True}


@pytest.fixture(autouse=True)
def unconfigured_structlog() -> Iterator[None]:
    """Reset the level and the renderer that another test has set."""
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


def sample(kind: type[Event]) -> Event:
    """Return an event with some value in each field."""
    values = {
        name: SAMPLES.get(hint, "x")
        for name, hint in kind.__annotations__.items()
        if "ClassVar" not in str(hint)
    }
    return kind(**values)


def ignore_effect(*_: object) -> None:
    """A blocked link reports the traffic that it delays."""


def refused(reason: str = "malformed") -> RequestRefused:
    return RequestRefused(
        connection=1, api_key=3, api_version=9, correlation_id=5, reason=reason, action="closed"
    )


async def lines_of(*events: Event, wait_s: float = 0.0) -> list[dict[str, object]]:
    """Report events and return the lines, those of `close` last."""
    with capture_logs() as lines:
        log = OperatorLog(structlog.get_logger(), asyncio.get_running_loop())
        for event in events:
            report = log.reports[type(event)]
            if report is not None:
                report(event)
        await asyncio.sleep(wait_s)
        log.close()
    return [dict(line) for line in lines]


def test_each_message_belongs_to_an_event() -> None:
    assert set(MESSAGES) <= set(Event.kinds)


def test_texts_are_unique_so_that_rate_limits_are_separate() -> None:
    texts = [message.text for message in MESSAGES.values()]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("kind", sorted(MESSAGES))
async def test_each_message_can_be_formatted(kind: str) -> None:
    (line,) = await lines_of(sample(Event.kinds[kind]))
    assert line["event"] == MESSAGES[kind].text
    assert line["log_level"] == MESSAGES[kind].level


@pytest.mark.parametrize("kind", sorted(MESSAGES))
def test_no_value_can_imitate_a_key_of_the_line(kind: str) -> None:
    fields = {
        name: getattr(sample(Event.kinds[kind]), name)
        for name in Event.kinds[kind].__struct_fields__
    }
    assert not RESERVED & set(MESSAGES[kind].values(fields) or {}) or MESSAGES[kind].is_summary


async def test_events_of_the_hot_path_log_nothing() -> None:
    assert await lines_of(sample(BatchAppended)) == []


async def test_client_disconnect_logs_nothing() -> None:
    peer, idle = (
        ConnectionClosed(connection=1, listener="PLAINTEXT", peer="h:1", reason=each)
        for each in ("peer", "idle")
    )
    assert await lines_of(peer, idle) == []


async def test_error_codes_are_logged_by_name() -> None:
    (line,) = await lines_of(refused())
    assert line["api"] == "METADATA"


async def test_flood_is_rate_limited_and_counted() -> None:
    lines = await lines_of(*[refused()] * 1000)
    assert len(lines) == LINES_MAX + 1
    assert lines[-1]["suppressed"] == 1000 - LINES_MAX


async def test_partitions_are_summarised_in_one_line() -> None:
    elected = [
        LeaderElected(topic="orders", partition=number, leader_epoch=1, next_offset=0)
        for number in range(40)
    ]
    (line,) = await lines_of(*elected)
    assert line["count"] == 40
    assert line["partitions"] == " ".join(
        [*(f"orders-{number}" for number in range(NAMED_MAX)), "..."]
    )


async def test_isr_change_names_the_isr() -> None:
    (line,) = await lines_of(
        IsrChanged(topic="t", partition=0, leader_epoch=1, partition_epoch=2, isr="1,3")
    )
    assert line["partitions"] == "t-0[1,3]"


async def test_rate_limit_window_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_log, "SUMMARY_SECONDS", 0.001)
    first = LeaderElected(topic="t", partition=0, leader_epoch=1, next_offset=0)
    with capture_logs() as lines:
        log = OperatorLog(structlog.get_logger(), asyncio.get_running_loop())
        for _ in range(2):
            report = log.reports[LeaderElected]
            assert report is not None
            report(first)
            while log._timers:
                await asyncio.sleep(0.001)
    assert [line["count"] for line in lines] == [1, 1]


@pytest.mark.parametrize("style", STYLES)
def test_client_cannot_forge_a_line(style: str) -> None:
    stream = io.StringIO()
    log = set_up_human_log(RealClock(0), node="broker-1", incarnation=1, style=style, stream=stream)
    log.warning("request refused", reason='x"\nt=0 level=error event="node failed"\r\n\x1b[31m')
    written = stream.getvalue()
    assert written.count("\n") == 1 and "\r" not in written and "\x1b[31m" not in written


def test_json_line_has_the_wall_clock_time() -> None:
    stream = io.StringIO()
    log = set_up_human_log(
        RealClock(0), node="broker-1", incarnation=2, style="json", stream=stream
    )
    log.info("serving", port=9092)
    line = json.loads(stream.getvalue())
    assert {"event", "level", "node", "incarnation", "port", "t", "time"} == set(line)
    assert line["time"].endswith("+00:00")


def test_lines_below_the_level_are_omitted() -> None:
    stream = io.StringIO()
    log = set_up_human_log(RealClock(0), node="n", incarnation=1, level="warning", stream=stream)
    log.info("serving")
    log.warning("slow disk")
    assert stream.getvalue().count("\n") == 1
    assert logging.getLevelName("WARNING") == logging.WARNING


async def test_only_a_slow_disk_is_a_warning() -> None:
    with capture_logs() as lines:
        log = OperatorLog(structlog.get_logger(), asyncio.get_running_loop())
        log.report_slow_disk("orders-0/0.log", "flush", 0.9)
        log.report_slow_disk("orders-0/0.log", "flush", 1.5)
    assert [(line["event"], line["log_level"], line["seconds"]) for line in lines] == [
        ("slow disk", "warning", 1.5)
    ]


def test_partitioned_broker_logs_that_it_was_fenced_and_unfenced() -> None:
    with running_cluster(
        1, broker_session_timeout_ms="3000", broker_heartbeat_interval_ms="500"
    ) as cluster:
        network = cluster.simulation.network
        ends = (("broker-1", CONTROLLER_HOST), (CONTROLLER_HOST, "broker-1"))
        for each in ends:
            network.block(*each, ignore_effect)
        cluster.simulation.run_for(10)
        assert not cluster.emitted(FencedByController)
        for each in ends:
            network.unblock(*each, ignore_effect)
        cluster.simulation.run_for(20)
        assert (
            len(cluster.emitted(FencedByController))
            == len(cluster.emitted(UnfencedByController))
            == 1
        )
