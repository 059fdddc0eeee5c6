"""The front end for ai.onnx.ml, ONNX's domain of what scikit-learn, LightGBM and XGBoost export: a family of handlers a
file, each a row of `ONNX_OPS` in `lightnet/ir/registry.py`."""
