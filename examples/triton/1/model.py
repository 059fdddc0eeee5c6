"""A model of NVIDIA Triton's Python backend that runs a saved executable, model.lnx beside it; config.pbtxt above.

The server puts requests together (dynamic_batching of config.pbtxt); here their rows go through the network in calls
of its batch, and each request gets its own rows back.
"""

import os
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

import lightnet


class TritonPythonModel:
    """The model that the backend makes of this file, once in each instance."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the executable."""
        folder = os.path.join(args["model_repository"], args["model_version"])
        self.run = lightnet.load_executable(os.path.join(folder, "model.lnx"))

    def execute(self, requests: list[Any]) -> list[Any]:
        """A response to each request; one that does not fit gets an error, and the others their outputs."""
        responses: list[Any] = [None] * len(requests)
        fitting: list[int] = []
        feeds: list[dict[str, np.ndarray]] = []
        for k, request in enumerate(requests):
            arrays = {name: pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in self.run.inputs}
            if error := self.misfit(arrays):
                responses[k] = pb_utils.InferenceResponse(error=pb_utils.TritonError(error))
            else:
                fitting.append(k)
                feeds.append(arrays)
        if fitting:
            outputs = lightnet.score(self.run, {n: np.concatenate([f[n] for f in feeds]) for n in self.run.inputs})
            start = 0
            for k, arrays in zip(fitting, feeds):
                stop = start + len(next(iter(arrays.values())))
                tensors = [pb_utils.Tensor(name, array[start:stop]) for name, array in outputs.items()]
                responses[k] = pb_utils.InferenceResponse(output_tensors=tensors)
                start = stop
        return responses

    def misfit(self, arrays: dict[str, np.ndarray]) -> str | None:
        """The mistake of the inputs of a request."""
        rows = {len(array) for array in arrays.values() if array.ndim}
        if len(rows) != 1:
            return f"inputs should have one number of rows, and have {sorted(rows)}"
        for name, (dims, dtype) in self.run.inputs.items():
            array = arrays[name]
            if array.shape[1:] != dims[1:] or array.dtype != dtype:
                rows = f"{dtype}[-1, {str(list(dims[1:]))[1:-1]}]"
                return f"input '{name}' is {rows}, but gets {array.dtype}{list(array.shape)}"
        return None

    def finalize(self) -> None:
        """Give the executable back."""
        self.run.close()
