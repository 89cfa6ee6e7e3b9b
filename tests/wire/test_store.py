"""Generated code is kept between runs: by content, safely, and so that a warm start imports neither
construct nor the compiler.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import indent

import pytest

from protocol.codec import compiler, store
from protocol.codec.declaration import declaration_of
from protocol.codec.message_codec import CompiledMessage
from protocol.messages.k22_init_producer_id import InitProducerIdRequest
from protocol.schema import int32, int64, message, string

USE_A_MESSAGE = """
import sys
from protocol import codec_of, request_class, response_class
for cls in (request_class(22), response_class(3), response_class(1)):
    codec = codec_of(cls, 4)
    codec.decode(codec.encode(cls()))
names = ("construct", "protocol.codec.tree", "protocol.codec.compiler")
print(*(name in sys.modules for name in names))
"""


@pytest.fixture
def entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store of its own."""
    monkeypatch.setenv(store.DIRECTORY_VARIABLE, str(tmp_path))
    yield tmp_path / store.compiler_digest()[: store.DIGEST_CHARACTERS]


def declared(since: int = 0) -> type:
    """Declare a message; each call makes a new class of the same content."""

    @message(kind="data", versions="0-1")
    class Declared:
        number: int = int32(since=since)
        text: str = string()

    return Declared


def in_a_process(program: str, directory: Path, **variables: str) -> str:
    environment = {**os.environ, store.DIRECTORY_VARIABLE: str(directory), **variables}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_warm_start_imports_neither_construct_nor_the_compiler(tmp_path: Path) -> None:
    assert in_a_process(USE_A_MESSAGE, tmp_path) == "True True True"
    assert in_a_process(USE_A_MESSAGE, tmp_path) == "False False False"


def test_processes_that_start_together_share_a_store(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: in_a_process(USE_A_MESSAGE, tmp_path), range(4)))
    (entries,) = tmp_path.iterdir()
    assert {file.suffix for file in entries.iterdir()} == {store.CODE, store.SOURCE}, (
        "no unfinished file is left"
    )
    assert in_a_process(USE_A_MESSAGE, tmp_path) == "False False False"


def test_an_equal_declaration_is_found_and_another_one_is_not(entries: Path) -> None:
    first, second, other = declared(), declared(), declared(since=1)
    assert (
        declaration_of(first).digest
        == declaration_of(second).digest
        != declaration_of(other).digest
    )
    content = CompiledMessage(first, 0).encode(first(number=1, text="a"))
    files = set(entries.iterdir())
    assert CompiledMessage(second, 0).encode(second(number=1, text="a")) == content
    assert set(entries.iterdir()) == files
    assert CompiledMessage(other, 0).encode(other(text="a")) != content
    assert set(entries.iterdir()) > files


def test_a_default_and_a_structure_belong_to_the_content() -> None:
    """A constant of another module determines the default, so the source of the declaration does
    not tell.
    """

    def with_default(default: int) -> str:
        @message(kind="data", versions="0")
        class Declared:
            number: int = int64(default=default)

        return declaration_of(Declared).digest

    assert with_default(1) != with_default(2)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content[:40] + b"x" + content[41:],
    ],
)
def test_a_damaged_entry_is_replaced(entries: Path, damage: object) -> None:
    assert callable(damage)
    cls = declared()
    content = CompiledMessage(cls, 0).encode(cls(number=1, text="a"))
    (entry,) = entries.glob(f"*.v0.encode.*{store.CODE}")
    whole = entry.read_bytes()
    entry.write_bytes(damage(whole))
    assert CompiledMessage(cls, 0).encode(cls(number=1, text="a")) == content
    assert entry.read_bytes() == whole


def test_without_a_directory_everything_is_generated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv(store.DIRECTORY_VARIABLE, str(tmp_path / "file" / "below"))
    assert store.directory() is None
    cls = declared()
    codec = CompiledMessage[object](cls, 1)
    assert codec.parse(codec.encode(cls(number=7, text="b"))) == cls(number=7, text="b")


def test_the_users_cache_is_the_second_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.delenv(store.DIRECTORY_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "PACKAGE_PARENT", str(tmp_path / "file"))
    store._directory.cache_clear()
    try:
        found = store.directory()
    finally:
        store._directory.cache_clear()
    assert found is not None and Path(found).parent == tmp_path.joinpath(
        "cache", "kraftsim", "codec"
    )


def test_folders_of_former_compilers_are_removed_after_a_week(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, recent = (
        tmp_path / ("a" * store.DIGEST_CHARACTERS),
        tmp_path / ("b" * store.DIGEST_CHARACTERS),
    )
    for folder, days in ((former, 8), (recent, 6)):
        folder.mkdir()
        os.utime(folder, (0, os.stat(tmp_path).st_mtime - days * 24 * 3600))
    monkeypatch.setenv(store.DIRECTORY_VARIABLE, str(tmp_path))
    store._directory.cache_clear()
    assert store.directory() is not None
    assert not former.exists() and recent.exists()


def test_the_example_of_the_compiler_is_what_it_writes() -> None:
    written = compiler.decoder_source(InitProducerIdRequest, 2, is_lenient=False)
    assert indent(written, "    ").rstrip() in (compiler.__doc__ or "")
