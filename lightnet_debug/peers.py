"""The values that a network should compute, by others: ONNX Runtime, our own reference interpreter, or arrays in a
file; its outputs, or every tensor that there is a name for. Imports what it needs when it is asked.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightnet.cli.network import PEERS, Network
from lightnet.dataclasses import replace
from lightnet.diagnostics import LightNetError, SourceLoc

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

#: Errors that rounding explains where a network does not compute in f32: of ten and seven bits of fraction, some layers
#: deep.
ROUNDINGS = {"tf32": 5e-3, "f16": 5e-3, "bf16": 4e-2, "auto": 4e-2}


def rounding(precision: str | None) -> float:
    """The distance that outputs may have from what is expected, as a share of each expected value, and of the
    largest.
    """
    return ROUNDINGS.get(precision or "f32", 1e-4)


def check_peer(what: str) -> None:
    """Raise LightNetError for a value of ``--compare`` that is no peer and no file of arrays."""
    if what not in PEERS and not what.lower().endswith((".npz", ".npy")):
        raise LightNetError(f"--compare takes {', '.join(PEERS)}, FILE.npz or FILE.npy, and gets '{what}'")


def expectation(what: str, network: Network, feeds: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    """The outputs that are expected, by name: from a peer, or from a file."""
    if what == "interpreter":
        return network.compile("none")(feeds, stream=io.StringIO())
    if what == "onnxruntime":
        return by_onnxruntime(network, feeds)
    return _from_file(what, names)


def expected_layers(what: str, network: Network, feeds: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    """As `expectation`, for any tensors: those called `names` that the peer has. The interpreter runs the network as it
    came in, and ONNX Runtime the model with these tensors as further outputs."""
    if what == "interpreter":
        from lightnet_debug.steps import specialized

        executable, fed = specialized(network.compile("none"), feeds)
        return executable.interpreted(fed)
    if what == "onnxruntime":
        return by_onnxruntime(network, feeds, names)
    return _from_file(what, names)


def _from_file(path: str, names: Sequence[str]) -> dict[str, Any]:
    """The arrays of an `.npz`; that of an `.npy` belongs to the one name there is."""
    from lightnet.cli.feeding import array_entries, loaded_entry

    entries = array_entries(path)
    if list(entries) == [""]:
        if len(names) != 1:
            raise LightNetError(
                f"one array for {len(names)} outputs ({', '.join(names[:4])}): use .npz", SourceLoc(path)
            )
        return {names[0]: loaded_entry(path, "", entries[""])}
    return {name: loaded_entry(path, name, entry) for name, entry in entries.items()}


def by_onnxruntime(network: Network, feeds: Mapping[str, Any], further: Sequence[str] = ()) -> dict[str, Any]:
    """The results that ONNX Runtime computes by the model itself, or of the ONNX export of a network in another form:
    its outputs, and those of the tensors called `further` that the model computes.
    """
    try:
        import onnxruntime as ort
    except ImportError:
        raise LightNetError("--compare onnxruntime needs the package 'onnxruntime': pip install onnxruntime") from None
    options = ort.SessionOptions()
    options.log_severity_level = 4
    feeds = dict(feeds)
    if network.is_onnx:
        source: Any = network.path
        feeds = {**network.values, **feeds}
        if further:
            source = with_outputs(network.path, further)
            folder = str(Path(network.path).resolve().parent)
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    else:
        from lightnet.ir.resolving import resolve_beside
        from lightnet.passes.graph import tensor_names_in

        exporting = resolve_beside("lightnet_export.onnx.model", "option '--compare' of a network not in ONNX")
        model = network.model()
        there = tensor_names_in(model.module)  # passes make others: the folded weights of a batch norm
        model = replace(model, module=with_named_outputs(model.module))
        source = exporting.to_onnx(model, outputs=[name for name in further if name in there]).SerializeToString()
        feeds = {name: feeds.get(name, array) for name, array in exporting.input_contents(model).items()}
    try:
        session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        types = {i.name: i.shape for i in session.get_inputs()}
        names = [o.name for o in session.get_outputs()]
        found = dict(zip(names, session.run(names, {k: v for k, v in feeds.items() if k in types})))
    except Exception as e:  # whatever it raises: its exceptions have no common base
        raise LightNetError(f"ONNX Runtime cannot run this network: {' '.join(str(e).split())[:400]}") from None
    return {name: value for name, value in found.items() if hasattr(value, "dtype") or _are_maps(value)}


def _are_maps(value: Any) -> bool:
    """Return whether a sequence, which is a list, is one of maps."""
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def with_named_outputs(module: ModuleOp) -> ModuleOp:
    """A copy of a module in which outputs without a name have those of an executable's outputs: export would make up
    others."""
    from xdsl.ir import OpResult

    from lightnet.ir.kernel import KernelOp
    from lightnet.ir.module import main_of
    from lightnet.ir.names import set_tensor_names, tensor_names

    module = module.clone()
    last = main_of(module).body.block.last_op
    for i, value in enumerate(last.operands if last is not None else ()):
        if not isinstance(value, OpResult) or tensor_names(value.op)[value.index]:
            continue
        made: OpResult = value
        while isinstance(made.op, KernelOp):  # export looks into kernels
            inner = made.op.terminator.operands[made.index]
            assert isinstance(inner, OpResult)
            made = inner
        names = list(tensor_names(made.op))
        names[made.index] = f"output{i}"
        set_tensor_names(made.op, names)
    return module


def with_outputs(path: str, names: Sequence[str]) -> bytes:
    """An ONNX model that returns further tensors: those called `names` that a node of its graph computes. Messages of
    protobuf merge when one stands behind the other, so that nothing of the model is decoded here but by our reader."""
    from lightnet.frontends.onnx.protos import need_onnx
    from lightnet.frontends.onnx.reader import read_model
    from lightnet.runtime.files import map_file

    graph = read_model(path).graph
    known = {o.name for o in graph.outputs}
    made = {output for node in graph.nodes for output in node.outputs if output} - known
    onnx = need_onnx()
    added = [onnx.ValueInfoProto(name=name) for name in names if name in made]
    addition = onnx.ModelProto(graph=onnx.GraphProto(output=added))
    return bytes(map_file(path)) + addition.SerializeToString()
