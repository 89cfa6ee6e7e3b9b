"""Nodes that are forked from one process that has imported kraftsim, instead of each importing it.

The fork server (`kraftsim.cli.fork_server`) imports what nodes need and opens nothing. The nodes
share its memory until they write to it, and start without imports. A cluster has one of its own, so
that its nodes have the environment, the limits and the namespaces of the process that runs the
cluster. It is the parent of the nodes: it reaps them, and reports how they ended. If it ends, its
nodes go on, and only their exit statuses are unknown.

There are two channels. On the first, requests are words separated by NUL: `rehearse ROLE SPEC` is
answered when everything is imported that a node of this role needs, and `fork WORD...`, with the
file of the output, with the id of a new process that runs `kraftsim WORD...`, and a descriptor of
it. The second has a record for each process that has ended: its id, and its exit status.
"""

import asyncio
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from math import inf
from typing import Final, Protocol

import msgspec

from kraftsim.cluster.spec import ClusterSpec, Role
from kraftsim.world.real.world import RealClock

MODULE: Final = "kraftsim.cli.fork_server"
REHEARSE, FORK = "rehearse", "fork"
ENDED: Final = struct.Struct("=qi")
"""A record of the second channel: the process id, and the status as `subprocess` gives it."""
REQUEST_BYTES_MAX: Final = 64 * 1024
ANSWER_SECONDS: Final = 30.0
LOOK_MS: Final = 1000
"""Another thread may have taken what a wait is for."""
UNKNOWN_STATUS: Final = 255
"""The status of a process whose fork server ended first, as in the standard library.

Source: multiprocessing.popen_forkserver.
"""


class RunningProcess(Protocol):
    """A process as `subprocess.Popen` has it."""

    @property
    def pid(self) -> int:
        """The process id."""
        ...

    @property
    def returncode(self) -> int | None:
        """The exit status, or the negative number of the signal that ended it; None before `poll`
        or `wait` has found that it ended.
        """
        ...

    def poll(self) -> int | None:
        """Return the status if it has ended, else None."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended, and return the status. Raises subprocess.TimeoutExpired."""
        ...

    def send_signal(self, sig: int) -> None:
        """Send a signal, if it has not ended."""
        ...

    def kill(self) -> None:
        """Send SIGKILL, if it has not ended."""
        ...


@cache
def can_fork() -> bool:
    """Return whether this system refers to processes by descriptors: Linux since 5.3."""
    if sys.platform != "linux":
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


class ForkServer:
    """The process from which the nodes of a cluster are forked.

    `title` is an argument that does nothing: it is shown by `ps`, and leaves a node the room for
    its own command line there.
    """

    def __init__(self, environment: Mapping[str, str], title: str) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._statuses, reporting = os.pipe()
        self._control = ours
        self._forked: dict[int, ForkedProcess] = {}
        self._is_open = True
        os.set_blocking(self._statuses, False)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE, str(theirs.fileno()), str(reporting), title],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=environment,
                pass_fds=(theirs.fileno(), reporting),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            os.close(self._statuses)
            raise
        finally:
            theirs.close()
            os.close(reporting)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Return whether it can fork."""
        return self._is_open and self._process.poll() is None

    async def prepare(self, spec: ClusterSpec, role: Role) -> None:
        """Return when it is ready to fork nodes of a role, or has ended.

        It gets no settings of the cluster: they may hold passwords.
        """
        bare = replace(spec, settings={}, node_settings={}, bugs=())
        words = (REHEARSE.encode(), role.encode(), msgspec.json.encode(bare))
        loop = asyncio.get_running_loop()
        try:
            self._control.setblocking(False)
            async with asyncio.timeout(ANSWER_SECONDS):
                await loop.sock_sendall(self._control, b"\0".join(words))
                await loop.sock_recv(self._control, REQUEST_BYTES_MAX)
        except OSError:  # it has ended, or, a TimeoutError, will answer when nothing is asked
            self.close()

    def fork(self, words: Sequence[str], output: int) -> "ForkedProcess":
        """Return a new process that runs the command `kraftsim` with these words; its output goes
        to an open file.

        Raises OSError if the server has ended or does not answer.
        """
        self._control.settimeout(ANSWER_SECONDS)
        request = b"\0".join(word.encode() for word in (FORK, *words))
        socket.send_fds(self._control, [request], [output])
        answer, descriptors, _, _ = socket.recv_fds(
            self._control, REQUEST_BYTES_MAX, 1, socket.MSG_CMSG_CLOEXEC
        )
        if not answer:
            raise ConnectionResetError("the fork server has ended")
        process = ForkedProcess(self, int(answer), descriptors[0])
        self._forked[process.pid] = process
        return process

    def collect(self) -> bool:
        """Give processes that have ended their status; return whether more can follow."""
        while self._is_open:
            try:
                record = os.read(self._statuses, ENDED.size)
            except BlockingIOError:
                return True
            if not record:
                self._is_open = False
                os.close(self._statuses)
                self._control.close()
                break
            pid, status = ENDED.unpack(record)
            process = self._forked.pop(pid, None)
            if process is not None:  # else `fork` gave up waiting for it
                process.end(status)
        return False

    def wait_for_status(self, descriptor: int, wait_ms: float) -> None:
        """Wait until a process ends, or, once the server has ended, that of a descriptor."""
        is_readable(self._statuses if self._is_open else descriptor, wait_ms)

    def close(self) -> None:
        """End it; its nodes go on."""
        self._process.kill()  # it has nothing to tidy up
        self._process.wait()
        self.collect()


class ForkedProcess:
    """A process that a fork server started.

    Signals go to the descriptor: its id may belong to another process once the server has reaped
    it.
    """

    def __init__(self, server: ForkServer, pid: int, descriptor: int) -> None:
        self._server = server
        self._descriptor = descriptor
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the status if it has ended, else None."""
        if (
            self.returncode is None
            and not self._server.collect()
            and self.returncode is None
            and is_readable(self._descriptor, wait_ms=0)
        ):
            self.end(UNKNOWN_STATUS)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended, and return the status. Raises subprocess.TimeoutExpired."""
        clock = RealClock(0)
        give_up_at_ms = inf if timeout is None else clock.monotonic_ms() + timeout * 1000
        while (status := self.poll()) is None:
            left_ms = give_up_at_ms - clock.monotonic_ms()
            if timeout is not None and left_ms <= 0:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            self._server.wait_for_status(self._descriptor, min(left_ms, LOOK_MS))
        return status

    def send_signal(self, sig: int) -> None:
        """Send a signal, if it has not ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, and its status is on the way
                signal.pidfd_send_signal(self._descriptor, sig)

    def kill(self) -> None:
        """Send SIGKILL, if it has not ended."""
        self.send_signal(signal.SIGKILL)

    def end(self, status: int) -> None:
        """It has ended with a status."""
        self.returncode = status
        os.close(self._descriptor)


def is_readable(descriptor: int, wait_ms: float) -> bool:
    """Wait for that, and return whether a pipe has data or no writer, or a process has ended."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(wait_ms))
