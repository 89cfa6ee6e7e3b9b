"""Histories of connections and refused requests, clean and violating: rows for the table in
`cases.py`.
"""

from collections.abc import Callable
from random import Random

from kraftsim.events.runs import RunStarted
from kraftsim.server.events_connections import ConnectionOpened, RequestRefused
from tests.analysis.history import History, Row
from tests.analysis.quorum_cases import OK, VACUOUS, VIOLATED, on

UNDERSTOOD = "requests-well-formed"
OPENED = ConnectionOpened(connection=1, listener="PLAINTEXT", peer="c:1")


def begun(mode: str) -> RunStarted:
    """A run starts."""
    return RunStarted(scenario="s", mode=mode, seed=1)


def refused(
    reason: str = "a frame of -5 bytes", *, action: str = "closed", api_key: int = -1
) -> RequestRefused:
    """A request that cannot be parsed or served."""
    return RequestRefused(
        connection=1,
        api_key=api_key,
        api_version=-1,
        correlation_id=-1,
        reason=reason,
        action=action,
    )


CONNECTION_ROWS: list[Row] = [
    (
        "connections on which every request is understood",
        UNDERSTOOD,
        [*on("h", begun("sim")), *on("b", OPENED, OPENED)],
        OK,
        2,
    ),
    (
        "a connection out of step",
        UNDERSTOOD,
        [*on("h", begun("sim")), *on("b", OPENED, refused(), refused())],
        VIOLATED,
        1,
        ("b.1.1", "b.1.2"),
        (("b.1.1",), ("b.1.2",)),
    ),
    (
        "a broker has left ZooKeeper mode",
        UNDERSTOOD,
        [
            *on("h", begun("sim")),
            *on("b", OPENED, refused("api key 6 is not offered on this listener", api_key=6)),
        ],
        OK,
        1,
    ),
    (
        "it does not offer what its clients send",
        UNDERSTOOD,
        [
            *on("h", begun("sim")),
            *on("b", OPENED, refused("api key 0 is not offered on this listener", api_key=0)),
        ],
        VIOLATED,
        1,
        ("b.1.1",),
    ),
    (
        "a refusal with a response",
        UNDERSTOOD,
        [*on("h", begun("sim")), *on("b", OPENED, refused(action="answered"))],
        OK,
        1,
    ),
    (
        "a real node may receive anything",
        UNDERSTOOD,
        [*on("h", begun("process")), *on("b", OPENED, refused())],
        VACUOUS,
        0,
    ),
    ("no run at all", UNDERSTOOD, on("b", OPENED, refused()), VACUOUS, 0),
    (
        "before the run",
        UNDERSTOOD,
        [*on("b", OPENED, refused()), *on("h", begun("sim")), *on("b", OPENED)],
        OK,
        1,
    ),
]


def add_connection_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let clients connect and send mostly valid requests."""
    history.emit("harness", begun("embedded" if slip() else "sim"))
    for _ in range(random.randrange(1, 4)):
        history.emit("broker-7", OPENED)
        if slip():
            history.emit("broker-7", refused(action=random.choice(("closed", "answered"))))
