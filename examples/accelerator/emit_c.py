"""A network as C: one function a kernel (`kernels_c`), and with `npu_run`, which calls them in order (`emit_c`). Level
4 is a handful of ops on numbers and memories, so an emitter is a table from op to text."""

import math

from xdsl.context import Context
from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import Float64Type, IntegerAttr, IntegerType, MemRefType, ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from lightnet.diagnostics import LightNetError
from lightnet.dialects.launch import CopyOp, LaunchOp, kernels, lines_of
from lightnet.dialects.ln.source import Source
from lightnet.ir.locations import loc_of
from lightnet.ir.memory import memory_of
from lightnet.ir.module import main_of, value_name
from lightnet.ir.types import spec_of
from lightnet.ir.views import place_of
from lightnet.passes.lower_cpu import LowerCpuPass

PROLOGUE = """
#include <math.h>
#include <stdint.h>
#include <string.h>

static long floordiv(long a, long b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
static float fmax_nan(float a, float b) { return a > b || a != a ? a : b; }
static float fmin_nan(float a, float b) { return a < b || a != a ? a : b; }
"""

#: Op -> C expression of its operands.
TEXT = {
    "arith.addi": "{} + {}", "arith.subi": "{} - {}", "arith.muli": "{} * {}", "arith.divsi": "{} / {}",
    "arith.remsi": "{} % {}", "arith.floordivsi": "floordiv({}, {})", "arith.andi": "{} & {}", "arith.ori": "{} | {}",
    "arith.xori": "{} ^ {}", "arith.minsi": "{0} < {1} ? {0} : {1}", "arith.maxsi": "{0} > {1} ? {0} : {1}",
    "arith.addf": "{} + {}", "arith.subf": "{} - {}", "arith.mulf": "{} * {}", "arith.divf": "{} / {}",
    "arith.negf": "-{}", "arith.maximumf": "fmax_nan({}, {})", "arith.minimumf": "fmin_nan({}, {})",
    "arith.select": "{} ? {} : {}", "arith.index_cast": "{}", "arith.sitofp": "{}",
    **{f"math.{op}": f"{op}f({{}})" for op in ("exp", "log", "sqrt", "tanh", "erf", "sin", "cos", "floor", "ceil")},
    "math.absf": "fabsf({})", "math.powf": "powf({}, {})",
}  # fmt: skip
#: Comparisons by predicate; an unordered one is the negation of the ordered opposite, so that it holds for NaN.
CMPI = ("==", "!=", "<", "<=", ">", ">=")
CMPF = {1: "{} == {}", 2: "{} > {}", 3: "{} >= {}", 4: "{} < {}", 5: "{} <= {}", 9: "!({} > {})", 10: "!({} <= {})",
        11: "!({} < {})", 12: "!({} >= {})", 13: "!({} == {})", 6: "{0} < {1} || {0} > {1}"}  # fmt: skip
C_TYPES = {
    "f32": "float", "f64": "double", "index": "long", "i1": "int", "i8": "int8_t", "i32": "int32_t", "i64": "int64_t",
}  # fmt: skip


def kernels_c(lowered: ModuleOp) -> str:
    """C99 source of the kernels of a lowered network: ``void name(long first, long end, float *, ...)``."""
    return "\n".join(
        [PROLOGUE, *(line for function in kernels(lowered).values() for line in Function(function).lines), ""]
    )


def emit_c(module: ModuleOp) -> str:
    """C99 source of a planned or lowered network: ``void npu_run(unsigned char *arena, unsigned char *static_)``."""
    lowered = module.clone()
    if not lines_of(lowered):
        LowerCpuPass().apply(Context(), lowered)
    lines = [kernels_c(lowered), f"static unsigned char sram[{max(memory_of(lowered).get('sram', 0), 1)}];"]
    calls = [call(line) for line in main_of(lowered).body.block.ops if isinstance(line, LaunchOp | CopyOp)]
    network = main_of(module).body.block
    sources = [describe(op.results[0]) for op in network.ops if isinstance(op, Source)]
    outputs = [describe(value) for value in network.last_op.operands]  # none of what is lowered
    cycles = sum(op.attributes["cycles"].value.data for op in module.walk() if "cycles" in op.attributes)
    lines += [f"\n/* {cycles} cycles", *(f"   {text}" for text in (*sources, "->", *outputs)), "*/"]
    return "\n".join([*lines, "void npu_run(unsigned char *arena, unsigned char *static_)\n{", *calls, "}", ""])


def describe(value: SSAValue) -> str:
    return f"{value_name(value)}: {spec_of(value.type)} at {place_of(value)}"


def call(launch: LaunchOp | CopyOp) -> str:
    places = [f"(void *)({p.space.data.replace('static', 'static_')} + {p.offset.data})" for p in launch.args]
    if isinstance(launch, CopyOp):
        return f"    memcpy({places[1]}, {places[0]}, {launch.size});"
    arguments = ["0", str(launch.grid.value.data), *places]
    return f"    {launch.callee.root_reference.data}({', '.join(arguments)});"


class Function:
    """A kernel function, line by line."""

    def __init__(self, function: func.FuncOp):
        self.names: dict[SSAValue, str] = {}
        block = function.body.block
        arguments = [self.declared(a, star=True) for a in block.args]
        self.lines = [f"\nvoid {function.sym_name.data}({', '.join(arguments)})", "{"]
        self.block(block, "    ")
        self.lines.append("}")

    def declared(self, value: SSAValue, star: bool = False) -> str:
        name = self.names[value] = f"v{len(self.names)}"
        if not isinstance(value.type, MemRefType):
            return f"{c_type(value.type)} {name}"
        element = c_type(value.type.element_type)
        return f"{element} *{name}" if star else f"{element} {name}[{math.prod(value.type.get_shape())}]"

    def block(self, block: Block, indent: str, into: list[str] = ()) -> None:
        for op in block.ops:
            if isinstance(op, scf.YieldOp):
                self.lines += [f"{indent}{name} = {self.names[v]};" for name, v in zip(into, op.operands)]
            elif not isinstance(op, func.ReturnOp):
                self.op(op, indent)

    def op(self, op: Operation, indent: str) -> None:
        values = [self.names.get(v, "") for v in op.operands]
        if isinstance(op, scf.ForOp):
            carried = [self.declared(r) for r in op.results]
            self.lines += [f"{indent}{d} = {self.names[v]};" for d, v in zip(carried, op.iter_args)]
            into = [self.names[r] for r in op.results]
            self.names.update(zip(op.body.block.args[1:], into))
            head, i = self.declared(op.body.block.args[0]), self.names[op.body.block.args[0]]
            self.lines.append(f"{indent}for ({head} = {values[0]}; {i} < {values[1]}; {i} += {values[2]}) {{")
            self.block(op.body.block, indent + "    ", into)
            self.lines.append(f"{indent}}}")
        elif isinstance(op, scf.IfOp):
            self.lines += [f"{indent}{self.declared(r)};" for r in op.results]
            into = [self.names[r] for r in op.results]
            for head, region in (f"if ({values[0]}) {{", op.true_region), ("else {", op.false_region):
                if region.blocks:
                    self.lines.append(f"{indent}{head}")
                    self.block(region.block, indent + "    ", into)
                    self.lines.append(f"{indent}}}")
        elif isinstance(op, memref.StoreOp):
            self.lines.append(f"{indent}{values[1]}[{self.index(op.indices, op.memref)}] = {values[0]};")
        elif isinstance(op, memref.AllocaOp):
            self.lines.append(f"{indent}{self.declared(op.results[0])};")
        else:
            text = self.expression(op, values)
            self.lines.append(f"{indent}const {self.declared(op.results[0])} = {text};")

    def expression(self, op: Operation, values: list[str]) -> str:
        match op:
            case arith.ConstantOp():
                return number(op.value)
            case memref.LoadOp():
                return f"{values[0]}[{self.index(op.indices, op.memref)}]"
            case arith.CmpiOp() if op.predicate.value.data < len(CMPI):
                return f"{values[0]} {CMPI[op.predicate.value.data]} {values[1]}"
            case arith.CmpfOp() if op.predicate.value.data in CMPF:
                return CMPF[op.predicate.value.data].format(*values)
            case _ if op.name in TEXT:
                return TEXT[op.name].format(*values)
        raise LightNetError(f"the C emitter has no text for {op.name}", loc_of(op))

    def index(self, indices: list[SSAValue], of: SSAValue) -> str:
        """Row-major: ((i0 * n1 + i1) * n2 + i2) …"""
        text = "0"
        for i, size in zip(indices, of.type.get_shape()):
            text = self.names[i] if text == "0" else f"({text}) * {size} + {self.names[i]}"
        return text


def c_type(type: Attribute) -> str:
    if str(type) not in C_TYPES:
        raise LightNetError(f"the C emitter has no type {type}")
    return C_TYPES[str(type)]


def number(value: Attribute) -> str:
    x = value.value.data
    if isinstance(value, IntegerAttr):
        return f"{x}L" if value.type != IntegerType(1) else str(abs(x))
    if not math.isfinite(x):
        return "NAN" if math.isnan(x) else "INFINITY" if x > 0 else "-INFINITY"
    return repr(x) if isinstance(value.type, Float64Type) else f"{x!r}f"
