"""How a program of a client in Python hears what to do and answers: one line for each, as tests/clients/versions/program.py tells.

It and the programs beside it run under whatever library was put on the path for them, so they import nothing of the house.
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
_TOLD: "Queue[str]" = Queue()
_SAYING = threading.Lock()


class Failed(Exception):
    """What a client was told; the name of the error and more words."""

    def __init__(self, name: str, words: str = "") -> None:
        super().__init__(f"{name} {words}")
        self.name = name


def say(*words: object) -> None:
    """Say one line."""
    with _SAYING:
        print(*words, flush=True)


def is_told_to_stop() -> bool:
    """Tell whether a work that lasts shall end."""
    try:
        _TOLD.get_nowait()
    except Empty:
        return False
    return True


def serve(library: str, version: str, verbs: Mapping[str, Callable[..., object]]) -> None:
    """Do what lines say until one says stop; `verbs` takes words. A verb that the library has nothing for is lacking."""
    threading.Thread(target=_listen, daemon=True).start()
    say("ready", library, version)
    while (line := _TOLD.get()) != STOP:
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
        _TOLD.put(line.rstrip("\n"))
    _TOLD.put(STOP)
