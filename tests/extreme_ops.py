"""Every op at extreme sizes: its samples with one parameter, dimension or number of operands far from usual, compiled in child processes with limits.

    python tests/extreme_ops.py [--op NAME ...] [--seconds 10] [--gib 1] [--target cpu] [--shard I --of N]

lists what takes longer or more memory than the limits, with what was changed. What does not infer, or has tensors of more than `MOST` elements, is
left out: it is the time of compiling that is looked at, not that of large data. The cases come from the registry of ops.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.ir import Block, Region

import lightnet
from lightnet.diagnostics import LightNetError
from lightnet.dialects.ln.dialect import optypes
from lightnet.dialects.ln.source import Input, ParamOp
from lightnet.ir.op import LnOp
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.model import Model

#: Elements of the largest tensor of a case.
MOST = 1 << 22
#: What a parameter, a dimension, and a number of operands become.
VALUES = (0, 1, 2, 7, 31, 64, 100, 999, 4097, 10_000, 65_536, 1_000_003)
DIMS = (31, 1000, 10_007, 262_144)
COUNTS = (1, 100, 3000)


@dataclass(frozen=True)
class Extreme:
    """A case: an op's sample, and what was changed of it."""

    op: str
    sample: int
    change: str
    specs: tuple[TensorSpec, ...]
    params: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.op} sample {self.sample}: {self.change}"


def changes(cls: type[LnOp]) -> Iterator[tuple[int, str, tuple[TensorSpec, ...], dict[str, Any]]]:
    """What may be asked of an op, right or wrong."""
    for number, sample in enumerate(cls.samples()):
        case = cls.schema.resolve(sample)
        specs = tuple(
            s for f in cls.schema.operands for s in (case.tensors[f.name] if f.variadic else (case.tensors[f.name],))
        )
        params = dict(case.params)
        for p in cls.schema.params:
            given = params.get(p.name, p.default)
            if not p.kind.startswith("number") or given in (..., None):
                continue
            for value in VALUES:
                if not p.is_array:
                    yield number, f"{p.name} = {value}", specs, params | {p.name: value}
                    continue
                values = tuple(given)
                for k in range(len(values)):
                    changed = (*values[:k], value, *values[k + 1 :])
                    yield number, f"{p.name}[{k}] = {value}", specs, params | {p.name: changed}
                yield number, f"{p.name} = {len(values)} x {value}", specs, params | {p.name: (value,) * len(values)}
            if p.is_array:
                for count in COUNTS[1:]:
                    if given:
                        yield (
                            number,
                            f"{count} values of {p.name}",
                            specs,
                            params | {p.name: (tuple(given) * count)[:count]},
                        )
        yield from ((number, what, changed, params) for what, changed in _dims(specs))
        if cls.schema.variadic_operand is not None:
            for count in COUNTS:
                yield number, f"{count} operands", (*specs, *specs[-1:] * count)[:count], params


def _dims(specs: tuple[TensorSpec, ...]) -> Iterator[tuple[str, tuple[TensorSpec, ...]]]:
    """Operands with other dimensions: those that are equal become another number together, or one alone."""
    for old in sorted({d for s in specs for d in s.dims}):
        for new in DIMS:
            yield (
                f"dims {old} = {new}",
                tuple(TensorSpec(tuple(new if d == old else d for d in s.dims), s.dtype) for s in specs),
            )
    for k, s in enumerate(specs):
        for axis in range(len(s.dims)):
            for new in DIMS:
                dims = (*s.dims[:axis], new, *s.dims[axis + 1 :])
                yield f"operand {k} is {list(dims)}", (*specs[:k], TensorSpec(dims, s.dtype), *specs[k + 1 :])


def extremes(names: list[str] | None = None) -> Iterator[Extreme]:
    """All cases that infer, each once."""
    for name, cls in sorted(optypes().items()):
        if names and name not in names:
            continue
        seen: set[object] = set()
        for number, change, specs, params in changes(cls):
            key = repr((specs, params))
            if key in seen or any(prod(s.dims) > MOST for s in specs):
                continue
            seen.add(key)
            if _infers(cls, specs, params):
                yield Extreme(name, number, change, specs, params)


def _infers(cls: type[LnOp], specs: tuple[TensorSpec, ...], params: dict[str, Any]) -> bool:
    try:
        op = cls.make(list(Block(arg_types=[tensor_type(s) for s in specs]).args), dict(params))
    except LightNetError:
        return False
    return sum(s.len for s in op.result_specs) <= MOST


def model_of(case: Extreme) -> Model:
    """A network of the one op: its operands are inputs and params, and all of its results outputs."""
    cls, block = optypes()[case.op], Block()
    sources = []
    for k, (spec, field) in enumerate(zip(case.specs, cls.schema.operand_fields(len(case.specs)))):
        source = ParamOp if field.role == "param" else Input
        params = {"dtype": spec.dtype.tl, "dims": spec.dims, "required": True}
        sources.append(source.make([], params, name=f"create{k}", tensors=[f"x{k}"]))
    op = cls.make([s.results[0] for s in sources], dict(case.params), name=cls.optype)
    op.attributes["ln.tensors"] = ArrayAttr([StringAttr(f"y{k}") for k in range(len(op.results))])
    block.add_ops([*sources, op, func.ReturnOp(*op.results)])
    main = func.FuncOp("main", ((), [r.type for r in op.results]), Region(block))
    return Model(ModuleOp([main]), str(case))


# -- the child, which compiles -----------------------------------------------------------------------------------------


def child(args: argparse.Namespace) -> None:
    """Compile the cases, from one on, and print a line of JSON before and behind each."""
    gib = 1 << 30
    resource.setrlimit(resource.RLIMIT_AS, (6 * gib, 6 * gib))
    for k, case in enumerate(extremes(args.op)):
        if k < args.start or (k % args.of != args.shard):
            continue
        print(json.dumps({"begin": k, "case": str(case)}), flush=True)
        before, started, error = peak_bytes(reset=True), time.process_time(), ""
        try:
            executable = lightnet.compile(model_of(case), args.target, emulate=args.target == "cuda")
            _ = executable.ptx if args.target == "cuda" else executable.program
        except LightNetError as e:
            error = str(e)
        except BaseException as e:
            error = "".join(traceback.format_exception(e)[-3:]) + "CRASH"
        took, more = time.process_time() - started, peak_bytes() - before
        print(json.dumps({"end": k, "seconds": took, "bytes": more, "error": error}), flush=True)


def peak_bytes(reset: bool = False) -> int:
    """This process's peak memory, or with `reset` what it has now, from which on the peak counts again."""
    if reset:
        with open("/proc/self/clear_refs", "w") as refs:
            refs.write("5")
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


# -- the parent, which watches -----------------------------------------------------------------------------------------


def cpu_seconds(pid: int) -> float:
    """Processor time of a process, which a busy machine does not lengthen."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def findings(args: argparse.Namespace, limit: float) -> Iterator[str]:
    """What took longer than the limit (its child is ended at twice that), more memory, or crashed."""
    start = 0
    while True:
        command = [sys.executable, __file__, "--child", "--start", str(start), "--shard", str(args.shard), "--of", str(args.of),
                   "--target", args.target, *[word for name in args.op or () for word in ("--op", name)]]  # fmt: skip
        environment = os.environ | {"LIGHTNET_CACHE": "off"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout is not None
            case, began = "", 0.0
            while True:
                ready, _, _ = select.select([process.stdout], [], [], 1)
                if not ready and not (case and cpu_seconds(process.pid) - began > 2 * limit):
                    continue
                line = process.stdout.readline() if ready else None
                if line is None:
                    yield f"over {2 * limit:g} s: {case}"
                    process.kill()
                    break
                if not line:
                    break
                told = json.loads(line)
                if "begin" in told:
                    case, start, began = told["case"], told["begin"] + 1, cpu_seconds(process.pid)
                    continue
                if told["seconds"] > limit:
                    yield f"{told['seconds']:.1f} s: {case} ({told['error'][:200]})"
                if told["bytes"] > args.gib * (1 << 30):
                    yield f"{told['bytes'] / (1 << 30):.1f} GiB: {case} ({told['error'][:200]})"
                if told["error"].endswith("CRASH"):
                    yield f"crash: {case}: {told['error'][-400:]}"
                elif args.verbose:
                    print(
                        f"{told['seconds']:.2f} s {told['bytes'] >> 20} MiB: {case}: {told['error'][:160]}", flush=True
                    )
                case = ""
            ended = process.wait()
        if not case and ended == 0:
            return
        if ended and line == "":
            yield f"ended with status {ended}: {case}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", action="append", help="only this op (may be repeated)")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--gib", type=float, default=1)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--shard", type=int, default=0)
    parser.add_argument("--of", type=int, default=1, help="only each so many-th case")
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--child", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true")
    args = parser.parse_args()
    if args.child:
        child(args)
        return
    count = 0
    for found in findings(args, args.seconds):
        print(found, flush=True)
        count += 1
    print(f"{count} findings")
    sys.exit(count > 0)


if __name__ == "__main__":
    main()
