"""Ops as rows: an op that is an expression and a NumPy function is one line of data, of which `row` makes the class.

    Log = UnaryRow.row("log", "log(src)", np.log, "The natural logarithm of src.", domain=(0.1, 9))

is the op `ln.log`, the class `Log` of the module where the line stands: with its definition, reference, test cases and
documentation. Further keywords are what a class would say: operands, parameters, `rewrites`, `domain`, `more`, `work`.
Imports the op base and the helpers of references.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from lightnet.dialects.ln.numeric import FLOATS, broadcast_dims, broadcast_read, cases, elementwise_in, uniform_data
from lightnet.ir.constants import Env
from lightnet.ir.op import Case, LnOp, case, ln_op, operand, result
from lightnet.runtime.dtypes import convert

Range = tuple[float, float]
_NAME = re.compile(r"[a-z]\w*")


class RowDoc:
    """The docstring of a row, made when somebody reads it: its sentence, and the op as text."""

    def __init__(self, what: str):
        self.what = what

    def __get__(self, op: LnOp | None, cls: type[OpRows]) -> str:
        from lightnet.ir.examples import example

        cls.__doc__ = f"{self.what}\n\n```mlir\n{example(cls, cls.shown())}\n```"
        return cls.__doc__


class OpRows(LnOp):
    """A kind of ops that differ in attributes alone."""

    @classmethod
    def made(cls, depth: int, optype: str, what: str, **own: Any) -> type[Self]:
        """The op with these attributes, as a class of the module `depth` calls up."""
        name = "".join(map(str.capitalize, optype.split("_")))
        module = sys._getframe(depth + 1).f_globals["__name__"]
        return ln_op(type(name, (cls,), {"__module__": module, "__doc__": RowDoc(what), "optype": optype, **own}))

    @classmethod
    def shown(cls) -> Case:
        """The case that the documentation shows."""
        return cls.samples()[0]


class Elementwise(OpRows):
    """An op each of whose elements is an expression of one element of every operand."""

    #: The op in NumPy, on arrays as `elementwise_in` gives them, and on parameters by name.
    function: ClassVar[Callable[..., np.ndarray]]
    #: The range of test data that are floats, of every operand or by operand; None: as they are drawn.
    domain: ClassVar[Range | Mapping[str, Range] | None] = None
    #: Predicate cases beside those that all ops of the kind have.
    more: ClassVar[tuple[Case, ...]] = ()

    @classmethod
    def row(
        cls, optype: str, expression: str, function: Callable[..., np.ndarray], what: str, **own: Any
    ) -> type[Self]:
        """The op whose element is `expression`, of the operands' elements under their names, and that is `function` in
        NumPy; the two share nothing, as each is tested against the other."""
        written = cls.written(expression)
        return cls.made(1, optype, what, function=staticmethod(function), **written, **own)

    @classmethod
    def written(cls, expression: str) -> dict[str, str]:
        """The attributes that an expression becomes."""
        raise NotImplementedError

    def numpy(self, *operands: np.ndarray) -> np.ndarray:
        """`function` with the op's parameters."""
        return self.function(*operands, **{p.name: getattr(self, p.name) for p in self.schema.params})

    def reference(self, *operands):
        return elementwise_in(self.numpy, *operands)

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        data = super().sample_data(name, kind, spec, tensors, params, seed)
        limits = cls.domain.get(name) if isinstance(cls.domain, Mapping) else cls.domain
        return data if limits is None else uniform_data(data, *limits)


def substituted(expression: str, reads: Mapping[str, str]) -> str:
    """An expression with a read in the place of every operand's name."""
    return _NAME.sub(lambda name: reads.get(name[0], name[0]), expression)


class UnaryRow(Elementwise):
    """A function of one number."""

    src = operand(dtypes=FLOATS)
    dst = result()
    domain: ClassVar[Range | Mapping[str, Range] | None] = (-1, 1)
    #: The types of the test cases beside f32; None: all that the operand may have.
    kinds: ClassVar[tuple[str, ...] | None] = None
    #: The parameters of the test cases, where they have no default.
    given: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def written(cls, expression):
        return {"definition": f"dst[i...] = {substituted(expression, {'src': 'src[i...]'})}"}

    @classmethod
    def samples(cls):
        dtypes = cls.schema.operands[0].dtypes if cls.kinds is None else ("f32", *cls.kinds)
        shapes = ((2, 1, 3, 1, 17), ()) if "f32" in dtypes else ()
        others = cases(("src",), [t for t in dtypes if t != "f32"], **cls.given)
        return [*(case(src=s, **cls.given) for s in shapes), *others, *cls.more]

    @classmethod
    def shown(cls):
        dtypes, params = cls.schema.operands[0].dtypes or ("f32",), cls.more[0].params if cls.more else {}
        dtype = next((t for t in ("f32", "i32") if t in dtypes), dtypes[0])
        return case(dtype, **{**params, "src": (2, 3)})


class TypedRow(UnaryRow):
    """A function of one number and of parameters that are cast to the tensor's type first, saturating."""

    def reference(self, src):
        dtype = self.operand_specs[0].dtype
        params = (convert(np.asarray(float(self.param(p.name))), dtype) for p in self.schema.params)
        return elementwise_in(self.function, src, *(np.broadcast_to(p, src.shape) for p in params))


class Predicate(UnaryRow):
    """A test whether a number is of some kind: data have infinities, NaN, zeros and ones among them."""

    dst = result(dtype="i1")

    def reference(self, *operands):
        return self.numpy(*operands)

    @classmethod
    def sample_data(cls, name, kind, spec, tensors, params, seed):
        data = super().sample_data(name, kind, spec, tensors, params, seed)
        special = np.array([np.nan, np.inf, -np.inf, 0, 1], data.dtype)
        return np.where(data > 0, data, special[np.arange(data.size).reshape(data.shape) % 5])


class Broadcasting(LnOp):
    """An op whose operands are brought to one shape as NumPy does. A subclass gives `formula`: the value in index
    notation, with operands under their names (``src1 + src2``)."""

    formula: ClassVar[str]

    @classmethod
    def infer(cls, t, p):
        specs = list(vars(t).values())
        return [cls.schema.results[0].spec(Env(vars(t), vars(p)), specs[-1], broadcast_dims(cls.optype, specs))]

    @property
    def definition(self):
        return self.defined(self.formula)

    def defined(self, formula: str) -> str:
        """The definition by a formula, on operands of these shapes."""
        out = self.result_specs[0].dims
        names = self.arg_names()[0]
        reads = {n: broadcast_read(n, spec.dims, out) for n, spec in zip(names, self.operand_specs)}
        return f"dst[i...] = {substituted(formula, reads)}"


class BinaryRow(Broadcasting, Elementwise):
    """A function of two numbers, on tensors that broadcast."""

    src1 = operand()
    src2 = operand(same_type="src1")
    dst = result()

    #: The types of the test cases beside f32.
    kinds: ClassVar[tuple[str, ...]] = ("f64", "f16", "bf16", "i32", "ui8", "i1")

    @classmethod
    def written(cls, expression):
        return {"formula": expression}

    @classmethod
    def samples(cls):
        own = cls._usual_type()
        return [
            case(own, src1=(2, 3, 17), src2=(2, 3, 17)), case(own, src1=(3, 1, 7), src2=(5, 1)),
            *cases(("src1", "src2"), cls.kinds), *cls.more,
        ]  # fmt: skip

    @classmethod
    def shown(cls):
        return case(cls._usual_type(), src1=(2, 3), src2=(3,))

    @classmethod
    def _usual_type(cls) -> str:
        first = cls.schema.operands[0].dtypes
        return "f32" if not first or "f32" in first else "i32"
