"""The C header of a network that is compiled for C: sizes and shapes as macros, and a typed prototype.

Names of tensors become identifiers of C99. Imports the runtime.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import prod

from lightnet.backends.llvm.library import BAD_ARENA, BAD_TENSOR, BAD_VALUE, OK, is_decided, signature
from lightnet.backends.llvm.pool import scratch_stride
from lightnet.diagnostics import printable
from lightnet.runtime.arrays import ALIGNMENT
from lightnet.runtime.dims import greatest, is_known
from lightnet.runtime.dtypes import BY_NAME, STORED
from lightnet.runtime.program import Program, Tensor

#: The type of an element. A bool is a byte of 0 or 1, f16 and bf16 are their bits, and so is one of a type that is only
#: stored in.
C_TYPES = {
    "f64": "double", "f32": "float", "f16": "uint16_t", "bf16": "uint16_t", "i1": "uint8_t",
    **{f"i{n}": f"int{n}_t" for n in (8, 16, 32, 64)}, **{f"ui{n}": f"uint{n}_t" for n in (8, 16, 32, 64)},
    **{d.name: "uint8_t" for d in STORED},
}  # fmt: skip
_KEYWORDS = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return "
    "short signed sizeof static struct switch typedef union unsigned void volatile while "  # C99
    "alignas alignof asm bool catch class constexpr decltype delete dynamic_cast explicit export false friend mutable "
    "namespace new "
    "noexcept nullptr operator private protected public reinterpret_cast static_assert static_cast template this "
    "thread_local throw "
    # C23, C++, macros
    "true try typeid typename typeof using virtual wchar_t and or not xor linux unix main errno".split()
)
_LONGEST = 60  # significant characters: C99 promises 31 of an external name, every compiler of today more


def c_identifier(text: str) -> str:
    """`text` as a C identifier: other characters become ``_``, and so does what makes it begin with a letter."""
    name = re.sub(r"[^0-9A-Za-z_]", "_", text)[:_LONGEST]
    name = re.sub(r"^_*(?=[A-Za-z])", "", name)  # names that begin with _ are the implementation's
    return name if re.match("[A-Za-z]", name) and name not in _KEYWORDS else f"t_{name}"


def identifiers(names: Iterable[str], taken: Iterable[str]) -> list[str]:
    """An identifier for each name; no two are equal, also in capitals."""
    used, found = {t.upper() for t in taken}, []
    for name in names:
        base = candidate = c_identifier(name)
        n = 2
        while candidate.upper() in used:
            candidate, n = f"{base}_{n}", n + 1
        used.add(candidate.upper())
        found.append(candidate)
    return found


def header(name: str, program: Program, version: str) -> str:
    """The header for `library(name, ...)` of a program."""
    tensors = signature(program)
    count = len(tensors) - len(program.outputs)
    labels = identifiers((s.name for s in program.symbols), taken=("arena", "threads", "tensor", "dims"))
    names = identifiers((t.name for t in tensors), taken=("arena", "threads", *labels))
    macro = name.upper()
    values = [f"int64_t {label}" for label in labels]
    arena = program.memory.get("arena", 0)
    lines = [
        f"/* A neural network compiled by LightNet {version}, to be called from C or C++.",
        " *",
        f" * {name}_run reads inputs and writes outputs where the pointers say; an output shares no memory with "
        "anything else. The arena",
        " * needs no contents; calls on arenas of their own may run at the same time. Elements are in row-major order.",
        " */",
        f"#ifndef {macro}_H", f"#define {macro}_H", "", "#include <stddef.h>", "#include <stdint.h>", "",
        f"/* Bytes of memory that a{'ny' * bool(labels)} call works on, and what their address is a multiple of. */",
        f"#define {macro}_{'MOST_' * bool(labels)}ARENA_BYTES {max(greatest(arena), 1)}",
        f"#define {macro}_ARENA_ALIGN {ALIGNMENT}",
        f"#define {macro}_INPUTS {count}", f"#define {macro}_OUTPUTS {len(program.outputs)}",
        f"#define {macro}_THREADS {program.widest}", f"#define {macro}_SCRATCH_BYTES {scratch_stride(program.scratch)}",
        "",
        "/* What the call returns. */", f"#define {macro}_OK {OK}",
        f"#define {macro}_BAD_ARENA {BAD_ARENA} /* the arena is null, or not aligned */",
        f"#define {macro}_BAD_TENSOR {BAD_TENSOR} /* the pointer to an input or an output is null"
        f"{', or one that grows is not that of its output' * bool(program.caches())} */",
        *([f"#define {macro}_BAD_VALUE {BAD_VALUE} /* a size that the call decides is out of its range */"]
          if labels else ()), "",
    ]  # fmt: skip
    for s, label in zip(program.symbols, labels):
        what = f"{macro}_DIM_{label.upper()}"
        lines += [f"/* {label}, which each call decides: {s.domain} */", f"#define {what}_LEAST {s.low}",
                  f"#define {what}_MOST {s.high}", f"#define {what}_MULTIPLE {s.multiple}", ""]  # fmt: skip
    for i, (tensor, label) in enumerate(zip(tensors, names)):
        unread = len(program.inputs) <= i < count
        prefix = f"{macro}_{'IN' if i < count else 'OUT'}_{label.upper()}"
        lines += _macros(prefix, tensor, i < count, unread)
        lines[-1:-1] = [f"#define {prefix}_TENSOR {i}"] if labels and is_decided(tensor, program) else []
        lines[-1:-1] = _growth(prefix, tensor, program)
        lines[-1:-1] = _counts(program, tensor, dict(zip((t.name for t in tensors), names))) if i >= count else []
    parameters = ["void *arena", *values]
    parameters += [
        f"{'const ' if i < count else ''}{C_TYPES[t.dtype]} *{n}" for i, (t, n) in enumerate(zip(tensors, names))
    ]
    lines += ["#ifdef __cplusplus", 'extern "C" {', "#endif", "", _prototype(f"{name}_run", parameters), ""]
    if program.widest > 1:
        lines += [f"/* As {name}_run, on so many threads at most of the process's own pool, which it makes; on as many "
                  "as the caller may use",
                  f" * processors where that is 0. More than {macro}_THREADS are of no use. */",
                  _prototype(f"{name}_run_threads", ["int threads", *parameters]), "",
                  f"/* Bytes that the pool takes for such a call beside the arena, {macro}_SCRATCH_BYTES a thread but "
                  "the first: once, and for good. */",
                  f"uint64_t {name}_scratch_bytes(int threads);", ""]  # fmt: skip
    what = "Bytes of the arena of a call; 0 for values out of their range." if labels else (
        f"{macro}_ARENA_BYTES, for who loads the library at run time.")  # fmt: skip
    lines += [f"/* {what} */", f"uint64_t {name}_arena_bytes({', '.join(values) or 'void'});", ""]
    if labels:
        lines += ["/* Bytes of an input or output by its number (..._TENSOR), whose dims are written where dims is not "
                  "null; 0 for what there is not. */",
                  f"uint64_t {name}_tensor_bytes(int tensor, {', '.join(values)}, int64_t *dims);", ""]  # fmt: skip
    lines += ["#ifdef __cplusplus", "}", "#endif", "", "#endif", ""]  # fmt: skip
    return "\n".join(lines)


def _prototype(function: str, parameters: Sequence[str]) -> str:
    return f"int {function}({f',{chr(10)}{chr(32) * (len(function) + 5)}'.join(parameters)});"


def _counts(program: Program, tensor: Tensor, names: Mapping[str, str]) -> list[str]:
    """The lines on what the data decides of an output: its dims are the largest that it can have, and another output
    says how many elements count.
    """
    return [f"/* axis {axis} has as many elements as {names[count]} says, the first of those that there is memory for; "
            "the others lie where "
            "they would without it */" for name, axis, count in program.counts if name == tensor.name]  # fmt: skip


def _growth(prefix: str, tensor: Tensor, program: Program) -> list[str]:
    """The lines on an input that grows, and on what it becomes."""
    for old, new in program.caches().values():
        if tensor in (old, new):
            dims = ", ".join(map(str, new.memory_dims))
            said = [f"#define {prefix}_MEMORY_DIMS {{{dims}}}"] if is_known(new.memory_dims) else []
            return [f'/* input "{_shown(old.name)}" becomes output "{_shown(new.name)}" where it is: both pointers are '
                    "the same, and what is new is written */", *said]  # fmt: skip
    return []


def _shown(text: str) -> str:
    """A text of the network for a comment."""
    ascii_text = printable(text).encode("ascii", "backslashreplace").decode()
    return ascii_text.replace("*/", "* /").replace("/*", "/ *")[:200]


def _macros(prefix: str, tensor: Tensor, is_input: bool, unread: bool) -> list[str]:
    what = "input" if is_input else "output"
    note = ", which nothing reads" if unread else ""
    note += f", at the front of {_shown(str(list(tensor.memory_dims)))}" if tensor.grows else ""
    lines = [
        f'/* {what} "{_shown(tensor.name)}": {tensor.dtype} {_shown(str(list(tensor.dims)))}{note} */',
        f"#define {prefix}_RANK {len(tensor.dims)}",
    ]
    if not is_known(tensor.dims):
        return [*lines, ""]
    if tensor.dims:
        lines.append(f"#define {prefix}_DIMS {{{', '.join(map(str, tensor.dims))}}}")
    lines += [
        f"#define {prefix}_COUNT {prod(tensor.dims)}",
        f"#define {prefix}_BYTES {prod(tensor.dims) * BY_NAME[tensor.dtype].size}",
    ]
    return [*lines, ""]
