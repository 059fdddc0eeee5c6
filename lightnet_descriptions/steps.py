"""The meaning of the C of `static_run` and `run`: the ops that it calls, and the loops over elements as index notation.

The code is run once, when an op is made, on tensors whose contents are not known. A call of ``tl_tensor_X`` becomes the
op X; a loop over elements becomes a statement of index notation, as one turn of it with a symbolic index says what all
do:

    for (int i = 0; i < dst->len; i++) y[i] = x[i] / (v[i] + epsilon);
    ->  dst.flat[i] = src.flat[i] / (var.flat[i] + 1e-05)

What is computed from shapes and params alone (`if`, other loops) is computed. A `run` is calls, or loops; both in one
are refused. Imports `c`, `code`, `calls` and `ir`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from lightnet.dataclasses import dataclass, field
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.dialect import built_in_optypes
from lightnet.ir.constants import Env
from lightnet.ir.op import LnOp
from lightnet_descriptions import c, code, running
from lightnet_descriptions.c import arguments, library, tree
from lightnet_descriptions.c.machine import CMachine
from lightnet_descriptions.c.values import Raw, shown
from lightnet_descriptions.calls import ACTIVATIONS, NAMES, Calls, Order, param_value
from lightnet_descriptions.elements import Element, Elements, StagedElements, element_operand


class Ref(str):
    """A value of the graph: the name of a tensor, followed by how often it was written before."""


@dataclass(frozen=True)
class _Call:
    """One op of the graph: operands and results as values, params by name."""

    op: type[LnOp]
    operands: tuple[Ref, ...]
    params: dict[str, Any]
    results: tuple[Ref, ...]


@dataclass
class RunSteps:
    """The steps of a `run`: calls, in order, and the values that the results are; or statements of index notation."""

    calls: list[_Call] = field(default_factory=list)
    results: dict[str, Ref] = field(default_factory=dict)
    statements: list[str] = field(default_factory=list)


#: What becomes of a variable that a loop over elements assigns: its turns run in any order.
CARRIED = (
    "has no value here: no turn of a loop over elements knows of another; a sum is index notation, "
    "`dst[i] += src[i, k]`"
)


@dataclass
class _Loop:
    """The loop over elements that runs now: its index, its number of turns, what it wrote so far, and the variables of
    outside of it."""

    index: str
    count: int
    written: dict[str, tuple[str, str]] = field(default_factory=dict)
    staged: dict[StagedElements, tuple[str, str]] = field(default_factory=dict)


class Run(CMachine):
    """Runs the code of a `run` on tensors of known types."""

    def __init__(self, cls: Any, env: Env):
        pre = code.PreRun(cls, env)
        pre.checks()  # params as the code before a run leaves them
        super().__init__(pre.names, {})
        self.variables = pre.machine.variables
        self.cls, self.env, self.steps = cls, env, RunSteps()
        self.functions = run_functions(self.op_call)
        self.memory = {
            name: Elements(self, name, _c_type(spec.dtype.tl), prod(spec.dims)) for name, spec in env.tensors.items()
        }
        self.roots = {r.name: r.owner for r in cls.schema.results if r.owner is not None}
        self.state: dict[str, int] = {name: 0 for name in env.tensors if name not in cls.described.names.outputs}
        self.active: _Loop | None = None
        self.cleared: list[str] = []  # results that `memset` cleared
        self.said: list[str] = []  # what was printed in front of a tensor
        kept = {name: pre.names[name] for name in ("priv", "op_arg")}  # the private members as that code leaves them
        self.names = {**pre.names, **code.code_names_of(cls, cls.schema, env, data=lambda n: c.Pointer(self.memory[n])),
                      **kept, **NAMES,
                      "LN_ARCH": c.Struct("LN_ARCH",
                                          {"arch_table": code.TABLE, "op_proto_table": code.TABLE})}  # fmt: skip

    def finish(self) -> None:
        """The values that the results are, once the code has run. Raises `LightNetError` for one that it never
        writes."""
        if self.cleared and len(self.cleared) == len(self.steps.statements):
            self.zeros()
        for r in self.cls.schema.results:
            written = r.name if self.steps.statements else self.root(r.name)
            if not self.state.get(written) and not (self.root(r.name) != r.name and self.root(r.name) in self.state):
                raise LightNetError(f"the code never writes the output '{r.name}'")
            if self.steps.calls:
                self.steps.results[r.name] = self.value_ref(r.name)

    def zeros(self) -> None:
        """A run that does nothing but clear its results is the op `zeros`."""
        self.steps.statements.clear()
        for name in self.cleared:
            self.emit(built_in_optypes()["zeros"], [], {}, [name])

    # -- calls

    def root(self, name: str) -> str:
        return self.roots.get(name, name)

    def value_ref(self, name: str) -> Ref:
        """The value that a tensor has now."""
        root = self.root(name)
        if root not in self.state:
            raise ValueError(f"'{name}' is read before it is written")
        return Ref(f"{root}#{self.state[root]}")

    def tensor(self, value: Any) -> str:
        if not isinstance(value, c.Struct) or value.fields.get("name") not in self.memory:
            raise TypeError(f"expected a tensor, got {shown(value)}")
        return value.fields["name"]

    def op_call(self, machine: CMachine, name: str, order: Order, args: Sequence[Any]) -> None:
        """A call of an op."""
        self.only("calls")
        schema, operands, params, results = order.op.schema, dict[str, str](), dict[str, Any](), dict[str, str]()
        names = (
            schema.operand_names(sum(a in ("src1", "src2") for a in order.arguments))
            if schema.variadic_operand
            else [o.name for o in schema.operands]
        )
        fields = {r.name for r in schema.results}
        for argument, value in zip(order.arguments, args):
            made, _, read = argument.partition("=")
            if not argument:
                continue
            if made in fields:
                results[made] = self.tensor(value)
                if read:
                    operands[read] = results[made]
            elif made in names:
                operands[made] = self.tensor(value)
            else:
                params[made] = self.param(schema.by_name[made], value)
        self.emit(order.op, [operands[n] for n in names], params, [results[r.name] for r in schema.results])

    def param(self, p: Any, value: Any) -> Any:
        """An argument as the value of a param; an array without a length of its own has as many elements as there is
        room for."""
        found = param_value(value)
        return bool(found) if p.kind == "bool" else found

    def emit(self, op: type[LnOp], operands: Sequence[str], params: dict[str, Any], results: Sequence[str]) -> None:
        reads = tuple(self.read_ref(n, op) for n in operands)
        for p in op.schema.params:  # what the type of the result says: `dims`, `dtype`
            if p.in_type is not None:
                params[p.name] = p.in_type(self.env.tensors[results[0]])
        writes = []
        for name in results:
            root = self.root(name)
            self.state[root] = self.state.get(root, 0) + 1
            writes.append(Ref(f"{root}#{self.state[root]}"))
        self.steps.calls.append(_Call(op, reads, params, tuple(writes)))

    def read_ref(self, name: str, op: type[LnOp]) -> Ref:
        if op.optype == "rearange" and self.root(name) not in self.state:
            return self.value_ref(next(iter(self.state)))  # its contents do not matter
        return self.value_ref(name)

    def activation(self, descriptor: Any, x: Any, y: Any) -> None:
        """cuDNN's activations."""
        mode = descriptor.fields.get("mode") if isinstance(descriptor, c.Struct) else None
        optype = ACTIVATIONS.get(mode.name) if isinstance(mode, c.Enumerator) else None
        if optype is None:
            raise TypeError(f"{shown(mode)} is no activation; there are: {', '.join(ACTIVATIONS)}")
        names = [p.memory.name for p in (x, y) if isinstance(p, c.Pointer) and isinstance(p.memory, Elements)]
        if len(names) != 2:
            raise TypeError("an activation reads the data of one tensor and writes that of another")
        self.only("calls")
        self.emit(built_in_optypes()[optype], names[:1], {}, names[1:])

    def only(self, kind: str) -> None:
        mixed = self.steps.statements if kind == "calls" else self.steps.calls
        if mixed or (kind == "calls" and self.active is not None):
            raise TypeError("a run is calls of ops, or loops over elements: make two ops of it")

    # -- elements

    def dtype(self, name: str) -> Any:
        return library.NAMES[self.env.tensors[name].dtype.tl]

    def element(self, memory: Elements, index: str) -> Element:
        root = self.root(memory.name)
        if root not in self.state:
            raise ValueError(f"'{memory.name}' is read before it is written")
        return Element(f"{root}.flat[{index}]", memory.type)

    def load_element(self, memory: Elements, index: Any) -> Any:
        if (loop := self.active) is not None and memory.name in loop.written:
            at, value = loop.written[memory.name]
            if at != str(index):
                raise ValueError(
                    f"'{memory.name}' is read at [{index}] while the loop writes it at [{at}]: its turns depend on "
                    "each other"
                )
            return Element(value, memory.type)
        self.inside(memory, index)
        return self.element(memory, str(index))

    def inside(self, memory: Elements, index: Any) -> None:
        if isinstance(index, int) and not 0 <= index < memory.length:
            raise IndexError(f"index {index} of {memory.what} is not in 0..{memory.length - 1}")

    def store_element(self, memory: Elements, index: Any, value: Any) -> None:
        """One element of a result, or in a loop all that the loop writes."""
        self.inside(memory, index)
        if memory.name in self.state and memory.name not in self.cls.described.names.outputs:
            raise TypeError(f"'{memory.name}' is an input, and is written")
        self.only("statements")
        loop, text = self.active, element_operand(value)
        if loop is None:
            raise TypeError("elements are written in a loop over them: for (int i = 0; i < n; i++)")
        if memory.name in loop.written:
            raise ValueError(f"'{memory.name}' is written twice in one turn of the loop")
        loop.written[memory.name] = (str(index), text)

    def unstage(self, memory: Elements, stage: StagedElements, size: Any) -> None:
        """The elements of a stage become those of a tensor."""
        whole = memory.length * arguments.dtype_of(stage.dtype).tl_size
        if stage.dtype != self.dtype(memory.name) or size != whole:
            raise ValueError(
                f"{shown(size)} bytes of {stage.dtype} are moved to '{memory.name}', which has {whole} of "
                f"{self.dtype(memory.name)}"
            )
        if stage.content is None or stage.content[0] != "i" or stage.content[2] != memory.length:
            raise ValueError(f"the loop in front of it does not fill the memory that is moved to '{memory.name}'")
        self.write(memory.name, "i", f"sat({stage.content[1]}, {memory.name})")

    def stage(self, target: c.Pointer, dtype: Any, value: Any) -> None:
        """An element of memory of the code's own, converted."""
        raw = target.memory
        assert isinstance(raw, Raw)
        size = arguments.dtype_of(dtype).tl_size
        if raw.typed is None:
            raw.typed = StagedElements(dtype, raw.nbytes // size)  # type: ignore[assignment]
        if self.active is None or not isinstance(raw.typed, StagedElements) or raw.typed.dtype != dtype:
            raise TypeError("elements are converted in a loop over them, all to one type")
        if raw.typed in self.active.staged:
            raise ValueError("an element is written twice in one turn of the loop")
        self.active.staged[raw.typed] = (str(target.offset), element_operand(value))

    def write(self, name: str, index: str, text: str, count: int | None = None) -> None:
        """A statement of index notation; of all elements if there is no `count`."""
        self.only("statements")
        whole = count is None or count == self.memory[name].length
        self.steps.statements.append(f"{name}.flat[{index}] = {text}" + ("" if whole else f" for i < {count}"))
        self.state[self.root(name)] = self.state.get(self.root(name), 0) + 1

    # -- loops over elements

    def loop(self, s: tree.For) -> None:
        if not self.touches(s.body):
            return super().loop(s)
        index, count = self.header(s)
        if self.active is not None:
            raise TypeError("loops over elements are not nested: count the elements of a tensor in one")
        carried = [v for v in (self.variable(n) for n in assigned(s.body)) if v is not None]
        for v in carried:
            v.is_set, v.why = False, CARRIED
        self.active = _Loop("i", count)
        self.variables.append({})
        self.declare(index, "int", 0, Element("i", "int", is_index=True))
        if count:
            self.statement(s.body)
        self.variables.pop()
        done, self.active = self.active, None
        for v in carried:
            v.is_set = False
        for stage, (at, text) in done.staged.items():
            stage.content = at, text, count
        for name, (at, text) in done.written.items():
            self.write(name, at, text, count)

    def touches(self, body: tree.Statement) -> bool:
        """Return whether a loop reads or writes elements of tensors."""
        for e in tree.walk(body):
            if isinstance(e, tree.Member) and e.name == "data":
                return True
            if isinstance(e, tree.Call) and e.fn == "tl_padd":
                return True
            if isinstance(e, tree.Name) and (v := self.variable(e.name)) is not None and v.is_set:
                if isinstance(v.value, c.Pointer) and isinstance(v.value.memory, Elements):
                    return True
        return False

    def header(self, s: tree.For) -> tuple[str, int]:
        """The index and the number of turns of ``for (int i = 0; i < n; i++)``."""
        match s:
            case tree.For(
                start=tree.Declaration(name=index, value=tree.Number(value=0))
                | tree.Evaluate(expr=tree.Assign(op="", target=tree.Name(name=index), value=tree.Number(value=0))),
                cond=tree.Binary(op="<", left=tree.Name(name=compared), right=bound),
                step=tree.Increment(op="+", target=tree.Name(name=stepped)),
            ) if index == compared == stepped:  # fmt: skip
                count = self.eval(bound)
                if not isinstance(count, int):
                    raise TypeError(f"{shown(count)} is no number of turns")
                return index, max(0, count)
        raise TypeError("a loop over elements is `for (int i = 0; i < n; i++)`")

    def moved(self, base: Any, by: Any) -> c.Pointer:
        if isinstance(base, c.Pointer) and isinstance(by, Element) and not by.is_index:
            raise TypeError("an element is no subscript here: index notation has src[index[i]]")
        return super().moved(base, by)

    def converted(self, value: Any, type: tree.Type) -> Any:
        if (
            type.is_pointer
            and isinstance(value, c.Pointer)
            and isinstance(value.memory, Elements)
            and type.name != "void"
        ):
            if type != tree.Type(value.memory.type, 1):
                raise TypeError(f"{value.memory.what} is of {value.memory.type}, and is taken for {type}")
        return super().converted(value, type)

    def eval(self, e: tree.Expr) -> Any:
        if isinstance(e, tree.Conditional):
            cond = super().eval(e.cond)
            if isinstance(cond, Element):
                then, other = super().eval(e.then), super().eval(e.other)
                return Element(f"({cond} ? {element_operand(then)} : {element_operand(other)})",
                               cond.wider(then) if not isinstance(then, Element) else then.wider(other))  # fmt: skip
        return super().eval(e)


def _c_type(tl: str) -> str:
    """C's type of the elements of a dtype."""
    known = {"TL_DOUBLE": "double", "TL_FLOAT": "float", "TL_BOOL": "tl_bool_t"}
    return known.get(tl) or f"{tl.removeprefix('TL_').lower()}_t"


def assigned(body: tree.Statement) -> set[str]:
    """The variables that a statement assigns."""
    targets = [e.target for e in tree.walk(body) if isinstance(e, tree.Assign | tree.Increment)]
    return {t.name for t in targets if isinstance(t, tree.Name)}


def run_functions(call: Any) -> Mapping[str, c.CFunction]:
    """The functions that a `run` may call; `call` makes the ops."""
    return Calls(running.FUNCTIONS, call)
