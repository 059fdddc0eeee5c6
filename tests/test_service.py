"""Executables in service: their files change under them, descriptors and disks run out, they go to other processes, and close."""

from __future__ import annotations

import asyncio
import errno
import multiprocessing
import os
import pickle
import resource
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.runtime import copies, lnx

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import fuzz_executables

ROOT = Path(__file__).parents[1]
#: More than `copies.LEAST` of weights, so that they are shared.
BIG = """
builtin.module { func.func @main() -> (tensor<1x600xf32>, tensor<1x600xf32>) {
  %x = ln.input : tensor<1x600xf32> as "x"("x")
  %z = ln.input : tensor<1x600xf32> as "z"("z")
  %w = ln.param {from_file = true} : tensor<600x600xf32> as "w"("w")
  %m = ln.matmul %x, %w : tensor<1x600xf32> as "m"("m")
  %y = ln.elew %m, %z {elew_op = "TL_SUB"} : tensor<1x600xf32> as "y"("y")
  %r = ln.relu %y : tensor<1x600xf32> as "r"("r")
  func.return %y, %r : tensor<1x600xf32>, tensor<1x600xf32>
} }"""
RNG = np.random.default_rng(0)
W, X, Z = (RNG.standard_normal(s).astype("f") for s in ((600, 600), (1, 600), (1, 600)))
Y = X.astype(np.float64) @ W - Z
FEEDS = {"x": X, "z": Z}


@pytest.fixture(scope="module")
def compiled() -> lightnet.Executable:
    return lightnet.compile(lightnet.loads(BIG, ".mlir", weights={"w": W}), threads=2)


@pytest.fixture(scope="module")
def original(compiled, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("lnx") / "net.lnx"
    compiled.save(path)
    return path


@pytest.fixture
def path(original, tmp_path) -> Path:
    found = tmp_path / "net.lnx"
    found.write_bytes(original.read_bytes())
    return found


def right(found) -> None:
    np.testing.assert_allclose(found["y"], Y, atol=1e-4 * np.abs(Y).max())
    np.testing.assert_allclose(found["r"], np.maximum(Y, 0), atol=1e-4 * np.abs(Y).max())


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# -- the file changes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cache", ["shared", "off"])
def test_whatever_becomes_of_the_file(cache, path, tmp_path, monkeypatch) -> None:
    """Truncated, written over in place, removed: a process that mapped it would end by SIGBUS, or compute something else."""
    monkeypatch.setenv("LIGHTNET_CACHE", "off" if cache == "off" else str(tmp_path / "cache"))
    run = lightnet.load_executable(path)
    before = run(FEEDS)
    right(before)
    size, data = path.stat().st_size, bytearray(path.read_bytes())
    os.truncate(path, 0)
    for content in (b"", b"\xff" * size, bytes(size), bytes(data[: size // 2])):
        with open(path, "r+b") as file:
            file.write(content)
        for name, array in run(FEEDS).items():
            np.testing.assert_array_equal(array, before[name])
        assert "ln.matmul" in run.texts["planned"] or "matmul" in run.texts["planned"]
    path.unlink()
    right(run(x=X, z=Z))
    kept = list((tmp_path / "cache" / "weights").glob("*.lnw")) if cache == "shared" else []
    assert len(kept) == (cache == "shared") and not any(file.stat().st_mode & 0o222 for file in kept)


def test_a_file_that_is_being_written_is_refused(path) -> None:
    """Half of the old weights and half of the new: neither the one network nor the other."""
    data = bytearray(path.read_bytes())
    head = fuzz_executables.Parts(bytes(data))
    begin, end = head.spans["static0"]
    data[(begin + end) // 2 : end] = bytes(end - (begin + end) // 2)
    path.write_bytes(data)
    for where in ("off", None):
        if where:
            os.environ["LIGHTNET_CACHE"], kept = where, os.environ["LIGHTNET_CACHE"]
        try:
            with pytest.raises(LightNetError, match="damaged or cut short, or being written: section 'static0'"):
                copies.clear_copies()
                lightnet.load_executable(path)
        finally:
            if where:
                os.environ["LIGHTNET_CACHE"] = kept


def test_processes_share_the_weights(path, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("LIGHTNET_CACHE", str(tmp_path / "cache"))
    runs = [lightnet.load_executable(path) for _ in range(3)]
    (kept,) = (tmp_path / "cache" / "weights").iterdir()
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(str(kept))]
    assert len(mapped) == 3 and not any(str(path) in line for line in Path("/proc/self/maps").read_text().splitlines())
    assert copies.clear_copies() == 1
    for run in runs:
        right(run(FEEDS))
    del runs, run
    assert str(kept) not in Path("/proc/self/maps").read_text()


def test_a_copy_that_others_could_have_written_is_not_used(path, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("LIGHTNET_CACHE", str(tmp_path / "cache"))
    lightnet.load_executable(path)
    (kept,) = (tmp_path / "cache" / "weights").iterdir()
    kept.chmod(0o666)
    kept.write_bytes(bytes(kept.stat().st_size))
    right(lightnet.load_executable(path)(FEEDS))
    (tmp_path / "cache" / "weights").chmod(0o777)
    assert copies.weights_folder() is None
    right(lightnet.load_executable(path)(FEEDS))


def test_what_is_kept_is_bounded(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("LIGHTNET_CACHE", str(tmp_path))
    monkeypatch.setenv(copies.SIZE_VARIABLE, "3")
    from hashlib import sha256

    for k in range(4):
        data = bytes([k]) * (1 << 20)
        with open(tmp_path / "file", "w+b") as file:
            file.write(data)
            file.flush()
            found = copies.private(file.fileno(), 0, len(data), sha256(data).hexdigest())
        assert bytes(found) == data
    assert len(list((tmp_path / "weights").iterdir())) == 3
    monkeypatch.setenv(copies.SIZE_VARIABLE, "0")  # no room at all: memory
    with open(tmp_path / "file", "rb") as file:
        assert bytes(copies.private(file.fileno(), 0, 1 << 20, sha256(bytes([3]) * (1 << 20)).hexdigest()))[:1] == b"\3"


def test_files_that_lie() -> None:
    """A few hundred of `tools/fuzz_executables.py`: each is refused or runs, in memory between pages that cannot be touched."""
    originals = fuzz_executables.files()
    seed = int(os.environ.get("LIGHTNET_FUZZ_SEED", "0"))
    said = dict(fuzz_executables.results(range(seed, seed + 300), originals))
    assert not [line for line in said.items() if line[1].startswith("FOUND")]
    assert sum(word == "ran" for word in said.values()) > 30 and sum(word == "refused" for word in said.values()) > 60


def test_the_fence_sees_what_is_outside() -> None:
    """What the test above relies on."""
    code = """
import sys; sys.path.insert(0, "tools")
import fuzz_executables, ctypes
fence = fuzz_executables.Fence()
array = fence.aligned(100)
ctypes.memset(array.ctypes.data + 100, 1, 1)
try:
    fence.check()
except AssertionError:
    print("seen", flush=True)
array = fence.aligned(100)
ctypes.memset(array.ctypes.data + 128, 1, 1)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout == "seen\n" and done.returncode < 0


# -- what the system refuses ---------------------------------------------------------------------------------


def test_no_descriptor_stays_open(path) -> None:
    before = descriptors()
    runs = [lightnet.load_executable(path) for _ in range(5)]
    right(runs[-1](FEEDS))
    assert descriptors() == before


def test_descriptors_run_out(path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = []
    lightnet.load_executable(path)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors() + 3, limits[1]))
    try:
        while True:
            try:
                held.append(os.open(os.devnull, os.O_RDONLY))
            except OSError as error:
                assert error.errno == errno.EMFILE
                break
        with pytest.raises(LightNetError, match="cannot open: Too many open files"):
            lightnet.load_executable(path)
        os.close(held.pop())  # room for the file, and not for the copy: then the weights are read
        right(lightnet.load_executable(path)(FEEDS))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for fd in held:
            os.close(fd)


def test_a_full_disk(compiled, tmp_path) -> None:
    """Nothing half-written is left, and what was there stays."""
    there = tmp_path / "net.lnx"
    there.write_bytes(b"as it was")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    import signal

    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
    try:
        with pytest.raises(LightNetError, match=r"cannot write '.*net\.lnx': File too large"):
            compiled.save(there)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert there.read_bytes() == b"as it was" and os.listdir(tmp_path) == ["net.lnx"]
    if os.path.exists("/dev/full"):
        with pytest.raises(LightNetError, match="No space left on device"):
            compiled.save("/dev/full")


def test_what_cannot_be_opened(tmp_path, path, monkeypatch) -> None:
    for name, says in ((tmp_path / "none.lnx", "No such file"), (tmp_path, "not a regular file but a folder"), (b"nonsense", "no saved executable"),
                       (3, "not a int"), ("a\0b", "null byte"), (path / "below", "Not a directory")):  # fmt: skip
        with pytest.raises(LightNetError) as caught:
            lightnet.load_executable(name)
        assert says in str(caught.value), name
    if os.geteuid():
        path.chmod(0)
        with pytest.raises(LightNetError, match="Permission denied"):
            lightnet.load_executable(path)

    def fails(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", fails)
    with pytest.raises(LightNetError, match="cannot read: Input/output error"):
        lightnet.load_executable(path)


def test_every_error_has_a_text() -> None:
    from lightnet.diagnostics import SourceLoc

    for error in (
        LightNetError(3),
        LightNetError(b"x"),
        LightNetError("m", SourceLoc(b"a\xff", 1)),
        LightNetError("m", SourceLoc(4)),
    ):
        assert "error: " in str(error)
    again = pickle.loads(pickle.dumps(LightNetError("m", SourceLoc("f", 2), label="l.l", notes=[(None, "n")])))
    assert str(again) == "f:2: error: m [l.l]\nnote: n"


# -- one protocol --------------------------------------------------------------------------------------------


def kinds(compiled, path) -> list:
    return [compiled, lightnet.load_executable(path), lightnet.load_executable(path.read_bytes())]


def test_they_tell_alike(compiled, path) -> None:
    for run in kinds(compiled, path):
        assert list(run.inputs) == ["x", "z"] and list(run.outputs) == ["y", "r"] and run.threads == 2
        assert run.options["target"] == "cpu" and run.options["threads"] == 2 and run.warnings == []
        assert run.plan.plan.peak == compiled.plan.plan.peak and not run.is_closed
        assert "x float32[1, 600]" in repr(run) and "2 threads" in repr(run)
        run.prepare()


def test_they_go_to_other_processes(compiled, path) -> None:
    """Started, not forked: everything has to come by pickle."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        for run in kinds(compiled, path):
            right(pool.submit(run, FEEDS).result())
        with pytest.raises(LightNetError, match="no input"):
            pool.submit(lightnet.load_executable(path), {"q": X}).result()


def test_another_file_is_not_taken_for_it(path, tmp_path) -> None:
    run = lightnet.load_executable(path)
    sent = pickle.dumps(run)
    right(pickle.loads(sent)(FEEDS))
    lightnet.compile(lightnet.loads(BIG, ".mlir", weights={"w": W + 1})).save(path)
    with pytest.raises(LightNetError, match="another one than that which was handed over"):
        pickle.loads(sent)


def test_closing(compiled, path) -> None:
    copy = pickle.loads(pickle.dumps(compiled))
    other = lightnet.compile(lightnet.loads(BIG, ".mlir", weights={"w": W}))
    for run in (lightnet.load_executable(path), copy, other):
        with run as entered:
            right(entered(FEEDS))
        assert run.is_closed and "closed" in repr(run)
        run.close()
        for use in (
            lambda run: run(FEEDS),
            lambda run: run.run(x=X, z=Z),
            pickle.dumps,
            lambda run: asyncio.run(run.call_async(FEEDS)),
        ):
            with pytest.raises(LightNetError, match="closed"):
                use(run)


def test_closing_gives_the_memory_back(path, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("LIGHTNET_CACHE", str(tmp_path / "cache"))
    run = lightnet.load_executable(path)
    right(run(FEEDS))
    assert ".lnw" in Path("/proc/self/maps").read_text()
    run.close()
    assert ".lnw" not in Path("/proc/self/maps").read_text()


def test_awaiting(compiled, path) -> None:
    async def several(run) -> list:
        return await asyncio.gather(
            *(run.call_async(FEEDS) for _ in range(8)), run.call_async(x=X, z=Z, outputs=["y", "r"])
        )

    for run in kinds(compiled, path)[:2]:
        for found in asyncio.run(several(run)):
            right(found)
        with pytest.raises(LightNetError, match="'x' has shape"):
            asyncio.run(run.call_async(X[0], Z))


def test_version_is_checked(path) -> None:
    data = path.read_bytes()
    assert data.startswith(lnx.MAGIC)
    path.write_bytes(b"LNEXE4" + data[6:])
    with pytest.raises(LightNetError, match="this version of LightNet"):
        lightnet.load_executable(path)


# -- signatures ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> Path:
    """A folder with two keys: a.pem, a.pub, b.pem, b.pub."""
    pytest.importorskip("cryptography", reason="cryptography is not installed")
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    folder = tmp_path_factory.mktemp("keys")
    for name in "ab":
        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
        (folder / f"{name}.pem").write_bytes(private)
        public = key.public_key().public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
        (folder / f"{name}.pub").write_bytes(public)
    return folder


def test_only_what_is_signed_is_taken(compiled, original, keys, tmp_path) -> None:
    signed = tmp_path / "signed.lnx"
    compiled.save(signed, sign=keys / "a.pem")
    both = tmp_path / "both.pub"
    both.write_bytes((keys / "b.pub").read_bytes() + (keys / "a.pub").read_bytes())
    for trust in (keys / "a.pub", str(keys / "a.pub"), [keys / "b.pub", keys / "a.pub"], both):
        right(lightnet.load_executable(signed, trust=trust)(FEEDS))
    right(lightnet.load_executable(signed)(FEEDS))
    right(pickle.loads(pickle.dumps(lightnet.load_executable(signed, trust=keys / "a.pub")))(FEEDS))
    for path, trust, says in (
        (signed, keys / "b.pub", "signed by a key that is not trusted"), (original, keys / "a.pub", "is not signed"),
        (signed, keys / "a.pem", "no public"), (signed, tmp_path, "signed by a key that is not trusted|no public Ed25519 key"),
        (signed, keys / "none.pub", "No such file"), (signed, [], "no public Ed25519 key to trust in nothing"),
    ):  # fmt: skip
        if trust == tmp_path:
            both.unlink()
        with pytest.raises(LightNetError, match=says):
            lightnet.load_executable(path, trust=trust)
    for key, says in ((keys / "a.pub", "no private key"), (keys / "none", "No such file")):
        with pytest.raises(LightNetError, match=says):
            compiled.save(tmp_path / "x.lnx", sign=key)
    assert not (tmp_path / "x.lnx").exists()


@pytest.mark.parametrize("cache", ["shared", "off"])
def test_no_byte_of_a_signed_file_can_be_changed(cache, compiled, keys, tmp_path, monkeypatch) -> None:
    """In every region: header, code, tensors, texts, what is between them, the signature; the checksums repaired or not."""
    monkeypatch.setenv("LIGHTNET_CACHE", "off" if cache == "off" else str(tmp_path / "cache"))
    path = tmp_path / "net.lnx"
    compiled.save(path, sign=keys / "a.pem")
    data = path.read_bytes()
    parts = fuzz_executables.Parts(data)
    length = len(lnx.MAGIC) + lnx.FIXED.size + parts._length
    regions = {"magic": (0, 8), "length": (8, 20), "header": (20, length), **parts.spans}
    ends = sorted([length, *(end for _, end in parts.spans.values())])
    regions |= {f"gap{k}": (end, lnx.pages(end)) for k, end in enumerate(ends) if end % lnx.PAGE}
    body = len(data) - lnx.SIGNATURE_BYTES
    regions |= {"signature": (body, body + 8), "key": (body + 8, body + 40), "bytes": (body + 40, len(data))}
    assert sum(end - begin for begin, end in regions.values()) == len(data), "a region is not tried"
    for begin, end in regions.values():
        for at in {begin, (begin + end) // 2, end - 1}:
            changed = bytearray(data)
            changed[at] ^= 1
            path.write_bytes(changed)
            copies.clear_copies()
            with pytest.raises(LightNetError):
                lightnet.load_executable(path, trust=keys / "a.pub")
    tampered = fuzz_executables.Parts(data)
    begin, end = tampered.spans["static0"]
    tampered.data[begin:end] = bytes(end - begin)
    path.write_bytes(tampered.file())
    assert not lightnet.load_executable(path)(x=X, z=np.zeros_like(Z))[
        "y"
    ].any()  # it is a file like any other, but for the signature
    with pytest.raises(LightNetError, match="changed after it was signed"):
        lightnet.load_executable(path, trust=keys / "a.pub")


def test_signing_from_the_command_line(keys, tmp_path, capsys) -> None:
    from lightnet.cli.lightnet import main

    net, out = str(ROOT / "examples" / "cnn.net"), str(tmp_path / "net.lnx")
    assert main(["compile", net, "-o", out, "--sign", str(keys / "a.pem")]) == 0
    assert main(["run", out, "--trust", str(keys / "a.pub"), "-i", "random"]) == 0
    assert main(["inspect", out, "--trust", str(keys / "a.pub")]) == 0 and "signed" in capsys.readouterr().out
    for words, says in (
        (["run", out, "--trust", str(keys / "b.pub"), "-i", "random"], "not trusted"),
        (["run", net, "--trust", str(keys / "b.pub"), "-i", "random"], "--trust is for executables"),
        (["compile", net, "-o", out, "--sign", str(keys / "a.pub")], "no private key"),
        (["compile", net, "-o", out, "--emit=obj", "--sign", str(keys / "a.pem")], "--sign is for --emit=lnx"),
    ):
        assert main(words) == 1 and says in capsys.readouterr().err


def test_without_the_package(compiled, original, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    for use in (
        lambda: compiled.save(tmp_path / "x", sign="k.pem"),
        lambda: lightnet.load_executable(original, trust="k.pub"),
    ):
        with pytest.raises(LightNetError, match="needs the Python package cryptography"):
            use()


# -- the command line ----------------------------------------------------------------------------------------


def test_what_compile_says(tmp_path, capsys) -> None:
    from lightnet.cli.lightnet import main

    net, out = str(ROOT / "examples" / "cnn.net"), str(tmp_path / "net.lnx")
    assert main(["compile", net, "-o", out, "--threads", "2"]) == 0
    said = capsys.readouterr()
    assert said.err == "" and len(said.out.splitlines()) == 1
    assert out in said.out and "2 threads" in said.out and said.out.endswith(" s\n") and "KiB" in said.out
    assert main(["run", out, "-i", "random", "--profile"]) == 0
    assert "conv2d" in capsys.readouterr().out


def test_progress_on_a_terminal(monkeypatch) -> None:
    rich = pytest.importorskip("rich.console", reason="rich is not installed")
    import io

    from lightnet.cli import progress

    shown = io.StringIO()
    monkeypatch.setattr(progress, "terminal", lambda: rich.Console(file=shown, force_terminal=True, width=80))
    with progress.stages("compile [x].net") as stage:
        stage("machine code")
    assert "compile [x].net" in shown.getvalue()
