"""One instruction while it is decoded: what its operands are, checked against the types that it takes. Imports NumPy
and `lightnet.diagnostics`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError
from lightnet_ptx import tree as ptx
from lightnet_ptx.kernel import Symbol
from lightnet_ptx.tables import DTYPES

if TYPE_CHECKING:
    from lightnet_ptx.decode import Decoder

Array = Any
#: Gets an operand's value out of the registers.
Reader = Callable[[list[Any]], Array]


@dataclass
class Frame:
    """The names of a scope: registers as (slot, type), variables, labels as instruction numbers, tables of labels."""

    parent: Frame | None
    scope: ptx.Scope
    slots: dict[str, tuple[int, str]] = field(default_factory=dict)
    symbols: dict[str, Symbol] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)


class Site:
    """One instruction while it is decoded: reads its operands, and notes which registers it uses and sets."""

    def __init__(self, decoder: Decoder, instruction: ptx.Instruction, frame: Frame) -> None:
        self.decoder, self.instruction, self.frame = decoder, instruction, frame
        self.opcode, self.operands = instruction.opcode, instruction.operands
        self.uses: set[int] = set()
        self.sets: set[int] = set()
        self.copies = False  # whether undefined values may pass through it
        self.target: tuple[int, ...] = ()
        self.falls_through = True

    def error(self, message: str, label: str = "operand") -> LightNetError:
        """An error at this instruction."""
        return self.decoder.source.error(f"{self.opcode}: {message}", self.instruction.pos, f"ptx.{label}")

    def count(self, *allowed: int) -> int:
        """The number of operands; LightNetError for another number."""
        if len(self.operands) not in allowed:
            raise self.error(f"has {len(self.operands)} operands, not {' or '.join(map(str, allowed))}")
        return len(self.operands)

    # -- registers
    def register(self, operand: ptx.Operand) -> tuple[int, str] | None:
        """The slot and type of a register; None where the operand is no register."""
        return self.decoder.register(operand.name, self.frame) if isinstance(operand, ptx.Reg) else None

    def reader(self, operand: ptx.Operand, kind: str, wider: bool = False) -> Reader:
        """The reader of an operand's value, in NumPy's type for `kind`. A register has that size; `wider`: or a larger
        one, of which the low bits count.
        """
        if isinstance(operand, ptx.Not):
            if kind != "pred":
                raise self.error("'!' is for predicates")
            inner = self.reader(operand.operand, "pred")
            return lambda regs: np.logical_not(inner(regs))
        if isinstance(operand, ptx.Imm):
            value = self.constant(operand, kind)
            return lambda regs: value
        found = self.register(operand)
        if found is None:
            return self._other(operand, kind)
        slot, has = found
        self.uses.add(slot)
        self._fits(slot, has, kind, wider)
        dtype, stored = DTYPES[kind], storage(has)
        if dtype == stored:
            return lambda regs: regs[slot]
        if dtype.itemsize == stored.itemsize:
            return lambda regs: regs[slot].view(dtype)
        low = np.dtype(f"u{dtype.itemsize}")
        return lambda regs: regs[slot].astype(low).view(dtype)

    def _fits(self, slot: int, has: str, kind: str, wider: bool) -> None:
        name = self.decoder.kernel.names[slot]
        if (has == "pred") != (kind == "pred"):
            raise self.error(f"register {name} of type .{has} where .{kind} is expected")
        size, want = ptx.bytes_of(has), DTYPES[kind].itemsize
        if size < want or (size != want and not wider):
            raise self.error(f"register {name} of {8 * size} bits where {8 * want} are expected")

    def _other(self, operand: ptx.Operand, kind: str) -> Reader:
        name = getattr(operand, "name", None)
        if name == "WARP_SZ":
            value = DTYPES[kind].type(32)
            return lambda regs: value
        if name is not None and (symbol := self.decoder.symbol(name, self.frame)):
            address = DTYPES[kind].type(symbol.address)
            return lambda regs: address
        raise self.error(f"no register {name}" if name else "a register or a number is expected here")

    def constant(self, imm: ptx.Imm, kind: str) -> Any:
        """A number as a value of a type."""
        if kind == "pred":
            return np.bool_(bool(imm.value))
        typed = {"f16x2": "b32", "bf16x2": "b32", "tf32": "b32", "bf16": "b16", "f16": "b16"}.get(kind, kind)
        raw = ptx.encode(imm, typed, self.decoder.source, self.instruction.pos)
        return np.frombuffer(raw, DTYPES[kind])[0]

    def slot(self, operand: ptx.Operand, kind: str, wider: bool = False) -> int | None:
        """The slot that a result goes to; None for the sink ``_``."""
        if isinstance(operand, ptx.Reg) and operand.name == "_":
            return None
        found = self.register(operand)
        if found is None:
            raise self.error("the result must go to a register")
        self._fits(found[0], found[1], kind, wider)
        self.sets.add(found[0])
        return found[0]

    def address(self, operand: ptx.Operand, space: str) -> tuple[Reader, str]:
        """The reader of an address (uint64), and the state space that it is in: of a parameter of a call, that is local
        memory.
        """
        if not isinstance(operand, ptx.Address):
            raise self.error("an address in brackets is expected")
        if operand.coordinates:
            raise self.error("an address without coordinates is expected")
        offset = np.uint64(operand.offset & 0xFFFFFFFFFFFFFFFF)
        if isinstance(operand.base, ptx.Imm):
            if operand.base.kind != "int":
                raise self.error("an address is an integer")
            fixed = np.uint64((int(operand.base.value) + operand.offset) & 0xFFFFFFFFFFFFFFFF)
            return (lambda regs: fixed), space
        found = self.decoder.register(operand.base.name, self.frame)
        if found is not None:
            slot, has = found
            self.uses.add(slot)
            if ptx.bytes_of(has) == 8:
                return (lambda regs: regs[slot] + offset) if offset else (lambda regs: regs[slot]), space.replace(
                    "param", "kparam"
                )
            if ptx.bytes_of(has) == 4 and space in ("shared", "local", "const"):
                low = np.uint32(operand.offset & 0xFFFFFFFF)
                return lambda regs: (regs[slot] + low).astype(np.uint64), space
            raise self.error(f"an address in {operand.base.name}, which has {8 * ptx.bytes_of(has)} bits")
        symbol = self.decoder.symbol(operand.base.name, self.frame)
        if symbol is None:
            raise self.error(f"no register or variable {operand.base.name}", "name")
        allowed = {"param": ("kparam", "local"), "generic": ("global",)}.get(space, (space,))
        if symbol.space not in allowed:
            raise self.error(f"{operand.base.name} is in {symbol.space} memory", "space")
        address = np.uint64(symbol.address + operand.offset)
        return lambda regs: address, symbol.space

    def label(self, operand: ptx.Operand) -> int:
        """The instruction number of a label."""
        name = getattr(operand, "name", "")
        frame: Frame | None = self.frame
        while frame is not None:
            if name in frame.labels:
                return frame.labels[name]
            frame = frame.parent
        raise self.error(f"no label {name}", "name")

    def table(self, operand: ptx.Operand) -> list[int]:
        """The instruction numbers of a list of labels."""
        name = getattr(operand, "name", "")
        frame: Frame | None = self.frame
        while frame is not None:
            if name in frame.scope.tables:
                return [self.label(ptx.Reg(label)) for label in frame.scope.tables[name]]
            frame = frame.parent
        raise self.error(f"no table of labels {name}", "name")

    def touches(self, space: str, nbytes: int) -> None:
        """Note the size of an access, for what races are looked for in."""
        for name in ("global", "shared") if space == "generic" else (space,):
            granules = self.decoder.kernel.granules
            if name in granules:
                granules[name] = min(granules[name], nbytes)


def storage(kind: str) -> np.dtype:
    """NumPy's type for what a register of a type holds: bits, or a bool."""
    return np.dtype(bool) if kind == "pred" else np.dtype(f"u{ptx.bytes_of(kind)}")
