"""Compare a network's outputs with ONNX Runtime's on its ONNX export: ``python tools/compare_onnxruntime.py NET… [--seed N]``.

Weights are sampled (`sampled_weights.py`), unless --weights gives a file. Every output has to agree within 1e-4 of the largest
value, and to be finite and not constant. Prints one line an output; the exit status is 1 when one fails.

Which of two nearly equal scores a sort puts first is a matter of rounding. An output picked by sorted indices (`pick1d` of
`sort1d_by_key`) is therefore compared by meaning: all rows picked at one position must be, in ONNX Runtime's unsorted
tensors, rows of one element whose score is the score that we put there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sampled_weights import sampled_weights
from xdsl.ir import SSAValue

import lightnet
from lightnet.dialects.ln.move import Reshape
from lightnet.dialects.ln.sort import Pick1d, Sort1dByKey
from lightnet.ir.module import main_of
from lightnet.ir.op import LnOp, tensor_names
from lightnet.model import Model
from lightnet_export.onnx.model import input_contents, to_onnx

TOLERANCE = 1e-4


@dataclass(frozen=True)
class Finding:
    """The comparison of an output. `error` is relative to the largest value; `problem` says why it fails, if it
    does.
    """

    name: str
    error: float
    spread: float
    problem: str = ""
    how: str = ""


@dataclass(frozen=True)
class Ranking:
    """A sort by key: the tensors that hold its unsorted and its sorted keys, and (output, source, stride) of each pick."""

    keys: str
    sorted_keys: str
    values: str
    picks: tuple[tuple[str, str, int], ...]


def sampled_model(path: str, seed: int = 0, weights: str | None = None) -> Model:
    """The network at `path`, with sampled contents (or those of a file)."""
    if weights is not None:
        return lightnet.load(path, weights=weights, override=True)
    return lightnet.load(path, weights=sampled_weights(lightnet.load(path), seed), override=True)


def session(model: Model, outputs: Sequence[str] = (), threads: int = 1):
    """An ONNX Runtime session of the exported network, which returns `outputs` too."""
    return file_session(to_onnx(model, outputs=outputs).SerializeToString(), threads)


#: The entry of a session's configuration by which products of bytes are not summed in 16 bits, which saturate: what ONNX Runtime does
#: for speed on an x86 processor without VNNI.
WIDE_SUMS = ("session.x64quantprecision", "1")


def file_session(model: str | bytes, threads: int = 1):
    """An ONNX Runtime session of an ONNX model: its path or its bytes."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry(*WIDE_SUMS)
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def onnxruntime_outputs(model: Model, outputs: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """Every output by name, as ONNX Runtime computes it."""
    run = session(model, outputs)
    return dict(zip((o.name for o in run.get_outputs()), run.run(None, input_contents(model))))


def compare(model: Model, got: Mapping[str, np.ndarray]) -> list[Finding]:
    """Our outputs against ONNX Runtime's."""
    found = list(rankings(model))
    findings = compare_with(found, got, onnxruntime_outputs(model, ranked_tensors(found)))
    missing = set(got) ^ {f.name for f in findings}
    assert not missing, f"not compared: {sorted(missing)}"
    return findings


def compare_with(found: Sequence[Ranking], got: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray]) -> list[Finding]:  # fmt: skip
    """Outputs against what they should be; `want` has the tensors of the sorts (`ranked_tensors`), too."""
    ranked = {output for r in found for output, _, _ in r.picks}
    findings = [compare_arrays(name, array, want[name]) for name, array in got.items() if name not in ranked]
    for ranking in found:
        findings += compare_ranking(ranking, got, want)
    return findings


def ranked_tensors(found: Sequence[Ranking]) -> list[str]:
    """The tensors, beside the outputs, that comparing picks by score needs."""
    extra = [n for r in found for n in (r.keys, r.sorted_keys, r.values, *(source for _, source, _ in r.picks))]
    return list(dict.fromkeys(extra))


def compare_arrays(name: str, got: np.ndarray, want: np.ndarray) -> Finding:
    """Floats within the tolerance of max|want|, the rest equal."""
    spread, problem = trouble_with(want)
    if got.shape != want.shape or got.dtype != want.dtype:
        return Finding(name, np.inf, spread, f"is {got.dtype}{list(got.shape)}, not {want.dtype}{list(want.shape)}")
    error = float(np.max(np.abs(got.astype(np.float64) - want)) / max(float(np.max(np.abs(want))), 1e-30))
    limit = TOLERANCE if want.dtype.kind == "f" else 0
    if not error <= limit:  # a NaN fails, too
        problem = problem or f"differs by {error:.2g} of the largest value"
    return Finding(name, error, spread, problem)


def trouble_with(want: np.ndarray) -> tuple[float, str]:
    """Standard deviation over largest value, and why an output shows nothing, if so."""
    values = want.astype(np.float64)
    if not np.isfinite(values).all():
        return 0.0, "the reference is not finite"
    spread = float(values.std() / max(float(np.abs(values).max()), 1e-30))
    if values.size > 1 and values.min() == values.max():
        return spread, "the reference is constant"
    return spread, ""


def rankings(model: Model):
    """The sorts by key whose indices pick outputs."""
    returned = set(main_of(model.module).body.block.last_op.operands)
    for op in main_of(model.module).body.block.ops:
        if isinstance(op, Sort1dByKey):
            picks = [use.operation for use in op.dst_val.uses if isinstance(use.operation, Pick1d)]
            named = tuple((name(p.dst), name(p.src), p.stride) for p in picks if p.dst in returned)
            yield Ranking(name(op.src_key), name(op.dst_key), name(op.src_val), named)


def name(value: SSAValue) -> str:
    """The name of a tensor of the source network."""
    owner = value.owner
    assert isinstance(owner, LnOp | Reshape)
    return tensor_names(owner)[value.index] or ""


def compare_ranking(ranking: Ranking, got: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray]) -> list[Finding]:
    """The picked outputs of one sort; see the module's docstring. The values sorted must be 0, 1, …, as `rearange` makes them."""
    keys, scores = want[ranking.keys].astype(np.float64), want[ranking.sorted_keys].astype(np.float64)
    assert np.array_equal(want[ranking.values], np.arange(len(keys))), "the sort moves something else than positions"
    scores = got.get(ranking.sorted_keys, scores)
    near = TOLERANCE * max(float(np.abs(keys).max()), 1e-30)
    rows = {output: got[output].reshape(-1, stride) for output, _, stride in ranking.picks}
    dense = {output: want[source].reshape(-1, stride) for output, source, stride in ranking.picks}
    errors = dict.fromkeys(rows, 0.0)
    for i in range(max(map(len, rows.values()), default=0)):
        candidates = np.flatnonzero(np.abs(keys - scores[i]) <= near)
        off = {o: row_errors(r[i], dense[o][candidates], dense[o]) for o, r in rows.items() if i < len(r)}
        if not len(candidates):
            errors = dict.fromkeys(rows, np.inf)
            break
        best = int(np.argmin(np.max(list(off.values()), axis=0)))
        for output, values in off.items():
            errors[output] = max(errors[output], float(values[best]))
    findings = []
    for output, error in errors.items():
        spread, problem = trouble_with(want[output])
        limit = TOLERANCE if want[output].dtype.kind == "f" else 0
        if not error <= limit:
            problem = problem or f"no element of this score has this row (off by {error:.2g})"
        findings.append(Finding(output, error, spread, problem, "by score"))
    return findings


def row_errors(row: np.ndarray, candidates: np.ndarray, dense: np.ndarray) -> np.ndarray:
    """The largest difference of a row from each candidate, relative to the largest value of the tensor."""
    scale = max(float(np.abs(dense.astype(np.float64)).max()), 1e-30)
    return np.abs(candidates.astype(np.float64) - row).max(axis=1, initial=0) / scale


def main() -> int:
    """Compare each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="+")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--weights", metavar="FILE", help="weights instead of sampled ones")
    args = parser.parse_args()
    failed = False
    for path in args.nets:
        model = sampled_model(path, args.seed, args.weights)
        print(f"{path}:")
        for finding in compare(model, lightnet.compile(model)()):
            failed |= bool(finding.problem)
            verdict = f"FAILS: {finding.problem}" if finding.problem else "agrees"
            print(
                f"  {finding.name:24s} error {finding.error:8.2e}  spread {finding.spread:8.2e}  {verdict} {finding.how}"
            )
    return failed


if __name__ == "__main__":
    sys.exit(main())
