"""An attribute that an NNVM node does not give has the value that the manuals of MXNet 1.9 and NNVM 0.8 say: what is read is the same, letter
by letter, as with that value written out."""

from __future__ import annotations

from typing import Any

import pytest
from nnvm_graphs import Graph

import lightnet

PICTURE, PLAIN = (2, 4, 6, 6), (3, 4)
SUMS = {"axis": "()", "keepdims": False, "exclude": False}
#: op, shapes of its inputs, attributes that it needs, and the defaults of others.
ROWS: list[tuple[str, list[tuple[int, ...]], dict[str, Any], dict[str, Any]]] = [
    ("arange", [], {"stop": 5}, {"start": 0, "step": 1, "repeat": 1, "dtype": "float32"}),
    ("_arange", [], {"stop": 5}, {"start": 0, "step": 1, "repeat": 1, "infer_range": False, "dtype": "float32"}),
    ("_eye", [], {"N": 4, "M": 5}, {"k": 0, "dtype": "float32"}),
    ("_linspace", [], {"start": 0, "stop": 1, "num": 5}, {"endpoint": True, "dtype": "float32"}),
    ("_zeros", [], {"shape": "(2, 3)"}, {"dtype": "float32"}),
    ("_contrib_arange_like", [PLAIN], {}, {"start": 0, "step": 1, "repeat": 1}),
    ("Convolution", [PICTURE, (5, 4, 3, 3), (5,)], {"kernel": "(3, 3)", "num_filter": 5},
     {"no_bias": False, "num_group": 1, "stride": "(1, 1)", "pad": "(0, 0)", "dilate": "(1, 1)"}),
    ("conv2d", [PICTURE, (5, 4, 3, 3), (5,)], {"kernel_size": "(3, 3)", "channels": 5},
     {"use_bias": True, "groups": 1, "strides": "(1, 1)", "padding": "(0, 0)", "dilation": "(1, 1)", "layout": "NCHW",
      "kernel_layout": "OIHW"}),
    ("Deconvolution", [PICTURE, (4, 5, 3, 3)], {"kernel": "(3, 3)", "num_filter": 5},
     {"no_bias": True, "num_group": 1, "stride": "(1, 1)", "pad": "(0, 0)", "adj": "(0, 0)"}),
    ("conv2d_transpose", [PICTURE, (4, 5, 3, 3), (5,)], {"kernel_size": "(3, 3)", "channels": 5},
     {"use_bias": True, "groups": 1, "strides": "(1, 1)", "padding": "(0, 0)", "output_padding": "(0, 0)"}),
    ("FullyConnected", [PICTURE, (5, 144), (5,)], {"num_hidden": 5}, {"flatten": True, "no_bias": False}),
    ("dense", [PLAIN, (5, 4), (5,)], {"units": 5}, {"use_bias": True}),
    ("Pooling", [PICTURE], {"kernel": "(2, 2)", "stride": "(2, 2)"},
     {"pool_type": "max", "global_pool": False, "pooling_convention": "valid", "pad": "(0, 0)"}),
    ("Pooling", [PICTURE], {"kernel": "(3, 3)", "pool_type": "avg", "pad": "(1, 1)"},
     {"count_include_pad": True, "stride": "(1, 1)"}),
    ("avg_pool2d", [PICTURE], {"pool_size": "(3, 3)", "padding": "(1, 1)"},
     {"ceil_mode": False, "count_include_pad": False, "strides": "(1, 1)", "layout": "NCHW"}),
    ("max_pool2d", [PICTURE], {"pool_size": "(3, 3)"}, {"ceil_mode": False, "strides": "(1, 1)", "padding": "(0, 0)"}),
    ("smooth_l1", [PLAIN], {}, {"scalar": 1.0}),
    ("hard_sigmoid", [PLAIN], {}, {"alpha": 0.2, "beta": 0.5}),
    ("LeakyReLU", [PLAIN], {}, {"act_type": "leaky", "slope": 0.25}),
    ("leaky_relu", [PLAIN], {}, {"alpha": 0.25}),
    ("prelu", [PICTURE, (4,)], {}, {"axis": 1}),
    ("take", [PLAIN, (2, 2)], {}, {"axis": 0, "mode": "clip"}),
    ("Embedding", [PLAIN, (7, 5)], {"input_dim": 7, "output_dim": 5}, {"dtype": "float32"}),
    ("pick", [PLAIN, (3,)], {}, {"axis": -1, "keepdims": False, "mode": "clip"}),
    ("one_hot", [(3,)], {"depth": 4}, {"on_value": 1, "off_value": 0, "dtype": "float32"}),
    ("SequenceMask", [(4, 3, 2), (3,)], {"use_sequence_length": True}, {"axis": 0, "value": 0}),
    ("SequenceMask", [(4, 3, 2)], {}, {"use_sequence_length": False}),
    ("SequenceLast", [(4, 3, 2), (3,)], {"use_sequence_length": True}, {"axis": 0}),
    ("SequenceReverse", [(4, 3, 2)], {}, {"use_sequence_length": False, "axis": 0}),
    ("BatchNorm", [PICTURE, (4,), (4,), (4,), (4,)], {}, {"axis": 1, "eps": 1e-3, "fix_gamma": True}),
    ("batch_norm", [PICTURE, (4,), (4,), (4,), (4,)], {}, {"axis": 1, "epsilon": 1e-5, "scale": True, "center": True}),
    ("LayerNorm", [PICTURE, (6,), (6,)], {}, {"axis": -1, "eps": 1e-5, "output_mean_var": False}),
    ("InstanceNorm", [PICTURE, (4,), (4,)], {}, {"eps": 1e-3}),
    ("GroupNorm", [PICTURE, (4,), (4,)], {}, {"num_groups": 1, "eps": 1e-5}),
    ("L2Normalization", [PICTURE], {}, {"mode": "instance", "eps": 1e-10}),
    ("LRN", [PICTURE], {"nsize": 3}, {"alpha": 1e-4, "beta": 0.75, "knorm": 2}),
    ("lrn", [PICTURE], {}, {"size": 5, "axis": 1, "alpha": 1e-4, "beta": 0.75, "bias": 2}),
    ("softmax", [PICTURE], {}, {"axis": -1, "temperature": 1.0, "use_length": False}),
    ("log_softmax", [PICTURE], {}, {"axis": -1}),
    ("SoftmaxOutput", [PICTURE, (2,)], {}, {"multi_output": False, "preserve_shape": False}),
    ("SoftmaxActivation", [PICTURE], {}, {"mode": "instance"}),
    ("sum", [PICTURE], {}, SUMS), ("mean", [PICTURE], {}, SUMS), ("prod", [PICTURE], {}, SUMS), ("max", [PICTURE], {}, SUMS),
    ("norm", [PICTURE], {"axis": 1}, {"ord": 2, "keepdims": False}),
    ("argmax", [PICTURE], {"axis": 1}, {"keepdims": False}), ("argmin", [PICTURE], {"axis": 1}, {"keepdims": False}),
    ("topk", [PICTURE], {}, {"axis": -1, "k": 1, "ret_typ": "indices", "is_ascend": False, "dtype": "float32"}),
    ("sort", [PICTURE], {}, {"axis": -1, "is_ascend": True}),
    ("argsort", [PICTURE], {}, {"axis": -1, "is_ascend": True, "dtype": "float32"}),
    ("dot", [PLAIN, (4, 5)], {}, {"transpose_a": False, "transpose_b": False}),
    ("batch_dot", [(2, 3, 3), (2, 3, 3)], {}, {"transpose_a": False, "transpose_b": False}),
    ("_linalg_gemm2", [(2, 3, 3), (2, 3, 3)], {},
     {"transpose_a": False, "transpose_b": False, "alpha": 1.0, "axis": -2}),
    ("UpSampling", [PICTURE], {"scale": 2, "sample_type": "nearest"}, {"multi_input_mode": "concat", "num_args": 1}),
    ("upsampling", [PICTURE], {"scale": 2}, {"layout": "NCHW", "method": "NEAREST_NEIGHBOR"}),
    ("_contrib_BilinearResize2D", [PICTURE], {"height": 9, "width": 8}, {"mode": "size", "align_corners": True}),
    ("_contrib_AdaptiveAvgPooling2D", [PICTURE], {}, {"output_size": "(1, 1)"}),
    ("_contrib_ROIAlign", [PICTURE, (3, 5)], {"pooled_size": "(2, 2)", "spatial_scale": 0.5},
     {"sample_ratio": -1, "position_sensitive": False, "aligned": False}),
    ("Reshape", [PICTURE], {"shape": "(0, -1)"}, {"reverse": False}),
    ("expand_dims", [PLAIN], {"axis": 1}, {"num_newaxis": 1}),
    ("repeat", [PLAIN], {"repeats": 2, "axis": 1}, {}),
    ("transpose", [PICTURE], {}, {"axes": "()"}),
    ("Pad", [PICTURE], {"mode": "constant", "pad_width": "(0, 0, 0, 0, 1, 1, 2, 2)"}, {"constant_value": 0}),
    ("pad", [PLAIN], {"pad_width": "((1, 1), (0, 2))"}, {"pad_value": 0}),
    ("Concat", [PICTURE, PICTURE], {"num_args": 2}, {"dim": 1}), ("concatenate", [PICTURE, PICTURE], {}, {"axis": 1}),
    ("stack", [PLAIN, PLAIN], {"num_args": 2}, {"axis": 0}),
    ("SliceChannel", [PICTURE], {"num_outputs": 2}, {"axis": 1, "squeeze_axis": False}),
    ("split", [PICTURE], {"indices_or_sections": 2}, {"axis": 1}),
    ("Crop", [PICTURE], {"num_args": 1, "h_w": "(3, 2)"}, {"offset": "(0, 0)", "center_crop": False}),
    ("_contrib_box_decode", [(1, 3, 4), (1, 3, 4)], {}, {"std0": 1, "std1": 1, "std2": 1, "std3": 1, "clip": -1, "format": "center"}),
    ("_contrib_box_nms", [(1, 5, 6)], {},
     {"overlap_thresh": 0.5, "valid_thresh": 0, "topk": -1, "coord_start": 2, "score_index": 1, "id_index": -1,
      "background_id": -1, "force_suppress": False, "in_format": "corner", "out_format": "corner"}),
    ("_contrib_box_nms", [(1, 5, 6)], {"id_index": 0}, {"force_suppress": False, "background_id": -1}),
    ("_contrib_MultiBoxPrior", [PICTURE], {},
     {"sizes": "(1,)", "ratios": "(1,)", "clip": False, "steps": "(-1, -1)", "offsets": "(0.5, 0.5)"}),
    ("_contrib_MultiBoxDetection", [(1, 3, 5), (1, 20), (1, 5, 4)], {},
     {"clip": True, "threshold": 0.01, "background_id": 0, "nms_threshold": 0.5, "force_suppress": False,
      "variances": "(0.1, 0.1, 0.2, 0.2)", "nms_topk": -1}),
    ("multibox_transform_loc", [(1, 3, 5), (1, 20), (1, 5, 4)], {},
     {"clip": True, "threshold": 0.01, "variances": "(0.1, 0.1, 0.2, 0.2)"}),
    ("get_valid_counts", [(1, 5, 6)], {}, {"score_threshold": 0, "id_index": 0, "score_index": 1}),
    ("non_max_suppression", [(1, 5, 6), (1,)], {},
     {"max_output_size": -1, "iou_threshold": 0.5, "force_suppress": False, "top_k": -1, "return_indices": True,
      "invalid_to_bottom": False, "id_index": 0, "coord_start": 2, "score_index": 1}),
    ("_contrib_Proposal", [(1, 24, 3, 4), (1, 48, 3, 4), (1, 3)], {},
     {"rpn_pre_nms_top_n": 6000, "rpn_post_nms_top_n": 300, "threshold": 0.7, "rpn_min_size": 16, "scales": "(4, 8, 16, 32)",
      "ratios": "(0.5, 1, 2)", "feature_stride": 16, "output_score": False, "iou_loss": False}),
    ("yolo_reorg", [PICTURE], {}, {"stride": 1}),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {len(row[1])} {len(row[2])}")
def test_an_attribute_that_is_not_given_is_its_default(row):
    op, shapes, needed, defaults = row
    without = text(op, shapes, needed)
    for name, value in defaults.items():
        assert text(op, shapes, {**needed, name: value}) == without, name


def text(op: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any]) -> str:
    """What is read of an op."""
    g = Graph()
    node = g.op(op, "y", *(g.var(f"x{i}") for i in range(len(shapes))), **attrs)
    source = g.text(node, attrs={"mxnet_version": ["int", 10900]})
    return str(lightnet.loads(source, ".json", "graph.json", None, {f"x{i}": s for i, s in enumerate(shapes)}).module)
