"""All probes, numbered in the order in which they are put."""

from collections.abc import Iterable, Iterator

from kraftsim.conformance.probes import of_data, of_ends, of_expiry, of_identities, of_offsets, of_partitions_joining, of_wear
from kraftsim.conformance.probes.conversation import Conversation
from kraftsim.conformance.probes.probe import Chapter, Probe, put
from kraftsim.conformance.probes.worn_steps import Worn
from kraftsim.conformance.target import Target

CHAPTERS: tuple[Chapter, ...] = (
    of_identities.CHAPTER,
    of_partitions_joining.CHAPTER,
    of_ends.CHAPTER,
    of_data.CHAPTER,
    of_offsets.CHAPTER,
    of_wear.CHAPTER,
    of_expiry.CHAPTER,
)


def name_of(chapter: Chapter, asked: Probe) -> str:
    """Return how a probe is called: no two are called alike."""
    return f"{chapter.title}: {asked.title}"


def probes(only: Iterable[str] = ()) -> list[tuple[str, Probe]]:
    """Return probes with their names, all of them or those whose name has one of some words in it. Raises KeyError for words that are in none."""
    found = [(name_of(chapter, asked), asked) for chapter in CHAPTERS for asked in chapter.probes]
    assert len({name for name, _ in found}) == len(found), "no two probes are called alike"
    words = [word.lower() for word in only]
    for word in words:
        if not any(word in name.lower() for name, _ in found):
            raise KeyError(f"no probe is called anything with {word!r}")
    return [(name, asked) for name, asked in found if not words or any(word in name.lower() for word in words)]


def by_settings(chosen: Iterable[tuple[str, Probe]]) -> list[tuple[dict[str, str], list[tuple[str, Probe]]]]:
    """Return probes by what the node must be set to; those for which it matters come first."""
    wanted = {name_of(chapter, asked): chapter.settings for chapter in CHAPTERS for asked in chapter.probes}
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
    """Return the names that have to be worn out before some probes are put."""
    return [step for _, asked in chosen for step in asked.steps if isinstance(step, Worn)]


def put_all(target: Target, chosen: Iterable[tuple[str, Probe]]) -> Iterator[tuple[str, list[str]]]:
    """Put probes to a node, one after the other, and yield what was answered to each."""
    for name, asked in chosen:
        target.begin(seconds=60)
        talk = Conversation.begin(target)
        try:
            yield name, put(asked, talk)
        finally:
            talk.close()
