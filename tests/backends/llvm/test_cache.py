"""The cache of compiled kernels on disk: right, and never in the way."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import lightnet
from lightnet.backends.llvm import apart, cache, jit
from lightnet.cli.lightnet import main
from lightnet.runtime import folder as runtime_folder

MACHINE = jit.CodeMachine.host()


def text(n: int) -> str:
    return f"define i64 @k{n}(i64 %x) {{\n  %y = add i64 %x, {n}\n  ret i64 %y\n}}\n"


def kernels(*numbers: int) -> dict[str, tuple[str, bool]]:
    return {f"k{n}": (text(n), False) for n in numbers}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, and a process that has compiled nothing yet."""
    path = tmp_path / "cache"
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(path))
    monkeypatch.setattr(jit, "_objects", jit._Objects())
    return path


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that LLVM really compiles."""
    seen: list[str] = []
    run = jit.Compiler.run

    def spy(self: jit.Compiler, text: str, *args: bool) -> bytes:
        seen.append(text)
        return run(self, text, *args)

    monkeypatch.setattr(jit.Compiler, "run", spy)
    return seen


def again(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> list[bytes]:
    """Compile as another process would."""
    monkeypatch.setattr(jit, "_objects", jit._Objects())
    return jit.compile_texts(kernels(*numbers), MACHINE)


def test_a_second_process_compiles_nothing(folder: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    first = again(monkeypatch, 1, 2, 3)
    assert len(compiled) == 3
    assert again(monkeypatch, 3, 2, 1) == first[::-1] and len(compiled) == 3
    again(monkeypatch, 2, 4)
    assert len(compiled) == 4


def test_a_second_process_compiles_nothing_of_a_network(
    folder: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither kernels nor the list of launches."""
    source = "input(|dst=x|dtype=TL_FLOAT, dims=[2,5], ran=[-1,1]); exp(src=x|dst=y|); softmax(src=y|dst=z|axis=1)"
    calls = []
    for _ in range(2):
        monkeypatch.setattr(jit, "_objects", jit._Objects())
        run = lightnet.compile(lightnet.loads(source, ".net"), "cpu", threads=1)
        assert run({})["z"].shape == (2, 5)
        calls.append(len(compiled))
    assert calls[0] >= 2 and calls[1] == calls[0]


def test_what_decides_the_code_is_in_the_key(
    folder: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    again(monkeypatch, 1)
    other = (
        jit.CodeMachine("x86-64-v2", "")
        if "x86" in jit.llvm.get_default_triple()
        else jit.CodeMachine("generic", "+neon")
    )
    jit.compile_texts(kernels(1), other)
    monkeypatch.setattr(jit, "_objects", jit._Objects())
    jit.compile_texts({"k1": (text(1), True)}, MACHINE)
    monkeypatch.setattr(jit, "_objects", jit._Objects())
    monkeypatch.setattr(cache.llvm, "llvm_version_info", (1, 2, 3))
    again(monkeypatch, 1)
    assert len(compiled) == 4
    assert cache.key("a", "bc") != cache.key("ab", "c")


@pytest.mark.parametrize(
    "damage",
    [lambda d: b"", lambda d: d[:-1], lambda d: d[:50] + b"#" + d[51:], lambda d: b"#" + d[1:], lambda d: d + b"#"],
)
def test_a_damaged_entry_is_replaced(
    folder: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch, damage
) -> None:
    (good,) = again(monkeypatch, 1)
    (entry,) = folder.iterdir()
    data = entry.read_bytes()
    entry.write_bytes(damage(data))
    assert again(monkeypatch, 1) == [good] and len(compiled) == 2
    assert entry.read_bytes() == data


def test_only_the_user_may_read_and_write(folder: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    again(monkeypatch, 1)
    (entry,) = folder.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700 and entry.stat().st_mode & 0o777 == 0o600
    # What others may write to is not run.
    entry.chmod(0o666)
    again(monkeypatch, 1)
    assert len(compiled) == 2
    folder.chmod(0o777)
    again(monkeypatch, 1)
    assert len(compiled) == 3 and "not used" in cache.info().reason
    folder.chmod(0o700)
    target = folder.parent / "elsewhere"
    entry.rename(target)
    entry.symlink_to(target)
    again(monkeypatch, 1)
    assert len(compiled) == 4


def test_no_place_to_write_is_no_error(tmp_path: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for value in (str(file), str(file / "below"), "/proc/none", "off", "", "\0", "x" * 5000):
        monkeypatch.delenv(cache.FOLDER_VARIABLE, raising=False)
        if "\0" in value:  # no environment can hold it
            monkeypatch.setattr(cache, "where", lambda: (Path("\0"), ""))
        else:
            monkeypatch.setenv(cache.FOLDER_VARIABLE, value)
        assert len(again(monkeypatch, 1)) == 1
    assert len(compiled) == 7


def test_a_disk_that_is_full(folder: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    again(monkeypatch, 1)

    def full(path: object, content: object) -> None:
        raise cache.LightNetError("cannot write: No space left on device")

    monkeypatch.setattr(cache, "write_atomic", full)
    again(monkeypatch, 1, 2)
    assert len(compiled) == 2 and len(list(folder.iterdir())) == 1


def test_the_least_recently_used_go_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write_cache({cache.key(str(i)): bytes(400_000) for i in range(5)})
    names = [cache.key(str(i)) for i in range(5)]
    for age, name in zip((50_000, 40_000, 30_000, 20_000, 10_000), names):
        path = folder / f"{name}.lno"
        os.utime(path, (time.time() - age,) * 2)
    assert set(cache.read_cache(names[:1])) == set(names[:1])  # used now
    stale = folder / ".abc.lno.0123.tmp"
    stale.write_bytes(b"half")
    os.utime(stale, (time.time() - 50_000,) * 2)
    monkeypatch.setenv(cache.SIZE_VARIABLE, "2")
    cache.write_cache({cache.key("5"): bytes(400_000)})
    left = set(cache.read_cache([*names, cache.key("5")]))
    assert left == {names[0], names[3], names[4], cache.key("5")}
    assert not stale.exists() and cache.info().nbytes <= 2 << 20


def test_the_folder_is_looked_at_now_and_then(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking takes time in proportion to the entries: not for each that is written; and yet the bound holds."""
    monkeypatch.setenv(cache.SIZE_VARIABLE, "1")
    looks, evict = [], cache.evict
    monkeypatch.setattr(cache, "evict", lambda *words: looks.append(words) or evict(*words))
    for i in range(600):
        cache.write_cache({cache.key(str(i)): bytes(4000)})
        assert i % 20 or cache.info().nbytes <= 1 << 20
    assert cache.info().entries > 150  # the bound is reached, and 600 entries are twice as much
    assert 3 <= len(looks) <= 150


def test_several_writers_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = jit.compile_texts(kernels(*range(20)), MACHINE)
    code = (
        "import sys; from lightnet.backends.llvm import jit\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r}); from test_cache import kernels\n"
        "for n in range(20): sys.stdout.buffer.write(jit.compile_texts(kernels(n), jit.CodeMachine.host())[0])"
    )
    cache.clear_cache()
    children = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=Path(__file__).parents[3])
        for _ in range(3)
    ]
    stop = threading.Event()

    def disturb() -> None:  # a fourth removes what the others write
        while not stop.is_set():
            cache.clear_cache()
            time.sleep(0.002)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        outputs = [child.communicate(timeout=60)[0] for child in children]
    finally:
        stop.set()
        thread.join()
    assert all(output == b"".join(expected) for output in outputs)


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    again(monkeypatch, 1, 2)
    assert main(["cache"]) == 0
    shown = capsys.readouterr().out
    assert str(folder) in shown and re.search(r"entries +2\n", shown)
    assert main(["cache", "clear"]) == 0 and capsys.readouterr().out == "removed 2 entries\n"
    assert not list(folder.iterdir())
    monkeypatch.setenv(cache.FOLDER_VARIABLE, "off")
    assert main(["cache", "info"]) == 0 and "switches it off" in capsys.readouterr().out


def test_code_that_llvm_refuses(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error arrives from whichever thread meets it, and nothing of the module is kept."""
    with pytest.raises(cache.LightNetError, match="a bug of the emitter"):
        jit.compile_texts({**kernels(1), "bad": ("define nonsense", False), **kernels(2)}, MACHINE)
    assert cache.info().entries == 0 and not jit._objects
    assert len(again(monkeypatch, 1, 2)) == 2


@pytest.mark.parametrize(("variables", "path"), [
    ({"LIGHTNET_CACHE": "off"}, None), ({"LIGHTNET_CACHE": ""}, None), ({"LIGHTNET_CACHE": " NONE "}, None), ({"LIGHTNET_CACHE": "0"}, None), ({"LIGHTNET_CACHE": "/a/b"}, "/a/b"),
    ({"LIGHTNET_CACHE": "/a", "XDG_CACHE_HOME": "/x"}, "/a"), ({"XDG_CACHE_HOME": "/x/y"}, "/x/y/lightnet"), ({"XDG_CACHE_HOME": "x/y", "HOME": "/h"}, "/h/.cache/lightnet"),
    ({"XDG_CACHE_HOME": "", "HOME": "/h"}, "/h/.cache/lightnet"), ({"HOME": "/h"}, "/h/.cache/lightnet"),
])  # fmt: skip
def test_where_the_cache_is(variables: dict[str, str], path: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable, else the XDG base directory (which is absolute), else the home folder."""
    for name in ("LIGHTNET_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
        if name in variables:
            monkeypatch.setenv(name, variables[name])
    monkeypatch.setattr(sys, "platform", "linux")
    found, why = runtime_folder.where()
    assert (found, why) == ((None, "LIGHTNET_CACHE switches it off") if path is None else (Path(path), ""))
    if variables == {"HOME": "/h"}:
        monkeypatch.setattr(sys, "platform", "darwin")
        assert runtime_folder.where() == (Path("/h/Library/Caches/lightnet"), "")


def test_no_home_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise RuntimeError

    for name in ("LIGHTNET_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", none)
    assert runtime_folder.where() == (None, "there is no home folder")


def test_removing_says_whether_it_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("")
    assert runtime_folder.remove(path) is True and not path.exists()
    assert runtime_folder.remove(path) is False


@pytest.mark.parametrize(
    ("size", "mib"),
    [("", None), ("1", 1), ("0", 0), ("9" * 11, int("9" * 11)), ("9" * 12, None), ("-1", None), ("1.5", None)],
)
def test_the_bound_is_a_number_of_mib(size: str, mib: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.SIZE_VARIABLE, size)
    assert cache.cache_bound() == (cache.DEFAULT_MIB if mib is None else mib) << 20


def test_entries_that_are_too_large_are_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = cache.key("a")
    cache.write_cache({name: b"x" * 1000})
    size = (folder / f"{name}.lno").stat().st_size
    for most, there in ((size, True), (size - 1, False)):
        monkeypatch.setattr(cache, "_LARGEST", most)
        assert (name in cache.read_cache([name])) is there


def test_entries_are_marked_as_used_once_an_hour(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, now = cache.key("a"), 1e9
    monkeypatch.setattr(cache, "time", SimpleNamespace(time=lambda: now))
    cache.write_cache({name: b"x"})
    path = folder / f"{name}.lno"
    for age, marked in ((3600.0, False), (3601.0, True)):
        os.utime(path, (now - age,) * 2)
        cache.read_cache([name])
        assert (path.stat().st_mtime != now - age) is marked


def test_as_much_is_dropped_as_is_beyond_the_bound(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries of exactly the bound stay; of more than that, four fifths of the bound are left; scratch files go after an hour."""
    folder.mkdir()
    now = time.time()
    monkeypatch.setattr(runtime_folder, "time", SimpleNamespace(time=lambda: now))

    def entries(count: int) -> None:
        for n in range(count):
            path = folder / f"{n:02}.lno"
            path.write_bytes(bytes(100))
            os.utime(path, (now - 10_000 + n,) * 2)

    entries(10)
    assert runtime_folder.evict(folder, ".lno", 1000, 800) == 0 and len(list(folder.iterdir())) == 10
    entries(11)
    assert runtime_folder.evict(folder, ".lno", 1000, 800) == 200
    assert sorted(p.name for p in folder.iterdir()) == [f"{n:02}.lno" for n in range(3, 11)]
    for age in (3600, 3601):
        scratch = folder / f".{age}.lno.0123.tmp"
        scratch.write_bytes(b"half")
        os.utime(scratch, (now - age,) * 2)
    runtime_folder.evict(folder, ".lno", 1000, 800)
    assert [p.name for p in folder.glob(".*")] == [".3600.lno.0123.tmp"]


def test_the_folder_is_looked_at_when_its_share_is_used_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(cache, "evict", lambda folder, suffix, most, least: looks.append(most) or 4000)
    cache.write_cache({cache.key("a"): bytes(100)})
    size = (folder / f"{cache.key('a')}.lno").stat().st_size
    assert len(looks) == 1 and list(cache._unseen.values())[-1] == 1000
    for left, looked in ((size, False), (size - 1, True)):
        looks.clear()
        cache._unseen[folder, cache.cache_bound()] = left
        cache.write_cache({cache.key("b"): bytes(100)})
        assert bool(looks) is looked


def test_without_a_folder_nothing_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_folder", lambda make=False: None)
    assert cache.clear_cache() == 0 and cache.read_cache(["a"]) == {}


# -- children that run LLVM


class Child:
    """One that answers what `run_apart` asks, or has died."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.asked, self.closed, self.dies = 0, False, False

    def ask(self, task: str, args: tuple) -> bytes:
        self.asked += 1
        if self.dies:
            raise EOFError
        return f"{task}{args}".encode()

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "_Child", Child)
    monkeypatch.setattr(apart, "_idle", [])
    monkeypatch.setattr(apart, "_usable", True)
    monkeypatch.setattr(Child, "made", 0)


def test_a_child_is_asked_until_it_is_replaced(children: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "PER_CHILD", 3)
    first = None
    for n in range(7):
        assert apart.run_apart("t", n) == f"t({n},)".encode()
        first = first or apart._idle[0]
    assert Child.made == 3 and first.closed and first.asked == 3 and len(apart._idle) == 1


def test_so_many_children_wait_and_no_more(children: None) -> None:
    waiting = [Child() for _ in range(apart.IDLE)]
    apart._idle[:] = waiting
    busy = apart._idle.pop()
    apart.run_apart("t")
    assert apart._idle == waiting[:1]
    apart._idle.append(busy)
    third = Child()
    apart._idle.append(third)
    apart.run_apart("t")
    assert third.closed and apart._idle == waiting


@pytest.mark.parametrize("answered, usable", [(0, False), (1, True), (2, True)])
def test_children_that_never_answered_are_given_up(answered: int, usable: bool, children: None) -> None:
    """One that answered before may have died of its work: the next one is tried."""
    child = Child()
    apart._idle.append(child)
    for _ in range(answered):
        apart.run_apart("t")
    child.dies = True
    assert apart.run_apart("t") is None and child.closed and apart._usable is usable and not apart._idle


def test_where_no_child_can_be_made(children: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise OSError

    monkeypatch.setattr(apart, "_Child", none)
    assert apart.run_apart("t") is None and not apart._usable
    monkeypatch.setattr(apart, "_done", apart.OWN)
    assert not apart.is_due()
    monkeypatch.setattr(apart, "_usable", True)
    for done, due in ((apart.OWN - 1, False), (apart.OWN, True)):
        monkeypatch.setattr(apart, "_done", done)
        assert apart.is_due() is due
