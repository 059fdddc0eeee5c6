"""JSON IR, both ways: text to `Netlist` and back, for plain networks, planned ones and kernel regions.

    network := {"ops": [op], "mem_sizes_h": [int], "mem_sizes_l": [int], ...}
    op      := {"name": string, "optype": string, "tensors_in": [tensor], "tensors_out": [tensor], "params": [param],
                "body": [op]}
    tensor  := {"arg_name": string, "name": string, "dims": [int], "offset_h": int, "offset_l": int, "layout": string}
    param   := {"arg_name": string, "value": null | string | number | bool | [string] | [number | size] | [bool]}
    size    := "?" and the text of a size that each call decides, "?2*length(1..512) + 1" (ours; `runtime/dim_text.py`)

`body`, `dims`, the offsets and the memory sizes are optional: a kernel region has the first, a planned network the
others. A `_h`/`_l` pair is the high and the low 32-bit word of one number of bytes. Other keys are ignored, but those
of the top level are kept (`Netlist.extra`). Comments (`//` and `/* */`) are taken; trailing commas, duplicate keys, NaN
and Infinity are not.

`json_text.py` reads the text, so that memory holds one raw operator at a time. Imports the standard library, the
netlist, `form`, `json_text`, `source`, the text of dims and diagnostics only.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from lightnet.diagnostics import LightNetError
from lightnet.frontends.json_ir.form import check_depth, check_encodable, join_words, to_op, to_words
from lightnet.frontends.netlist import OPEN_SIZE, Netlist, NetOp, NetTensor
from lightnet.json_text import MAX_DEPTH, MAX_FILE, JsonText
from lightnet.runtime.dim_text import text
from lightnet.runtime.dims import Dim
from lightnet.source import STDIN_NAME, Texts, read_text

MAX_OPS = 250_000

_TOP_KEYS = ("ops", "mem_sizes_h", "mem_sizes_l")


def read(text: str, path: str) -> Netlist:
    """The network in `text`, which was read from `path` ("-" for standard input).

    Raises LightNetError with a place for anything that is no JSON, has not the form above, or exceeds the limits (size,
    depth 100, 64-bit integers). Whether the network makes sense (tensors defined before use, known operators) is not
    checked here.
    """
    return _Reader(text, STDIN_NAME if path == "-" else path).read()


def read_file(path: str) -> Netlist:
    """The network in a file ("-": standard input)."""
    return read(read_text(path, MAX_FILE), path)


# -- the text ---------------------------------------------------------------------------------------------------------
class _Reader(JsonText):
    needs = "parse error: top object should have an 'ops' item (an NNVM graph has 'nodes' and 'arg_nodes')"

    def read(self) -> Netlist:
        ops: list[NetOp] | None = None
        words: dict[str, tuple[list[int], int]] = {}
        extra: dict = {}
        start = self.skip(0)
        plain = self.text.isascii() and "\\u" not in self.text  # no string holds a surrogate
        for key, at, after in self.members():
            if key == "ops":
                ops, after[0] = self.ops(at)
                continue
            value, after[0] = self.value(at)
            if key in _TOP_KEYS:
                with_place = self.checked(partial(to_words, value, key), at)
                words[key] = with_place, at
            else:
                self.checked(partial(check_depth, value, MAX_DEPTH - 1), at)
                if not plain:
                    self.checked(partial(check_encodable, {key: value}), at)
                extra[key] = value
        if ops is None:
            raise self.error(
                "parse error: top object should have an 'ops' item (an NNVM graph has 'nodes' and 'arg_nodes')", start
            )
        texts = Texts()
        texts.add(self.path, self.lines.text)
        return Netlist(ops, self.path, self.mem_sizes(words), texts, extra)

    def mem_sizes(self, words: dict[str, tuple[list[int], int]]) -> list[int] | None:
        """The sizes of the memory types from their two words."""
        if not words:
            return None
        if len(words) == 1:
            have, (_, place) = next(iter(words.items()))
            raise self.error(f"'{have}' needs its partner 'mem_sizes_{'l' if have.endswith('h') else 'h'}'", place)
        (high, _), (low, at) = words["mem_sizes_h"], words["mem_sizes_l"]
        if len(high) != len(low):
            raise self.error("'mem_sizes_h' and 'mem_sizes_l' should have the same length", at)
        return [self.checked(partial(join_words, h, l), at) for h, l in zip(high, low)]

    def ops(self, at: int) -> tuple[list[NetOp], int]:
        """The operators of the array at `at`, each with the place of its object."""
        if self.text[at : at + 1] != "[":
            self.value(at)
            raise self.error("parse error: item 'ops' has to be an Array", at)
        ops: list[NetOp] = []
        names: set[str] = set()
        after = [at]
        for raw, start in self.items(at, after):
            if len(ops) >= MAX_OPS:
                raise self.error(f"the network has more than {MAX_OPS} operators", start)
            op = self.checked(partial(to_op, raw, len(ops), (), 2), start)
            self.locate(op, raw, start)
            if op.name in names:
                raise self.error(f"two operators are named '{op.name[:80]}'", start)
            names.add(op.name)
            ops.append(op)
        return ops, after[0]

    def locate(self, op: NetOp, raw: dict, at: int) -> None:
        """Give an operator, and those in its body, the places of their objects."""
        op.loc = self.lines.loc(self.path, at)
        if not op.body:
            return
        at = self.skip(self.find(at, ("body",)) + 1)
        for inner, raw_inner in zip(op.body, raw["body"]):
            self.locate(inner, raw_inner, at)
            _, at = self.scan(self.text, at)
            at = self.skip(self.skip(at) + 1)


# -- writing ----------------------------------------------------------------------------------------------------------
def write(netlist: Netlist) -> str:
    """The network as JSON in upstream's il2json form: three blanks a level, keys sorted, a newline at the end.

    `read(write(n))` is `n` but for locations. LightNetError for a number that JSON lacks (infinity, NaN).
    """
    top: dict[str, Any] = dict(netlist.extra)
    if netlist.mem_sizes is not None:
        top["mem_sizes_h"], top["mem_sizes_l"] = (
            map(list, zip(*map(_split, netlist.mem_sizes))) if netlist.mem_sizes else ([], [])
        )
    top["ops"] = [_op_json(op) for op in netlist.ops]
    try:
        return (
            json.dumps(top, indent=3, separators=(",", " : "), sort_keys=True, ensure_ascii=False, allow_nan=False)
            + "\n"
        )
    except ValueError:
        raise LightNetError("a parameter of the network is infinite or not a number, which JSON cannot say") from None


def _split(size: int) -> tuple[int, int]:
    """A number of bytes as signed 32-bit words, as upstream prints them."""
    low = size & 0xFFFFFFFF
    return size >> 32, low - (1 << 32) if low >= 1 << 31 else low


def _op_json(op: NetOp) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": op.name,
        "optype": op.optype,
        "tensors_in": [_tensor_json(t) for t in op.tensors_in],
        "tensors_out": [_tensor_json(t) for t in op.tensors_out],
        "params": [
            {"arg_name": p.arg, "value": [*map(_said, p.value)] if isinstance(p.value, tuple) else _said(p.value)}
            for p in op.params
        ],
    }
    if op.body is not None:
        entry["body"] = [_op_json(o) for o in op.body]
    return entry


def _said(value: Any) -> Any:
    """One value of a parameter; a size that calls decide as text."""
    return f"{OPEN_SIZE}{text(value)}" if isinstance(value, Dim) else value


def _tensor_json(tensor: NetTensor) -> dict[str, Any]:
    entry: dict[str, Any] = {"arg_name": tensor.arg, "name": tensor.name}
    if tensor.dims is not None:
        entry["dims"] = list(tensor.dims)
    if tensor.layout is not None:
        entry["layout"] = tensor.layout
    if tensor.offset is not None:
        entry["offset_h"], entry["offset_l"] = _split(tensor.offset)
    return entry
