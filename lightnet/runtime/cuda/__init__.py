"""Running compiled networks on NVIDIA devices, or on the emulator of one. Imports the standard library and NumPy, and
of this project `diagnostics` alone: a saved network runs where neither xDSL nor LLVM is."""
