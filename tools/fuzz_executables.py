"""Saved executables that lie: ``python tools/fuzz_executables.py [--count N] [--seed N] [--keep FOLDER]``.

Files of small networks are changed at random, one to three times each: values of the header, references, offsets and sizes, contents of
tensors, how code is linked, whole bytes; then every checksum and digest is repaired. Each file is loaded, and called where its machine
code and how that is linked are what they were, in a child process in which all memory of the network stands between pages that cannot be touched
and bytes that are looked at afterwards. A file is refused, or runs; anything else (a signal, another exception, a byte written
outside, seconds without an end) is a finding: it is kept, and the exit status is 1. Imports lightnet.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import io
import json
import mmap
import os
import random
import re
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

#: Seconds that one file may take.
PATIENCE = 20
_CANARY = 0xA5

_CREATE = "create(| dst={} | dtype=TL_FLOAT, dims={}, data=[{}], ran=[-1,1], from_file=false);\n"
_CONV = (
    _CREATE.format("x", [1, 3, 8, 8], 1) + _CREATE.format("w", [8, 3, 3, 3], 2) + _CREATE.format("b", [8], 3)
    + "conv2d(src=x, weight=w, bias=b | dst=c | group=1, size=[3,3], stride=[1,1], dilation=[1,1], padding=[1,1,1,1],"
    ' autopad="NOTSET");\nrelu(src=c | dst=r |);\nslice(src=r | dst=part | axis=1, start=1, len=2);\n'
)  # fmt: skip
_PRINTING = _CREATE.format("x", [6], "1,2,3,4,5,6") + 'print(src=x||msg="x");\nrelu(src=x|dst=y|);\n'
_TAKE = """
builtin.module { func.func @main() -> tensor<9x50xf32> {
  %i = ln.input : tensor<4xi64> as "i"("i")
  %t = ln.param {from_file = true} : tensor<70x50xf32> as "t"("t")
  %k = ln.param {from_file = true} : tensor<9xi64> as "k"("k")
  %g = ln.take %t, %i {axis = 0} : tensor<4x50xf32> as "g"("g")
  %h = ln.take %g, %k {axis = 0} : tensor<9x50xf32> as "h"("h")
  func.return %h : tensor<9x50xf32>
} }"""
_PORTS = """
builtin.module { func.func @main() -> tensor<2x200x500xf32> {
  %x = ln.input : tensor<2x200x500xf32> as "x"("x")
  %a = ln.softmax %x {axis = 2} : tensor<2x200x500xf32> as "a"("a")
  %b = ln.gelu %a : tensor<2x200x500xf32> as "b"("b")
  func.return %b : tensor<2x200x500xf32>
} }"""
_OPEN = """
builtin.module { func.func @main() -> (tensor<?x?x8xf32, #ln.dims<"batch(1..4), n(1..600)">>, tensor<?x1x8xf32, #ln.dims<"batch(1..4)">>) {
  %x = ln.input : tensor<?x?x16xf32, #ln.dims<"batch(1..4), n(1..600)">> as ("x")
  %m = ln.input : tensor<?x?x8xf32, #ln.dims<"batch(1..4), n(1..600)">> as ("m")
  %w = ln.param {from_file = true} : tensor<16x8xf32> as ("w")
  %y = ln.matmul %x, %w : tensor<?x?x8xf32, #ln.dims<"batch(1..4), n(1..600)">>
  %z = ln.mul %y, %m : tensor<?x?x8xf32, #ln.dims<"batch(1..4), n(1..600)">>
  %s = ln.softmax %z {axis = 1} : tensor<?x?x8xf32, #ln.dims<"batch(1..4), n(1..600)">>
  %r = ln.add %s, %m : tensor<?x?x8xf32, #ln.dims<"batch(1..4), n(1..600)">> as ("r")
  %q = ln.reduce_sum %r {axes = [1]} : tensor<?x1x8xf32, #ln.dims<"batch(1..4)">> as ("q")
  func.return %r, %q : tensor<?x?x8xf32, #ln.dims<"batch(1..4), n(1..600)">>, tensor<?x1x8xf32, #ln.dims<"batch(1..4)">>
} }"""


def files() -> dict[str, bytes]:
    """The files that are changed: of networks that are plain, of upstream's plan, with run-time calls, indices, and ports on several
    threads, and of dims that calls decide; and one for several processors."""
    import lightnet

    table = {"t": np.random.default_rng(0).standard_normal((70, 50)).astype("f"), "k": np.arange(9) % 4}
    conv = lightnet.loads(_CONV, ".net")
    made = {
        "conv": [lightnet.compile(conv)],
        "upstream": [lightnet.compile(conv, plan="upstream")],
        "printing": [lightnet.compile(lightnet.loads(_PRINTING, ".net"))],
        "take": [lightnet.compile(lightnet.loads(_TAKE, ".mlir", weights=table))],
        "ports": [lightnet.compile(lightnet.loads(_PORTS, ".mlir"), threads=2)],
        "open": [lightnet.compile(lightnet.loads(_OPEN, ".mlir", weights={"w": np.ones((16, 8), "f")}), threads=2)],
    }
    if os.uname().machine == "x86_64":
        made["variants"] = [lightnet.compile(conv, cpu=cpu) for cpu in ("host", "x86-64-v2", "x86-64")]
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (first, *others) in made.items():
            first.save(Path(folder, name), others)
            found[name] = Path(folder, name).read_bytes()
    return found


# -- changing a file -----------------------------------------------------------------------------------------

_VALUES = (-1, 0, 1, 2, 63, 64, 4096, 2**31, 2**40, 2**47, 2**63 - 1, 2**70, -(2**63), 1.5, "", "x", "in0", "arena", "static", "f64", "i1",
           "n", "2*batch", "n(1..601)", "64*batch*n", None, [], {}, [1], [-1, -4], [2**40, 2**40], True, float("nan"))  # fmt: skip


class Parts:
    """A file taken apart, to be changed and put together again with all sums right."""

    def __init__(self, data: bytes):
        from lightnet.runtime import lnx

        self.data = bytearray(data)
        self._start = len(lnx.MAGIC) + lnx.FIXED.size
        self._length, _ = lnx.FIXED.unpack(data[len(lnx.MAGIC) : self._start])
        self.header: Any = json.loads(data[self._start : self._start + self._length])
        self.spans = {n: (e["offset"], e["offset"] + e["size"]) for n, e in self.header["sections"].items()}

    def file(self) -> bytes:
        """The file: what the header says of contents is made true, what it says of places stays as it is."""
        from lightnet.runtime import lnx

        entries = self.header.get("sections") if isinstance(self.header, dict) else {}
        for name, (begin, _) in self.spans.items():
            entry = entries.get(name) if isinstance(entries, dict) else None
            if not isinstance(entry, dict):
                continue
            begin, size = (entry.get(k) if type(entry.get(k)) is int else 0 for k in ("offset", "size"))
            section = self.data[max(begin, 0) : max(begin + size, 0)] if size >= 0 else b""
            entry["sha256"] = sha256(section).hexdigest()
            if "crc" in entry:
                entry["crc"] = crc32(section)
        text = json.dumps(self.header, separators=(",", ":")).encode()
        if len(text) > self._length:
            return bytes(self.data)
        text = text.ljust(self._length)
        return lnx.packed_header(text) + bytes(self.data[self._start + self._length :])


def _places(node: Any) -> list[tuple[Any, Any]]:
    """Each value within a tree of JSON, as its container and key."""
    items = list(node.items()) if isinstance(node, dict) else list(enumerate(node)) if isinstance(node, list) else []
    return [place for key, child in items for place in [(node, key), *_places(child)]]


def _tree(rng: random.Random, tree: Any) -> None:
    """Change one value of a tree: to another kind, to one near it, to one from elsewhere in it; or drop it, or double it."""
    there = _places(tree)
    node, key = rng.choice(there)
    old, way = node[key], rng.randrange(6)
    if way == 0:
        node[key] = rng.choice(_VALUES)
    elif way == 1 and type(old) is int:
        node[key] = old + rng.choice((-4096, -64, -8, -1, 1, 8, 64, 4096)) if rng.random() < 0.7 else old * 2
    elif way == 1 and isinstance(old, str) and (numbers := list(re.finditer(r"[0-9]+", old))):
        there = rng.choice(numbers)
        number = (
            max(int(there[0]) + rng.choice((-64, -8, -1, 1, 8, 64)), 0) if rng.random() < 0.7 else 2 * int(there[0])
        )
        node[key] = f"{old[: there.start()]}{number}{old[there.end() :]}"
    elif way == 2 or (way == 1 and type(old) is not int):
        other, name = rng.choice(there)
        node[key] = copy.deepcopy(other[name])
    elif way == 3:
        del node[key]
    elif way == 4 and isinstance(old, list):
        rng.shuffle(old)
    elif isinstance(node, list):
        node.append(copy.deepcopy(old))
    else:
        items = list(node.items())
        rng.shuffle(items)
        node.clear()
        node.update(items)


def _header(rng: random.Random, parts: Parts) -> None:
    _tree(rng, parts.header)


def _program(rng: random.Random, parts: Parts) -> None:
    """The parts that say where tensors are."""
    variant = rng.choice(parts.header["variants"])
    _tree(rng, variant["program"] if rng.random() < 0.8 else variant)


def _sections(rng: random.Random, parts: Parts) -> None:
    _tree(rng, parts.header["sections"])


def _contents(rng: random.Random, parts: Parts) -> None:
    """Contents of tensors and texts: bytes, or all of one kind."""
    begin, end = rng.choice([span for name, span in parts.spans.items() if not name.startswith("code")])
    if begin == end:
        return
    for _ in range(rng.randrange(1, 20)):
        parts.data[rng.randrange(begin, end)] = rng.randrange(256)
    if rng.random() < 0.2:
        parts.data[begin:end] = bytes([rng.choice((0, 0x7F, 0xFF))]) * (end - begin)


def _facts(rng: random.Random, parts: Parts) -> None:
    """Change what a section of code says of itself, and seal it again."""
    from lightnet.runtime import lnx

    begin, end = rng.choice([span for name, span in parts.spans.items() if name.startswith("code")])
    facts, body = lnx.unpacked_code(bytes(parts.data[begin:end]))
    _tree(rng, facts)
    section = lnx.packed_code(facts, bytes(body))
    if len(section) == end - begin:
        parts.data[begin:end] = section


def _bytes(rng: random.Random, parts: Parts) -> None:
    """Bytes of the whole file but its code, or a file of another length."""
    code = [span for name, span in parts.spans.items() if name.startswith("code")]
    at = rng.randrange(len(parts.data))
    if rng.random() < 0.3:
        del parts.data[at:]
    elif rng.random() < 0.1:
        parts.data += bytes(rng.randrange(1, 9000))
    elif not any(begin <= at < end for begin, end in code):
        parts.data[at] ^= 1 << rng.randrange(8)


_CHANGES: tuple[Callable[[random.Random, Parts], None], ...] = (
    _header, _header, _program, _program, _program, _sections, _contents, _contents, _facts, _bytes,
)  # fmt: skip


def changed(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """A changed file, and the names of what was done."""
    parts, done = Parts(data), []
    for _ in range(rng.choice((1, 1, 2, 3))):
        change = rng.choice(_CHANGES)
        try:
            change(rng, parts)
        except (KeyError, TypeError, IndexError, AttributeError, ValueError):
            continue  # an earlier change took away what this one is of
        done.append(change.__name__[1:])
    return parts.file(), "+".join(done)


def is_the_code(data: bytes, original: bytes) -> bool:
    """Return whether all sections of code of a file are those of the original: these bytes are run."""
    from lightnet.runtime import lnx

    spans = Parts(original).spans
    for name, (begin, end) in spans.items():
        if name.startswith("code") and data[begin:end] != original[begin:end]:
            return False
    return data[: len(lnx.MAGIC)] == lnx.MAGIC


# -- running a file ------------------------------------------------------------------------------------------


class Fence:
    """Memory between pages that cannot be touched, as `arrays.aligned` gives it; what the alignment leaves at its ends is looked at."""

    def __init__(self) -> None:
        self._held: list[tuple[mmap.mmap, int, int]] = []
        self._libc = ctypes.CDLL(None, use_errno=True)

    def aligned(self, nbytes: int, alignment: int = 64, zeroed: bool = False) -> np.ndarray:
        """Bytes that end as near as the alignment allows at a page behind which there is none."""
        from lightnet.diagnostics import LightNetError

        page = mmap.PAGESIZE
        inner = max(-(-nbytes // page), 1) * page
        if inner > 1 << 32:
            raise LightNetError(f"cannot allocate {nbytes} bytes for a compiled network")
        memory = mmap.mmap(-1, inner + 2 * page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for at in (0, page + inner):
            if self._libc.mprotect(ctypes.c_void_p(base + at), ctypes.c_size_t(page), 0):
                raise OSError("mprotect")
        start = page + (inner - nbytes) // alignment * alignment
        whole = np.frombuffer(memory, np.uint8)[page : page + inner]
        if not zeroed:
            whole[:] = _CANARY
        whole[: start - page], whole[start - page + nbytes :] = _CANARY, _CANARY
        self._held.append((memory, start, nbytes))
        return np.frombuffer(memory, np.uint8)[start : start + nbytes]

    def check(self) -> None:
        """AssertionError where a byte beside the memory was written; gives it back."""
        for memory, start, nbytes in self._held:
            whole = np.frombuffer(memory, np.uint8)[mmap.PAGESIZE : -mmap.PAGESIZE]
            at = start - mmap.PAGESIZE
            assert (whole[:at] == _CANARY).all() and (whole[at + nbytes :] == _CANARY).all(), (
                "a byte outside was written"
            )
        self._held.clear()


def fenced() -> Fence:
    """Put all memory of networks that are loaded from now on behind fences."""
    from lightnet.runtime import arrays, copies, instance, saved

    fence = Fence()
    os.environ["LIGHTNET_CACHE"] = "off"  # large sections are read, too
    copies._memory = fence.aligned
    for module in (arrays, copies, instance, saved):
        module.aligned = fence.aligned
    return fence


def outcome(data: bytes, original: bytes, fence: Fence, path: Path) -> str:
    """Load a file, and call it where its code is the original's: ``refused``, ``loaded`` or ``ran``. Raises for all else."""
    import lightnet
    from lightnet.diagnostics import LightNetError
    from lightnet.runtime.saved import types_of

    path.write_bytes(data)
    try:
        run = lightnet.load_executable(path)
    except LightNetError as error:
        _ = str(error)
        return "refused"
    try:
        if not is_the_code(data, original):
            return "loaded"
        for call in run.program.examples:
            feeds = {}
            for name, (dims, dtype) in call.input_types().items():
                raw = fence.aligned(int(np.prod(dims)) * dtype.itemsize)
                feeds[name] = raw.view(dtype).reshape(dims)
                feeds[name][...] = 1 << 40 if dtype.itemsize == 8 else 1
            given = types_of(call.shown)
            out = {n: fence.aligned(int(np.prod(d)) * t.itemsize).view(t).reshape(d) for n, (d, t) in given.items()}
            for threads in (1, run.threads):
                run(feeds, stream=io.StringIO(), threads=threads)
                run(feeds, stream=io.StringIO(), threads=threads, out=out if len(out) == len(call.outputs) else None)
        _ = repr(run), run.texts
    except LightNetError as error:
        _ = str(error)
        return "refused when called"
    finally:
        run = None
        fence.check()
    return "ran"


def sample(seed: int, originals: dict[str, bytes]) -> tuple[str, bytes, str]:
    """The network, the file and the changes of a number."""
    rng = random.Random(seed)
    name = rng.choice(sorted(originals))
    return name, *changed(rng, originals[name])


def _work(seeds: range, originals: dict[str, bytes], out: int, folder: Path) -> None:
    """The child: a line for each number, before and after."""
    fence = fenced()
    for seed in seeds:
        name, data, done = sample(seed, originals)
        os.write(out, f"{seed} begin {name} {done}\n".encode())
        signal.alarm(PATIENCE)
        try:
            said = outcome(data, originals[name], fence, folder / "changed.lnx")
        except BaseException as error:
            said = f"FOUND {type(error).__name__}: {error!s:.200}".replace("\n", " ")
        signal.alarm(0)
        os.write(out, f"{seed} end {said}\n".encode())


def results(seeds: range, originals: dict[str, bytes]) -> Iterator[tuple[int, str]]:
    """(number, what became of it), in order: `outcome`'s words, or what was found."""
    while seeds:
        reader, writer = os.pipe()
        with tempfile.TemporaryDirectory() as folder:
            sys.stdout.flush()
            child = os.fork()
            if not child:
                os.close(reader)
                try:
                    _work(seeds, originals, writer, Path(folder))
                finally:
                    os._exit(0)
            os.close(writer)
            begun, what = seeds.start, "before it was begun"
            with os.fdopen(reader) as lines:
                for line in lines:
                    number, word, rest = line.rstrip("\n").split(" ", 2)
                    if word == "begin":
                        begun, what = int(number), rest
                    else:
                        yield int(number), rest if not rest.startswith("FOUND") else f"{rest} [{what}]"
                        seeds = range(int(number) + 1, seeds.stop)
            _, status = os.waitpid(child, 0)
            if seeds:
                begun = max(begun, seeds.start)
                how = signal.Signals(status & 0x7F).name if status & 0x7F else "the child ended"
                yield begun, f"FOUND {how} [{what}]"
                seeds = range(begun + 1, seeds.stop)


def main(argv: list[str] | None = None) -> int:
    """The tool; returns the exit status."""
    parser = argparse.ArgumentParser(
        description="Change saved executables at random, and see what loading and calling them does."
    )
    parser.add_argument("--count", type=int, default=2000, help="files (2000)")
    parser.add_argument("--seed", type=int, default=0, help="of the first file; the others follow (0)")
    parser.add_argument("--keep", metavar="FOLDER", help="where files go with which something was found")
    args = parser.parse_args(argv)
    originals, counts, found = files(), Counter(), 0
    for number, said in results(range(args.seed, args.seed + args.count), originals):
        counts["FOUND" if said.startswith("FOUND") else said] += 1
        if said.startswith("FOUND"):
            found += 1
            print(f"seed {number}: {said}", flush=True)
            if args.keep:
                Path(args.keep).mkdir(parents=True, exist_ok=True)
                Path(args.keep, f"{number}.lnx").write_bytes(sample(number, originals)[1])
    print(
        f"{sum(counts.values())} files from seed {args.seed}: "
        + ", ".join(f"{n} {what}" for what, n in counts.most_common())
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
