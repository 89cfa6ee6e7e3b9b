"""The command loop of the client programs in Python: one line per command and reply, as described
in tests/clients/versions/program.py.

It and the programs in this directory run with the client library on their path, so they import
nothing of kraftsim.
"""

import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from queue import Empty, Queue

STOP = "stop"
EACH = 5
"""Records of one transaction of `transact`."""
TRANSACTIONS = ("first-", "aborted-", "third-")
_COMMANDS: "Queue[str]" = Queue()
_SAYING = threading.Lock()


class Failed(Exception):
    """An error of a client; its name and more words."""

    def __init__(self, name: str, words: str = "") -> None:
        super().__init__(f"{name} {words}")
        self.name = name


def say(*words: object) -> None:
    """Write one line."""
    with _SAYING:
        print(*words, flush=True)


def is_stop_requested() -> bool:
    """Return whether a continuous command is to end."""
    try:
        _COMMANDS.get_nowait()
    except Empty:
        return False
    return True


def serve(library: str, version: str, verbs: Mapping[str, Callable[..., object]]) -> None:
    """Execute commands until `stop`; `verbs` maps names to functions.

    A command that the library does not support is answered with `lacks`.
    """
    threading.Thread(target=_listen, daemon=True).start()
    say("ready", library, version)
    while (line := _COMMANDS.get()) != STOP:
        verb, *words = line.split(" ")
        if verb not in verbs:
            say("lacks", verb)
            continue
        try:
            say("ok", verbs[verb](*words) or "")
        except Exception as trouble:
            traceback.print_exc()
            name = trouble.name if isinstance(trouble, Failed) else type(trouble).__name__
            say("failed", name, str(trouble).replace("\n", " "))


def _listen() -> None:
    for line in sys.stdin:
        _COMMANDS.put(line.rstrip("\n"))
    _COMMANDS.put(STOP)
