"""The DPU of LightNet's FPGA work: rows of convolutions, and a memory of its own that they are moved to and from."""
