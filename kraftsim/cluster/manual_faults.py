"""Manual faults, client side: requests that `kraftsim kill`, `pause`, `isolate` and similar
commands send to the supervisor of a cluster.

They use a control socket of their own (`kraftsim.cluster.fault_control_server`), whose port is in
`cluster.json`: one JSON object in, one out.
"""

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import structs

from kraftsim.cluster.directories import RunDirectory, is_locked, read_state
from kraftsim.lab.faults.field import Condition

LOOPBACK: Final = "127.0.0.1"
ANSWER_SECONDS: Final = 60.0
ALL_FAULTS: Final = "all"
"""In place of a number, to end all faults of requests."""


class NotPossible(ValueError):
    """The request cannot be carried out; one line that says what can be done instead."""


class FaultRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One verb for some targets: names of nodes, or, for 'cut' and 'slow', links in the syntax of
    `kraftsim.lab.faults.fault`; for 'inject' texts of `kraftsim.lab.faults.request_fault_text`, for
    'end-fault' numbers or ALL_FAULTS.
    """

    verb: str
    targets: tuple[str, ...] = ()
    condition: Condition = Condition()
    resets: bool = False
    """Of 'cut': reset the existing connections, but accept new ones."""
    settings: Mapping[str, str] = {}
    """Of 'restart': what the nodes have on top of their own properties from then on."""
    awaits_replicas: bool = False
    """Of 'restart': whether it returns when every replica is in sync."""
    secret: str = ""
    """That of `cluster.json`."""


class FaultDone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was done, a line each, or the reason why nothing was done."""

    lines: tuple[str, ...] = ()
    trouble: str | None = None


def ask(data: Path, order: FaultRequest) -> Sequence[str]:
    """Send a request to the cluster that runs on a data directory; return what it did.

    Raises NotPossible.
    """
    directory = RunDirectory(data.absolute())
    state = read_state(directory)
    if state is None or not is_locked(directory.root):
        raise NotPossible(
            f"no cluster runs on {data}; start one by: kraftsim up --detach --data {data}"
        )
    try:
        with socket.create_connection((LOOPBACK, state.door), timeout=ANSWER_SECONDS) as door:
            door.sendall(msgspec.json.encode(structs.replace(order, secret=state.secret)) + b"\n")
            answer = door.makefile("rb").readline()
        done = msgspec.json.decode(answer, type=FaultDone)
    except (OSError, msgspec.DecodeError) as gone:
        raise NotPossible(
            f"the cluster on {data} does not answer: it is going down, or came up only now"
        ) from gone
    if done.trouble is not None:
        raise NotPossible(done.trouble.replace("DATA", str(data)))
    return done.lines
