"""A server of the Model Context Protocol over the bench of pass authors: programs check, isolate, compare and look, and
read verdicts (docs/verdicts.md). It needs the extra `mcp`; nothing of LightNet imports it."""
