"""A kernel function of level 4 as the text of a Python function. The text is made from op kinds and numbers of the IR
alone; names and texts of a model never enter it. Imports xDSL, NumPy and `loop_library`, which the text calls as `lib`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from xdsl.dialects import arith, func, memref, scf, vector
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    VectorType,
)
from xdsl.ir import Block, Operation, SSAValue

from lightnet.diagnostics import LightNetError
from lightnet.dialects import tile_arith, tile_memory
from lightnet.ir.types import memref_type_of
from lightnet_trust.interpreter import loop_library as lib
from lightnet_trust.interpreter.loop_types import memory_dtype, numpy_type

#: Expressions of ops that NumPy's operators give directly; {0}, {1} are operands.
_INFIX = {
    "arith.addf": "{0} + {1}", "arith.subf": "{0} - {1}", "arith.mulf": "{0} * {1}", "arith.divf": "{0} / {1}",
    "arith.negf": "-{0}", "arith.addi": "{0} + {1}", "arith.subi": "{0} - {1}", "arith.muli": "{0} * {1}",
    "arith.andi": "{0} & {1}", "arith.ori": "{0} | {1}", "arith.xori": "{0} ^ {1}", "arith.shli": "{0} << {1}",
    "arith.shrsi": "{0} >> {1}", "arith.shrui": "lib.like(lib.unsigned({0}) >> lib.unsigned({1}), {0})",
    "arith.divsi": "lib.divide({0}, {1}, True)", "arith.divui": "lib.divide({0}, {1}, False)",
    "arith.remsi": "lib.remainder({0}, {1}, True)", "arith.remui": "lib.remainder({0}, {1}, False)",
    "arith.floordivsi": "lib.floor_divide({0}, {1}, False)", "arith.ceildivsi": "lib.floor_divide({0}, {1}, True)",
    "arith.ceildivui": "lib.ceil_divide_unsigned({0}, {1})",
    "arith.maximumf": "np.maximum({0}, {1})", "arith.minimumf": "np.minimum({0}, {1})",
    "arith.maxnumf": "np.fmax({0}, {1})", "arith.minnumf": "np.fmin({0}, {1})",
    "arith.maxui": "lib.like(np.maximum(lib.unsigned({0}), lib.unsigned({1})), {0})",
    "arith.minui": "lib.like(np.minimum(lib.unsigned({0}), lib.unsigned({1})), {0})",
    "math.round": "lib.round_away({0})", "math.rsqrt": "1 / np.sqrt({0})", "math.fma": "{0} * {1} + {2}",
    "vector.fma": "{0} * {1} + {2}", "tile.select": "np.where({0}, {1}, {2})",
    "tile.fma": "lib.fma({0}, {1}, {2})",
}  # fmt: skip
_CASTS = {
    "arith.extf": "np.asarray({0}).astype({t})[()]", "arith.truncf": "lib.round_float({0}, {t})",
    "arith.extsi": "lib.resize({0}, {t}, True)", "arith.extui": "lib.resize({0}, {t}, False)",
    "arith.trunci": "lib.resize({0}, {t}, True)", "arith.sitofp": "lib.resize({0}, {t}, True)",
    "arith.uitofp": "lib.resize({0}, {t}, False)", "arith.fptosi": "lib.float_to_int({0}, {t}, True)",
    "arith.fptoui": "lib.float_to_int({0}, {t}, False)", "arith.bitcast": "{0}.view({t})",
}  # fmt: skip


class LoopWriter:
    """Writes one function, `kernel`: its text is `source`. Values that are no numbers (dtypes, slices, messages) go
    into the list `constants`. Raises LightNetError for an op that level 4 does not have."""

    def __init__(self, function: func.FuncOp):
        self.name = function.sym_name.data
        self.constants: list[Any] = []
        self._names: dict[SSAValue, str] = {}
        self._lines: list[str] = []
        self._depth = 1
        block = function.body.block
        self._lines.append(f"def kernel({', '.join(self._name(a) for a in block.args)}):")
        self._block(block)
        self.source = "\n".join(self._lines) + "\n"

    def _name(self, value: SSAValue) -> str:
        return self._names.setdefault(value, f"v{len(self._names)}")

    def _names_of(self, values: Sequence[SSAValue]) -> str:
        return "".join(f"{self._name(v)}, " for v in values)

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    def _const(self, value: Any) -> str:
        self.constants.append(value)
        return f"k[{len(self.constants) - 1}]"

    def _fault(self, op: Operation) -> str:
        return self._const(partial(lib.out_of_bounds, self.name, op.name))

    def _assign(self, targets: Sequence[SSAValue], sources: Sequence[SSAValue]) -> None:
        """Simultaneous assignment."""
        if targets:
            self._line(f"{self._names_of(targets)} = {self._names_of(sources)}")

    def _block(self, block: Block) -> None:
        before = len(self._lines)
        for op in block.ops:
            self._op(op)
        if len(self._lines) == before:
            self._line("pass")

    def _op(self, op: Operation) -> None:
        special = _SPECIAL.get(type(op))
        if special is not None:
            special(self, op)
            return
        args = [self._name(v) for v in op.operands]
        self._line(f"{self._name(op.results[0])} = {self._expression(op, args)}")

    def _expression(self, op: Operation, args: list[str]) -> str:
        """An op with one result, as an expression."""
        type = op.results[0].type
        element = type.element_type if isinstance(type, VectorType) else type
        bit = isinstance(element, IntegerType) and element.width.data == 1
        if op.name in _INFIX:
            name = {"arith.addi": "arith.xori", "arith.subi": "arith.xori", "arith.muli": "arith.andi"}
            return _INFIX[name.get(op.name, op.name) if bit else op.name].format(*args)
        cast = f"arith.{op.kind.data}" if isinstance(op, tile_arith.CastOp) else op.name
        if cast in _CASTS:
            return _CASTS[cast].format(*args, t=self._const(numpy_type(element)))
        if op.name in ("arith.maxsi", "arith.minsi"):
            plain = isinstance(type, IndexType)
            return f"{'' if plain else 'np.'}{op.name[6:9]}{'' if plain else 'imum'}({args[0]}, {args[1]})"
        if op.name in lib.MATH:
            return f"{self._const(lib.MATH[op.name])}({', '.join(args)})"
        if op.name in ("math.ctlz", "math.cttz", "math.ctpop"):
            return f"lib.count_bits({self._const(op.name)}, {args[0]})"
        raise LightNetError(f"the interpreter of level 4 has no op '{op.name}'")

    # ---- ops that are no plain expression ------------------------------------------------------------------------

    def _constant(self, op: arith.ConstantOp) -> None:
        type, value = op.result.type, op.value
        if isinstance(value, DenseIntOrFPElementsAttr):
            assert isinstance(type, VectorType)
            dtype = numpy_type(type.element_type)
            text = self._const(np.array(value.get_values()).astype(dtype).reshape(type.get_shape()))
        else:
            assert isinstance(value, IntegerAttr | FloatAttr)
            number = value.value.data
            text = str(number) if isinstance(type, IndexType) else self._const(numpy_type(type).type(number))
        self._line(f"{self._name(op.result)} = {text}")

    def _cmpi(self, op: arith.CmpiOp) -> None:
        predicate = arith.CMPI_COMPARISON_OPERATIONS[op.predicate.value.data]
        args = f"{self._name(op.lhs)}, {self._name(op.rhs)}"
        self._line(f"{self._name(op.result)} = lib.compare_int('{predicate}', {args})")

    def _cmpf(self, op: arith.CmpfOp) -> None:
        predicate = arith.CMPF_COMPARISON_OPERATIONS[op.predicate.value.data]
        args = f"{self._name(op.lhs)}, {self._name(op.rhs)}"
        self._line(f"{self._name(op.result)} = lib.compare_float('{predicate}', {args})")

    def _cmp(self, op: tile_arith.CmpOp) -> None:
        integer = isinstance(op.a.type.element_type, IntegerType | IndexType)
        kind = "int" if integer else "float"
        args = f"{self._const(op.predicate.data)}, {self._name(op.a)}, {self._name(op.b)}"
        self._line(f"{self._name(op.result)} = lib.compare_{kind}({args})")

    def _select(self, op: arith.SelectOp) -> None:
        cond, a, b = (self._name(v) for v in op.operands)
        self._line(f"{self._name(op.result)} = {a} if {cond} else {b}")

    def _dot(self, op: tile_arith.DotOp) -> None:
        args = ", ".join(self._name(v) for v in op.operands)
        self._line(f"{self._name(op.result)} = lib.dot({self._const(op.kind.data)}, {args})")

    def _index_cast(self, op: arith.IndexCastOp) -> None:
        source = self._name(op.input)
        if isinstance(op.result.type, IndexType):
            text = f"lib.to_index({source})"
        else:
            text = f"lib.from_index({source}, {self._const(numpy_type(op.result.type))})"
        self._line(f"{self._name(op.result)} = {text}")

    def _check(self, op: Operation, indices: Sequence[SSAValue], memref: SSAValue) -> str:
        """Check indices; the subscript."""
        names = [self._name(i) for i in indices]
        if names:
            ends = (f"{self._name(memref)}.shape[{k}]" if n == DYNAMIC_INDEX else n
                    for k, n in enumerate(memref_type_of(memref).get_shape()))  # fmt: skip
            inside = " and ".join(f"0 <= {i} < {n}" for i, n in zip(names, ends))
            self._line(f"if not ({inside}): {self._fault(op)}(({', '.join(names)},))")
        return ", ".join(names) or "()"

    def _load(self, op: memref.LoadOp) -> None:
        type = memref_type_of(op.memref)
        subscript = self._check(op, op.indices, op.memref)
        test = " != 0" if numpy_type(type.element_type) == np.bool_ else ""
        cast = "int" if isinstance(type.element_type, IndexType) else ""
        self._line(f"{self._name(op.res)} = {cast}({self._name(op.memref)}[{subscript}]{test})")

    def _store(self, op: memref.StoreOp) -> None:
        subscript = self._check(op, op.indices, op.memref)
        self._line(f"{self._name(op.memref)}[{subscript}] = {self._name(op.value)}")

    def _alloca(self, op: memref.AllocaOp) -> None:
        type = op.memref.type
        shape = tuple(type.get_shape())
        self._line(f"{self._name(op.memref)} = lib.poison({shape}, {self._const(memory_dtype(type))})")

    def _view(self, op: memref.ViewOp) -> None:
        type = op.result.type
        sizes = map(self._name, op.sizes)
        shape = "".join(f"{next(sizes) if n == DYNAMIC_INDEX else n}, " for n in type.get_shape())
        dtype = self._const(memory_dtype(type))
        args = f"{self._name(op.source)}, {self._name(op.byte_shift)}, ({shape}), {dtype}, {self._fault(op)}"
        self._line(f"{self._name(op.result)} = lib.view({args})")

    def _slice(self, op: tile_memory.LoadOp | tile_memory.StoreOp) -> tuple[str, str, str]:
        shape, dims, steps, valid = op.slice()
        rank = op.memref.type.get_num_dims()
        lanes = "None" if op.lanes is None else self._name(op.lanes)
        where = f"{self._name(op.memref)}, ({self._names_of(op.indices)}), {lanes}"
        return self._const(lib.Slice(tuple(shape), dims, steps, valid, rank)), where, self._fault(op)

    def _tile_load(self, op: tile_memory.LoadOp) -> None:
        cut, where, fault = self._slice(op)
        boolean = numpy_type(op.result.type.element_type) == np.bool_
        self._line(f"{self._name(op.result)} = {cut}.load({where}, {boolean}, {fault})")

    def _tile_store(self, op: tile_memory.StoreOp) -> None:
        cut, where, fault = self._slice(op)
        self._line(f"{cut}.store({self._name(op.value)}, {where}, {fault})")

    def _transpose(self, op: tile_arith.TransposeOp) -> None:
        self._line(f"{self._names_of(op.results_)} = lib.transpose(({self._names_of(op.operands_)}))")

    def _reduce(self, op: tile_arith.ReduceOp) -> None:
        kind, dims = self._const(op.kind.data), tuple(op.dims.get_values())
        self._line(f"{self._name(op.result)} = lib.reduce({kind}, {self._name(op.value)}, {dims})")

    def _broadcast(self, op: vector.BroadcastOp) -> None:
        shape = tuple(op.vector.type.get_shape())
        self._line(f"{self._name(op.vector)} = np.broadcast_to({self._name(op.source)}, {shape})")

    def _extract(self, op: vector.ExtractOp) -> None:
        position = tuple(op.static_position.get_values())
        self._line(f"{self._name(op.result)} = {self._name(op.vector)}[{position}]")

    def _insert(self, op: vector.InsertOp) -> None:
        position = tuple(op.static_position.get_values())
        args = f"{self._name(op.source)}, {self._name(op.dest)}, {position}"
        self._line(f"{self._name(op.result)} = lib.insert({args})")

    def _shuffle(self, op: vector.ShuffleOp) -> None:
        mask = list(op.mask.get_values())
        both = f"np.concatenate(({self._name(op.v1)}, {self._name(op.v2)}))"
        self._line(f"{self._name(op.result)} = {both}[{mask}]")

    def _for(self, op: scf.ForOp) -> None:
        block = op.body.block
        self._assign(block.args[1:], op.iter_args)
        bounds = ", ".join(self._name(v) for v in (op.lb, op.ub, op.step))
        self._line(f"for {self._name(block.args[0])} in range({bounds}):")
        self._depth += 1
        self._block(block)
        self._assign(block.args[1:], _yielded(block))
        self._depth -= 1
        self._assign(op.res, block.args[1:])

    def _if(self, op: scf.IfOp) -> None:
        self._line(f"if {self._name(op.cond)}:")
        self._arm(op, op.true_region.block)
        if op.false_region.blocks:
            self._line("else:")
            self._arm(op, op.false_region.block)

    def _arm(self, op: scf.IfOp, block: Block) -> None:
        self._depth += 1
        self._block(block)
        if op.output:
            self._assign(op.output, _yielded(block))
        self._depth -= 1

    def _while(self, op: scf.WhileOp) -> None:
        before, after = op.before_region.block, op.after_region.block
        self._assign(before.args, op.arguments)
        self._line("while True:")
        self._depth += 1
        self._block(before)
        condition = before.last_op
        assert isinstance(condition, scf.ConditionOp)
        self._assign(op.res, condition.args)
        self._line(f"if not {self._name(condition.condition)}: break")
        self._assign(after.args, condition.args)
        self._block(after)
        self._assign(before.args, _yielded(after))
        self._depth -= 1

    def _call(self, op: func.CallOp) -> None:
        callee = self._const(op.callee.string_value())
        targets = f"{self._names_of(op.res)} = " if op.res else ""
        self._line(f"{targets}call({callee})({self._names_of(op.arguments)})")

    def _return(self, op: func.ReturnOp) -> None:
        self._line(f"return ({self._names_of(op.arguments)})")

    def _nothing(self, op: Operation) -> None:
        """Terminators: the construct around them takes their operands."""


_SPECIAL: dict[type[Operation], Callable[[LoopWriter, Any], None]] = {
    arith.ConstantOp: LoopWriter._constant, arith.CmpiOp: LoopWriter._cmpi, arith.CmpfOp: LoopWriter._cmpf,
    tile_arith.CmpOp: LoopWriter._cmp,
    tile_arith.DotOp: LoopWriter._dot, arith.SelectOp: LoopWriter._select, arith.IndexCastOp: LoopWriter._index_cast,
    memref.LoadOp: LoopWriter._load, memref.StoreOp: LoopWriter._store, memref.AllocaOp: LoopWriter._alloca,
    memref.ViewOp: LoopWriter._view, tile_memory.LoadOp: LoopWriter._tile_load,
    tile_memory.StoreOp: LoopWriter._tile_store,
    tile_memory.PrefetchOp: LoopWriter._nothing,
    tile_arith.TransposeOp: LoopWriter._transpose, tile_arith.ReduceOp: LoopWriter._reduce,
    vector.BroadcastOp: LoopWriter._broadcast,
    vector.ExtractOp: LoopWriter._extract, vector.InsertOp: LoopWriter._insert,
    vector.ShuffleOp: LoopWriter._shuffle,
    scf.ForOp: LoopWriter._for, scf.IfOp: LoopWriter._if, scf.WhileOp: LoopWriter._while,
    scf.YieldOp: LoopWriter._nothing,
    scf.ConditionOp: LoopWriter._nothing, func.CallOp: LoopWriter._call, func.ReturnOp: LoopWriter._return,
}  # fmt: skip


def _yielded(block: Block) -> Sequence[SSAValue]:
    """The values that the end of a block gives."""
    last = block.last_op
    return () if last is None else last.operands
