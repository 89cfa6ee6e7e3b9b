"""An object store in memory: a file appears when it is closed, and nothing can be renamed.

It counts what changes it, and can end at a change, as a process that is killed there leaves it.
"""

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyarrow.fs import FileInfo, FileSelector, FileSystemHandler, FileType, PyFileSystem

from kraftsim.analysis import places

SECOND_NS = 1_000_000_000


class Killed(OSError):
    """The process ended before this change."""


class ObjectStore(FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """The objects by their keys; `bucket/` is a part of them. Without `is_writable` every change is
    refused.
    """

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket
        self.objects: dict[str, bytes] = {}
        self.written: dict[str, int] = {}
        self.changes = 0
        self.ends_at: int | None = None
        self.is_writable = True
        self.secrets: list[str] = []

    @property
    def address(self) -> str:
        """The address of the bucket."""
        return f"s3://{self.bucket}"

    def change(self) -> None:
        """Count a change, or end before it."""
        if not self.is_writable:
            raise PermissionError("AWS Error ACCESS_DENIED during PutObject operation")
        if self.ends_at is not None and self.changes >= self.ends_at:
            raise Killed("killed")
        self.changes += 1

    def put(self, key: str, content: bytes) -> None:
        """Write an object."""
        self.change()
        self.objects[key] = content
        self.written[key] = self.changes * SECOND_NS

    def get_type_name(self) -> str:
        return "memory"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> FileInfo:
        if path in self.objects:
            return FileInfo(
                path,
                FileType.File,
                size=len(self.objects[path]),
                mtime_ns=self.written[path],
            )
        is_there = path == self.bucket or any(key.startswith(f"{path}/") for key in self.objects)
        return FileInfo(path, FileType.Directory if is_there else FileType.NotFound)

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        prefix = f"{selector.base_dir}/"
        return [
            self._info(key)
            for key in self.objects
            if key.startswith(prefix) and (selector.recursive or "/" not in key[len(prefix) :])
        ]

    def delete_file(self, path: str) -> None:
        if path not in self.objects:
            raise FileNotFoundError(path)
        self.change()
        del self.objects[path]

    def open_input_file(self, path: str) -> pa.NativeFile:
        if path not in self.objects:
            raise FileNotFoundError(path)
        return pa.BufferReader(self.objects[path])

    open_input_stream = open_input_file

    def open_output_stream(self, path: str, metadata: dict[str, str]) -> pa.NativeFile:
        return pa.PythonFile(_Written(self, path), mode="w")

    def _refused(self, *words: Any) -> Any:
        raise NotImplementedError("an object store cannot do this")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _refused
    move = copy_file = open_append_stream = _refused


class _Written(io.BytesIO):
    """An object that is there when it is closed."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        super().__init__()
        self._store, self._key = store, key

    def close(self) -> None:
        if not self.closed:
            self._store.put(self._key, self.getvalue())
        super().close()


@pytest.fixture
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """Yield a store, which is at `s3://` and a bucket of its own; other buckets do not exist."""
    made = ObjectStore(f"bucket-{abs(hash(request.node.nodeid)):x}")
    filesystem = PyFileSystem(made)

    def connected(base: str, settings: tuple[str, ...]) -> tuple[PyFileSystem, str]:
        return filesystem, base.partition("://")[2]

    monkeypatch.setattr(places, "_filesystem", connected)
    yield made
