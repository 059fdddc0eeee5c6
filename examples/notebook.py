"""A notebook on the bench of a pass author: a network, a pass with a fault, which rewrite it is, the smallest module
that shows it, and what the network becomes.

    marimo edit examples/notebook.py                       in a browser, to be changed
    marimo export html examples/notebook.py -o page.html   a page that opens by itself
    python examples/notebook.py                            all cells, one after the other

It needs the extra `notebook`, or nothing but `pip install marimo`.
"""

import marimo

app = marimo.App(width="medium", app_title="A bench for passes")


@app.cell
def begin():
    from pathlib import Path

    import marimo as mo

    import lightnet
    from lightnet.ir.passes import parse_pipeline

    examples = Path(__file__).parent
    return examples, lightnet, mo, parse_pipeline


@app.cell
def network(examples, lightnet, mo):
    model = lightnet.load(examples / "cnn.net")
    text = "# A bench for passes\nA network is an xDSL module; its picture is what a notebook shows of it."
    mo.vstack([mo.md(text), model])
    return (model,)


@app.cell
def wrong(examples, lightnet, mo, model, parse_pipeline):
    from lightnet_trust.check import run_checked

    with lightnet.plugins.load(examples / "wrong_rewrite.py"):
        verdict = run_checked(model.ctx, model.module.clone(), parse_pipeline("bind,simplify,expand"))
    says = "## Is it right?\n`examples/wrong_rewrite.py` takes a sigmoid for a tanh, and the check says so:"
    mo.md(f"{says}\n```\n{verdict.error.render()}\n```")
    return (verdict,)


@app.cell
def isolated(examples, lightnet, mo, model, parse_pipeline):
    from lightnet_trust.isolate import isolate

    with lightnet.plugins.load(examples / "wrong_rewrite.py"):
        found = isolate(model.ctx, model.module, parse_pipeline("bind,simplify,expand"))
    became = f"{found.passes_before} passes and {found.ops_before} ops became `{found.pipeline}` on"
    mo.md(f"## What is it about?\n{became}\n```mlir\n{found.text}\n```")
    return (found,)


@app.cell
def planned(examples, lightnet, mo):
    executable = lightnet.compile(examples / "cnn.net", threads=1)
    mo.vstack([mo.md("## What does it become?\nAn executable shows its memory plan and its kernels."), executable])
    return (executable,)


@app.cell
def run(executable, mo):
    import numpy as np

    picture = np.random.default_rng(0).normal(size=(1, 3, 32, 32)).astype(np.float32)
    outputs = executable({"picture": picture})
    rows = [{"output": name, "shape": str(array.shape), "sum": float(array.sum())} for name, array in outputs.items()]
    mo.vstack([mo.md("## And what does it say?"), mo.ui.table(rows, selection=None)])
    return (outputs,)


if __name__ == "__main__":
    app.run()
