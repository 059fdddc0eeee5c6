"""Random networks on target cuda, whose kernels go to a generator drawn for each, with drawn choices: natively as loops of the CPU (pass `simt-to-cpu`), some
in the PTX interpreter as well, against the references of the ops; for sm_80 or sm_90a, and some of f32 in a shorter type. What lies behind the last
channel of a map has to be zero after each kernel.
``LIGHTNET_FUZZ=N`` runs N times as many networks, from other seeds."""

from __future__ import annotations

import os
from collections.abc import Iterable
from math import prod

import numpy as np
import pytest
from network_cases import MOVES, Network, _concat, _param, _slices
from test_fuzz_networks import reference
from xdsl.dialects.builtin import FunctionType, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import SSAValue

from lightnet.backends.cuda.device import DeviceModel, device_of
from lightnet.backends.cuda.gemm.generator import SIMT_TILES
from lightnet.backends.cuda.gemm.mma_core import product_tiles
from lightnet.backends.cuda.gemm.wgmma import TILES
from lightnet.backends.cuda.selection import SELECTION
from lightnet.compilation import Compilation
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.conv import Conv2d, Deconv2d
from lightnet.dialects.ln.conv_nd import Conv, Deconv
from lightnet.dialects.ln.dialect import optypes
from lightnet.dialects.ln.matmul import Matmul
from lightnet.dialects.ln.pool import Avgpool2d, Maxpool2d
from lightnet.dialects.ln.source import Arange
from lightnet.executable import Executable
from lightnet.ir.arrays import to_memory
from lightnet.ir.context import make_context
from lightnet.ir.kernel import KernelOp, choice_attr
from lightnet.ir.layout import byte_size, layout_of
from lightnet.ir.module import main_of
from lightnet.ir.passes import parse_pipeline, run_pipeline
from lightnet.ir.target import get_target
from lightnet.ir.types import spec_of, storage_type
from lightnet.ir.views import place_of
from lightnet.model import Model
from lightnet.passes import pipelines
from lightnet.runtime.arrays import align_up
from lightnet_debug.steps import NativeStepper

FACTOR = int(os.environ.get("LIGHTNET_FUZZ", "0"))
FIRST = int(os.environ.get("LIGHTNET_FUZZ_FIRST", "5000"))
SEEDS = range(FIRST, FIRST + 25 * FACTOR) if FACTOR else range(12)
INTERPRETED = SEEDS[:: 5 if FACTOR else 4]
#: Of the largest value: sums in another order; types whose roundings fall elsewhere, several ops deep; factors rounded to tf32.
TOLERANCE = {"f64": 1e-10, "f32": 1e-4, "f16": 1e-2, "bf16": 8e-2, "tf32": 2e-2}
DTYPES = ("f32", "f32", "f32", "f16", "bf16", "f64")

#: Tiles of warpgroups whose epilogues, all of which are in code, take a processor's compiler little time.
SMALL = [tile for tile in TILES if prod(tile) <= 128 * 64]


# ---- networks ----------------------------------------------------------------------------------------------------------


class CudaNetwork(Network):
    """A network most of whose ops are of one type; channels of its maps are mostly multiples of `pieces`."""

    dtype = "f32"
    pieces = 1


def _whole(net: CudaNetwork, channels: int) -> int:
    return align_up(channels, net.pieces) if net.rng.random() < 0.9 else channels


def _picture(net: CudaNetwork) -> SSAValue:
    """A map that there is, or a new one of any number of channels."""
    old = net.value(lambda v: spec_of(v.type).ndim == 4 and spec_of(v.type).dtype.name == net.dtype)
    if old is not None and net.rng.random() < 0.8:
        return old
    c = _whole(net, net.pick(1, 2, 3, 4, 5, 8, 12, 16, 31, 32, 33, 64, 70))
    return net.create((net.pick(1, 1, 2, 3), c, net.pick(1, 2, 3, 5, 7, 9), net.pick(1, 2, 4, 5, 8, 9)), net.dtype)


def _conv(net: CudaNetwork) -> None:
    x = _picture(net)
    c = spec_of(x.type).dims[1]
    group = net.pick(1, 1, 1, c, net.factor(c))
    out = (
        group * net.pick(1, 1, 2, 4)
        if group > 1
        else _whole(net, net.pick(1, 2, 3, 4, 7, 8, 16, 31, 32, 40, 64, 70, c, c))
    )
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
    weight = _weight(net, (out, per_group, rows, cols), bound)
    net.add(Conv2d, [x, weight, _param(net, (out,), net.dtype, -0.5, 0.5)], params, exact=False)


def _weight(net: CudaNetwork, dims: tuple[int, ...], bound: float) -> SSAValue:
    """A param, or now and then what an op makes of two, or a value that there is."""
    weight = _param(net, dims, net.dtype, -bound, bound)
    if net.rng.random() < 0.15:
        others = [v for v in net.arrays if v.type == weight.type]
        made = net.add(optypes()[net.pick("mul", "add", "maximum")], [net.pick(*others), weight], exact=False)
        return made[0] if made else weight
    return weight


def _branches(net: CudaNetwork) -> None:
    """Convolutions of one map, perhaps with an op behind them, beside each other in one result."""
    x, parts = _picture(net), []
    c = spec_of(x.type).dims[1]
    for _ in range(net.pick(2, 2, 3)):
        k, out = net.pick(1, 1, 3), _whole(net, net.pick(1, 3, 4, 8, 16, 32))
        bound = float(1.7 / np.sqrt(c * k * k))
        operands = [_param(net, (out, c, k, k), net.dtype, -bound, bound), _param(net, (out,), net.dtype, -0.5, 0.5)]
        found = net.add(Conv2d, [x, *operands], {"size": (k, k), "padding": (k // 2,) * 4}, exact=False)
        parts += net.add(optypes()["relu"], found, exact=False) if found and net.rng.random() < 0.5 else found
    if len(parts) > 1:
        net.add(optypes()["concat"], parts, {"axis": 1}, exact=False)


def _deconv(net: CudaNetwork) -> None:
    x = _picture(net)
    c, size = spec_of(x.type).dims[1], (net.pick(1, 2, 3, 4, 5), net.pick(1, 2, 3, 4))
    group = net.pick(1, 1, 1, 1, net.factor(c))
    out, bound = group * _whole(net, net.pick(1, 3, 4, 8, 16, 20)), float(1.7 / np.sqrt(c * size[0] * size[1]))
    params = {"group": group, "size": size, "stride": tuple(net.pick(1, 2, 2, 3, 4) for _ in size),
              "dilation": tuple(net.pick(1, 1, 1, 2) for _ in size), "output_padding": tuple(net.pick(0, 0, 0, 1, 2) for _ in size),
              "padding": tuple(net.pick(0, 0, 1, 2, size[i % 2] - 1) for i in range(4))}  # fmt: skip
    weight = _weight(net, (c, out // group, *size), bound)
    net.add(Deconv2d, [x, weight, _param(net, (out,), net.dtype, -0.5, 0.5)], params, exact=False)


def _conv_nd(net: CudaNetwork) -> None:
    """Over one axis or three, or over two by the op for any number, and transposed."""
    x = net.value(lambda v: spec_of(v.type).ndim in (3, 5) and spec_of(v.type).dtype.name == net.dtype)
    if x is None or net.rng.random() < 0.4:
        outer = (net.pick(1, 1, 2), net.pick(1, 3, 4, 8, 16, 24))
        x = net.create((*outer, *(net.pick(1, 2, 3, 5) for _ in range(net.pick(1, 1, 2, 3, 3)))), net.dtype)
    c, axes, cls = spec_of(x.type).dims[1], spec_of(x.type).ndim - 2, net.pick(Conv, Conv, Deconv)
    group, size = net.pick(1, 1, 1, net.factor(c)), tuple(net.pick(1, 2, 3, 3) for _ in range(axes))
    out = group * net.pick(1, 2, 5, 8, 16)
    params = {"group": group, "stride": tuple(net.pick(1, 1, 2, size[i]) for i in range(axes)),
              "dilation": tuple(net.pick(1, 1, 1, 2) for _ in size), "padding": tuple(net.pick(0, 0, 1, 2) for _ in 2 * size)}  # fmt: skip
    if cls is Deconv:
        params["output_padding"] = tuple(net.pick(0, 0, 1) for _ in size)
    dims = (out, c // group, *size) if cls is Conv else (c, out // group, *size)
    weight = _weight(net, dims, float(1.7 / np.sqrt(np.prod(size) * c // group + 1)))
    net.add(cls, [x, weight, _param(net, (out,), net.dtype, -0.5, 0.5)], params, exact=False)


def _recurrent(net: CudaNetwork) -> None:
    """A recurrent layer whose gate outputs are a product, or any tensor."""
    name = net.pick("lstm", "gru", "rnn")
    (gates, states, vector), hidden = (
        {"lstm": (4, 2, 3), "gru": (3, 1, 1), "rnn": (1, 1, 0)}[name],
        net.pick(1, 2, 5, 8, 20, 33),
    )
    if net.dtype not in ("f32", "f64"):
        return
    x = net.value(lambda v: spec_of(v.type).ndim == 3 and spec_of(v.type).dtype.name == net.dtype)
    if x is None or net.rng.random() < 0.5:
        x = net.create((net.pick(1, 2, 4, 7), net.pick(1, 1, 2, 3, 5), net.pick(3, 8, 16)), net.dtype)
    steps, batch, k = spec_of(x.type).dims
    lens = net.create((batch,), "i32")
    limit = net.add(Arange, (), {"dtype": "TL_INT32", "start": steps, "stop": steps + batch, "step": 1}, exact=True)
    lens = net.add(optypes()["minimum"], [net.add(optypes()["abs"], [lens], exact=True)[0], *limit], exact=True)
    made = net.add(Matmul, [x, net.create((k, gates * hidden), net.dtype, -0.5, 0.5)], exact=False)
    if not lens or not made:
        return
    first = [net.create((batch, hidden), net.dtype) for _ in range(states)]
    params: dict[str, object] = {"reverse": bool(net.rng.random() < 0.4), "clip": net.pick(0.0, 0.0, 0.5)}
    if name == "gru":
        params["linear_before_reset"] = bool(net.rng.random() < 0.5)
    weight = _param(net, (hidden, gates * hidden), net.dtype, -0.4, 0.4)
    beside = [net.create((vector * hidden,), net.dtype)] if vector else []
    net.add(optypes()[name], [*made, weight, first[0], *lens, *first[1:], *beside], params, exact=False)


def _pool(net: CudaNetwork) -> None:
    size = (net.pick(1, 2, 3), net.pick(1, 2, 3, 4))
    params = {"size": size, "stride": (net.pick(1, 2, 3), net.pick(1, 2)),
              "padding": tuple(net.pick(0, size[i % 2] // 2) for i in range(4))}  # fmt: skip
    net.add(net.pick(Maxpool2d, Avgpool2d), [_picture(net)], params, exact=False)


def _dense(net: CudaNetwork) -> None:
    """A convolution over the whole picture."""
    x = _picture(net)
    (_, c, h, w), out = spec_of(x.type).dims, net.pick(1, 5, 10, 32, 33)
    bound = float(1.7 / np.sqrt(c * h * w))
    weight = _param(net, (out, c, h, w), net.dtype, -bound, bound)
    net.add(Conv2d, [x, weight, _param(net, (out,), net.dtype, -0.5, 0.5)], {"size": (h, w)}, exact=False)


def _product(net: CudaNetwork) -> None:
    """Matrices that there are or new ones, with batches that are repeated in ways of all kinds."""
    a = net.value(lambda v: spec_of(v.type).ndim >= 2 and spec_of(v.type).dtype.name == net.dtype)
    if a is None or net.rng.random() < 0.4:
        batch = net.pick((), (), (2,), (3, 2), (1, 2), (2, 1))
        a = net.create((*batch, net.pick(1, 2, 5, 16, 33), _whole(net, net.pick(1, 3, 4, 16, 31, 40))), net.dtype)
    *outer, _, k = spec_of(a.type).dims
    batch = net.pick((), (), tuple(outer), tuple(net.pick(1, d) for d in outer))
    bound = float(1.7 / np.sqrt(k))
    b = net.create((*batch, k, _whole(net, net.pick(1, 4, 7, 16, 33))), net.dtype, -bound, bound)
    net.add(Matmul, [a, b], exact=False)


def _ewise(net: CudaNetwork) -> None:
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


def _rows(net: CudaNetwork) -> None:
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


OWN = (
    [_conv] * 7
    + [_branches] * 2
    + [_deconv] * 3
    + [_dense, _conv_nd, _conv_nd, _recurrent]
    + [_pool] * 3
    + [_product] * 3
    + [_ewise] * 6
    + [_rows] * 4
)
#: Products, what may be done with their results by them, and views of these.
PRODUCTS = (
    [_conv] * 5
    + [_branches] * 2
    + [_deconv] * 3
    + [_dense, _conv_nd, _product, _product]
    + [_ewise] * 5
    + [_concat, _slices]
)
OTHERS = [move for move in MOVES if move.__name__ not in ("_sort", "_pick", "_print", "_submean", "_window", "_block")]


def random_module(seed: int) -> ModuleOp:
    """A network of a few ops, most of them of one type."""
    rng = np.random.default_rng(seed)
    net = CudaNetwork(rng)
    net.dtype, net.pieces = net.pick(*DTYPES), net.pick(1, 8)
    _picture(net)
    products = net.rng.random() < 0.4
    count, tries = net.pick(4, 6, 10, 16, 24), 0
    while len(net.block.ops) < count and (tries := tries + 1) < 4 * count:
        net.pick(*(PRODUCTS if products else OWN + OTHERS[:: net.pick(1, 2, 9)]))(net)
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
        tiles = SIMT_TILES if alg == "simt" else product_tiles(element)
        made = {"tile": tiles[int(rng.integers(len(tiles)))], "stages": pick(2, 3, 4), "splits": pick(1, 1, 2, 3, 5)}
    elif alg == "wgmma":
        made = {
            "tile": (*SMALL[int(rng.integers(len(SMALL)))], 64),
            "stages": pick(2, 3, 4, 5),
            "splits": pick(1, 1, 2, 3, 5),
        }
    elif alg == "recurrent":
        made = {
            "units": pick(0, 0, 4, 8, 16),
            "threads": 32 * int(str(pick(1, 2, 4, 16))),
            "sequences": pick(1, 1, 2, 3),
            "held": pick(0, 1),
        }
    elif alg == "rows":
        size = 1 << int(rng.integers(0, 8))
        made = {"order": pick("row", "column"), "team": (max(1, 32 // size) * int(str(pick(1, 2, 4))), size), "width": pick(1, 1, 2, 4),
                "pieces": pick(1, 1, 2, 3)}  # fmt: skip
    else:
        made = {"strip": pick(1, 2, 4)} if alg == "depthwise" else {}
    return {k: v for k, v in made.items() if rng.random() < 0.6}


def pin(module: ModuleOp, rng: np.random.Generator, how: str, device: DeviceModel) -> None:
    """Draw a generator for some kernels, and choices for some of these."""
    for kernel in main_of(module).body.block.ops:
        if not isinstance(kernel, KernelOp):
            continue
        algs = list(dict.fromkeys(g.alg for g, _ in SELECTION.candidates(kernel, device)))
        alg = algs[int(rng.integers(len(algs)))]
        if warpgroups := [a for a in algs if "wgmma" in a]:
            alg = warpgroups[0] if rng.random() < 0.8 else alg
        if how == "none" or (rng.random() < 0.3 and "wgmma" not in alg):
            continue
        kernel.attributes["alg"] = StringAttr(alg)
        if how == "all":
            kernel.attributes.update({k: choice_attr(v) for k, v in choices(rng, alg, kernel).items()})


def _decides(module: ModuleOp) -> bool:
    """Whether integers are made of floats, which a rounding changes."""

    def names(values: Iterable[SSAValue]) -> set[str]:
        return {spec_of(v.type).dtype.name for v in values}

    ops = [op for op in main_of(module).body.block.ops if op.results]
    return any(names(op.results) - TOLERANCE.keys() and names(op.operands) & TOLERANCE.keys() for op in ops)


def compiled(module: ModuleOp, seed: int, how: str, emulate: bool) -> Compilation:
    """A network for cuda; choices are put on kernels before layouts are decided."""
    rng = np.random.default_rng(seed)
    layout, precision = ("plain" if rng.random() < 0.25 else "nhwc"), ("tf32" if rng.random() < 0.2 else None)
    arch, short = ("sm_90a" if rng.random() < 0.6 else "sm_80"), ("f16", "f16", "bf16")[int(rng.integers(3))]
    short = "f32" if rng.random() < 0.3 or _decides(module) else short
    options = {"target": "cuda", "layout": layout, "precision": precision, "features": arch, "arch": arch}
    names = pipelines.default("cuda", layout=layout, precision=short).split(",")
    at = names.index("layout")
    module = module.clone()
    run_pipeline(make_context(), module, parse_pipeline(",".join(names[:at]), options))
    pin(module, rng, how, device_of(arch))
    rest = ",".join(names[at:]) + ("" if emulate else ",simt-to-cpu")
    rest = (
        rest.replace("plan,", "plan{alignment=8},") if rng.random() < 0.4 else rest
    )  # less than a thread copies at a time
    settings = get_target("cuda").settings(**{"emulate" if emulate else "on_cpu": True})
    stages = pipelines.staged(rest, options).parsed(options)
    return Compilation(module, *stages, make_context(), target="cuda", settings=settings)


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


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_networks(seed: int) -> None:
    check(seed)


@pytest.mark.sampled(every=3)
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
