"""The language server `ln-lsp` for MLIR, IL, JSON networks and descriptions. It stands beside the package `lightnet`,
which does not import it.

`documents` and the kinds (`mlir_document`, `il_document`, `json_document`) say what is wrong with a text and what
stands where, without protocol and without threads; `server` and `protocol` alone import pygls, the extra `lsp`.
"""
