"""cuDNN, as LightNet has it: an architecture of one op."""
