"""Machine code of a processor: linked where our linker can, else as objects that LLVM links. Imports NumPy and the rest
of the runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lightnet.runtime import lnx_check, processor
from lightnet.runtime.formats import CodeFormat
from lightnet.runtime.image import Image, LoadedImage
from lightnet.runtime.instance import Instance
from lightnet.runtime.machine import Opened
from lightnet.runtime.open_instance import OpenInstance
from lightnet.runtime.program import Program


class NativeFormat(CodeFormat):
    """Code in this process. Its code is a `LoadedImage`, or None where LLVM links the program's objects."""

    name, takes_symbols = "native", True

    def requires(self, program: Program) -> Sequence[str]:
        return processor.required(program.cpu, program.features)

    def packed(self, program: Program, code: Any) -> tuple[dict[str, Any], bytes]:
        from lightnet.runtime import linker

        if linker.can_link(program.objects):
            image = linker.link(program.objects, linker.exported_symbols(program.objects))
            return {"kind": "image", **image.header()}, bytes(image.data)
        return {"kind": "objects", "objects": [len(o) for o in program.objects]}, b"".join(program.objects)

    def objects(self, facts: Mapping[str, Any], body: memoryview) -> tuple[bytes, ...]:
        if facts.get("kind") != "objects":
            return ()
        sizes = lnx_check.check_objects(facts, len(body))
        return tuple(bytes(body[sum(sizes[:k]) : sum(sizes[: k + 1])]) for k in range(len(sizes)))

    def unpacked(self, program: Program, facts: Mapping[str, Any], body: memoryview) -> LoadedImage | None:
        if facts.get("kind") == "objects":
            return None
        lnx_check.check_image(facts, len(body))
        return LoadedImage(Image(body, facts["writable"], facts["exports"], facts["imports"], tuple(facts["relative"])))

    def instance(
        self,
        program: Program,
        code: LoadedImage | None,
        static: np.ndarray,
        defaults: Mapping[str, np.ndarray],
        opened: Opened | None,
    ) -> Instance | OpenInstance:
        kind = OpenInstance if program.symbols else Instance
        return kind(program, static, defaults, code)


NATIVE = NativeFormat()
