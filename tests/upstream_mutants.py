"""Mutants of upstream's operator descriptions: what `test_upstream_mutants` loads, and what must hold of each.

    python tests/upstream_mutants.py 5000 [SEED]

A mutant is one of the files with a few changes of its text: characters and words that go, come, move or change, also inside of its C. It
loads or is refused with a place; its ops are then made and run on test cases, where they may be refused, too; all of it soon, without any
other exception, and without a file written or a program started.
"""

from __future__ import annotations

import random
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from counting import calls, ends
from xdsl.ir import Block

from lightnet.diagnostics import DescriptionWarning, LightNetError
from lightnet.dialects.ln.dialect import built_in_optypes
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet_descriptions import load_descriptions
from lightnet_descriptions.reader import read_description

FILES = sorted((Path(__file__).parent / "data" / "upstream" / "op").rglob("*.op"))
#: Calls for one mutant.
MOST = 2_000_000
_WORD = re.compile(r"\w+|[^\w\s]+|\s+")
#: What a mutation puts in.
PIECES = ["(", ")", "{", "}", "[", "]", ";", ",", '"', "`", "'", "\\", "*", "&", "->", "=", "==", "+", "-", "/", "%", "!", "?", ":", "0", "-1", "1",
          "4294967296", "99999999999999999999", "1e400", "0x", "1.5f", "NULL", "for (;;) ", "while (1) ", "if (1) ", "return ", "break;", "continue;", "goto x;",
          "int x = 1; ", "int a[99999999]; ", "char *p = ln_alloc(1 << 40); ", "src", "dst", "src->data", "dst->dims", "dst_dims", "priv->x", "op_arg->name",
          "system(\"touch /tmp/x\"); ", "fopen(\"/tmp/ln_mutant\", \"w\"); ", "tl_tensor_conv2d(src, dst);", "ln_alloc(-1)", "ln_free(src)", "TL_FLOAT",
          "LN_MEM_CPU", "true", "null", "#", "//", "/*", "*/", "static: true,", "src[i]", "++", "<<", ">>", "sizeof(int)", "(int[]){}", "(int)", "é", "\0"]  # fmt: skip
#: Events of the interpreter that no description may cause.
FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.connect", "os.remove", "os.rename", "shutil.rmtree", "ctypes.dlopen")  # fmt: skip
seen: list[str] = []
_watching = False


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _watching and (
        event in FORBIDDEN or (event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"))
    ):
        seen.append(f"{event}{args!r:.80}")


@cache
def _listen() -> None:
    """Have `_audit` called from now on, in this process for ever: not before there is something to hear, as it takes time of all that follows."""
    sys.addaudithook(_audit)


def mutants(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """`count` texts with the names of the files that they were."""
    rng = random.Random(seed)
    texts = [(path.name, path.read_text("utf-8")) for path in FILES]
    for k in range(count):
        name, text = texts[k % len(texts)]
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            text = changed(text, rng)
        yield name, text


def changed(text: str, rng: random.Random) -> str:
    """One change of a text."""
    words = [m.span() for m in _WORD.finditer(text)]
    if not words:
        return rng.choice(PIECES)
    (a, b), (c, d) = sorted((rng.choice(words), rng.choice(words)))
    match rng.randrange(9):
        case 0:  # a word goes
            return text[:a] + text[b:]
        case 1:  # a word comes
            return text[:a] + rng.choice(PIECES) + text[a:]
        case 2:  # a word is another
            return text[:a] + rng.choice(PIECES) + text[b:]
        case 3:  # two words change places
            return text[:a] + text[c:d] + text[b:c] + text[a:b] + text[d:] if b <= c else text
        case 4:  # a character goes
            at = rng.randrange(len(text))
            return text[:at] + text[at + 1 :]
        case 5:  # a word twice
            return text[:b] + text[a:b] + text[b:]
        case 6:  # the end is cut off
            return text[: rng.randrange(len(text))] if rng.random() < 0.3 else text[:a] + text[c:]
        case 7:  # a word of elsewhere
            return text[:a] + text[c:d] + text[b:]
    numbers = list(re.finditer(r"\b\d+\b", text))
    if not numbers:
        return text[:a] + text[b:]
    m = rng.choice(numbers)
    return text[: m.start()] + rng.choice(("0", "-1", "3", "1000000", "2147483648", "1e30")) + text[m.end() :]


def outcome(name: str, text: str) -> str:
    """What became of a mutant: ``refused`` (when it was loaded), ``loaded``, ``limited`` (an op was refused). Raises AssertionError for what
    may not be, and lets every exception through that is no `LightNetError`."""
    global _watching
    _listen()
    _watching = True
    try:
        with calls(at_most=MOST), ends(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DescriptionWarning)
            found = _outcome(name, text)
    finally:
        _watching = False
    assert not seen, seen
    return found


def _outcome(name: str, text: str) -> str:
    try:
        document = read_description(text, name)
        families = load_descriptions(document, replace=True).families
    except LightNetError as e:
        assert e.loc is not None and e.loc.file == name and e.loc.line, f"no place: {e.message}"
        return "refused"
    limited = False
    for cls in (c for ops in families.values() for c in ops):
        try:
            _try(cls)
        except LightNetError as e:
            assert str(e)
            limited = True
    return "limited" if limited else "loaded"


def made_like(cls: Any, op: Any) -> Any:
    """An op of a class, on the first test case of the op that it is called like."""
    case = op.schema.resolve(op.samples()[0])
    specs = [
        s
        for o in op.schema.operands
        for v in [case.tensors[o.name]]
        for s in ((v,) if isinstance(v, TensorSpec) else v)
    ]
    return cls.make(list(Block(arg_types=[tensor_type(s) for s in specs]).args), dict(case.params))


def _try(cls: Any) -> None:
    """Make and run a class on the first test case of the op that it is called like."""
    op = built_in_optypes().get(cls.optype.removesuffix(f"_{cls.arch}"))
    cases = op.samples() if op is not None else cls.samples()
    if not cases or op is None or op.is_host:
        return
    made = made_like(cls, op)
    if made.decomposition() is None and made.definition is not None:
        str(made.definition)


def main() -> None:
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    counts: Counter[str] = Counter()
    slowest, start = 0.0, time.perf_counter()
    for k, (name, text) in enumerate(mutants(count, seed)):
        at = time.perf_counter()
        try:
            counts[outcome(name, text)] += 1
        except BaseException:
            Path("/tmp/mutant.op").write_text(text)
            print(f"mutant {k} of {name}, in /tmp/mutant.op")
            raise
        slowest = max(slowest, time.perf_counter() - at)
    print(dict(counts), f"slowest {slowest:.2f} s, {time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
