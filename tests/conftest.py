"""What every test shares: compiled kernels are cached in a folder of this run, never in the user's; what the
compiler makes is verified."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import cuda_drivers
import machine_code
import of_one_op
import pytest
import sampling

# Tests lie in folders by what they test, and some use what others define: modules of tests are found by name wherever they lie.
sys.path += sorted({str(path.parent) for path in Path(__file__).parent.rglob("test_*.py")} - {*sys.path})

if "PYTEST_XDIST_WORKER" not in os.environ:  # workers, and the processes that tests start, inherit the folder
    os.environ["LIGHTNET_CACHE"] = tempfile.mkdtemp(prefix="lightnet-tests-")
    os.environ["LIGHTNET_VERIFY"] = "1"
    # What is compiled should not depend on the machine, and tests run side by side: those of threads say how many.
    os.environ["LIGHTNET_THREADS"] = "1"
    atexit.register(shutil.rmtree, os.environ["LIGHTNET_CACHE"], ignore_errors=True)
    sampling.settle()


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--op``, which `tools/dev.py op` gives."""
    parser.addoption("--op", metavar="NAME", help="only what concerns this op of the dialect ln")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse the name of an op that there is not, before anything is collected."""
    if (name := config.getoption("--op")) is not None:
        of_one_op.require(name)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Thousands of tests are collected, and stay: Python looks for no cycles meanwhile, nor ever again among what is there then, and in what
    tests make less often than it would (a tenth of their time was that)."""
    gc.disable()
    if os.environ.get("PYTEST_XDIST_WORKER") == "gw1" and not sys.dont_write_bytecode:
        _import_from_the_last(session.config)
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)
        gc.enable()


def _import_from_the_last(config: pytest.Config) -> None:
    """Import the modules of tests in reverse. Each worker imports them all, and rewrites the assertions of those that nobody has kept the byte
    code of (of a clean clone, for twelve seconds): of two that begin at both ends, each finds half of it written by the other."""
    for word in reversed(config.args):
        path = Path(word.partition("::")[0])
        for file in sorted(path.rglob("test_*.py"), reverse=True) if path.is_dir() else [path]:
            with suppress(Exception, pytest.skip.Exception):  # which collecting it says
                import_module(file.stem)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what does not concern the op that is asked for, and the cases of large products that today's date does not draw."""
    name = config.getoption("--op")
    about = [item for item in items if name is None or of_one_op.concerns(item, name)]
    kept, _ = sampling.split(about)
    chosen = set(kept)
    left = [item for item in items if item not in chosen]
    items[:] = kept
    machine_code.settle(items)
    if left:
        config.hook.pytest_deselected(items=left)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """What most cases compile is not verified on level 4, nor optimized if they are of meaning."""
    with machine_code.of(item):
        return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How to repeat the draw (``-q`` hides a header), and tests of which no draw knows that they cost much."""
    if not sampling.word():
        return
    terminalreporter.line(f"cases drawn by {sampling.VARIABLE}={sampling.word()}, which repeats them")
    phases = (r for reports in terminalreporter.stats.values() for r in reports if hasattr(r, "duration"))
    seconds = sampling.unrecorded((phase.nodeid, phase.duration) for phase in phases)
    if sum(seconds.values()) > sampling.UNRECORDED:
        terminalreporter.line(
            f"{len(seconds)} tests took {sum(seconds.values()):.0f} seconds, of which no draw knows what they cost: "
            "`pytest --junitxml=REPORT` and `python tests/durations.py REPORT` record it"
        )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """With ``-m gpu``: each test of kernels a second time, on a device."""
    asked = "gpu" in (metafunc.config.option.markexpr or "")
    runs = cuda_drivers.is_run_on_devices(metafunc.module, metafunc.function.__name__)
    if asked and runs and not _only_interpreted(metafunc):
        ways = [cuda_drivers.EMULATOR, pytest.param(cuda_drivers.DEVICE, marks=pytest.mark.gpu)]
        metafunc.parametrize("cuda_driver", ways, indirect=True)


def _only_interpreted(metafunc: pytest.Metafunc) -> bool:
    return any(metafunc.definition.get_closest_marker(name) is not None for name in ("interpreter", "gpu"))


@pytest.fixture(autouse=True)
def cuda_driver(request: pytest.FixtureRequest) -> Iterator[None]:
    """Kernels run on the driver that the parameter names, if there is one, else in the interpreter."""
    cuda_drivers.use(getattr(request, "param", cuda_drivers.EMULATOR))
    yield
    cuda_drivers.use(cuda_drivers.EMULATOR)
