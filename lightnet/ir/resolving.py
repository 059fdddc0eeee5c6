"""The names in the rows of a registry: an object as ``module:Attribute``, of this package or of one that stands beside
it. Imports the standard library only.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from lightnet.diagnostics import LightNetError


def resolve(row: str) -> Any:
    """The object that ``module:Attribute`` names, or the module that ``module`` names, imported."""
    module, _, attribute = row.partition(":")
    return getattr(import_module(module), attribute) if attribute else import_module(module)


#: The distribution that has the packages that stand beside this one.
DISTRIBUTION = "lightnet-compiler"


def resolve_beside(row: str, what: str) -> Any:
    """As `resolve`, of a row that may be of a package beside this one. Raises LightNetError, for `what` is asked for,
    where that is not installed."""
    try:
        return resolve(row)
    except ModuleNotFoundError as e:
        if e.name is None or not is_beside(row) or e.name != package_of(row):
            raise
        raise LightNetError(missing_text(what, e.name)) from None


def missing_text(what: str, package: str) -> str:
    """The error about `what` where the package that has it, beside this one, is not installed."""
    return f"{what} is of the package {package}, which is not here: install {DISTRIBUTION}, which brings it"


def package_of(row: str) -> str:
    """The package that the module of a row is in."""
    return row.partition(":")[0].partition(".")[0]


def is_beside(row: Any) -> bool:
    """Return whether a row is of a package beside this one."""
    return isinstance(row, str) and package_of(row) not in ("lightnet", "xdsl")


@cache
def is_installed(package: str) -> bool:
    """Return whether a package can be imported."""
    return find_spec(package) is not None
