"""TensorRT, as LightNet has it: chains of layers become one engine each, everything else stays with cuda."""
