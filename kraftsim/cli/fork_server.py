"""The process from which the nodes of a cluster are forked: `kraftsim.cluster.fork_server` starts
it.

It imports, makes tables and codecs, and forks. It has no thread and no event loop, reads no
property file, and has open only its two channels and the descriptors of its processes, which each
new process closes first. So nodes share code and constants, and nothing of each other.
"""

import ctypes
import gc
import importlib
import os
import select
import socket
import sys
from contextlib import suppress

import msgspec

from kraftsim.cluster.fork_server import ENDED, FORK, REHEARSE, REQUEST_BYTES_MAX
from kraftsim.cluster.spec import ClusterSpec, Role
from kraftsim.extensions import VARIABLE as EXTENSIONS_VARIABLE
from kraftsim.world.human_log import import_structlog

USED_BY_NODES = (
    "encodings.idna",
    "kraftsim.cli.main",
    "kraftsim.cli.node",
    "kraftsim.cli.properties",
    "kraftsim.cluster.directories",
    "kraftsim.cluster.launch",
    "kraftsim.cluster.zookeeper_node",
    "kraftsim.server.operator_log",
    "kraftsim.server.settings_in_effect",
    "kraftsim.server.tasks",
    "kraftsim.world.real.runner",
)
"""What `kraftsim node` imports on the way."""
FIRST_DESCRIPTOR = 3
"""Those below are standard input, output and error."""
FIRST_ARGUMENT_FIELD = 48
"""The field of /proc/self/stat with the address of the command line; the next one has its end.

Source: proc_pid_stat(5).
"""


class NodeParent:
    """Serves the requests of one cluster until it closes its end of the control channel."""

    def __init__(self, control: socket.socket, statuses: int) -> None:
        self._control = control
        self._statuses = statuses
        self._processes: dict[int, int] = {}
        """Descriptor of a process that runs -> its id."""
        self._waiting = select.poll()
        self._waiting.register(control, select.POLLIN)

    def serve(self) -> list[str] | None:
        """Return None at the end, and in each new process the words of its command."""
        while True:
            for descriptor, _ in self._waiting.poll():
                if descriptor in self._processes:
                    self._report(descriptor)
                    continue
                message, files, _, _ = socket.recv_fds(self._control, REQUEST_BYTES_MAX, 1)
                if not message:
                    return None
                verb, *words = message.decode().split("\0")
                import_for_nodes()
                if verb == REHEARSE:
                    _rehearse(*words)
                    self._control.send(b"ready")
                else:
                    assert verb == FORK, f"{verb} is no request"
                    if self._fork(files[0]):
                        return words

    def _fork(self, output: int) -> bool:
        """Fork; return whether this is the new process."""
        assert len(os.listdir("/proc/self/task")) == 1, "a fork would copy one thread of several"
        gc.freeze()  # the collector writes to what it visits, and each node would get a copy
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.dup2(output, 1)
            os.dup2(output, 2)
            self._control.detach()
            os.closerange(FIRST_DESCRIPTOR, max(*self._processes, output, self._statuses) + 1)
            return True
        os.close(output)
        process = os.pidfd_open(pid)
        socket.send_fds(self._control, [b"%d" % pid], [process])
        self._processes[process] = pid
        self._waiting.register(process, select.POLLIN)
        return False

    def _report(self, descriptor: int) -> None:
        """Reap a process that has ended."""
        self._waiting.unregister(descriptor)
        os.close(descriptor)
        pid, status = os.waitpid(self._processes.pop(descriptor), 0)
        os.write(self._statuses, ENDED.pack(pid, os.waitstatus_to_exitcode(status)))


def import_for_nodes() -> None:
    """Import what every node uses."""
    for module in USED_BY_NODES:
        importlib.import_module(module)
    import_structlog()


def _rehearse(role: str, spec: str) -> None:
    from kraftsim.cluster.rehearsal import rehearse
    from kraftsim.server.config_keys import ConfigError

    if not os.environ.get(EXTENSIONS_VARIABLE):  # an extension may open what it likes
        with suppress(ConfigError, KeyError):  # of a cluster that needs settings to be valid
            rehearse(msgspec.json.decode(spec, type=ClusterSpec), Role(role))


def show_command(words: list[str]) -> None:
    """Overwrite the command line that `ps` shows with that of the node, as far as it fits."""
    with open("/proc/self/stat", "rb") as status, open("/proc/self/cmdline", "rb") as shown:
        fields, present = status.read().split(), shown.read()
    start, end = map(int, fields[FIRST_ARGUMENT_FIELD - 1 : FIRST_ARGUMENT_FIELD + 1])
    size = end - start
    if start and ctypes.string_at(start, size) == present:
        command = "\0".join((sys.executable, "-m", "kraftsim", *words)).encode()
        ctypes.memmove(start, command[: size - 1].ljust(size, b"\0"), size)


def main() -> None:
    """Serve; each new process becomes its command."""
    control, statuses = map(int, sys.argv[1:3])
    gc.disable()
    words = NodeParent(socket.socket(fileno=control), statuses).serve()
    if words is None:
        return
    gc.enable()
    show_command(words)
    sys.argv = [sys.argv[0], *words]
    from kraftsim.cli.main import main as run_command

    run_command()


if __name__ == "__main__":
    main()
