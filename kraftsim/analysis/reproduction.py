"""How to reproduce a violation: the replay command, the smallest run known, and where it first
differs from the sound run.

Only files that `kraftsim shrink`, `replay` and `diff` leave are read: `replay.json` and
`description.md` of the run or of RUN-small beside it, and `diff.json` in either. What is missing
is described by the command that makes it.
"""

import re
import shlex
from typing import Final, TypeVar

import msgspec

from kraftsim.analysis.places import Place, Where, place_of
from kraftsim.analysis.sentences import printable, sentence_of

REPLAY_FILE: Final = "replay.json"
DESCRIPTION_FILE: Final = "description.md"
DIFF_FILE: Final = "diff.json"
SMALL_SUFFIX: Final = "-small"
SOUND_SUFFIX: Final = "-sound"
FAULTS_MAX: Final = 12
SIMULATED: Final = "sim"
Value = int | str | bool
T = TypeVar("T")
_NUMBERED: Final = re.compile(r"^\d+\. (.+)$", re.MULTILINE)


class Reproduction(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a smaller run and of the sound one. `faults` are those of the run that
    `shrunk` names, `steps` the commands that are still to be run; `difference` are two sentences,
    of the violated run and of the sound one.
    """

    command: str = ""
    shrunk: str = ""
    faults: tuple[str, ...] = ()
    fault_count: int = 0
    difference: tuple[str, ...] = ()
    sound: str = ""
    steps: tuple[str, ...] = ()


class _Fault(msgspec.Struct):
    kind: str
    target: str = ""
    params: dict[str, object] = {}
    trigger: dict[str, object] = {}


class _Replay(msgspec.Struct):
    mode: str = ""
    bugs: tuple[str, ...] = ()
    faults: tuple[_Fault, ...] = ()


class _Event(msgspec.Struct):
    at_ns: int
    kind: str
    fields: dict[str, Value | None] = {}


class _Divergence(msgspec.Struct):
    node: str
    at_ns: int
    a: _Event | None = None
    b: _Event | None = None


class _Difference(msgspec.Struct):
    b: str = ""
    first: _Divergence | None = None


def find_reproduction(run: Where, command: str) -> Reproduction:
    """Return what the files of a run and of its shrunken run tell; a file that cannot be read is as
    good as missing.
    """
    run = place_of(run)
    small = run.parent / f"{run.name}{SMALL_SUFFIX}"
    is_small = (run / DESCRIPTION_FILE).is_file()
    shrunk = run if is_small else (small if (small / REPLAY_FILE).is_file() else None)
    replay = _read(run / REPLAY_FILE, _Replay)
    smallest = shrunk or run
    at_hand = _read(smallest / REPLAY_FILE, _Replay) or replay
    faults = () if at_hand is None else _faults(smallest, at_hand)
    difference = _read(smallest / DIFF_FILE, _Difference) or _read(run / DIFF_FILE, _Difference)
    steps = []
    if replay is not None and shrunk is None and replay.mode == SIMULATED:
        steps.append(f"kraftsim shrink {_quoted(run)} --out {_quoted(small)}")
    if at_hand is not None and difference is None:
        steps += _steps_to_sound(smallest, at_hand)
    return Reproduction(
        command=f"kraftsim replay {_quoted(smallest)}" if shrunk is not None else command,
        shrunk="" if shrunk is None else str(shrunk),
        faults=faults[:FAULTS_MAX],
        fault_count=len(faults),
        difference=() if difference is None else _sentences(difference),
        sound="" if difference is None else difference.b,
        steps=tuple(steps),
    )


def _steps_to_sound(run: Place, replay: _Replay) -> list[str]:
    """Return the commands that make the sound run and compare it: the same run without its bugs, or
    with the code before the change under test.
    """
    sound = run.parent / f"{run.name}{SOUND_SUFFIX}"
    without_bugs = " --without-bugs" if replay.bugs else ""
    return [
        f"kraftsim replay {_quoted(run)}{without_bugs} --out {_quoted(sound)}",
        f"kraftsim diff {_quoted(run)} {_quoted(sound)} --json {_quoted(run / DIFF_FILE)}",
    ]


def _read(path: Place, form: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read(), type=form)
    except (OSError, msgspec.DecodeError):
        return None


def _faults(run: Place, replay: _Replay) -> tuple[str, ...]:
    """Return the faults as sentences: those of the description of a shrunken run, else the data of
    the replay file.
    """
    try:
        described = _NUMBERED.findall((run / DESCRIPTION_FILE).read().decode())
    except (OSError, UnicodeDecodeError):
        described = []
    if len(described) == len(replay.faults):
        return tuple(described)
    return tuple(_fault(fault) for fault in replay.faults)


def _fault(fault: _Fault) -> str:
    target = f" of {fault.target}" if fault.target else ""
    trigger = ", ".join(
        f"{name} {value}" for name, value in fault.trigger.items() if value not in (None, "", {})
    )
    params = ", ".join(f"{name} {value}" for name, value in fault.params.items())
    return f"{fault.kind}{target}{f' ({params})' if params else ''}; trigger: {trigger or 'none'}"


def _sentences(difference: _Difference) -> tuple[str, ...]:
    first = difference.first
    if first is None:
        return ("no event differs",)
    return tuple(
        f"{which}: {_sentence(first, event)}"
        for which, event in (("violated", first.a), ("sound", first.b))
    )


def _sentence(first: _Divergence, event: _Event | None) -> str:
    if event is None:
        return f"the log of {printable(first.node)} ends here"
    fields = {name: value for name, value in event.fields.items() if value is not None}
    return f"{event.at_ns / 1e9:.6f} s  {sentence_of(first.node, event.kind, fields)}"


def _quoted(path: Place) -> str:
    return shlex.quote(str(path))
