"""Which requirements are meant: by number, by section, by chapter, by a pattern of these, or by a word of the sentence."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from kraftsim.conformance.requirement import CHAPTERS, SECTIONS, Requirement, Requirements


def sections() -> list[Requirements]:
    """Return all sections in the order in which they are judged."""
    return sorted(SECTIONS.all(), key=lambda section: (CHAPTERS.index(section.chapter), section.section))


def all_requirements(only: Iterable[str] = (), release: str | None = None) -> list[Requirement]:
    """Return the requirements in their order.

    With `only`, those that one of the patterns means (KeyError for a pattern that means none); with a `release` line, those that hold for it, where
    the empty one is the newest.
    """
    found = [requirement for section in sections() for requirement in section.entries]
    patterns = list(only)
    for pattern in patterns:
        if not any(is_meant(requirement, pattern) for requirement in found):
            raise KeyError(
                f"no requirement is meant by {pattern}: write a number (wire/3.2), a section (wire/3), a chapter ({', '.join(CHAPTERS)}), or words"
            )
    meant = [requirement for requirement in found if not patterns or any(is_meant(requirement, pattern) for pattern in patterns)]
    return [requirement for requirement in meant if release is None or requirement.holds_for(release)]


def is_meant(requirement: Requirement, pattern: str) -> bool:
    """Tell whether a pattern means a requirement: `wire`, `wire/3`, `wire/3.2`, `wire/*.1`, or a part of its sentence, in any case."""
    wanted = pattern.strip().rstrip("/").lower()
    names = (requirement.section.chapter, requirement.section.label, requirement.label)
    if wanted in names or any(fnmatchcase(name, wanted) for name in names):
        return True
    is_number = "/" in wanted and " " not in wanted
    return bool(wanted) and wanted not in CHAPTERS and not is_number and wanted in requirement.sentence.lower()
