"""Four faults of a pass, to be isolated: a wrong function, a parameter that changes, a bound that is left out, an output that loses its
name. A plugin: ``ln-reduce NET --load tests/trust/planted_bugs.py --isolate 'bind,simplify,planted{bug=clip},expand,combine,plan'``."""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.elementwise import Relu
from lightnet.dialects.ln.rules import rule
from lightnet.dialects.ln.unary import Tanh
from lightnet.ir.names import TENSORS
from lightnet.ir.passes import LnPass, rewrite_greedily

EPSILON = 0.001


# sigmoid(x) = tanh(x), which is wrong
@rule("sigmoid")
def sigmoid_is_tanh(op):
    return Tanh.make([op.src])


# min(max(x, 0), 6) = max(x, 0), which is wrong above 6: a few elements of a large map
@rule("clip")
def unbounded(op):
    return Relu.make([op.src])


# (x - mean) / sqrt(var + epsilon), with an epsilon of its own, which is wrong
@rule("batchnorm")
def other_epsilon(op):
    return None if op.param_values()["epsilon"] == EPSILON else op.but(epsilon=EPSILON)


PATTERNS = {"sigmoid": sigmoid_is_tanh, "clip": unbounded, "epsilon": other_epsilon}


@dataclass(frozen=True)
class Planted(LnPass):
    """A pass with a fault: that of a pattern, or (`bug` is ``name``) it takes the names of outputs, or it fails (``crash``)."""

    name = "planted"
    bug: str = "sigmoid"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.bug in PATTERNS:
            rewrite_greedily(op, [PATTERNS[self.bug]()])
            return
        for inner in op.walk():
            if self.bug == "crash" and inner.name == "ln.maxpool2d":
                raise LightNetError(f"a window of {inner.operands[0].type} is none of ours", label="planted.window")
            if self.bug == "name" and any(use.operation.name == "func.return" for r in inner.results for use in r.uses):
                inner.attributes.pop(TENSORS, None)
