"""LLVM IR text to machine code: parse, optimise where asked, emit objects, link; equal kernels once a process.

Kernels from definitions (``tile.opt = "O2"``) run LLVM's middle end with its vectorisers; those that are in vectors
already and the launch list do not: their code is as good without, and it costs 10 to 136 ms a kernel. Imports llvmlite.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property

import llvmlite.binding as llvm
from xdsl.dialects.builtin import ModuleOp

from lightnet.backends.llvm import apart, cache, unlocked
from lightnet.backends.llvm.emitter import Emitted, TargetVectors, emit_module
from lightnet.backends.llvm.pool import pool_text
from lightnet.backends.llvm.values import Dots
from lightnet.dataclasses import dataclass
from lightnet.diagnostics import LightNetError
from lightnet.runtime.native import NativeCode, initialize
from lightnet.runtime.pool import POOL_ENTRY


@dataclass(frozen=True)
class CodeMachine:
    """A processor that code is made for, in LLVM's names: `cpu` (``znver5``), `features` (``+avx512f,...``), and the
    target triple (this system's if empty). Code that is not `optimized` is made in a fifteenth of the time: no kernel
    runs LLVM's middle end, and its code generator is at level 0."""

    cpu: str
    features: str
    triple: str = ""
    optimized: bool = True

    @classmethod
    def host(cls) -> CodeMachine:
        """The processor that this runs on."""
        initialize()
        return cls(llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())

    @property
    def key(self) -> tuple[str, str, str]:
        """The key that tells its code from that of other machines."""
        triple = self.triple or llvm.get_default_triple()
        return self.cpu, self.features, triple if self.optimized else f"{triple} plain"

    @property
    def _level(self) -> int:
        return {"x86-64-v2": 2, "x86-64-v3": 3, "x86-64-v4": 4}.get(self.cpu, 0)

    def _has(self, level: int, *features: str) -> bool:
        """Return whether it is of a level of x86-64 at least, or has one of some features."""
        return self._level >= level or any(f"+{f}" in self.features.split(",") for f in features)

    @property
    def has_fma(self) -> bool:
        """True if a fused multiply-add is an instruction (and not a call for each element)."""
        return self.cpu == "generic" or self._has(3, "fma", "avx512f", "neon")

    @property
    def vectors(self) -> TargetVectors:
        """The width that its features allow."""
        generic = self.cpu == "generic"
        # AVX-512F has the conversions of F16C; AArch64 always has them, in a feature of another name.
        half = generic or self._has(3, "f16c", "avx512f", "fp-armv8", "neon")
        rounding = generic or self._has(2, "sse4.1", "fp-armv8", "neon")
        width = 16 if self._has(4, "avx512f") else 8 if self._has(3, "avx2") else 4
        pairs = self._has(2, "sse2") and (width < 16 or self._has(4, "avx512bw"))
        dots = Dots(pairs, *(width == 16 and self._has(9, name) for name in ("avx512vnni", "avx512bf16")))
        return TargetVectors(width, half, self.has_fma, rounding, dots)

    def target_machine(self, opt: int = 3) -> llvm.TargetMachine:
        """LLVM's code generator for it, at level `opt` (the launch list is made at 0: it is long and runs once)."""
        initialize()
        if self.triple:
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
        target = llvm.Target.from_triple(self.triple) if self.triple else llvm.Target.from_default_triple()
        # or LLVM takes products of words that are added to a sum apart, which kernels have many of already
        tuned = f"{self.features},+fast-dpwssd" if self.vectors.dots.bytes else self.features
        return target.create_target_machine(
            cpu=self.cpu, features=tuned, opt=opt if self.optimized else 0, reloc="pic", codemodel="small"
        )


#: Bytes of objects that are remembered, at most, those used last.
MOST_BYTES = 64 << 20


class _Objects:
    """Objects by (machine, symbol), for all threads; a kernel's symbol is the hash of its text."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._images: OrderedDict[tuple[CodeMachine, str], bytes] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._images)

    def get(self, machine: CodeMachine, symbol: str) -> bytes | None:
        """The object of a kernel, if it is remembered."""
        with self._lock:
            if (image := self._images.get((machine, symbol))) is not None:
                self._images.move_to_end((machine, symbol))
            return image

    def add(self, machine: CodeMachine, images: Mapping[str, bytes]) -> None:
        """Remember objects; those that nobody asked for longest go."""
        with self._lock:
            for symbol, image in images.items():
                self._bytes += len(image) - len(self._images.pop((machine, symbol), b""))
                self._images[machine, symbol] = image
            while self._bytes > MOST_BYTES:
                self._bytes -= len(self._images.popitem(last=False)[1])


_objects = _Objects()


@dataclass(frozen=True)
class NativeModule:
    """A compiled level-4 module: `objects` can be stored and loaded again by `runtime.native.NativeCode`."""

    emitted: Emitted
    machine: CodeMachine
    objects: list[bytes]

    @cached_property
    def code(self) -> NativeCode:
        """The objects, linked into this process."""
        return NativeCode(self.objects)

    @property
    def llvm_ir(self) -> str:
        """LLVM IR as emitted, before LLVM's own passes."""
        return self.emitted.text

    @cached_property
    def assembly(self) -> str:
        """The machine code as assembly text (compiled again)."""
        compiler = Compiler(self.machine)
        texts = [*self.emitted.kernels.values()] + ([(self.emitted.main, False)] if self.emitted.main else [])
        return "\n".join(compiler.target.emit_assembly(compiler.module(*text)) for text in texts)

    def kernel_address(self, name: str) -> int:
        """The address of ``void (i64 lo, i64 hi, ptr...)``, the kernel called `name` in the module."""
        return self.code.address(self.emitted.symbols[name])


def compile_module(
    module: ModuleOp, *, machine: CodeMachine | None = None, vectors: TargetVectors | None = None, verify: bool = False
) -> NativeModule:
    """Compile a level-4 module for `machine` (the host unless given).

    `vectors` overrides the width that the machine suggests; `verify` runs LLVM's verifier (for tests). Raises
    LightNetError for what level 4 does not have.
    """
    machine = machine or CodeMachine.host()
    with _Codegen(machine, verify) as codegen:  # which compiles the first kernels while others are emitted
        emitted = emit_module(module, vectors or machine.vectors, codegen.add)
        if emitted.threads > 1:
            codegen.add(POOL_ENTRY, pool_text(machine.triple or llvm.get_default_triple()), False)
        last = [_launch_list(emitted.main, machine, verify)] if emitted.main is not None else []
        objects = codegen.objects([*emitted.kernels, *([POOL_ENTRY] if emitted.threads > 1 else [])])
    return NativeModule(emitted, machine, objects + last)


def _launch_list(text: str, machine: CodeMachine, verify: bool) -> bytes:
    """The object of a launch list, from the cache on disk where it is there."""
    key = cache.key(*machine.key, "O0", text)
    image = cache.read_cache([key]).get(key)
    if image is None or verify:
        image = Compiler(machine, opt=0).run(text, False, verify)
        cache.write_cache({key: image})
    return image


def compile_texts(
    kernels: dict[str, tuple[str, bool]], machine: CodeMachine, verify: bool = False, threads: int | None = None
) -> list[bytes]:
    """The objects of kernels given as symbol -> (text, runs O2), in that order, from this process or from the cache on
    disk where they are there.

    `threads` (as many as processors, at most 8, unless given) compile at the same time.
    """
    with _Codegen(machine, verify, threads) as codegen:
        for symbol, (text, optimize) in kernels.items():
            codegen.add(symbol, text, optimize)
        return codegen.objects(list(kernels))


class _Codegen:
    """Kernels on their way to machine code, on several threads. Leaving the ``with`` block drops what no thread has
    begun."""

    def __init__(self, machine: CodeMachine, verify: bool, threads: int | None = None):
        self.machine, self.verify = machine, verify
        count = threads or min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
        self._pool = ThreadPoolExecutor(count if unlocked.is_parallel() else 1)
        self._local = threading.local()
        self._found: dict[str, bytes] = {}  # symbol -> the object
        self._waiting: dict[str, tuple[str, Future[bytes]]] = {}  # symbol -> key of the cache on disk, the object

    def __enter__(self) -> _Codegen:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def add(self, symbol: str, text: str, optimize: bool) -> None:
        """Compile a kernel, unless this process has done so, or one before it."""
        if symbol in self._found or symbol in self._waiting:
            return
        optimize &= self.machine.optimized
        if (found := _objects.get(self.machine, symbol)) is None:
            key = cache.key(*self.machine.key, f"O{2 * optimize}", text)
            found = cache.read_cache([key]).get(key) if not self.verify else None
            if found is None:
                self._waiting[symbol] = key, self._pool.submit(self._compile, text, optimize)
                return
            _objects.add(self.machine, {symbol: found})
        self._found[symbol] = found

    def _compile(self, text: str, optimize: bool) -> bytes:
        if not hasattr(self._local, "compiler"):
            self._local.compiler = Compiler(self.machine)
        return self._local.compiler.run(text, optimize, self.verify)

    def objects(self, symbols: Sequence[str]) -> list[bytes]:
        """The objects of kernels that were added. Raises LightNetError where LLVM makes no code of one."""
        made = {symbol: (key, future.result()) for symbol, (key, future) in self._waiting.items()}
        images = {symbol: image for symbol, (_, image) in made.items()}
        self._found |= images
        _objects.add(self.machine, images)
        cache.write_cache(dict(made.values()))
        return [self._found[symbol] for symbol in symbols]


def optimized_object(cpu: str, features: str, triple: str, level: int, text: str, verify: bool) -> bytes:
    """The object of a kernel that runs the middle end, for `apart.run_apart`."""
    compiler = Compiler(CodeMachine(cpu, features, triple), level)
    return compiler.emit(compiler.module(text, True, verify))


class Compiler:
    """A target machine, for the use of one thread."""

    def __init__(self, machine: CodeMachine, opt: int = 3):
        self.target = machine.target_machine(opt)
        self.machine, self.opt = machine, opt
        self.has_fma = machine.has_fma

    def run(self, text: str, optimize: bool, verify: bool) -> bytes:
        """LLVM IR text to an object file."""
        if optimize and apart.is_due():
            m = self.machine
            image = apart.run_apart(f"{__name__}:optimized_object", m.cpu, m.features, m.triple, self.opt, text, verify)
            if image is not None:
                return image
        return self.emit(self.module(text, optimize, verify))

    def emit(self, module: llvm.ModuleRef) -> bytes:
        """The object file of a module."""
        return unlocked.emit_code(self.target, module, unlocked.OBJECT)

    def module(self, text: str, optimize: bool = False, verify: bool = False,
               context: llvm.ContextRef | None = None) -> llvm.ModuleRef:  # fmt: skip
        """Parse LLVM IR (into a context of its own unless one is given), and run the middle end if asked."""
        if not self.has_fma:  # rounding twice is allowed then; calling the library's fma for each element is too slow
            text = text.replace("@llvm.fma.", "@llvm.fmuladd.")
        try:
            module = llvm.parse_assembly(text, context or llvm.create_context())
        except RuntimeError as error:
            raise LightNetError(f"LLVM refuses the emitted code (a bug of the emitter): {error}") from None
        module.triple = self.target.triple
        module.data_layout = str(self.target.target_data)
        if verify:
            module.verify()
        if optimize:
            self._optimize(module)
        return module

    def _optimize(self, module: llvm.ModuleRef) -> None:
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = options.slp_vectorization = options.loop_interleaving = True
        builder = llvm.create_pass_builder(self.target, options)
        unlocked.run_passes(builder.getModulePassManager(), module, builder)
