"""A client of any release as a process that executes commands, one a line: the same commands for
all libraries.

- `produce TOPIC PARTITIONS COUNT`: idempotent, acks=all; `plain` instead: without idempotence.
  Reply: `ok`.
- `transact TOPIC PARTITIONS ID`: three transactions of five records; the second is aborted.
  Reply: `ok`.
- `read TOPIC PARTITIONS COUNT`: committed records from the beginning.
  Reply: `ok PARTITION:VALUE ...`.
- `group TOPIC GROUP COUNT`: the same as a member of a group that commits its offsets.
  Reply: `ok PARTITION:VALUE ...`.
- `copy INPUT OUTPUT GROUP ID COUNT`: records and offsets in two transactions; the first is aborted.
  Reply: `ok`.
- `write TOPIC PARTITIONS PAUSE_MS`: idempotent, until the next command.
  Replies: `sent KEY PARTITION OFFSET`, `lost KEY PARTITION ERROR KIND`; last `ok COUNT`.
- `copying INPUT OUTPUT GROUP ID`: in transactions, until the next command.
  Replies: `copied COUNT`, `trouble ERROR KIND`; last `ok`.

With the additional word `by-name`, Java's `copying` sends only the group id, not the member. `stop`
ends the process. `failed ERROR words` replaces `ok` on an error, `lacks VERB` if the library has no
such function. The kind of an error is retriable, abortable or fatal, as reported by the library.
"""

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Empty, Queue
from types import TracebackType
from typing import NamedTuple

from tests.clients.versions.catalogue import Client

READY_SECONDS = 60.0
LACKS, FAILED, OK, READY = "lacks", "failed", "ok", "ready"
_ANSWERS = (OK, FAILED, LACKS, READY)
_END = ""


class Answer(NamedTuple):
    """The reply to a command: OK, FAILED or LACKS, its words, and for FAILED the name of the
    error.
    """

    kind: str
    words: str

    @property
    def error(self) -> str:
        """The name of the error."""
        return self.words.partition(" ")[0]


class Program:
    """One process. Use as a context manager. `on_line` is called with the lines before a reply."""

    def __init__(
        self,
        client: Client,
        bootstrap: str,
        name: str,
        *,
        patience_ms: int,
        log: Path,
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        self.client = client
        self._command = [*client.bring(), bootstrap, name, str(patience_ms)]
        self._log = log
        self._on_line = on_line
        self._answers: Queue[str] = Queue()

    def __enter__(self) -> "Program":
        self._errors = open(self._log, "ab")
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()
        ready = self.answer(READY_SECONDS)
        assert ready.kind == READY, (
            f"{self.client.name} does not start: {ready.words} {self.last_output()}"
        )
        self.release = ready.words.split()[-1]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()

    def send(self, *words: object) -> None:
        """Send one command."""
        assert self._process.stdin is not None, "it listens"
        self._process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self._process.stdin.flush()

    def answer(self, seconds: float) -> Answer:
        """Return its reply; a missing reply is the failure NoAnswer."""
        try:
            kind, _, words = self._answers.get(timeout=seconds).partition(" ")
        except Empty:
            return Answer(FAILED, f"NoAnswer within {seconds:g} s")
        return (
            Answer(kind, words) if kind != _END else Answer(FAILED, f"Ended {self.last_output()}")
        )

    def last_output(self) -> str:
        """Return its last error output."""
        return self._log.read_text(errors="replace")[-600:].replace("\n", " ")

    def _listen(self) -> None:
        assert self._process.stdout is not None, "it has a standard output"
        for line in self._process.stdout:
            text = line.rstrip("\n")
            if text.partition(" ")[0] in _ANSWERS:
                self._answers.put(text)
            elif self._on_line is not None:
                self._on_line(text)
        self._answers.put(_END)
