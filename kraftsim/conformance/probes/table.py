"""All probes, numbered in the order in which they are run."""

from collections.abc import Iterable, Iterator

from kraftsim.conformance.probes import (
    of_adding_partitions,
    of_data,
    of_ends,
    of_exhausted_epochs,
    of_expiry,
    of_identities,
    of_offsets,
)
from kraftsim.conformance.probes.conversation import ProbeConversation
from kraftsim.conformance.probes.probe import Chapter, Probe, put
from kraftsim.conformance.probes.worn_steps import Worn
from kraftsim.conformance.target import Target

CHAPTERS: tuple[Chapter, ...] = (
    of_identities.CHAPTER,
    of_adding_partitions.CHAPTER,
    of_ends.CHAPTER,
    of_data.CHAPTER,
    of_offsets.CHAPTER,
    of_exhausted_epochs.CHAPTER,
    of_expiry.CHAPTER,
)


def name_of(chapter: Chapter, asked: Probe) -> str:
    """Return the unique name of a probe."""
    return f"{chapter.title}: {asked.title}"


def probes(only: Iterable[str] = ()) -> list[tuple[str, Probe]]:
    """Return probes with their names: all of them, or those whose name contains one of some words.

    Raises KeyError for a word without a match.
    """
    found = [(name_of(chapter, asked), asked) for chapter in CHAPTERS for asked in chapter.probes]
    assert len({name for name, _ in found}) == len(found), "probe names are unique"
    words = [word.lower() for word in only]
    for word in words:
        if not any(word in name.lower() for name, _ in found):
            raise KeyError(f"no probe name contains {word!r}")
    return [
        (name, asked)
        for name, asked in found
        if not words or any(word in name.lower() for word in words)
    ]


def by_settings(
    chosen: Iterable[tuple[str, Probe]],
) -> list[tuple[dict[str, str], list[tuple[str, Probe]]]]:
    """Return probes by the configurations that they need; those with such configurations come
    first.
    """
    wanted = {
        name_of(chapter, asked): chapter.settings
        for chapter in CHAPTERS
        for asked in chapter.probes
    }
    groups: list[tuple[dict[str, str], list[tuple[str, Probe]]]] = []
    for name, asked in chosen:
        settings = dict(wanted[name])
        group = next((rows for known, rows in groups if known == settings), None)
        if group is None:
            group = []
            groups.append((settings, group))
        group.append((name, asked))
    return sorted(groups, key=lambda group: not group[0])


def worn_names(chosen: Iterable[tuple[str, Probe]]) -> list[Worn]:
    """Return the names whose epochs must be used up before some probes are run."""
    return [step for _, asked in chosen for step in asked.steps if isinstance(step, Worn)]


def put_all(target: Target, chosen: Iterable[tuple[str, Probe]]) -> Iterator[tuple[str, list[str]]]:
    """Run probes against a node, one after the other, and yield the responses of each."""
    for name, asked in chosen:
        target.begin(seconds=60)
        conversation = ProbeConversation.begin(target)
        try:
            yield name, put(asked, conversation)
        finally:
            conversation.close()
