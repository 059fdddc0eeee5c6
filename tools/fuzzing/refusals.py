"""The refusals on purpose, by the labels of the diagnostics: no fault where a random network meets it. docs/trust.md
has the reasons.
"""

from __future__ import annotations

#: Labels of `LightNetError`.
DOCUMENTED = frozenset({"onnx.empty-window"})
