"""Source locations of ops: from xDSL's location attributes to `SourceLoc` and back, and the text behind them.

xDSL gives every op a location attribute and fills in none. Ours are set by the parser and the importer, kept by the
rewrite driver, and end in a diagnostic; `SourceMap` remembers the text, so that a late error can still show its line.
Imports xDSL's attributes, `source` and diagnostics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xdsl.dialects.builtin import (
    UNKNOWN_LOC,
    ArrayAttr,
    CallSiteLoc,
    FileLineColLoc,
    FusedLoc,
    IntAttr,
    LocationAttr,
    NameLoc,
    NoneAttr,
    StringAttr,
    UnknownLoc,
)
from xdsl.ir import Attribute, Operation

from lightnet.diagnostics import LightNetError, SourceLoc
from lightnet.source import Texts

#: A fused location names at most so many places: a kernel of a thousand ops need not carry them all.
MAX_FUSED = 32


def file_loc(loc: SourceLoc) -> FileLineColLoc:
    """`loc` as a location attribute."""
    return FileLineColLoc(StringAttr(loc.file), IntAttr(loc.line), IntAttr(loc.col))


def set_loc(op: Operation, loc: SourceLoc | LocationAttr | None) -> None:
    """Give `op` a location; None makes it unknown."""
    if loc is None:
        loc = UNKNOWN_LOC
    op.location = file_loc(loc) if isinstance(loc, SourceLoc) else loc


def loc_of(op: Operation) -> SourceLoc | None:
    """The first file location of `op`, or None."""
    return source_loc(op.location)


def source_loc(attr: Attribute) -> SourceLoc | None:
    """The first file location inside a location attribute, or None."""
    return next((_to_source(place) for place in places(attr)), None)


def has_loc(op: Operation) -> bool:
    return not isinstance(op.location, UnknownLoc)


def places(attr: Attribute) -> Iterator[FileLineColLoc]:
    """The file locations inside a location attribute, in order; a call site gives its callee, then its caller."""
    stack = [attr]
    while stack:
        match stack.pop():
            case FileLineColLoc() as place:
                yield place
            case FusedLoc(locations=ArrayAttr() as inner):
                stack.extend(reversed(inner.data))
            case CallSiteLoc(callee=callee, caller=caller):
                stack.extend((caller, callee))
            case NameLoc(location=inner) if not isinstance(inner, NoneAttr):
                stack.append(inner)


def fused(ops: Iterable[Operation]) -> LocationAttr:
    """The location of an op that replaces `ops`: their distinct places, in order.

    One place stays a plain location, none is the unknown location.
    """
    return fuse_locations(op.location for op in ops)


def fuse_locations(locations: Iterable[LocationAttr]) -> LocationAttr:
    """As `fused`, from the locations themselves."""
    distinct = dict.fromkeys(place for loc in locations for place in places(loc))
    match list(distinct)[:MAX_FUSED]:
        case []:
            return UNKNOWN_LOC
        case [place]:
            return place
        case many:
            return FusedLoc(ArrayAttr(many), NoneAttr())


def _to_source(place: FileLineColLoc) -> SourceLoc:
    return SourceLoc(place.filename.data, place.line.data, place.column.data)


class SourceMap(Texts):
    """The texts that were read, and the places of ops in them."""

    def annotate(self, error: LightNetError, op: Operation | None = None) -> LightNetError:
        """Give `error` the place of `op`, if it has none, and the line there; returns it, to be raised."""
        if error.loc is None and op is not None:
            error.loc = loc_of(op)
        if error.source_line is None:
            error.source_line = self.line(error.loc)
        return error
