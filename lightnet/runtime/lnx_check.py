"""The statements of a ``.lnx`` about itself, checked before anything of it is mapped, allocated or run: one function
for each part.

A file may lie with its checksums repaired. So every size, offset, name and reference is checked by type and range,
sections against the file, tensors against their memory, and memory against what the code says that it was compiled for
(its facts). After that nothing but the code itself decides which bytes are touched; it is trusted. Where calls decide
sizes, the texts of these are bounded (`dim_text.py`), and each shape is checked before its first call, as numbers.
Every refusal is a `Lie`, which says what is wrong. Imports the standard library and the runtime's tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

from lightnet.runtime.dims import is_known
from lightnet.runtime.dtypes import BY_NAME
from lightnet.runtime.lnx import PAGE, SIGNATURE_BYTES, pages
from lightnet.runtime.program import Program, is_port, with_texts
from lightnet.runtime.threads import MAX_THREADS

#: No memory space is larger: what a processor of today can address.
MAX_BYTES = 1 << 47
MAX_RANK = 64
_DIGEST = re.compile(r"[0-9a-f]{64}")
#: Kinds of run-time calls (`instance.host_call`).
_HOST_KINDS = ("print", "fprint")


class Lie(ValueError):
    """An error: what a file says cannot be."""


def _require(fact: object, says: str) -> None:
    if not fact:
        raise Lie(says)


def _natural(value: Any, what: str, most: int = MAX_BYTES) -> int:
    _require(type(value) is int and 0 <= value <= most, f"{what} is {value!r:.40}")
    return value


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    _require(isinstance(value, dict), f"{what} is no table")
    return value


def _list(value: Any, what: str) -> Sequence[Any]:
    _require(isinstance(value, list | tuple), f"{what} is no list")
    return value


def _text(value: Any, what: str) -> str:
    _require(isinstance(value, str), f"{what} is no name")
    return value


def _dims(value: Any, what: str) -> tuple[int, ...]:
    dims = tuple(_natural(d, f"a dimension of {what}") for d in _list(value, f"the shape of {what}"))
    _require(len(dims) <= MAX_RANK, f"{what} has {len(dims)} dimensions")
    return dims


def _size(value: Any, what: str) -> None:
    """A number, or the text of one."""
    _require(isinstance(value, str) or _natural(value, what) >= 0, what)


def _nbytes(dims: Sequence[int], dtype: Any, what: str) -> int:
    _require(isinstance(dtype, str) and dtype in BY_NAME, f"{what} is of type {dtype!r:.40}")
    return prod(dims) * BY_NAME[dtype].size


# -- the parts of a file -------------------------------------------------------------------------------------


def check_header(header: Mapping[str, Any], start: int, size: int, is_signed: bool) -> None:
    """The sections of a file (as `check_sections`), its texts, and its variants, but for their programs."""
    check_sections(header, start, size, is_signed)
    check_texts(header)
    variants = _list(header.get("variants"), "the list of variants")
    _require(variants, "there is no variant")
    for variant in variants:
        check_variant(variant, header["sections"])


def check_sections(header: Mapping[str, Any], start: int, size: int, is_signed: bool) -> None:
    """The sections, behind `start` bytes of header in a file of `size` bytes: in order, one behind the other, the last
    at the end. Arrays have as many bytes as their shapes say."""
    sections = _mapping(header.get("sections"), "the list of sections")
    spans = []
    for name, entry in sections.items():
        what = f"section '{name:.80}'"
        _mapping(entry, what)
        begin, nbytes = (
            _natural(entry.get("offset"), f"the offset of {what}"),
            _natural(entry.get("size"), f"the size of {what}"),
        )
        _require(begin % PAGE == 0, f"{what} begins within a page")
        _require(begin + nbytes <= size, f"{what} ends at byte {begin + nbytes}, behind the end of the file")
        digest = entry.get("sha256")
        _require(isinstance(digest, str) and _DIGEST.fullmatch(digest), f"{what} has no digest")
        if "crc" in entry:
            _natural(entry["crc"], f"the checksum of {what}", 0xFFFFFFFF)
        if "dims" in entry or "dtype" in entry:
            _require(
                _nbytes(_dims(entry.get("dims"), what), entry.get("dtype"), what) == nbytes,
                f"{what} has another size than its shape",
            )
        spans.append((begin, begin + nbytes, what))
    spans.sort()
    at = start
    for begin, end, what in spans:
        _require(begin == pages(at), f"{what} begins at byte {begin}, and not where the bytes before it end")
        at = end
    _require(size == pages(at) + is_signed * SIGNATURE_BYTES, "the file is longer than what it lists")


def check_variant(variant: Any, sections: Mapping[str, Any]) -> None:
    """One variant: its fields, and that what they name is there."""
    _mapping(variant, "a variant")
    for name in ("code", "static"):
        _require(
            _text(variant.get(name), f"the {name} of a variant") in sections,
            f"there is no section '{variant[name]:.80}'",
        )
    _require("dims" in sections[variant["static"]], "the static tensors are no array")
    for name, section in _mapping(variant.get("defaults"), "the contents of inputs").items():
        _require(isinstance(section, str) and section in sections, f"the contents of '{name:.80}' are not there")
        _require("dims" in sections[section], f"the contents of '{name:.80}' are no array")
    for feature in _list(variant.get("requires"), "what a variant requires"):
        _text(feature, "what a variant requires")
    program = _mapping(variant.get("program"), "a program")
    for name in ("cpu", "features", "triple"):
        _text(program.get(name), f"the {name} of a program")


def check_texts(header: Mapping[str, Any]) -> None:
    """Check what else the header has: named texts, options, warnings."""
    for name, section in _mapping(header.get("texts"), "the list of texts").items():
        _require(isinstance(section, str) and section in header["sections"], f"the text '{name:.80}' is not there")
    _mapping(header.get("options"), "the list of options")
    for warning in _list(header.get("warnings"), "the list of warnings"):
        _text(warning, "a warning")


def check_program(header: Mapping[str, Any]) -> None:
    """The program's interface: every tensor in some memory, every name that of a tensor. What sizes are `check_places`
    says."""
    memory = _mapping(header.get("memory"), "the list of memory spaces")
    for space, nbytes in memory.items():
        _size(nbytes, f"the size of memory '{space:.40}'")
    for text in _list(header.get("symbols", ()), "the list of symbols"):
        _text(text, "one of the symbols")
    for kind in ("inputs", "outputs", "residents", "unread"):
        names = [
            _check_tensor(t, memory if kind != "unread" else None)
            for t in _list(header.get(kind), f"the list of {kind}")
        ]
        _require(kind == "outputs" or len(set(names)) == len(names), f"two of the {kind} have one name")
    for kind in ("params", "restore", "fused", "reused", "required", "order"):
        for name in _list(header.get(kind), f"the list of {kind}"):
            _text(name, f"one of the {kind}")
    outputs = {t["name"] for t in header["outputs"]}
    for count in _list(header.get("counts"), "the list of counts"):
        _require(len(_list(count, "a count")) == 3 and type(count[1]) is int, "a count is no output, axis and output")
        _require(all(type(n) is str and n in outputs for n in (count[0], count[2])), "a count is of no output")
    for tensor in (*header["inputs"], *header["residents"]):
        _require(tensor["space"] != "static", f"'{tensor['name']:.80}' is filled, and stands where nothing is written")
    filled = {t["name"] for kind in ("inputs", "residents") for t in header[kind]}
    _require(set(header["restore"]) <= filled, "what is to be written again is no input")
    for pair in _list(header.get("overwritten"), "the list of what is overwritten"):
        _require(
            len(_list(pair, "what is overwritten")) == 2 and all(isinstance(n, str) for n in pair),
            "what is overwritten is no pair",
        )
    for host in _list(header.get("hosts"), "the list of run-time calls"):
        _check_host(host)
    threads, widest = (_natural(header.get(name), name, MAX_THREADS) for name in ("threads", "widest"))
    _require(1 <= widest <= threads, f"{widest} of {threads} threads")
    is_any = header.get("any_threads", threads == MAX_THREADS)
    _require(type(is_any) is bool and (not is_any or threads == MAX_THREADS), "any number of threads, and fewer")
    _natural(header.get("scratch"), "the scratch of a thread")


def _check_tensor(tensor: Any, memory: Mapping[str, Any] | None) -> str:
    """One tensor, in `memory` (None: it has no place). Its name."""
    what = f"'{_text(_mapping(tensor, 'a tensor').get('name'), 'that of a tensor'):.80}'"
    _check_shape(tensor, what)
    if grows := _list(tensor.get("grows", ()), f"how {what} grows"):
        _require(len(grows) == 2 and _natural(grows[0], "an axis") < len(tensor["dims"]), f"{what} grows along no axis")
        _natural(grows[1], f"what {what} has memory for")
    _size(tensor.get("offset"), f"the offset of {what}")
    space = _text(tensor.get("space"), f"the memory of {what}")
    _require(memory is None or space in memory, f"{what} stands in no memory of the program")
    return tensor["name"]


def _check_shape(entry: Mapping[str, Any], what: str) -> None:
    for size in _list(entry.get("dims"), f"the shape of {what}"):
        _size(size, f"a dimension of {what}")
    _nbytes((), entry.get("dtype"), what)


def _check_host(host: Any) -> None:
    _mapping(host, "a run-time call")
    _require(host.get("kind") in _HOST_KINDS, f"a run-time call is {host.get('kind')!r:.40}")
    for name in ("msg", "file"):
        _text(host.get(name), f"the {name} of a run-time call")
    _check_shape(host, "a run-time call")


def check_places(program: Program) -> None:
    """The sizes of a program of numbers, that of a call where calls decide them: every tensor in its memory, every port
    the memory of one."""
    for space, nbytes in program.memory.items():
        _natural(nbytes, f"the size of memory '{space:.40}'")
    for tensor in (*program.inputs, *program.outputs, *program.residents):
        what = f"'{tensor.name:.80}'"
        dims, memory = _dims(tensor.dims, what), _dims(tensor.memory_dims, what)
        end = _natural(tensor.offset, f"the offset of {what}") + _nbytes(memory, tensor.dtype, what)
        _require(all(n <= most for n, most in zip(dims, memory)), f"{what} is larger than its memory")
        _require(end <= program.memory[tensor.space], f"{what} lies outside of its memory")
    for dims in (*(t.dims for t in program.unread), *(h.dims for h in program.hosts)):
        _dims([d for d in dims if is_known([d])], "what nothing reads, or of a run-time call,")
    _check_caches(program)
    _require(set(program.ports) == set(tensors := program.port_tensors()), "a port that no tensor stands at")
    for tensor in (*program.inputs, *program.residents):
        fits = not is_port(tensor.space) or tensors.get(tensor.space) is tensor
        _require(fits, f"'{tensor.name:.80}' is not all of its port")


def _check_caches(program: Program) -> None:
    """The tensors that grow: an input and an output of one port, which they fill, alike but along one axis."""
    caches = program.caches()
    ends = [t for pair in caches.values() for t in pair]
    for tensor in (*program.inputs, *program.outputs, *program.residents, *program.unread):
        is_known_end = any(tensor is t for t in ends)
        grows = bool(tensor.grows) or tensor.space.startswith("cache")
        _require(is_known_end == grows, f"'{tensor.name:.80}' grows, and becomes nothing")
    for space, (old, new) in caches.items():
        axis, _ = old.grows
        is_pair = is_port(space) and (old.grows, old.dtype) == (new.grows, new.dtype)
        is_pair = is_pair and old.memory_dims == new.memory_dims and old.dims[axis] <= new.dims[axis]
        fills = all(not t.offset and t.nbytes == program.memory[space] for t in (old, new))
        _require(is_pair and fills, f"'{old.name:.80}' cannot become '{new.name:.80}' where it is")


def needs(program: Program) -> dict[str, Any]:
    """The demands of code on the memory that it was compiled for: a part of its facts."""
    hosts = with_texts([(h.kind, h.dims, h.dtype) for h in program.hosts])
    memory = with_texts(list(program.memory.items()))
    said = {"memory": memory, "hosts": hosts, "widest": program.widest, "scratch": program.scratch}
    return said | {"symbols": program.symbol_texts}


def check_needs(program: Program, facts: Mapping[str, Any], requires: Sequence[str]) -> None:
    """Check that a program gives its code just the memory, ports, run-time calls and threads that this was compiled
    for, on a processor that has what it requires.
    """
    _require(facts.get("requires") == list(requires), "the code was compiled for another processor")
    for name, value in needs(program).items():
        _require(facts.get(name, []) == value, f"the code was compiled for another {name}")


def check_contents(program: Program, static: Mapping[str, Any], defaults: Mapping[str, Mapping[str, Any]]) -> None:
    """The entries of the sections that fill memory: `static` is as large as the static space, and each input or
    resident has contents of its type, but for inputs that each call feeds."""
    needed = program.memory.get("static", 0)
    _require(is_known([needed]) and static["size"] >= needed, "the static tensors are too short")
    fed = set(program.required) - set(defaults)
    for tensor in (*(t for t in program.inputs if t.name not in fed), *program.residents):
        _require(tensor.name in defaults, f"'{tensor.name:.80}' has no contents")
        entry = defaults[tensor.name]
        is_same = tuple(entry["dims"]) == tensor.dims and entry["dtype"] == tensor.dtype
        _require(is_same, f"the contents of '{tensor.name:.80}' are of another type")


# -- code ----------------------------------------------------------------------------------------------------


def check_image(facts: Mapping[str, Any], size: int) -> None:
    """Check the linking of code of `size` bytes: entries in what is executable, imports in what is not and within it,
    no two relocations of one word."""
    writable = _natural(facts.get("writable"), "the size of the code", size)
    _require(size > 0 and size % PAGE == 0 and writable % PAGE == 0 and writable, "the code is no whole pages")
    exports, imports = (_mapping(facts.get(k), f"the list of {k}") for k in ("exports", "imports"))
    relative = _list(facts.get("relative"), "the list of relocations")
    for name, at in exports.items():
        _require(_natural(at, f"'{name:.40}'") < writable, f"'{name:.40}' stands outside of the code")
    patched = sorted(_natural(at, "a relocation", size - 8) for at in (*imports.values(), *relative))
    _require(all(at >= writable for at in imports.values()), "an import stands within the code")
    _require(all(b - a >= 8 for a, b in pairwise(patched)), "two relocations of one word")


def check_objects(facts: Mapping[str, Any], size: int) -> list[int]:
    """The sizes of objects that stand one behind the other in `size` bytes."""
    sizes = [_natural(n, "the size of an object") for n in _list(facts.get("objects"), "the list of objects")]
    _require(sum(sizes) == size, "the objects are not what the code has")
    return sizes


def checked_part(check: Callable[[], Any]) -> Any:
    """The result of `check`; what it finds in a value of no sensible type, as a `Lie`."""
    try:
        return check()
    except Lie:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise Lie(f"{type(error).__name__}: {error!s:.200}") from None
