"""Sections of code in saved executables, each field that may lie: the bytes of a section, the linking of an image, the sizes of objects;
and each entry of a header."""

from __future__ import annotations

import copy
import json
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lightnet
from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.runtime import lnx
from lightnet.runtime.lnx_check import Lie, check_header, check_image, check_objects, check_program
from lightnet.runtime.native_format import NATIVE

START = len(lnx.CODE_MAGIC) + lnx.FIXED.size


def test_a_section_comes_back() -> None:
    for body in (b"", b"x" * 5000):
        section = lnx.packed_code({"kind": "image", "n": [1]}, body)
        facts, found = lnx.unpacked_code(section)
        assert (
            facts == {"kind": "image", "n": [1]} and bytes(found) == body and (len(section) - len(body)) % lnx.PAGE == 0
        )


def sealed(rest: bytes, length: int) -> bytes:
    return lnx.CODE_MAGIC + lnx.FIXED.pack(length, zlib.crc32(rest)) + rest


@pytest.mark.parametrize(("section", "message"), [
    (b"", "is no code"),
    (lnx.CODE_MAGIC, "is no code"),
    (sealed(b"", 0)[: START - 1], "is no code"),
    (b"X" + sealed(b"{}", 2)[1:], "is no code"),
    (sealed(b"{}", 3), "is damaged"),
    (sealed(b"{}", 2)[:-1] + b"]", "is damaged"),
    (sealed(b"[]", 2), "has no facts"),
])  # fmt: skip
def test_sections_that_are_none(section: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        lnx.unpacked_code(section)


def test_the_least_section() -> None:
    assert lnx.unpacked_code(sealed(b"{}", 2))[0] == {}
    with pytest.raises(ValueError, match="Expecting value"):
        lnx.unpacked_code(sealed(b"", 0))  # whole, and of no JSON


def head_of(path: Path, content: bytes) -> Any:
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)
    try:
        return lnx.read_head(fd, SourceLoc("f"))
    except LightNetError as error:
        return error.message
    finally:
        os.close(fd)


def test_headers(tmp_path: Path) -> None:
    path, header = tmp_path / "f", lnx.packed_header(b"{}")
    other, damaged = (
        "this is no executable saved by this version of LightNet",
        "the file is damaged or cut short: its header does not match its checksum",
    )
    assert (
        head_of(path, b"")
        == head_of(path, header[: len(lnx.MAGIC) + lnx.FIXED.size - 1])
        == head_of(path, b"?" + header[1:])
        == other
    )
    assert head_of(path, header[:-1]) == head_of(path, header[:-1] + b"]") == damaged
    short = head_of(path, header)
    assert (short.raw, short.text, short.size, short.signature) == (header, b"{}", len(header), None)
    signature = lnx.SIGNATURE_MAGIC + b"p" * 32 + b"s" * 64
    for pages, found in ((lnx.PAGE, (b"p" * 32, b"s" * 64)), (lnx.PAGE + 1, None)):
        assert head_of(path, header.ljust(pages, b"\0") + signature).signature == found
    assert head_of(path, header.ljust(lnx.PAGE, b"\0") + b"?" + signature[1:]).signature is None


GOOD = {"writable": 4096, "exports": {"main": 0}, "imports": {"exp": 4096}, "relative": [4104, 8184]}
IMAGES = [
    ({}, 8192, None),
    ({"writable": 8192, "imports": {}, "relative": []}, 8192, None),
    ({"exports": {"main": 4095}}, 8192, None),
    ({"exports": {"main": 4096}}, 8192, "'main' stands outside of the code"),
    ({"imports": {"exp": 4088}}, 8192, "an import stands within the code"),
    ({"relative": [4103]}, 8192, "two relocations of one word"),
    ({"relative": [4112, 4104]}, 8192, None),
    ({"relative": [8185]}, 8192, "a relocation is 8185"),
    ({"relative": [-1]}, 8192, "a relocation is -1"),
    ({"writable": 0, "exports": {}}, 8192, "the code is no whole pages"),
    ({"writable": 4095}, 8192, "the code is no whole pages"),
    ({}, 8191, "the code is no whole pages"),
    ({"writable": 0}, 0, "the code is no whole pages"),
    ({"writable": 8193}, 8192, "the size of the code is 8193"),
    ({"exports": []}, 8192, "the list of exports is no table"),
    ({"imports": None}, 8192, "the list of imports is no table"),
    ({"relative": {}}, 8192, "the list of relocations is no list"),
]


def test_images() -> None:
    def said(facts: dict[str, Any], size: int) -> str | None:
        try:
            check_image({**GOOD, **facts}, size)
        except Lie as lie:
            return str(lie)
        return None

    assert [(facts, size, said(facts, size)) for facts, size, _ in IMAGES] == IMAGES


def test_objects() -> None:
    facts = {"kind": "objects", "objects": [2, 0, 3]}
    assert check_objects(facts, 5) == [2, 0, 3]
    assert NATIVE.objects(facts, memoryview(b"abcde")) == (b"ab", b"", b"cde")
    assert NATIVE.objects({**facts, "kind": "image"}, memoryview(b"")) == ()
    assert NATIVE.unpacked(None, facts, memoryview(b"")) is None  # type: ignore[arg-type]
    for size in (4, 6):
        with pytest.raises(Lie, match="the objects are not what the code has"):
            check_objects(facts, size)
    with pytest.raises(Lie, match="the size of an object is -1"):
        check_objects({"objects": [-1]}, 0)
    assert struct.calcsize("<QI") == lnx.FIXED.size


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to what a value holds, of any depth, the last of which is a key or a number."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*at, key)
        yield from places(inner, (*at, key))


def without_or_as(value: Any, place: tuple[Any, ...], *other: Any) -> Any:
    """A copy of `value` in which something else stands at a place, or nothing."""
    changed = inner = copy.deepcopy(value)
    for key in place[:-1]:
        inner = inner[key]
    inner.pop(place[-1])
    if other:
        inner.insert(place[-1], *other) if isinstance(inner, list) else inner.update({place[-1]: other[0]})
    return changed


def test_each_entry_of_a_header(tmp_path: Path) -> None:
    """Of every other type, or not there: what cannot be is said by a `Lie` of its own, not by whatever stumbles over it."""
    net = "input(| dst=x | dtype=TL_FLOAT, dims=[1, 4]);\nrelu(src=x | dst=y |);\n"
    lightnet.compile(lightnet.loads(net, ".net")).save(tmp_path / "n.lnx")
    head = head_of(tmp_path / "n.lnx", (tmp_path / "n.lnx").read_bytes())
    header = json.loads(head.text)

    def said(header: Any) -> str | None:
        try:
            check_header(header, len(head.raw), head.size, False)
            check_program(header["variants"][0]["program"])
        except Lie as lie:
            return str(lie)
        return None

    assert said(header) is None
    needed = []
    for place in places(header):
        lies = [
            said(without_or_as(header, place, *other)) for other in ((), (None,), (3,), ("x",), ([],), ({},), (True,))
        ]
        needed += [place] if all(lies[:2]) else []
    assert {place[0] for place in needed} == {"variants", "texts", "options", "warnings", "sections"}
    assert {place[3] for place in needed if place[:3] == ("variants", 0, "program") and len(place) == 4} >= {
        "memory", "inputs", "outputs", "residents", "params", "hosts", "threads", "widest", "scratch", "cpu", "triple",
    }  # fmt: skip
    names = {
        ("sections",): "the list of sections is no table",
        ("texts",): "the list of texts is no table",
        ("variants",): "the list of variants is no list",
        ("variants", 0): "a variant is no table",
        ("variants", 0, "program"): "a program is no table",
        ("variants", 0, "defaults"): "the contents of inputs is no table",
    }
    assert {place: said(without_or_as(header, place, 3)) for place in names} == names
    assert said({**header, "variants": []}) == "there is no variant"
    hosts = ("variants", 0, "program", "hosts")
    for other in (None, 3, "x", [], True):
        assert said(without_or_as(header, hosts, [other])) == "a run-time call is no table"


def test_each_dimension_of_a_program(tmp_path: Path) -> None:
    """Of all that has a shape: a number that memory may have bytes, or the text of one. Nothing else comes further than
    the program's own check, which names it."""
    net = "input(| dst=x | dtype=TL_FLOAT, dims=[1, 4]);\nrelu(src=x | dst=y |);\n"
    lightnet.compile(lightnet.loads(net, ".net")).save(tmp_path / "n.lnx")
    program = json.loads(head_of(tmp_path / "n.lnx", (tmp_path / "n.lnx").read_bytes()).text)["variants"][0]["program"]
    tensor = {**program["inputs"][0], "name": "t"}
    host = {"kind": "print", "msg": "", "file": "", "dims": [1, 4], "dtype": tensor["dtype"]}
    program.update(residents=[tensor], unread=[{**tensor, "name": "u"}], hosts=[host])
    program = json.loads(json.dumps(program))  # so that no two of them have one list of dims
    check_program(program)
    wrong = (-1, (1 << 47) + 1, 1.0, True, False, None, [], [1], {}, float("nan"))
    seen = []
    for kind in ("inputs", "outputs", "residents", "unread", "hosts"):
        (entry,) = program[kind]
        what = f"'{entry['name']}'" if "name" in entry else "a run-time call"
        for at in range(len(entry["dims"])):
            for size in (0, 1, 1 << 47, "n", "4*n"):
                check_program(without_or_as(program, (kind, 0, "dims", at), size))
            for size in wrong:
                with pytest.raises(Lie) as caught:
                    check_program(without_or_as(program, (kind, 0, "dims", at), size))
                assert str(caught.value) == f"a dimension of {what} is {size!r}"
                seen.append((kind, at))
    assert len(set(seen)) == 10
