"""Own client programs that run beside a scenario, as processes: `kraftsim scenario NAME --mode
processes --client 'python app.py'`.

A program gets the bootstrap address in its environment, writes to a file in the directory of the
run, and may be started again whenever it ends. When the scenario is over it gets SIGTERM, and is
killed if that does not end it: its exit code counts only if it ended on its own.
"""

import asyncio
import os
import shlex
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

BOOTSTRAP_VARIABLES: Final = ("KAFKA_BOOTSTRAP_SERVERS", "KRAFTSIM_BOOTSTRAP")
NAME_VARIABLE: Final = "KRAFTSIM_CLIENT"
DIRECTORY: Final = "clients"
PAUSE_SECONDS: Final = 1.0
"""Between the end of a program and its next start, as supervisors pause."""
STOP_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 0.05


class ClientEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How one program fared: `exit_codes` of the times that it ended on its own, in order; `log` is
    the path of its output in the run's directory.
    """

    name: str
    command: str
    log: str
    exit_codes: tuple[int, ...]
    was_killed: bool
    """Whether it did not end within ten seconds of SIGTERM."""

    @property
    def has_failed(self) -> bool:
        """Whether it ended with an error at any time."""
        return any(self.exit_codes)

    def line(self) -> str:
        """Return one line for people."""
        codes = ", ".join(map(str, self.exit_codes))
        ended = f"ended with {codes}" if codes else "ran until the end"
        killed = "; it ignored SIGTERM and was killed" if self.was_killed else ""
        return f"  {self.name}: {ended}{killed} ({self.command}; output in {self.log})"


class ClientPrograms:
    """The programs of one run: `async with` starts them, and stops them at its end."""

    def __init__(
        self, commands: Sequence[str], *, bootstrap: str, root: Path, restarts: bool = False
    ) -> None:
        self._commands = [(f"client-{1 + number}", each) for number, each in enumerate(commands)]
        self._bootstrap = bootstrap
        self._root = root
        self._restarts = restarts
        self._codes: dict[str, list[int]] = {name: [] for name, _ in self._commands}
        self._killed: set[str] = set()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._watching: asyncio.Task[None] | None = None

    @property
    def ends(self) -> tuple[ClientEnd, ...]:
        """How they fared, once they were stopped."""
        return tuple(
            ClientEnd(
                name=name,
                command=command,
                log=f"{DIRECTORY}/{name}.log",
                exit_codes=tuple(self._codes[name]),
                was_killed=name in self._killed,
            )
            for name, command in self._commands
        )

    async def __aenter__(self) -> "ClientPrograms":
        """Start them. Raises ValueError for a command that cannot be started."""
        if self._commands:
            (self._root / DIRECTORY).mkdir(exist_ok=True)
            for name, command in self._commands:
                self._start(name, command)
            self._watching = asyncio.ensure_future(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop them."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        for name, process in list(self._processes.items()):
            if not self._note_end(name, process):
                _signal(process, signal.SIGTERM)
        await self._wait_for_ends()
        for name, process in self._processes.items():
            if process.poll() is None:
                self._killed.add(name)
                _signal(process, signal.SIGKILL)
            process.wait()
        self._processes.clear()

    def _start(self, name: str, command: str) -> None:
        with open(self._root / DIRECTORY / f"{name}.log", "ab") as output:
            try:
                self._processes[name] = subprocess.Popen(
                    shlex.split(command),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env={
                        **os.environ,
                        **dict.fromkeys(BOOTSTRAP_VARIABLES, self._bootstrap),
                        NAME_VARIABLE: name,
                    },
                    start_new_session=True,
                )
            except (OSError, ValueError) as failure:
                raise ValueError(f"--client {command!r} cannot be started: {failure}") from failure

    async def _watch(self) -> None:
        """Note the ends of programs, and start them again if that is wanted."""
        commands = dict(self._commands)
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for name, process in list(self._processes.items()):
                if self._note_end(name, process) and self._restarts:
                    await asyncio.sleep(PAUSE_SECONDS)
                    self._start(name, commands[name])

    def _note_end(self, name: str, process: "subprocess.Popen[bytes]") -> bool:
        """Note the exit code of a program that has ended; return whether it has just now."""
        if process.poll() is None:
            return False
        self._codes[name].append(process.returncode)
        del self._processes[name]
        return True

    async def _wait_for_ends(self) -> None:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + STOP_SECONDS
        while loop.time() < give_up_at and any(
            process.poll() is None for process in self._processes.values()
        ):
            await asyncio.sleep(LOOK_SECONDS)


def _signal(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    """Signal a program and what it started: it has a session of its own."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
