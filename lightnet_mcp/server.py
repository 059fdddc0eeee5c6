"""The protocol's side: each tool of `bench.Bench`, with what a program that chooses among them should know. Imports the
SDK (the extra `mcp`)."""

from __future__ import annotations

from typing import Any, Literal

import anyio
from mcp.server import MCPServer

from lightnet import __version__
from lightnet_mcp.bench import Bench

INSTRUCTIONS = """Tools of the LightNet compiler for neural networks. A network is the path of a file (.onnx, .net,
.json, .mlir) below the server's folder; passes are a pipeline, such as "bind,simplify,expand" or "@cpu:plan". Every
answer is a verdict: {tool, verdict, ok, error, notes, ...}; `error.text` says what is wrong and what to do."""
#: Commands at a time.
AT_ONCE = 2


def make_server(bench: Bench) -> MCPServer:
    """A server with the tools of a bench."""
    server = MCPServer("lightnet", instructions=INSTRUCTIONS, version=__version__)
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def run(tool: Any, *arguments: Any) -> dict[str, Any]:
        return await anyio.to_thread.run_sync(tool, *arguments, limiter=limiter)

    @server.tool()
    async def check(
        network: str, passes: str, mode: Literal["pass", "rewrite", "exact"] = "pass", data: str = ""
    ) -> dict[str, Any]:
        """Execute a network before and after each pass, and say which pass, pattern and op changed a result first.
        `mode`: after each pass, each rewrite, or in a prime field too; `data`: ordinary, awkward, nonfinite."""
        return await run(bench.check, network, passes, mode, data)

    @server.tool()
    async def bisect(network: str, passes: str, exact: bool = False) -> dict[str, Any]:
        """Find the rewrite that makes the result of passes wrong, by their count; `exact`: in a prime field, too."""
        return await run(bench.bisect, network, passes, exact)

    @server.tool()
    async def isolate(network: str, passes: str, exact: bool = False) -> dict[str, Any]:
        """Make a fault small: the fewest of the passes, and the smallest module, that still show it; `exact`: in a
        prime field, too."""
        return await run(bench.isolate, network, passes, exact)

    @server.tool()
    async def reduce(network: str, passes: str, crash: bool = False) -> dict[str, Any]:
        """The smallest module on which all of these passes change a result in the same way, or (crash) fail."""
        return await run(bench.reduce, network, passes, crash)

    @server.tool()
    async def compare(
        a: str, b: str = "", passes_a: str = "", passes_b: str = "", seconds: float = 5
    ) -> dict[str, Any]:
        """Say whether B runs faster than A, with an interval, and which kernels differ: two networks, or one (a) with
        two pipelines, such as passes_b="@cpu-bands". `seconds` is how long to measure."""
        return await run(bench.compare, a, b, passes_a, passes_b, seconds)

    @server.tool()
    async def inspect(network: str) -> dict[str, Any]:
        """Describe a network: inputs, outputs, ops, costs, memory, and what of it does not run."""
        return await run(bench.inspect, network)

    @server.tool()
    async def passes(network: str, passes: str) -> dict[str, Any]:
        """Run passes on a network and give the module, as MLIR text."""
        return await run(bench.passes, network, passes)

    return server
