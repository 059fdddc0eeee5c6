"""The work that `tools/bench_cuda.py` measures: the standard networks by batch and precision, matrix products and
convolutions; and what should come out.

Imports lightnet and NumPy.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from xdsl.dialects import func

import lightnet
from benching import networks
from benching.torch_form import is_input, supports
from lightnet.dialects.ln.move import Reshape
from lightnet.dialects.ln.source import Source
from lightnet.model import Model, open_store
from lightnet.runtime.dtypes import BY_NAME
from lightnet.runtime.initial import uniform
from lightnet_trust.shrink import retype

#: What arithmetic may round to, and how far a result may be off by it, relative to the largest value of an output.
TOLERANCE = {"f32": 1e-4, "tf32": 1e-2, "f16": 3e-2}
#: Of `suites/transformers.py`.
TRANSFORMERS = ("bert-mini", "vit-tiny")
NETWORKS, PRODUCTS, CONVOLUTIONS = "networks", "products", "convolutions"


@dataclass(frozen=True)
class Work:
    """One thing to measure. `compiled` is the precision that our compiler is asked for: the types of a network's own tensors may say it already."""

    name: str
    group: str
    precision: str
    batch: int
    compiled: str
    model: Model
    #: Operations of the multiply-adds, two each, of convolutions as if direct.
    flops: int

    @cached_property
    def contents(self) -> dict[str, np.ndarray]:
        """The contents of every source, by name."""
        return networks.contents(self.model)

    @cached_property
    def inputs(self) -> dict[str, np.ndarray]:
        """The arrays that are fed, in the order of the network."""
        sources = [op for op in self.model.main.body.block.ops if isinstance(op, Source) and is_input(op)]
        names = [op.tensor_names[0] or op.op_name or "" for op in sources]
        return {name: self.contents[name] for name in names}

    def reference(self, folder: Path | None = None) -> dict[str, np.ndarray]:
        """The outputs, by the kernels of the CPU in float32, on the same contents; kept in a folder, if one is given, and taken from there."""
        if folder is None:
            return self._computed()
        kind = "half" if self.precision == "f16" and self.compiled != "f16" else "single"
        path = folder / f"{self.name}-{self.batch}-{kind}.npz".replace("/", "_").replace(" ", "_")
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(path, **self._computed())
        with np.load(path) as found:
            return {name: found[name] for name in found.files}

    def _computed(self) -> dict[str, np.ndarray]:
        wide = {n: a.astype(np.float32) if a.dtype.kind == "f" else a for n, a in self.contents.items()}
        model = self.model if self.precision != "f16" or self.compiled == "f16" else _in_single(self.model, wide)
        return lightnet.compile(model, threads=min(os.cpu_count() or 1, 16))({n: wide[n] for n in self.inputs})


def _in_single(model: Model, contents: dict[str, np.ndarray]) -> Model:
    """The network with f32 for f16."""
    module = model.module.clone()
    single = BY_NAME["f32"].tl
    sources = [op for op in module.walk() if isinstance(op, Source) and op.result_specs[0].dtype.name == "f16"]
    retype(module, {op: {"dtype": single} for op in sources})
    return dataclasses.replace(model, module=module, weights=open_store(contents, module))


# ---- networks ------------------------------------------------------------------------------------------------------


def without_heads(model: Model) -> Model:
    """The network up to the ops that PyTorch has no function for (the boxes of a detector): it returns what these would read."""
    module = model.module.clone()
    main = next(op for op in module.walk() if isinstance(op, func.FuncOp))
    last = main.body.block.last_op
    assert last is not None
    for op in reversed(list(main.body.block.ops)):
        if isinstance(op, Source | func.ReturnOp) or supports(op):
            continue
        kept = [v for v in last.operands if v.owner is not op]
        last.operands = list(dict.fromkeys([*kept, op.operands[0]]))
        op.detach()
        op.erase()
    for op in list(main.body.block.ops):
        if isinstance(op, Source) and op.results[0].first_use is None:
            op.detach()
            op.erase()
    main.update_function_type()
    return dataclasses.replace(model, module=module)


def batched(model: Model, batch: int) -> Model:
    """The network for `batch` pictures; what its inputs hold is drawn."""
    module, contents = model.module.clone(), networks.contents(model)
    inputs = [op for op in module.walk() if isinstance(op, Source) and is_input(op)]
    dims = {op: (batch, *op.result_specs[0].dims[1:]) for op in inputs}
    flat = {op: (batch, *op.dims[1:]) for op in module.walk() if isinstance(op, Reshape) and op.dims[0] == 1}
    retype(module, {op: {"dims": d} for op, d in (dims | flat).items()})
    for op, d in dims.items():
        name = op.tensor_names[0] or op.op_name or ""
        contents[name] = uniform(f"bench/{name}", 0, int(np.prod(d)), -1, 1).astype(np.float32).reshape(d)
    return dataclasses.replace(model, module=module, weights=open_store(contents, module), brings_weights=True)


def network(name: str, precision: str, batch: int) -> Work:
    """A network of `networks.NETWORKS`, or a transformer."""
    if name in TRANSFORMERS:
        return transformer(name, precision, batch)
    model = batched(without_heads(networks.loaded(networks.NETWORKS[name])), batch)
    return Work(name, NETWORKS, precision, batch, precision, model, networks.flops(model))


def transformer(name: str, precision: str, batch: int) -> Work:
    """A transformer of `suites.transformers`."""
    from suites import transformers

    model = lightnet.load(transformers.write(name, networks.FOLDER, batch))
    drawn = transformers.MODELS[name][1](batch)
    if not drawn:
        drawn = {
            n: uniform(f"bench/{n}", 0, int(np.prod(d)), -1, 1).astype(np.float32).reshape(d)
            for n, d in _inputs(model).items()
        }
    contents = networks.contents(model) | drawn
    model = dataclasses.replace(model, weights=open_store(contents, model.module), brings_weights=True)
    return Work(name, NETWORKS, precision, batch, precision, model, networks.flops(model))


def _inputs(model: Model) -> dict[str, tuple[int, ...]]:
    """The dims of a model's inputs, by name."""
    sources = [op for op in model.module.walk() if isinstance(op, Source) and is_input(op)]
    return {op.tensor_names[0] or op.op_name or "": op.result_specs[0].dims for op in sources}


# ---- single layers -------------------------------------------------------------------------------------------------

#: [m, k] times [k, n].
GEMMS = [
    (8192, 8192, 8192),
    (4096, 4096, 4096),
    (1024, 1024, 1024),
    (512, 4096, 1024),
    (8192, 768, 3072),
    (128, 4096, 4096),
    (1, 4096, 4096),
]
#: Channels in and out, pixels along a side of the result, size, stride, groups.
CONVS = [(64, 64, 56, 3, 1, 1), (128, 128, 28, 3, 1, 1), (256, 256, 14, 3, 1, 1), (512, 512, 7, 3, 1, 1), (64, 256, 56, 1, 1, 1),
         (1024, 256, 14, 1, 1, 1), (512, 2048, 7, 1, 1, 1), (3, 64, 112, 7, 2, 1), (256, 512, 14, 3, 2, 1), (96, 96, 56, 3, 1, 96),
         (960, 960, 7, 3, 1, 960)]  # fmt: skip


def _layer(text: str, name: str, group: str, precision: str, batch: int) -> Work:
    """Tensors are of f16 where that is the precision, so that nothing is converted at the edges."""
    single, half = (lightnet.loads(text.replace("$T", BY_NAME[t].tl), ".net", name) for t in ("f32", "f16"))
    if precision == "f16":
        return Work(name, group, precision, batch, "f32", half, networks.flops(single))
    return Work(name, group, precision, batch, precision, single, networks.flops(single))


def _tensor(what: str, name: str, dims: Sequence[int], high: float) -> str:
    return f"{what}(| dst={name} | dtype=$T, dims={list(dims)}, data=[0], ran=[{-high}, {high}], from_file=false);\n"


def gemm(m: int, k: int, n: int, precision: str) -> Work:
    """A product with a constant matrix."""
    text = _tensor("create", "x", (m, k), 1) + _tensor("param", "w", (k, n), (3 / k) ** 0.5)
    return _layer(f"{text}matmul(a=x, b=w | dst=y |);\n", f"{m}x{k}x{n}", PRODUCTS, precision, 1)


def conv(c: int, o: int, pixels: int, size: int, stride: int, groups: int, precision: str, batch: int) -> Work:
    """A convolution and its ReLU."""
    fan_in, pad, rows = c // groups * size * size, size // 2, pixels * stride
    text = _tensor("create", "x", (batch, c, rows, rows), 1) + _tensor("param", "b", (o,), 0.1)
    text += _tensor("param", "w", (o, c // groups, size, size), (6 / fan_in) ** 0.5)
    text += (f"conv2d(src=x, weight=w, bias=b | dst=c | group={groups}, size=[{size}, {size}], stride=[{stride}, {stride}], "
             f'padding=[{pad}, {pad}, {pad}, {pad}], autopad="NOTSET", dilation=[1, 1]);\nrelu(src=c | dst=y |);\n')  # fmt: skip
    kind = "depthwise " if groups > 1 else ""
    name = f"{kind}{size}x{size}{f'/{stride}' if stride > 1 else ''} {c} to {o} at {pixels}"
    return _layer(text, name, CONVOLUTIONS, precision, batch)


def works(
    names: Sequence[str], layers: bool, precisions: Sequence[str], batches: Sequence[int]
) -> Iterator[Callable[[], Work]]:
    """The works to measure, each made when it is its turn."""
    for precision in precisions:
        for batch in batches:
            for name in names:
                yield lambda a=(name, precision, batch): network(*a)
        if not layers:
            continue
        for shape in GEMMS:
            yield lambda a=(*shape, precision): gemm(*a)
        for batch in batches:
            for layer in CONVS:
                yield lambda a=(*layer, precision, batch): conv(*a)


def perceptron(precision: str) -> Work:
    """A network as small as a layer: two products and what is between."""
    text = (
        _tensor("create", "x", (2, 24), 1) + _tensor("param", "w", (24, 20), 0.3) + _tensor("param", "v", (20, 10), 0.3)
    )
    text += "matmul(a=x, b=w | dst=h |);\nrelu(src=h | dst=r |);\nmatmul(a=r, b=v | dst=y |);\n"
    model = lightnet.loads(text.replace("$T", "TL_FLOAT"), ".net", "perceptron")
    return Work("perceptron", NETWORKS, precision, 2, precision, model, networks.flops(model))


def small() -> Iterator[Callable[[], Work]]:
    """Sizes for the interpreter: every kind of work, and one network of the benchmark in one precision, which alone takes seconds."""
    yield lambda: network("mlp", "f32", 2)
    for precision in TOLERANCE:
        yield lambda p=precision: perceptron(p)
        yield lambda p=precision: gemm(33, 24, 20, p)
        yield lambda p=precision: conv(6, 10, 5, 3, 1, 1, p, 2)
