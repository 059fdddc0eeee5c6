"""LightNet's other architectures: `cudnn`, `tensorrt` and `dpu` as targets of levels 1 to 3, plans by upstream's rules on several kinds
of memory, and upstream's own expander descriptions, which load as they are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.dialect import find_op
from lightnet.frontends import importer, json_ir
from lightnet.frontends.il import reader as il
from lightnet.ir import registry
from lightnet.ir.kernel import KernelOp
from lightnet.ir.locations import places
from lightnet.ir.memory import memory_of, memory_types
from lightnet.ir.module import main_of
from lightnet.ir.op import places_of, tensor_names
from lightnet.passes.check_plan import check_plan
from lightnet.plugins import load
from lightnet_export.netlist import from_module

DATA = Path(__file__).parents[1] / "data"
NETS = DATA / "nets"
EP = DATA / "upstream"
#: Bytes of CPU and CUDA memory, and ops, of what upstream's build for TensorRT 7.1.3 compiled (lightnet -c -t tensorrt).
TENSORRT = {
    "squeezedet": (8_328_481, 7_166_048, 90),
    "shuffledet_dac_demo": (8_698_789, 23_282_912, 271),
    "shufflenetv2": (5_566_693, 903_200, 487),
    "erfnet_samepad": (8_227_985, 8_294_432, 352),
    "shuffledet_dac": (8_698_789, 19_826_912, 268),
    "yolov3": (248_427_893, 46_379_136, 666),
}
SMALL = """
create( | dst=x | dtype="TL_FLOAT", dims=[1,4,8,8], ran=[-1,1], data=[0], from_file=false);
create( | dst=w | dtype="TL_FLOAT", dims=[6,4,3,3], ran=[-1,1], data=[0], from_file=false);
create( | dst=t | dtype="TL_FLOAT", dims=[6,3,2,2], ran=[-1,1], data=[0], from_file=false);
create( | dst=b | dtype="TL_FLOAT", dims=[6], ran=[-1,1], data=[0], from_file=false);
create( | dst=s | dtype="TL_FLOAT", dims=[6], ran=[0.5,1], data=[0], from_file=false);
conv2d(src=x,weight=w,bias=b|dst=c|size=[3,3],stride=[1,1],padding=[1,0,1,1],dilation=[1,1],group=1,autopad="NOTSET");
batchnorm(src=c,scale=s,offset=b,mean=b,var=s|dst=n|epsilon=0.001);
relu(src=n|dst=r|);
maxpool2d(src=r|dst=p|size=[3,3],stride=[2,2],padding=[0,0,0,0],autopad="SAME_UPPER");
avgpool2d(src=r|dst=a|size=[2,2],stride=[2,2],padding=[0,1,0,1],autopad="NOTSET");
concat(src1=p,src2=a|dst=cc|axis=1);
sigmoid(src=cc|dst=g|);
slice(src=g|dst=h|axis=1,start=0,len=6);
elew(src1=h,src2=h|dst=e|elew_op="TL_SUM");
deconv2d(src=e,weight=t,bias=b3|dst=d|group=1,size=[2,2],stride=[2,2],output_dims=[0,0,0,0],padding=[0,1,0,1],output_padding=[0,0],dilation=[1,1],autopad="NOTSET");
reshape(src=d|dst=f|dims=[1,144]);
softmax(src=f|dst=z|axis=1);
dot_product(src1=z,src2=z|dst=dot|);
print(src=s||msg="s");
""".replace("create( | dst=s", 'create( | dst=b3 | dtype="TL_FLOAT", dims=[3], ran=[-1,1], data=[0], from_file=false);\ncreate( | dst=s')  # fmt: skip
DPU = """
create( | dst=a | dtype="TL_FLOAT", dims=[10,5], ran=[-1,1], data=[0], from_file=false);
create( | dst=w | dtype="TL_FLOAT", dims=[8,8,3,3], ran=[-1,1], data=[0], from_file=false);
create( | dst=v | dtype="TL_FLOAT", dims=[16,4,1,1], ran=[-1,1], data=[0], from_file=false);
create( | dst=b | dtype="TL_FLOAT", dims=[8], ran=[-1,1], data=[0], from_file=false);
create( | dst=b2 | dtype="TL_FLOAT", dims=[16], ran=[-1,1], data=[0], from_file=false);
ldmr(src=a|dst=m|);
conv3x3_dpu(src1=m,src2=m,src3=m,weight=w,bias=b|dst=c|stride=1,padding=[1,1],group=1);
conv1x1_dpu(src=c,weight=v,bias=b2|dst=d|stride=2,padding=[0,1],group=2);
svmr(src=d|dst=y|);
"""
CUDNN = """
create( | dst=x | dtype="TL_FLOAT", dims=[2,3], ran=[-1,1], data=[0], from_file=false);
relu(src=x|dst=y|);
"""
EACH = [("tensorrt", SMALL), ("dpu", DPU), ("cudnn", CUDNN)]


def network(text: str) -> lightnet.Model:
    return lightnet.loads(text, ".net")


def file(name: str, outputs: list[str] | None = None) -> lightnet.Model:
    (path,) = [p for p in (NETS / "il" / f"{name}.net", EP / "net" / f"{name}.net") if p.exists()]
    netlist = il.read(path.read_text("utf-8"), name)
    if outputs is not None:
        netlist.extra["lightnet"] = {"outputs": outputs}
    return lightnet.Model(importer.to_module(netlist), name)


def written(executable: lightnet.Executable) -> str:
    return json_ir.write(from_module(executable.planned))


def agree(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert got.keys() == want.keys()
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-6)


# -- the targets


@pytest.mark.parametrize(("target", "text"), EACH)
def test_a_target_runs_in_the_interpreter_on_its_plan(target: str, text: str) -> None:
    """What its kernels stand for, on memories whose other bytes are poisoned."""
    model = network(text)
    want = lightnet.compile(model, "none")()
    for plan in ("default", "upstream"):
        executable = lightnet.compile(model, target, plan=plan)
        check_plan(executable.planned)
        assert not executable.is_native
        got = executable()
        lost = {name for name, _ in executable.program.overwritten} if plan == "upstream" else set()
        agree({k: v for k, v in got.items() if k not in lost}, {k: v for k, v in want.items() if k not in lost})


@pytest.mark.parametrize(("target", "text"), EACH)
@pytest.mark.parametrize("plan", ["default", "upstream"])
def test_the_compiled_form_reads_back(target: str, text: str, plan: str, capsys) -> None:
    """JSON and MLIR of a planned network are the network."""
    executable = lightnet.compile(network(text), target, plan=plan)
    text = written(executable)
    again = importer.to_module(json_ir.read(text, "again.json"))
    assert json_ir.write(from_module(again)) == text
    check_plan(again)
    agree(lightnet.compile(lightnet.loads(text, ".json"), target, compiled=True)(), executable())
    assert str(lightnet.loads(str(executable.planned), ".mlir").module) == str(executable.planned)


@pytest.mark.parametrize(("target", "text"), EACH)
@pytest.mark.parametrize("plan", ["default", "upstream"])
def test_a_kernel_stands_where_its_ops_do(target: str, text: str, plan: str) -> None:
    """Its location is those of the ops inside, in their order, of one that was joined from several kernels too."""
    kernels = [op for op in main_of(lightnet.compile(network(text), target, plan=plan).planned).walk()
               if isinstance(op, KernelOp)]  # fmt: skip
    assert kernels and (target != "tensorrt" or max(len(kernel.ops) for kernel in kernels) > 3)
    for kernel in kernels:
        inside = list(dict.fromkeys(place for op in kernel.ops for place in places(op.location)))
        assert inside and list(places(kernel.location)) == inside, str(kernel)


def test_upstreams_optypes_are_written() -> None:
    optypes = {
        op.optype for op in from_module(lightnet.compile(network(SMALL), "tensorrt", plan="upstream").planned).ops
    }
    assert optypes == {"create_cpu", "create_cuda", "bn2scale_wts_cpu", "tensorrt", "slice_cuda", "reshape_cuda", "dot_product_cuda", "print_cpu"}  # fmt: skip
    optypes = [op.optype for op in from_module(lightnet.compile(network(DPU), "dpu", plan="upstream").planned).ops]
    assert optypes == ["create_cpu"] * 5 + ["ldmr_dpu", "conv3x3_dpu", "conv1x1_dpu", "svmr_dpu"]


def test_what_an_arch_has_not_is_refused() -> None:
    with pytest.raises(
        LightNetError, match=r"target 'cudnn' cannot run 2 ops, the first .* of optype batchnorm|cannot run"
    ):
        lightnet.compile(network(SMALL), "cudnn")
    with pytest.raises(LightNetError, match=r"conv3x3_dpu0` of optype conv3x3_dpu .it is an op of the target 'dpu'"):
        lightnet.compile(network(DPU), "cpu")
    with pytest.raises(LightNetError, match=r"src->dims.1. should be a multiple of 8"):
        network(DPU.replace("ldmr(src=a|dst=m|);", "svmr(src=a|dst=m|);"))
    wide = DPU.replace("[10,5]", "[30000,5]")
    with pytest.raises(LightNetError, match=r"out of space"):  # 512 KiB
        lightnet.compile(network(wide), "dpu", plan="upstream")
    with pytest.raises(LightNetError, match="memory space 'dpu' has 524288 bytes, and has no room for 'm' of 960000"):
        lightnet.compile(network(wide), "dpu")


GATHER = """
create( | dst=a | dtype="TL_FLOAT", dims=[2,3], ran=[-1,1], data=[0], from_file=false);
create( | dst=b | dtype="TL_FLOAT", dims=[2,3], ran=[-1,1], data=[0], from_file=false);
relu_ARCH(src=a|dst=x|);
relu_ARCH(src=b|dst=y|);
gather_nocopy_ARCH(src1=x,src2=y|dst=g|);
scatter_nocopy_ARCH(src=g|dst1=s,dst2=t|);
relu_ARCH(src=s|dst=u|);
elew_ARCH(src1=u,src2=t|dst=z|elew_op="TL_SUB");
"""


@pytest.mark.parametrize("arch", ["cpu", "cuda", "dpu"])
def test_upstreams_ops_that_copy_nothing(arch: str) -> None:
    """`gather_nocopy_ARCH` and `scatter_nocopy_ARCH` are registered in three of upstream's arches, with no description: parts of a
    tensor that are made and read where they stand. Plans put them there; the ops are gather and scatter."""
    plain = network(GATHER.replace("_nocopy", "").replace("_ARCH", ""))
    model = network(GATHER.replace("ARCH", arch))
    want = lightnet.compile(plain, "none")()
    options = {"on_cpu": True} if arch == "cuda" else {}
    executable = lightnet.compile(model, arch, **options)
    agree(executable(), want)
    ops = main_of(executable.planned).body.block.ops
    at = {name: p.offset.data for op in ops for name, p in zip(tensor_names(op), places_of(op))}
    assert (at["y"] - at["x"], at["t"] - at["s"]) == (24, 24)
    with pytest.raises(LightNetError, match="optype relu_nocopy_cpu is not registered"):
        network(GATHER.replace("relu_ARCH", "relu_nocopy_cpu").replace("ARCH", arch))


def test_ops_of_arches_are_what_the_registry_says() -> None:
    """Found by optype, of the arch that it names, and in no list of the op table's."""
    for optype in registry.ARCH_OPS:
        cls = find_op(optype)
        assert cls is not None and cls.optype == optype
        assert cls.arch == (optype.rpartition("_")[2] if "_" in optype else "none")
    assert find_op("conv9x9_dpu") is None


# -- plans by upstream's rules


def test_upstreams_plan_for_cuda_has_its_alignment_and_index(capsys) -> None:
    """Through the pipeline that ``lightnet -c -t cuda --plan=upstream`` has: upstream's own test of test_ops.json."""
    model = lightnet.load(NETS / "ir" / "test_ops.json")
    executable = lightnet.compile(model, "cuda", plan="upstream")
    wanted = {
        "create1": 32,
        "slice1": 64,
        "reshape1": 64,
        "maxreduce1_dst": 96,
        "elew1": 64,
        "transpose1": 96,
        "zeros1": 64,
    }
    ops = main_of(executable.planned).body.block.ops
    found = {name: p.offset.data for op in ops for name, p in zip(tensor_names(op), places_of(op))}
    assert found == wanted
    net = from_module(executable.planned)
    assert net.mem_sizes == [0, 0, 104]
    assert {op.optype.rpartition("_")[2] for op in net.ops} == {"cuda"}
    on_cpu = lightnet.compile(model, "cuda", plan="upstream", on_cpu=True)
    assert not on_cpu.program.overwritten or on_cpu() is not None


@pytest.mark.slow
def test_upstreams_plan_of_yolov3_for_cuda() -> None:
    model = file("yolov3_bak")
    module = lightnet.compile(model, "cuda", plan="upstream").planned
    net = from_module(module)
    assert (net.mem_sizes, len(net.ops)) == ([0, 0, 294_491_392], 691)


QUICK = ("shuffledet_dac_demo", "shufflenetv2")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in TENSORRT])
def test_upstreams_plans_for_tensorrt(name: str) -> None:
    """Sizes of both memories, and the ops that are left when layers have become engines. Of an output in the middle of an engine upstream
    keeps nothing; here it is asked for explicitly which there are."""
    assert tensorrt_plan(name) == TENSORRT[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TENSORRT.keys() - {"erfnet_samepad"}))
def test_upstreams_table_gives_its_plans_for_tensorrt(name: str) -> None:
    """The same by its own file, but for the one network that this file pads wrongly (below)."""
    with load(EP / "ep" / "ep_tensorrt.json"):
        assert tensorrt_plan(name) == TENSORRT[name]


def tensorrt_plan(name: str) -> tuple[int, int, int]:
    """Bytes of both memories, and ops."""
    model = file(name, ["prob"] if name == "erfnet_samepad" else None)
    module = lightnet.compile(model, "tensorrt", plan="upstream").planned
    sizes = {memory_types(module)[space]: size for space, size in memory_of(module).items()}
    return sizes["cpu"], sizes["cuda"], len(list(main_of(module).body.block.ops)) - 1


def test_values_stand_in_the_memory_of_their_arch() -> None:
    module = lightnet.compile(network(SMALL), "tensorrt", plan="upstream").planned
    for op in main_of(module).body.block.ops:
        if op.name in ("cpu.kernel", "cuda.kernel", "tensorrt.kernel"):
            assert {p.space.data for p in places_of(op)} == {"host" if op.name == "cpu.kernel" else "arena"}
    assert memory_types(module) == {"arena": "cuda", "host": "cpu"}


# -- layers of tensorrt


def entry(layers: str, outs: str = "y", **params) -> str:
    """A network of one op `tensorrt` on x [1, 4, 6, 6], w [8, 4, 3, 3], t [4, 2, 2, 2] and vectors."""
    creates = {
        "x": [1, 4, 6, 6],
        "z": [1, 4, 6, 6],
        "w": [8, 4, 3, 3],
        "t": [4, 2, 2, 2],
        "b8": [8],
        "b2": [2],
        "v": [4],
    }
    sources = "".join(
        f'create( | dst={name} | dtype="TL_FLOAT", dims={dims}, ran=[0.5,1], data=[0], from_file=false);\n'
        for name, dims in creates.items()
    )
    ins = "src1=x, src2=z, weight1=w, weight2=t, weight3=b8, weight4=b2, weight5=v"
    more = "".join(f", {key}={json.dumps(value)}" for key, value in params.items())
    return f"{sources}tensorrt({ins} | dst1={outs} | batch_size=1, {layers}{more});"


CONV = 'op1="conv", op1_src=x, op1_weight=w, op1_bias=b8, op1_dst=y, op1_group=1, op1_output_c=8, op1_size=[3,3], op1_stride=[1,1], op1_padding=[1,0], op1_dilation=[1,1]'
LAYERS = {
    "conv": (CONV, "conv2d"),
    "padded": ('op1="padding", op1_src=x, op1_dst=p, op1_padding=[0,1,2,3], ' + CONV.replace("op1", "op2").replace("op2_src=x", "op2_src=p"), "conv2d"),
    "deconv": ('op1="deconv", op1_src=x, op1_weight=t, op1_bias=b2, op1_dst=y, op1_group=1, op1_output_c=2, op1_size=[2,2], op1_stride=[2,2], op1_padding=[0,1]', "deconv2d"),
    "max": ('op1="pooling", op1_src=x, op1_dst=y, op1_size=[2,2], op1_stride=[2,2], op1_padding=[0,0], op1_pooling_type="kMAX"', "maxpool2d"),
    "mean": ('op1="pooling", op1_src=x, op1_dst=y, op1_size=[2,2], op1_stride=[2,2], op1_padding=[1,1], op1_pooling_type="kAVERAGE"', "avgpool2d"),
    "relu": ('op1="activation", op1_src=x, op1_dst=y, op1_activation_type="kRELU"', "relu"),
    "tanh": ('op1="activation", op1_src=x, op1_dst=y, op1_activation_type="kTANH"', "tanh"),
    "softmax": ('op1="softmax", op1_src=x, op1_dst=y, op1_axes=4', "softmax"),
    "concat": ('op1="concat", op1_src1=x, op1_src2=z, op1_dst=y, op1_axis=2', "concat"),
    "elew": ('op1="elew", op1_src1=x, op1_src2=z, op1_dst=y, op1_elew_type="kPOW"', "elew"),
    "scale": ('op1="scale", op1_src=x, op1_shift=v, op1_scale=v, op1_power=v, op1_dst=y, op1_scale_mode="kCHANNEL"', "scale_tensorrt"),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_read_and_written(name: str) -> None:
    """A layer of an entry is an op of the kernel's body, and is written as that layer again."""
    text, optype = LAYERS[name]
    module = importer.to_module(il.read(entry(text), "t.net"))
    kernel = next(op for op in main_of(module).body.block.ops if op.name == "tensorrt.kernel")
    assert [op.optype for op in kernel.ops] == [optype]
    (again,) = [op for op in from_module(module).ops if op.optype == "tensorrt"]
    said = {p.arg: p.value for p in again.params}
    source = {p.arg: p.value for p in il.read(entry(text), "t.net").ops[-1].params}
    if name == "padded":  # both paddings are the convolution's own, and the layer before it has them all
        assert said["op1_padding"] == (1, 1, 3, 3) and said["op2_padding"] == (0, 0)
        said, source = (
            {k: v for k, v in p.items() if "padding" not in str(v) and "padding" not in k} for p in (said, source)
        )
        source.pop("op1_dst"), source.pop("op2_src"), said.pop("op1_dst", 0), said.pop("op2_src", 0)
    assert {k: v for k, v in said.items() if not k.startswith("dst")} == source


def test_layers_of_one_engine_give_what_the_ops_give() -> None:
    from lightnet.backends.interpreter.graph import run

    values = run(importer.to_module(il.read(entry(LAYERS["scale"][0]), "t.net")))
    sources = run(importer.to_module(il.read(entry(LAYERS["scale"][0]), "t.net")), outputs=["x", "v", "y"])
    v = sources["v"].astype(np.float64)[:, None, None]
    np.testing.assert_allclose(values["y"], (sources["x"].astype(np.float64) * v + v) ** v, rtol=1e-6)


WRONG = [
    ('op1="conv"', 'op1="lrelu"', "layer 1 .lrelu. is none that there are: conv, deconv"),
    ("op1_src=x, ", "", "layer 1 .conv. has no `op1_src`"),
    ("op1_src=x", "op1_src=q", "reads `q`, which is neither an input of the op nor made by a layer before it"),
    ("op1_output_c=8", "op1_output_c=9", "makes 8 channels, but `output_c` says 9"),
    ("op1_stride=[1,1]", "op1_stride=[1]", "should have 2 integers as `stride`"),
    ("op1_stride=[1,1]", "op1_stride=[0,1]", "layer 1 .conv. is not possible"),
    ("op1_group=1", "op1_group=0.5", "should have an integer as `group`"),
    ("op1_dst=y", "op1_dst=q", "no layer makes `y`, which is its output `dst1`"),
    ('op1="conv"', "bin_size=3", "expected 1 to 16384 layers"),
    ("batch_size=1", 'bin="x"', "serialised engine, which nothing here can read"),
    ("batch_size=1", "dst1_shape=[1,2]", "its output `dst1` should be TL_FLOAT.1, 2., but the layers make TL_FLOAT.1, 8, 6, 4"),
    ("batch_size=1", 'dst1_dtype="TL_HALF"', "should be TL_HALF"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), WRONG)
def test_what_is_no_layer_is_an_error_at_its_op(old: str, new: str, message: str) -> None:
    text = entry(CONV)
    assert old in text
    with pytest.raises(LightNetError, match=message) as caught:
        importer.to_module(il.read(text.replace(old, new), "t.net"))
    assert str(caught.value.loc).startswith("t.net:8")


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("softmax", "axes=4", "axes=6", "should have one bit in `axes`"),
        ("relu", "kRELU", "kELU", "should have a `activation_type` out of kRELU, kSIGMOID, kTANH"),
        ("scale", "kCHANNEL", "kUNIFORM", "out of kCHANNEL"),
    ],
)
def test_fields_of_layers(name: str, old: str, new: str, message: str) -> None:
    with pytest.raises(LightNetError, match=message):
        importer.to_module(il.read(entry(LAYERS[name][0].replace(old, new)), "t.net"))


# -- upstream's descriptions


@pytest.mark.parametrize("path", sorted(EP.glob("e*/ep_*.json")), ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_tables_load_verbatim(path: Path) -> None:
    with load(path):
        assert any(target != "*" for _, target, _ in registry.all_patterns())


@pytest.mark.parametrize("target", ["cpu", "cuda", "tensorrt"])
@pytest.mark.parametrize("source", ["small", "cuda_test", "test_ops"])
def test_a_table_gives_the_results_and_plans_of_the_built_in_one(target: str, source: str) -> None:
    text = SMALL if source == "small" else None
    if (
        source == "small" and target != "cpu"
    ):  # a deconvolution is in no table but that of TensorRT, workspaces in that of cuda
        text = SMALL.replace("deconv2d(", "// deconv2d(").replace(
            "reshape(src=d|dst=f|dims=[1,144])", "reshape(src=e|dst=f|dims=[1,96])"
        )
        if target == "tensorrt":  # upstream's padding of layers: test_upstreams_padding_of_layers_is_found_out
            text = SMALL.replace(
                "size=[2,2],stride=[2,2],padding=[0,1,0,1]", "size=[2,2],stride=[2,2],padding=[0,0,0,1]"
            )
            text = text.replace("padding=[0,1,0,1]", "padding=[0,0,0,0]").replace("[1,144]", "[1,192]")
        text = text if target == "tensorrt" else text.replace("dot_product(", "// dot_product(")

    def model() -> lightnet.Model:
        return network(text) if text else lightnet.load(NETS / "ir" / f"{source}.json")

    options = {"on_cpu": True} if target == "cuda" else {}
    plain = lightnet.compile(model(), target, plan="upstream", **options)
    results = lightnet.compile(model(), "none")()
    with load(EP / "ep" / f"ep_{target}.json"):
        described = lightnet.compile(model(), target, plan="upstream", **options)
        assert written(described) == written(plain)
        agree(lightnet.compile(model(), target, **options)(), results)


def test_workspaces_of_a_dot_product_are_tensors_of_cuda() -> None:
    with load(EP / "ep" / "ep_cuda.json"):
        net = from_module(lightnet.compile(network(SMALL), "cuda", plan="upstream").planned)
    spaces = [op for op in net.ops if op.name.startswith("create_cuda")]
    assert [op.tensors_out[0].dims for op in spaces] == [(1,), (1,)]  # 144 elements, 512 a block
    (dot,) = [op for op in net.ops if op.optype == "dot_product_cuda"]
    assert [t.arg for t in dot.tensors_in] == ["src1", "src2", "ws1", "ws2"]


def test_upstreams_padding_of_layers_is_found_out() -> None:
    """Its table takes [top, bottom] where a layer wants [rows, columns]: what that gives has another shape, which is an error."""
    text = "\n".join(SMALL.split("\n")[:8]).replace("padding=[1,0,1,1]", "padding=[1,0,1,0]")
    with load(EP / "ep" / "ep_tensorrt.json"):
        with pytest.raises(
            LightNetError, match=r"its output `dst1` should be TL_FLOAT.1, 6, 8, 6., but the layers make"
        ):
            lightnet.compile(network(text), "tensorrt")
    agree(lightnet.compile(network(text), "tensorrt")(), lightnet.compile(network(text), "none")())


def test_the_network_that_upstreams_padding_is_wrong_for() -> None:
    """ERFNet's 3x1 convolutions are padded by rows alone. Upstream plans them by the shape of the op, and has an engine write another."""
    with load(EP / "ep" / "ep_tensorrt.json"):
        with pytest.raises(
            LightNetError, match=r"should be TL_FLOAT.1, 64, 90, 160., but the layers make TL_FLOAT.1, 64, 90, 158."
        ) as caught:
            lightnet.compile(file("erfnet_samepad", ["prob"]), "tensorrt")
    assert str(caught.value.loc).endswith("ep_tensorrt.json:95:34")
    assert any("conv2d2" in words and str(loc).startswith("erfnet_samepad:166") for loc, words in caught.value.notes)


def test_kernels_of_arches_that_a_target_has_not_are_refused() -> None:
    with load(EP / "experiment" / "ep_cuda.json"):
        with pytest.raises(LightNetError, match=r"target 'cuda' has no memory of type 'cpu'; there are: cuda"):
            lightnet.compile(network(SMALL), "cuda", plan="upstream")
