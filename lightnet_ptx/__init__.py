"""An interpreter of PTX in NumPy: a debugger, and the oracle of the cuda target. It stands beside the package
`lightnet`, which imports it in one place, where a device is to be emulated. Imports the standard library, NumPy, and of
`lightnet` the diagnostics and what a driver is (`runtime.cuda`).

From text to a run: `text` reads PTX, `decode` makes one closure an instruction (from the tables of `integers`,
`floats`, `comparisons`, `conversions`, `access`, `atomics`, `control`, `warp`, `matrix`, `asynchronous`, and of sm_90a
`mbarriers`, `tma`, `wgmma`), `machine` runs them over all the threads of many blocks at once, with the mbarriers
(`phases`) and the products under way (`products`) of their blocks; `memory`, `races` and, where mbarriers order things,
`clocks` say what must not happen, `findings` says it to the user.

What it cannot see: the weak order of memory beyond races (it runs one order, that of the lowest instruction first;
threads that spin until another one writes may starve it, which ends at the step limit); the last bits of approximations
and of the sums of tensor cores; what ptxas makes of the text; speed. Not there: clusters, stores by tensor maps,
`wgmma` with a factor in registers or of types other than f16 and bf16, waits by the state of an mbarrier, textures, f8,
128-bit arithmetic (`add.cc`), rounding modes other than to nearest in arithmetic. A debugger's hook is
`Emulator(trace=...)`: it gets the `machine.Batch` before each instruction, whose `kernel.sites[here]` is the
instruction, `mask_array()` the lanes that execute it, and `register(name)` what they hold; sums of a `wgmma` that was
not waited for are not in registers.
"""
