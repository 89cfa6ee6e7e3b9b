"""The topics of the cluster as the group coordinator sees them: a view of the broker's current metadata image."""

from collections.abc import Callable, Iterable

from kraftsim.core.metadata.image import MetadataImage


class KnownTopics:
    """`image` returns the current metadata image."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image

    @property
    def version(self) -> int:
        """The last applied offset of the metadata log."""
        return self._image().highest_offset

    def find(self, name: str) -> tuple[bytes, int] | None:
        """Return id and partition count of a topic; None if it does not exist."""
        topic = self._image().topic(name)
        return None if topic is None else (topic.topic_id, len(topic.partitions))

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic; None if it does not exist."""
        topic = self._image().topic_by_id(topic_id)
        return None if topic is None else topic.name

    def names(self) -> Iterable[str]:
        """Return the names of all topics, sorted."""
        return (topic.name for topic in self._image().topics())
