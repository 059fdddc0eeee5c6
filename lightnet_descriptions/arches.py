"""The dialects `cudnn`, `tensorrt` and `dpu`: the kernel regions of LightNet's other architectures (document 004), of
level 2 and 3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from xdsl.ir import Dialect, SSAValue

from lightnet.ir.kernel import CompositeKernelOp, KernelOp, LayerEntry


class CudnnKernelOp(KernelOp):
    """One op that the library cuDNN runs.

    ```mlir
    %y = cudnn.kernel(%x_ = %x) {
      %0 = ln.relu %x_ : tensor<2x3xf32>
      ln.yield %0
    } as ("y")
    ```
    """

    name = "cudnn.kernel"


class TensorrtKernelOp(CompositeKernelOp):
    """Layers that TensorRT builds one engine of: upstream's op `tensorrt`, whose parameters list them
    (`tensorrt/layers.py`).

    ```mlir
    %y = tensorrt.kernel(%x_ = %x, %w_ = %w, %b_ = %b) {
      %0 = ln.conv2d %x_, %w_, %b_ {size = [1, 1]} : tensor<1x4x8x8xf32>
      %1 = ln.relu %0 : tensor<1x4x8x8xf32>
      ln.yield %1
    } as ("y")
    ```
    """

    name = "tensorrt.kernel"

    @classmethod
    def of_entry(cls, entry: LayerEntry, values: Mapping[str, SSAValue]) -> Self:
        from lightnet_descriptions.tensorrt import layers

        return layers.kernel_of_layers(cls, entry, values)

    def is_entry(self) -> bool:
        from lightnet_descriptions.tensorrt import layers

        return all(map(layers.is_layer, self.ops))

    def entry(self, outside: Sequence[str], results: Sequence[str]) -> LayerEntry:
        from lightnet_descriptions.tensorrt import layers

        return layers.entry_of(self, outside, results)


class DpuKernelOp(KernelOp):
    """One op of the DPU, an accelerator on an FPGA: a row of a convolution, or a move between the memories.

    ```mlir
    %m = dpu.kernel(%x_ = %x) {
      %0 = ln.ldmr %x_ : tensor<16x8xf32>
      ln.yield %0
    } as ("m")
    ```
    """

    name = "dpu.kernel"


Cudnn = Dialect("cudnn", [CudnnKernelOp], [])
Tensorrt = Dialect("tensorrt", [TensorrtKernelOp], [])
Dpu = Dialect("dpu", [DpuKernelOp], [])
