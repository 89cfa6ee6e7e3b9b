"""What a mutant is: one function of one module with some of its text exchanged, and what ought to break.

A patch names the text it exchanges, not a line: code may move, and a patch whose text is gone fails loudly instead of hunting nothing.
"""

from dataclasses import dataclass

BY_HAND = "by hand"


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutant:
    """One wrong rule. `old` stands exactly once in the source of `function` (its qualified name), and `new` takes its place."""

    name: str
    core: str
    module: str
    function: str
    old: str
    new: str
    breaks: str
    """What ought to go wrong, in a few words."""
    made: str = BY_HAND
    """Who thought of it: a person, or the rule of the generator."""
    scenarios: tuple[str, ...] = ()
    """The stories that can reach it; none: those of its core."""
    release: str = ""
    """The release of the nodes, where only another than the default one has this rule."""
    equivalent: str = ""
    """Why no story can tell it from the right rule, where that is so. (A test that looks inside a core may well.)"""

    @property
    def place(self) -> str:
        """Where it is, as people name it."""
        return f"{self.module.removeprefix('kraftsim.')}.{self.function}"

    @property
    def change(self) -> str:
        """What was changed, on one line."""
        return f"{_on_one_line(self.old)} → {_on_one_line(self.new)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Core:
    """The mutants that people thought of for one core."""

    mutants: tuple[Mutant, ...]


class Workshop:
    """Makes the mutants of one module."""

    def __init__(self, core: str, module: str) -> None:
        self._core = core
        self._module = module

    def mutant(
        self, name: str, function: str, old: str, new: str, breaks: str, *, scenarios: tuple[str, ...] = (), release: str = "", equivalent: str = ""
    ) -> Mutant:
        """Return one."""
        return Mutant(
            name=name,
            core=self._core,
            module=self._module,
            function=function,
            old=old,
            new=new,
            breaks=breaks,
            scenarios=scenarios,
            release=release,
            equivalent=equivalent,
        )


def _on_one_line(text: str) -> str:
    return " ".join(text.split())
