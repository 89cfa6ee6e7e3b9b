"""An object store in a temporary directory, which pyarrow reads as it reads a real one.

It counts what changes it, and can end at a change, as a process that is killed there leaves it.
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.fs import FileSystem, LocalFileSystem, SubTreeFileSystem

from kraftsim.analysis import places
from kraftsim.analysis.places import RemotePlace, one_line


class Killed(OSError):
    """The process ended before this change."""


class ObjectStore:
    """One bucket. Without `is_writable` every change is refused; `ends_at` is the number of changes
    before the process ends.
    """

    def __init__(self, directory: Path) -> None:
        self.bucket = "bucket"
        self.changes = 0
        self.ends_at: int | None = None
        self.is_writable = True
        self._root = directory / self.bucket
        self._root.mkdir()
        self.filesystem = SubTreeFileSystem(str(directory), LocalFileSystem())

    @property
    def address(self) -> str:
        """The address of the bucket."""
        return f"s3://{self.bucket}"

    @property
    def objects(self) -> Mapping[str, bytes]:
        """The objects by their keys."""
        return {
            path.relative_to(self._root).as_posix(): path.read_bytes()
            for path in sorted(self._root.rglob("*"))
            if path.is_file()
        }

    def put_all(self, objects: Mapping[str, bytes]) -> None:
        """Put these objects in the place of all that there are."""
        shutil.rmtree(self._root)
        self._root.mkdir()
        for key, content in objects.items():
            self.put(key, content)

    def put(self, key: str, content: bytes) -> None:
        """Put an object; that is not counted."""
        path = self._root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def change(self) -> None:
        """Count a change, or end before it."""
        if not self.is_writable:
            raise PermissionError("AWS Error ACCESS_DENIED during PutObject operation")
        if self.ends_at is not None and self.changes >= self.ends_at:
            raise Killed("killed")
        self.changes += 1

    def make_parent(self, place: RemotePlace) -> None:
        """Make the directory of a file: keys need none."""
        key = str(place).removeprefix(f"{self.address}/").removeprefix(f"s3a://{self.bucket}/")
        (self._root / key).parent.mkdir(parents=True, exist_ok=True)


@pytest.fixture
def store(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ObjectStore]:
    """Yield a store, which has the only bucket at `s3://`."""
    made = ObjectStore(tmp_path_factory.mktemp("store"))
    create, delete = RemotePlace.create, RemotePlace.delete

    def connected(base: str, settings: tuple[str, ...]) -> tuple[FileSystem, str]:
        return made.filesystem, base.partition("://")[2]

    def counted_create(place: RemotePlace) -> pa.NativeFile:
        with one_line(place):
            made.change()
        made.make_parent(place)
        return create(place)

    def counted_delete(place: RemotePlace, paths: Iterable[str]) -> None:
        for path in paths:
            with one_line(place):
                made.change()
            delete(place, [path])

    monkeypatch.setattr(places, "_filesystem", connected)
    monkeypatch.setattr(RemotePlace, "create", counted_create)
    monkeypatch.setattr(RemotePlace, "delete", counted_delete)
    yield made
