"""Random networks on target cuda, whose kernels go to a generator drawn for each, with drawn choices: natively as loops of the CPU (pass `simt-to-cpu`), some
in the PTX interpreter as well, against the references of the ops. What lies behind the last channel of a map has to be zero after each kernel.
``LIGHTNET_FUZZ=N`` runs N times as many networks, from other seeds."""

from __future__ import annotations

import os

import numpy as np
import pytest
from network_cases import MOVES, Network, _param
from test_fuzz_networks import reference
from xdsl.dialects.builtin import FunctionType, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import SSAValue

from lightnet.backends.cuda import selection
from lightnet.backends.cuda.gemm.generator import SIMT_TILES
from lightnet.backends.cuda.gemm.mma_core import shapes
from lightnet.compiler import Compilation
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.conv import Conv2d, Deconv2d
from lightnet.dialects.ln.dialect import optypes
from lightnet.dialects.ln.matmul import Matmul
from lightnet.dialects.ln.pool import Avgpool2d, Maxpool2d
from lightnet.executable import Executable
from lightnet.ir.context import make_context
from lightnet.ir.kernel import KernelOp, choice_attr
from lightnet.ir.layout import byte_size, layout_of, to_memory
from lightnet.ir.module import main_of
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.types import spec_of, storage_type
from lightnet.ir.views import place_of
from lightnet.model import Model
from lightnet.passes import pipelines
from lightnet.report.steps import NativeStepper

FACTOR = int(os.environ.get("LIGHTNET_FUZZ", "0"))
FIRST = int(os.environ.get("LIGHTNET_FUZZ_FIRST", "5000"))
SEEDS = range(FIRST, FIRST + 25 * FACTOR) if FACTOR else range(12)
INTERPRETED = SEEDS[:: 5 if FACTOR else 4]
#: Of the largest value: sums in another order; types whose roundings fall elsewhere, several ops deep; factors rounded to tf32.
TOLERANCE = {"f64": 1e-10, "f32": 1e-4, "f16": 1e-2, "bf16": 8e-2, "tf32": 2e-2}
DTYPES = ("f32", "f32", "f32", "f16", "bf16", "f64")


# ---- networks ----------------------------------------------------------------------------------------------------------


def _picture(net: Network) -> SSAValue:
    """A map that there is, or a new one of any number of channels."""
    old = net.value(lambda v: spec_of(v.type).ndim == 4 and spec_of(v.type).dtype.name == net.dtype)
    if old is not None and net.rng.random() < 0.8:
        return old
    c = net.pick(1, 2, 3, 4, 5, 8, 12, 16, 31, 32, 33, 64, 70)
    return net.create((net.pick(1, 1, 2, 3), c, net.pick(1, 2, 3, 5, 7, 9), net.pick(1, 2, 4, 5, 8, 9)), net.dtype)


def _conv(net: Network) -> None:
    x = _picture(net)
    c = spec_of(x.type).dims[1]
    group = net.pick(1, 1, 1, c, net.factor(c))
    out = group * net.pick(1, 1, 2, 4) if group > 1 else net.pick(1, 2, 3, 4, 7, 8, 16, 31, 32, 40, 64, 70, c, c)
    size = (net.pick(1, 1, 2, 3, 3, 5, 7), net.pick(1, 1, 2, 3, 3, 4))
    params = {"group": group, "size": size, "stride": (net.pick(1, 1, 2, 3), net.pick(1, 1, 2)),
              "dilation": (net.pick(1, 1, 2), net.pick(1, 1, 3)),
              "padding": tuple(net.pick(0, 0, 1, 2, size[i % 2] // 2) for i in range(4))}  # fmt: skip
    if net.rng.random() < 0.4:
        params |= {"size": (3, 3), "stride": (1, 1), "dilation": (1, 1), "padding": (1, 1, 1, 1)}
    elif net.rng.random() < 0.3:
        params |= {"size": (1, 1), "stride": (1, 1), "dilation": (1, 1), "padding": (0, 0, 0, 0)}
    per_group, (rows, cols) = c // group, params["size"]
    bound = float(1.7 / np.sqrt(per_group * rows * cols))
    weight = _param(net, (out, per_group, rows, cols), net.dtype, -bound, bound)
    net.add(Conv2d, [x, weight, _param(net, (out,), net.dtype, -0.5, 0.5)], params, exact=False)


def _branches(net: Network) -> None:
    """Convolutions of one map, perhaps with an op behind them, beside each other in one result."""
    x, parts = _picture(net), []
    c = spec_of(x.type).dims[1]
    for _ in range(net.pick(2, 2, 3)):
        k, out = net.pick(1, 1, 3), net.pick(1, 3, 4, 8, 16, 32)
        bound = float(1.7 / np.sqrt(c * k * k))
        operands = [_param(net, (out, c, k, k), net.dtype, -bound, bound), _param(net, (out,), net.dtype, -0.5, 0.5)]
        found = net.add(Conv2d, [x, *operands], {"size": (k, k), "padding": (k // 2,) * 4}, exact=False)
        parts += net.add(optypes()["relu"], found, exact=False) if found and net.rng.random() < 0.5 else found
    if len(parts) > 1:
        net.add(optypes()["concat"], parts, {"axis": 1}, exact=False)


def _deconv(net: Network) -> None:
    x = _picture(net)
    c, out, size = spec_of(x.type).dims[1], net.pick(1, 3, 4, 8), (net.pick(1, 2, 3), net.pick(2, 3))
    bound = float(1.7 / np.sqrt(c * size[0] * size[1]))
    operands = [x, _param(net, (c, out, *size), net.dtype, -bound, bound), _param(net, (out,), net.dtype, -0.5, 0.5)]
    net.add(Deconv2d, operands, {"size": size, "stride": (net.pick(1, 2), net.pick(1, 2))}, exact=False)


def _pool(net: Network) -> None:
    size = (net.pick(1, 2, 3), net.pick(1, 2, 3, 4))
    params = {"size": size, "stride": (net.pick(1, 2, 3), net.pick(1, 2)),
              "padding": tuple(net.pick(0, size[i % 2] // 2) for i in range(4))}  # fmt: skip
    net.add(net.pick(Maxpool2d, Avgpool2d), [_picture(net)], params, exact=False)


def _dense(net: Network) -> None:
    """A convolution over the whole picture."""
    x = _picture(net)
    (_, c, h, w), out = spec_of(x.type).dims, net.pick(1, 5, 10, 32, 33)
    bound = float(1.7 / np.sqrt(c * h * w))
    weight = _param(net, (out, c, h, w), net.dtype, -bound, bound)
    net.add(Conv2d, [x, weight, _param(net, (out,), net.dtype, -0.5, 0.5)], {"size": (h, w)}, exact=False)


def _product(net: Network) -> None:
    """Matrices that there are or new ones, with batches that are repeated in ways of all kinds."""
    a = net.value(lambda v: spec_of(v.type).ndim >= 2 and spec_of(v.type).dtype.name == net.dtype)
    if a is None or net.rng.random() < 0.4:
        batch = net.pick((), (), (2,), (3, 2), (1, 2), (2, 1))
        a = net.create((*batch, net.pick(1, 2, 5, 16, 33), net.pick(1, 3, 4, 16, 31, 40)), net.dtype)
    *outer, _, k = spec_of(a.type).dims
    batch = net.pick((), (), tuple(outer), tuple(net.pick(1, d) for d in outer))
    bound = float(1.7 / np.sqrt(k))
    b = net.create((*batch, k, net.pick(1, 4, 7, 16, 33)), net.dtype, -bound, bound)
    net.add(Matmul, [a, b], exact=False)


def _ewise(net: Network) -> None:
    """An op on a tensor and one that is repeated along some of its dims, or on itself."""
    x = net.value(lambda v: spec_of(v.type).dtype.name == net.dtype)
    if x is None:
        return
    name = net.pick("add", "mul", "sub", "maximum", "relu", "tanh", "sigmoid", "abs", "neg", "exp")
    if name not in ("add", "mul", "sub", "maximum"):
        net.add(optypes()[name], [x], exact=False)
        return
    dims = spec_of(x.type).dims
    other = net.value(lambda v: v.type == x.type)
    if net.rng.random() < 0.6:
        kept = [net.pick(d, 1) for d in dims]
        other = net.create(kept[int(net.rng.integers(len(dims))) if net.rng.random() < 0.3 else 0 :], net.dtype)
    net.add(optypes()[name], [x, other] if net.rng.random() < 0.7 else [other, x], exact=False)


def _rows(net: Network) -> None:
    x = net.value(lambda v: spec_of(v.type).dtype.name == net.dtype)
    if x is None:
        return
    ndim = spec_of(x.type).ndim
    name = net.pick("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod", "softmax", "log_softmax", "layernorm", "rmsnorm",
                    "argmax", "argmin", "l2norm", "cumsum")  # fmt: skip
    axis = int(net.rng.integers(ndim))
    if name.startswith("reduce"):
        axes = tuple(sorted({axis, *(int(net.rng.integers(ndim)) for _ in range(net.pick(0, 0, 1, 2)))}))
        net.add(optypes()[name], [x], {"axes": axes, "keepdims": bool(net.rng.random() < 0.5)}, exact=False)
    elif not name.startswith("arg") or x in net.exact:  # a rounding error decides where a maximum is
        net.add(optypes()[name], [x], {"axis": axis}, exact=name.startswith("arg"))


OWN = [_conv] * 7 + [_branches] * 2 + [_deconv, _dense] + [_pool] * 3 + [_product] * 3 + [_ewise] * 6 + [_rows] * 4
OTHERS = [move for move in MOVES if move.__name__ not in ("_sort", "_pick", "_print", "_submean", "_window", "_block")]


def random_module(seed: int) -> ModuleOp:
    """A network of a few ops, most of them of one type."""
    rng = np.random.default_rng(seed)
    net = Network(rng)
    net.dtype = DTYPES[int(rng.integers(len(DTYPES)))]
    _picture(net)
    count, tries = net.pick(4, 6, 10, 16, 24), 0
    while len(net.block.ops) < count and (tries := tries + 1) < 4 * count:
        net.pick(*OWN, *OTHERS[:: net.pick(1, 2, 9)])(net)
    outputs = [v for v in net.arrays if v.first_use is None] or list(net.arrays)[-1:]
    net.block.add_op(ReturnOp(*outputs))
    main = FuncOp("main", FunctionType.from_lists([], [v.type for v in outputs]))
    for op in list(net.block.ops):
        op.detach()
        main.body.block.add_op(op)
    return ModuleOp([main])


# ---- choices -----------------------------------------------------------------------------------------------------------


def choices(rng: np.random.Generator, alg: str, kernel: KernelOp) -> dict[str, object]:
    """Choices that a generator may be able to keep."""

    def pick(*of: object) -> object:
        return of[int(rng.integers(len(of)))]

    if alg in ("simt", "mma"):
        element = storage_type(kernel.ops[0].operand_specs[0].dtype)
        tiles = SIMT_TILES if alg == "simt" else [(s.rows, s.cols, s.depth) for s in shapes(element)]
        made = {"tile": tiles[int(rng.integers(len(tiles)))], "stages": pick(2, 3, 4), "splits": pick(1, 1, 2, 3, 5)}
    elif alg == "rows":
        size = 1 << int(rng.integers(0, 8))
        made = {"order": pick("row", "column"), "team": (max(1, 32 // size) * int(str(pick(1, 2, 4))), size), "width": pick(1, 1, 2, 4),
                "pieces": pick(1, 1, 2, 3)}  # fmt: skip
    else:
        made = {"strip": pick(1, 2, 4)} if alg == "depthwise" else {}
    return {k: v for k, v in made.items() if rng.random() < 0.6}


def pin(module: ModuleOp, rng: np.random.Generator, how: str) -> None:
    """Draw a generator for some kernels, and choices for some of these."""
    for kernel in main_of(module).body.block.ops:
        if not isinstance(kernel, KernelOp):
            continue
        algs = list(dict.fromkeys(g.alg for g, _ in selection.candidates(kernel)))
        alg = algs[int(rng.integers(len(algs)))]
        if how == "none" or rng.random() < 0.3:
            continue
        kernel.attributes["alg"] = StringAttr(alg)
        if how == "all":
            kernel.attributes.update({k: choice_attr(v) for k, v in choices(rng, alg, kernel).items()})


def compiled(module: ModuleOp, seed: int, how: str, emulate: bool) -> Compilation:
    """A network for cuda; choices are put on kernels before layouts are decided."""
    rng = np.random.default_rng(seed)
    layout, precision = ("plain" if rng.random() < 0.25 else "nhwc"), ("tf32" if rng.random() < 0.2 else None)
    options = {"target": "cuda", "layout": layout, "precision": precision, "features": "sm_80"}
    names = pipelines.default("cuda", layout=layout).split(",")
    at = names.index("layout")
    module = module.clone()
    run_pipeline(make_context(), module, parse_pipeline(",".join(names[:at]), options))
    pin(module, rng, how)
    rest = ",".join(names[at:]) + ("" if emulate else ",simt-to-cpu")
    rest = (
        rest.replace("plan,", "plan{alignment=8},") if rng.random() < 0.4 else rest
    )  # less than a thread copies at a time
    return Compilation(module, parse_pipeline(rest, options), make_context(), emulate=emulate)


def executable_of(module: ModuleOp, seed: int, emulate: bool = False) -> tuple[Executable, str]:
    """The network with as much of what was drawn as can be."""
    for how in ("all", "algs", "none"):
        try:
            return Executable(compiled(module, seed, how, emulate), None, 0), how
        except LightNetError as error:
            if how == "none" or error.label is None:
                raise
    raise AssertionError


# ---- what has to hold --------------------------------------------------------------------------------------------------


def rounds(executable: Executable) -> str | None:
    """The type to which a network rounds; None where it has none but exact ones."""
    names = {spec_of(v.type).dtype.name for op in executable.planned.walk() for v in (*op.operands, *op.results)
             if hasattr(v.type, "element_type")}  # fmt: skip
    algs = {str(op.attributes.get("alg")) for op in executable.planned.walk() if isinstance(op, KernelOp)}
    found = [n for n in ("f16", "bf16", "f32", "f64") if n in names] + (
        ["tf32"] if any("mma" in alg for alg in algs) else []
    )
    return max(found, key=TOLERANCE.__getitem__, default=None)


def close(got: dict[str, np.ndarray], want: dict[str, np.ndarray], tolerance: float, label: str) -> None:
    assert list(got) == list(want), label
    for name, array in want.items():
        found = got[name]
        assert (found.shape, found.dtype) == (array.shape, array.dtype), f"{label}: {name}"
        if array.dtype.kind not in "fV":
            np.testing.assert_array_equal(found, array, f"{label}: {name}")
            continue
        a, b = found.astype(np.float64), array.astype(np.float64)
        assert (np.isfinite(a) == np.isfinite(b)).all(), f"{label}: {name}"
        error = np.abs(a - b).max(initial=0, where=np.isfinite(b)) / max(
            np.abs(b).max(initial=0, where=np.isfinite(b)), 1e-2
        )
        assert error <= tolerance, f"{label}: {name} differs by {error}"


def check_lanes(executable: Executable, label: str) -> None:
    """Run kernel by kernel on memory that is no zeros: each leaves zeros behind the last channel of its maps."""
    native = NativeStepper(executable, {})
    for step in native.steps:
        for result in step.op.results:
            if (place := place_of(result)) is not None and step.lines and not _in_place(step.op):
                memory = native.arena.memory(native.static)[place.space.data]
                memory[place.offset.data : place.offset.data + byte_size(result.type)] = 0xA5
        for call in native.calls(step):
            call()
        for result in step.op.results:
            place = place_of(result)
            if place is None or layout_of(result.type).is_plain:
                continue
            memory = native.arena.memory(native.static)[place.space.data]
            raw = memory[place.offset.data : place.offset.data + byte_size(result.type)].copy()
            array = native.read(result)
            assert (to_memory(result.type, array) == raw).all(), f"{label}: lanes of {step.op}"


def _in_place(op: KernelOp) -> bool:
    def span(value: SSAValue) -> tuple[str, int, int]:
        place = place_of(value)
        return place.space.data, place.offset.data, place.offset.data + byte_size(value.type)

    spans = [span(v) for v in op.operands]
    return any(s == t and a < d and c < b for s, a, b in map(span, op.results) for t, c, d in spans)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_networks(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("seed", INTERPRETED)
def test_random_networks_in_the_interpreter(seed: int) -> None:
    check(seed, emulate=True)


def check(seed: int, emulate: bool = False) -> str:
    module = random_module(seed)
    executable, how = executable_of(module, seed, emulate)
    label = f"{seed} {how}{' interpreted' if emulate else ''}"
    tolerance = TOLERANCE[rounds(executable) or "f32"]
    want = reference(Model(module, f"network {seed}"), {})[0]
    close(executable(), want, tolerance, label)
    if not emulate:
        check_lanes(executable, label)
    return how
