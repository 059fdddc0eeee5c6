"""Print the constants of the CPU's models of time beside what this machine gives: ``python tools/calibrate.py [family …] [--rounds N]``.

Rates of the machine model (`backends/cpu/blocked/base.py`) are measured as for a roofline. A constant of a model cannot be measured alone: kernels
of a family (`tools/bench_blocked.py`'s cases) are timed once, each as the models lay it out, and the model is asked for their times again with that
constant scaled, on a processor of the rates measured here, and all else as it is. What fits best is printed beside the value in the code: the mean distance of predicted from measured time as a
factor, 1.10 being 10 %, by either value. Where the two distances are equal the cases do not tell. Limits of a search (tiles, bytes of a part) are
chosen, not measured, and are not listed. Imports lightnet, NumPy, and the benchmark of blocked kernels.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import exp, log
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import bench_blocked
from blocked_kernels import kernel_of, lay_out, planned
from machine import machine

from lightnet.backends.cpu.blocked.base import ProcessorModel, processor_model_of
from lightnet.backends.generator import Generator
from lightnet.backends.llvm.jit import CodeMachine as Processor
from lightnet.ir.kernel import KernelOp
from lightnet.ir.resolving import resolve
from lightnet.ir.types import ParamAttr
from lightnet_debug import roofline

MODELS = "lightnet.backends.cpu.blocked."
#: The constants of a model that are times, cycles, rates or shares of these, by family of kernels: module and name.
CONSTANTS = {
    "direct": ("conv_model", ("TRIP_CYCLES", "TILE_CYCLES", "READS", "EXPOSED", "EXPOSED_FAR", "SEVERAL_ROWS",
                              "FETCH", "WAIT", "TRAFFIC")),
    "winograd": ("winograd_model", ("TRIP_CYCLES", "TILE_CYCLES", "MOVE_CYCLES", "WEIGHT_RATE", "EXPOSED",
                                    "EXPOSED_MAPS", "SPLIT", "LAUNCH")),
    "dense": ("dense_model", ("FETCHED",)),
    "bands": ("bands_model", ("TRAFFIC", "COLD", "BAND_TIME")),
}  # fmt: skip
#: What a constant is scaled by.
FACTORS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4, 1.7, 2.0)


@dataclass
class Sample:
    """A kernel whose choices stand on it, and the nanoseconds that it takes here."""

    name: str
    kernel: KernelOp
    generator: Generator
    measured: float

    def predicted(self, model: ProcessorModel) -> float:
        """Nanoseconds by the models as they are now, for the choices that were made."""
        return planned(self.generator, self.kernel, model).time


def samples(family: str, model: ProcessorModel, processor: Processor, rounds: int) -> list[Sample]:
    """The cases of a family, timed in turns; the least of so many rounds counts."""
    cases = [c for c in bench_blocked.FAMILIES[family]() if not c.behind]
    calls = [bench_blocked.prepare(case, model, processor).call for case in cases]
    repeats = [bench_blocked.repeats(call) for call in calls]
    least = [float("inf")] * len(cases)
    for _ in range(rounds):
        for i, (call, repeat) in enumerate(zip(calls, repeats)):
            least[i] = min(least[i], bench_blocked.timed(call, repeat))
    found = []
    for case, seconds in zip(cases, least):
        generator = resolve(MODELS + case.generator)
        kernel = kernel_of(case.operands, case.body)
        kernel.attributes.update({k: ParamAttr(v) for k, v in case.choices.items()})
        lay_out(kernel, generator, model, out=case.out)
        found.append(Sample(case.name, kernel, generator, 1e9 * seconds))
    return found


def forget() -> None:
    """Empty what the models remember of earlier questions."""
    for name, module in list(sys.modules.items()):
        if name.startswith("lightnet.backends.cpu."):
            for value in list(vars(module).values()):
                if callable(getattr(value, "cache_clear", None)):
                    value.cache_clear()


@contextmanager
def replaced(module: ModuleType, name: str, value: float) -> Iterator[None]:
    """Give a constant another value inside the block."""
    before = getattr(module, name)
    setattr(module, name, value)
    forget()
    try:
        yield
    finally:
        setattr(module, name, before)
        forget()


def distance(found: Sequence[Sample], model: ProcessorModel) -> float:
    """The mean factor between predicted and measured time, 1 or more."""
    return exp(sum(abs(log(s.predicted(model) / s.measured)) for s in found) / len(found))


def fitted(found: Sequence[Sample], model: ProcessorModel, module: ModuleType, name: str) -> tuple[float, float]:
    """The value of a constant that fits best, and the distance with it."""
    own = getattr(module, name)
    tried = []
    for factor in FACTORS:
        with replaced(module, name, own * factor):
            tried.append((distance(found, model), abs(log(factor)), own * factor))
    best = min(tried)
    return best[2], best[0]


def rates(model: ProcessorModel) -> list[tuple[str, float, float]]:
    """(name, value in the code, value measured here) of the machine model's rates, per nanosecond."""
    peaks = roofline.measured()
    by_size = dict(peaks.bandwidth)
    return [
        ("flops", model.flops, peaks.flops / 1e9),
        ("l2_bytes", model.l2_bytes, by_size[1 << 17] / 1e9),
        ("l3_bytes", model.l3_bytes, by_size[1 << 23] / 1e9),
        ("dram_bytes", model.dram_bytes, by_size[1 << 26] / 1e9),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("families", nargs="*", metavar="family", help=f"of {', '.join(CONSTANTS)}; all unless given")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    for name in options.families:
        if name not in CONSTANTS:
            parser.error(f"there is no family '{name}'; there are: {', '.join(CONSTANTS)}")
    processor = Processor.host()
    width = processor.vectors.width
    model = processor_model_of({16: "avx512", 8: "avx2"}.get(width, "neon"))
    print(f"{machine('llvmlite')}; one thread, processor time; {options.rounds} rounds")
    print(f"\n{'constant':36} {'code':>9} {'here':>9}")
    measured = rates(model)
    for name, own, here in measured:
        print(f"{f'base.{ProcessorModel.__name__}.{name}':36} {own:9.4g} {here:9.4g}")
    at_hand = replace(model, **{name: here for name, _, here in measured})
    for family in options.families or CONSTANTS:
        where, names = CONSTANTS[family]
        module = importlib.import_module(MODELS + where)
        found = samples(family, model, processor, options.rounds)
        if not found:
            continue
        before = distance(found, at_hand)
        print(f"\n{f'{family}: {len(found)} kernels':36} {'code':>9} {'here':>9} {'distance':>9} {'fitted':>7}")
        for name in names:
            value, after = fitted(found, at_hand, module, name)
            print(f"{where + '.' + name:36} {getattr(module, name):9.4g} {value:9.4g} {before:9.3f} {after:7.3f}")


if __name__ == "__main__":
    main()
