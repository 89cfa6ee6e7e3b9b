"""Selects requirements: by number, by section, by chapter, by a pattern of these, or by a part of
the sentence.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from kraftsim.conformance.requirement import CHAPTERS, SECTIONS, Requirement, Requirements


def sections() -> list[Requirements]:
    """Return all sections in the order of the checks."""
    return sorted(
        SECTIONS.all(), key=lambda section: (CHAPTERS.index(section.chapter), section.section)
    )


def all_requirements(only: Iterable[str] = (), release: str | None = None) -> list[Requirement]:
    """Return the requirements in their order.

    With `only`, those that match one of the patterns (KeyError for a pattern without a match); with
    a `release` line, those that apply to it, where the empty one is the newest.
    """
    found = [requirement for section in sections() for requirement in section.entries]
    patterns = list(only)
    for pattern in patterns:
        if not any(is_meant(requirement, pattern) for requirement in found):
            raise KeyError(
                f"no requirement matches {pattern}: write a number (wire/3.2), a section "
                f"(wire/3), a chapter ({', '.join(CHAPTERS)}), or words"
            )
    meant = [
        requirement
        for requirement in found
        if not patterns or any(is_meant(requirement, pattern) for pattern in patterns)
    ]
    return [
        requirement for requirement in meant if release is None or requirement.holds_for(release)
    ]


def is_meant(requirement: Requirement, pattern: str) -> bool:
    """Return whether a pattern matches a requirement: `wire`, `wire/3`, `wire/3.2`, `wire/*.1`, or
    a part of its sentence, case-insensitively.
    """
    wanted = pattern.strip().rstrip("/").lower()
    names = (requirement.section.chapter, requirement.section.label, requirement.label)
    if wanted in names or any(fnmatchcase(name, wanted) for name in names):
        return True
    is_number = "/" in wanted and " " not in wanted
    return (
        bool(wanted)
        and wanted not in CHAPTERS
        and not is_number
        and wanted in requirement.sentence.lower()
    )
