"""Defines a mutant: a replaced text in one function of one module, and what should fail.

A patch contains the replaced text, not a line number: code may move, and a patch without its text
raises an error instead of testing nothing.
"""

from dataclasses import dataclass

BY_HAND = "by hand"


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutant:
    """One mutant.

    `old` occurs exactly once in the source of `function` (its qualified name), and is replaced by
    `new`.
    """

    name: str
    core: str
    module: str
    function: str
    old: str
    new: str
    breaks: str
    """The expected failure, in a few words."""
    made: str = BY_HAND
    """Its origin: handwritten, or the rule of the generator."""
    scenarios: tuple[str, ...] = ()
    """The scenarios that can detect it; empty: those of its core."""
    release: str = ""
    """The release of the nodes, if the default release does not have this rule."""
    equivalent: str = ""
    """Why no scenario can distinguish it from the original, if so.

    (A unit test of the core may.)
    """

    @property
    def place(self) -> str:
        """Its location, for display."""
        return f"{self.module.removeprefix('kraftsim.')}.{self.function}"

    @property
    def change(self) -> str:
        """The change, on one line."""
        return f"{_on_one_line(self.old)} → {_on_one_line(self.new)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Core:
    """The handwritten mutants of one core."""

    mutants: tuple[Mutant, ...]


class Mutator:
    """Makes the mutants of one module."""

    def __init__(self, core: str, module: str) -> None:
        self._core = core
        self._module = module

    def mutant(
        self,
        name: str,
        function: str,
        old: str,
        new: str,
        breaks: str,
        *,
        scenarios: tuple[str, ...] = (),
        release: str = "",
        equivalent: str = "",
    ) -> Mutant:
        """Return one mutant."""
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
