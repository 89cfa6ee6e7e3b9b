"""Runs code from outside the project so that it repeats byte for byte: in a process that starts
pinned, and in a fresh fork of it for each run.

A library may depend on the hash of strings, on addresses, on a C extension that reads the clock,
and on its own counters: the second producer of a process gets another client id than the first one.
So a runner process starts with a fixed hash seed and fixed addresses, imports the code once, and
forks for each run. Which process asked for the run makes no difference: `kraftsim scenario`, a
worker of `kraftsim sweep`, `kraftsim shrink` and pytest get the same bytes for the same seed.

`IsolatedRunner` starts the process, which runs `serve`.
"""

import atexit
import faulthandler
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final, NoReturn

import msgspec

from kraftsim.cluster.scenario import REFERENCE_SIGN, Mode, scenario
from kraftsim.extensions import is_path, load, loadable
from kraftsim.lab.explore.blocking import Blocked, steps_of_loop
from kraftsim.lab.explore.request import RunEnvironment, RunRequest
from kraftsim.lab.faults.fault import Fault
from kraftsim.world.simulated.launcher import relaunch_pinned

CONSOLE_FILE: Final = "console.log"
"""In the directory of a run: what its code printed and logged."""
BLOCKED_SECONDS: float = 20
"""Code that lets no callback end for so long, in real time, blocks the event loop."""
SIZE_BYTES: Final = 8
COMMAND: Final = ("-c", f"from {__name__} import serve; serve()")
INSIDE: Final = "KRAFTSIM_ISOLATED"
"""Environment variable of a runner process."""
TAIL_LINES: Final = 12
FATAL: Final = "Fatal Python error"
"""The first line that faulthandler writes."""


class RunnerFailed(RuntimeError):
    """A run ended its process; the message has the end of what it printed."""


class RequestData(msgspec.Struct, frozen=True, kw_only=True):
    """A RunRequest as data; the scenario is a reference."""

    scenario: str
    mode: str
    seed: int
    release: str
    bugs: tuple[str, ...]
    settings: Mapping[str, str]
    faults: tuple[Fault, ...] | None
    workload: Mapping[str, int]
    controllers: int | None
    brokers: int | None
    surroundings: RunEnvironment | None
    injected: tuple[str, ...] = ()

    def request(self) -> RunRequest:
        """Return it with the scenario loaded. Raises as `scenario` and `RunRequest` do."""
        return RunRequest(
            scenario=scenario(self.scenario),
            mode=Mode(self.mode),
            seed=self.seed,
            release=self.release,
            bugs=self.bugs,
            settings=self.settings,
            faults=self.faults,
            workload=self.workload,
            controllers=self.controllers,
            brokers=self.brokers,
            surroundings=self.surroundings,
            injected=self.injected,
        )


def as_data(request: RunRequest) -> RequestData:
    """Return a request as data."""
    return RequestData(
        scenario=request.scenario.reference,
        mode=request.mode.value,
        seed=request.seed,
        release=request.release,
        bugs=request.bugs,
        settings=dict(request.settings),
        faults=request.faults,
        workload=dict(request.workload),
        controllers=request.controllers,
        brokers=request.brokers,
        surroundings=request.surroundings,
        injected=request.injected,
    )


class IsolatedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A function of the project to call with a request and more data, both JSON.

    `task` is MODULE:FUNCTION; `path` and `directory` are sys.path and the current directory of the
    caller; `console` is the directory that gets console.log, if it exists afterwards.
    """

    task: str
    request: RequestData
    data: msgspec.Raw
    path: tuple[str, ...]
    directory: str
    console: str | None
    extensions: tuple[str, ...]


class IsolatedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a call returned, as JSON, and the CPU seconds that it took; or why it failed, in one
    line, and the name of the exception that the caller should see.
    """

    content: msgspec.Raw = msgspec.Raw(b"null")
    cpu_seconds: float = 0.0
    error: str = ""
    error_type: str = ""


# --------------------------------------------------------------------------------------------------
# The caller's side


Code = tuple[str, ...]
_is_inside = False
_idle: list["IsolatedRunner"] = []
_lock = threading.Lock()
_spent_seconds = 0.0


def needs_isolation(request: RunRequest) -> bool:
    """Return whether a request runs code from outside, and this process is none that may."""
    return bool(request.scenario.reference) and request.mode is Mode.SIM and not _is_inside


def call(task: str, request: RunRequest, data: bytes, *, directory: str | None = None) -> bytes:
    """Call a function of the project, MODULE:FUNCTION, with a request and with data (JSON), in a
    process of its own, and return what it returns (JSON). What its code prints goes to console.log
    in `directory`, if that exists afterwards.

    Raises the ValueError, KeyError, OSError or RuntimeError of the function, and RunnerFailed if
    its process ends.
    """
    return bytes(
        _answer(
            IsolatedCall(
                task=task,
                request=as_data(request),
                data=msgspec.Raw(data),
                path=tuple(sys.path),
                directory=os.getcwd(),
                console=directory,
                extensions=loadable(),
            )
        ).content
    )


def cpu_seconds() -> float:
    """Return the CPU seconds that all runs of this process have taken in their own processes."""
    return _spent_seconds


def _answer(call: IsolatedCall) -> IsolatedAnswer:
    """Let an idle runner with the code of the call answer it, or else a new one."""
    global _spent_seconds
    runner = _runner_with(code_of(call))
    try:
        answer = runner.answer(call)
    except BaseException:
        runner.close()
        raise
    with _lock:
        _idle.append(runner)
        _spent_seconds += answer.cpu_seconds
    if answer.error:
        raise ERRORS.get(answer.error_type, RunnerFailed)(answer.error)
    return answer


def _runner_with(code: Code) -> "IsolatedRunner":
    """Return an idle runner with that code, or a new one, which takes the place of an idle one."""
    with _lock:
        same = next((runner for runner in _idle if runner.code == code), None)
        other = _idle[0] if _idle and same is None else None
        for runner in (same, other):
            if runner is not None:
                _idle.remove(runner)
    if other is not None:
        other.close()
    return same or IsolatedRunner(code)


def code_of(call: IsolatedCall) -> Code:
    """Return what a runner has imported after a call: extensions and a file, with their times of
    change. Another set needs another process: names of entries may clash, and files change.
    """
    file = call.request.scenario.partition(REFERENCE_SIGN)[0]
    files = [Path(name) for name in (*call.extensions, file) if is_path(name)]
    return (
        *call.extensions,
        *(f"{each.resolve()} {each.stat().st_mtime_ns}" for each in files if each.is_file()),
    )


ERRORS: Final[Mapping[str, type[Exception]]] = {
    "ValueError": ValueError,
    "KeyError": KeyError,
    "FileExistsError": FileExistsError,
    "OSError": OSError,
    "RuntimeError": RuntimeError,
}


class IsolatedRunner:
    """A runner process, which has or will have imported `code`."""

    def __init__(self, code: Code) -> None:
        self.code = code
        if INSIDE in os.environ:
            raise RunnerFailed("code from outside must not start simulations itself")
        path = os.pathsep.join(filter(None, sys.path))
        self._process = subprocess.Popen(
            [sys.executable, *COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, INSIDE: "1", "PYTHONPATH": path},
        )

    def answer(self, call: IsolatedCall) -> IsolatedAnswer:
        """Send a call and wait for its answer. Raises RunnerFailed if the process ended."""
        into, out_of = self._process.stdin, self._process.stdout
        assert into is not None and out_of is not None, "both are pipes"
        try:
            _write(into, msgspec.json.encode(call))
            data = _read(out_of)
        except OSError:
            data = None
        if data is None:
            raise RunnerFailed(
                f"the process that runs code from outside ended with exit code "
                f"{self._process.wait()}"
            )
        return msgspec.json.decode(data, type=IsolatedAnswer)

    def close(self) -> None:
        """End the process."""
        for end in (self._process.stdin, self._process.stdout):
            if end is not None:
                with suppress(OSError):
                    end.close()
        self._process.kill()
        self._process.wait()


@atexit.register
def close_idle_runners() -> None:
    """End the runner processes that wait for a call."""
    with _lock:
        runners = _idle[:]
        _idle.clear()
    for runner in runners:
        runner.close()


def _forget_runners() -> None:
    """A fork must not use the runners of its parent."""
    global _lock
    _lock = threading.Lock()
    _idle.clear()


os.register_at_fork(after_in_child=_forget_runners)


def _write(stream: IO[bytes], data: bytes) -> None:
    stream.write(len(data).to_bytes(SIZE_BYTES, "big") + data)
    stream.flush()


def _read(stream: IO[bytes]) -> bytes | None:
    """Return the next message; None at the end."""
    size = stream.read(SIZE_BYTES)
    if len(size) < SIZE_BYTES:
        return None
    return stream.read(int.from_bytes(size, "big"))


# --------------------------------------------------------------------------------------------------
# The runner's side


def serve() -> None:
    """IsolatedAnswer calls until the other end is closed."""
    global _is_inside
    _is_inside = True
    relaunch_pinned(COMMAND)
    import kraftsim.lab.explore.virtual  # noqa: F401  (forks share what is imported before them)

    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    while (data := _read(sys.stdin.buffer)) is not None:
        call = msgspec.json.decode(data, type=IsolatedCall)
        _write(answers, msgspec.json.encode(_answer_in_fork(call)))


def _answer_in_fork(call: IsolatedCall) -> IsolatedAnswer:
    sys.path[:] = call.path
    os.chdir(call.directory)
    with tempfile.TemporaryDirectory(prefix="kraftsim-") as temporary:
        console, answered = Path(temporary) / CONSOLE_FILE, Path(temporary) / "answer"
        try:
            with _console(console):  # once, so that forks need not import them
                for extension in call.extensions:
                    load(extension)
                scenario(call.request.scenario)
        except Exception as error:
            return _refused(error)
        child = os.fork()
        if child == 0:
            _carry_out(call, console, answered)
        _, status = os.waitpid(child, 0)
        if call.console is not None and Path(call.console).is_dir():
            Path(call.console, CONSOLE_FILE).write_bytes(console.read_bytes())
        if answered.exists():
            return msgspec.json.decode(answered.read_bytes(), type=IsolatedAnswer)
        code = os.waitstatus_to_exitcode(status)
        last = _last_words(console.read_text(errors="replace").splitlines())
        return IsolatedAnswer(
            error="\n".join((f"the run ended its process (exit code {code})", *last))
        )


def _last_words(lines: list[str]) -> list[str]:
    """Return the last lines, or those around the report of a fatal error."""
    fatal = next((place for place, line in enumerate(lines) if FATAL in line), None)
    return lines[-TAIL_LINES:] if fatal is None else lines[max(0, fatal - 4) : fatal + 8]


def _carry_out(call: IsolatedCall, console: Path, answered: Path) -> NoReturn:
    """Run a call in this fork, write its answer to a file, and end the fork."""
    code = 1
    try:
        with _console(console):
            faulthandler.enable()
            watch_for_blocking()
            answer = _run(call)
        answered.write_bytes(msgspec.json.encode(answer))
        code = 0
    finally:
        os._exit(code)


def _run(call: IsolatedCall) -> IsolatedAnswer:
    module, _, name = call.task.partition(":")
    function: Callable[[RunRequest, bytes], bytes] = getattr(importlib.import_module(module), name)
    try:
        content = function(call.request.request(), bytes(call.data))
    except Exception as error:
        traceback.print_exc()
        return _refused(error)
    times = os.times()
    return IsolatedAnswer(content=msgspec.Raw(content), cpu_seconds=times.user + times.system)


def _refused(error: Exception) -> IsolatedAnswer:
    name = next((each.__name__ for each in type(error).__mro__ if each.__name__ in ERRORS), "")
    message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return IsolatedAnswer(error=message or type(error).__name__, error_type=name)


@contextmanager
def _console(file: Path) -> Iterator[None]:
    """Send standard output and standard error to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [(number, os.dup(number)) for number in (1, 2)]
    target = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number, _ in saved:
        os.dup2(target, number)
    os.close(target)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, copy in saved:
            os.dup2(copy, number)
            os.close(copy)


def watch_for_blocking() -> None:
    """Raise Blocked in code that lets no callback end for a while."""
    seen = -1

    def look(number: int, frame: object) -> None:
        nonlocal seen
        steps = steps_of_loop()
        if steps == seen != -1:
            raise Blocked(
                f"no callback ended within {BLOCKED_SECONDS} s of real time: the code blocks the "
                "event loop"
            )
        seen = steps

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, BLOCKED_SECONDS, BLOCKED_SECONDS)
