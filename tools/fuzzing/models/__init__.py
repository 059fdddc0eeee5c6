"""Random ONNX models as exporters write them: a second generator beside `fuzzing.onnx_steps`, written from ONNX's specification without looking at it."""
