"""SqueezeDet, a detection network with 32 convolutions, finds shapes in a picture: ``python examples/squeezedet.py``.

Nobody published weights for this network, so the example makes its own in seconds. All convolutions but the last are
random (He et al., 2015), which makes them a fixed set of features; the last one is fitted to drawn pictures in closed
form, by ridge regression (the idea of random-feature and extreme-learning machines). Then the network looks at a
picture that it has not seen. What it finds is computed, and so may be wrong now and then.

Imports lightnet and NumPy; `rich` makes the table prettier on a terminal, if it is there.
"""

from __future__ import annotations

import argparse
import struct
import sys
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import lightnet
from lightnet.dialects.ln.source import Create

NET = Path(__file__).parent / "nets" / "squeezedet.net"

# What squeezedet.net fixes: the network's picture, the image that boxes are given in, the grid of cells, and so on.
HEIGHT, WIDTH = 384, 1248
IMAGE_HEIGHT, IMAGE_WIDTH, SHIFT = 375, 1242, -20
ROWS, COLUMNS, ANCHORS, CELL = 24, 78, 9, 16
FEATURES = "fire11"  # [1, 768, ROWS, COLUMNS], what the last convolution reads
SCALE_X, SCALE_Y = IMAGE_WIDTH / WIDTH, IMAGE_HEIGHT / HEIGHT

SHAPES = ("disc", "square", "triangle")
COLOURS = {"red": (230, 60, 50), "green": (60, 200, 80), "blue": (70, 110, 240)}
ANCHOR_SIZES = np.linspace(52, 128, ANCHORS)
CELL_Y, CELL_X = np.meshgrid((np.arange(ROWS) + 0.5) * CELL, (np.arange(COLUMNS) + 0.5) * CELL, indexing="ij")


@dataclass
class Shape:
    """A shape in a picture: class, centre and size in pixels."""

    kind: int
    x: float
    y: float
    size: float

    def box(self) -> tuple[float, float, float, float]:
        return self.x - self.size / 2, self.y - self.size / 2, self.x + self.size / 2, self.y + self.size / 2


# -- pictures --------------------------------------------------------------------------------------------------------


def draw(rng: np.random.Generator, count: int) -> tuple[np.ndarray, list[Shape]]:
    """A noisy picture [3, HEIGHT, WIDTH] (0 to 255) of about `count` shapes that do not touch, and the shapes."""
    picture = np.broadcast_to(rng.uniform(60, 130, (3, 1, 1)), (3, HEIGHT, WIDTH)).copy()
    picture += np.linspace(-30, 30, HEIGHT)[:, None] * rng.uniform(-1, 1)
    shapes: list[Shape] = []
    for _ in range(50 * count):
        if len(shapes) == count:
            break
        size = rng.uniform(60, 120)
        x, y = rng.uniform(size / 2, WIDTH - size / 2), rng.uniform(size / 2, HEIGHT - size / 2)
        new = Shape(int(rng.integers(3)), x, y, size)
        if all(max(abs(s.x - x), abs(s.y - y)) > (s.size + size) / 2 + 6 for s in shapes):
            shapes.append(new)
            fill(picture, new, rng)
    picture += rng.standard_normal(picture.shape, np.float32) * 6
    return np.clip(picture, 0, 255).astype(np.float32), shapes


def fill(picture: np.ndarray, shape: Shape, rng: np.random.Generator) -> None:
    x0, y0, x1, y1 = (int(v) for v in shape.box())
    window = picture[:, y0:y1, x0:x1]
    half = shape.size / 2
    y, x = (g - half for g in np.mgrid[: window.shape[1], : window.shape[2]])
    masks = (x**2 + y**2 < half**2, np.ones_like(x, bool), y > 2 * np.abs(x) - half)
    colour = list(COLOURS.values())[rng.integers(3)]
    window[:, masks[shape.kind]] = np.array(colour)[:, None] * rng.uniform(0.8, 1.1)


def as_input(picture: np.ndarray) -> np.ndarray:
    """The picture as the network takes it: [1, 3, HEIGHT, WIDTH], about -2 to 2."""
    return (picture[None] - 128) / 64


# -- weights ---------------------------------------------------------------------------------------------------------


def random_weights(model: lightnet.Model, seed: int) -> dict[str, np.ndarray]:
    """He initialisation of every weight, and a square anchor of each size at the centre of every cell."""
    rng = np.random.default_rng(seed)
    weights: dict[str, np.ndarray] = {}
    for op in model.main.walk():
        if isinstance(op, Create):
            name, dims = op.tensor_names[0] or "", op.result_specs[0].dims
            if name.endswith("_wts"):
                weights[name] = rng.normal(0, np.sqrt(2 / np.prod(dims[1:])), dims).astype(np.float32)
            elif name.endswith("_bias"):
                weights[name] = rng.normal(0, 0.05, dims).astype(np.float32)
    anchors = np.empty((1, ROWS, COLUMNS, ANCHORS, 4), np.float32)
    # The network shifts its boxes by SHIFT pixels of the image; the anchors make up for it.
    anchors[..., 0] = CELL_X[..., None] - SHIFT / SCALE_X
    anchors[..., 1] = CELL_Y[..., None] - SHIFT / SCALE_Y
    anchors[..., 2:] = ANCHOR_SIZES[:, None]
    return weights | {"anchors": anchors}


def targets(shapes: list[Shape]) -> np.ndarray:
    """The values that the last convolution should give, [ROWS, COLUMNS, ANCHORS, 8]: three class scores, the
    confidence, and a box's offsets from its anchor; NaN where nothing is asked of it.
    """
    out = np.full((ROWS, COLUMNS, ANCHORS, 8), np.nan)
    out[..., 3] = -3
    for s in shapes:
        distance = np.hypot(CELL_X - s.x, CELL_Y - s.y)[..., None]
        fit = np.exp(-((ANCHOR_SIZES - s.size) ** 2) / 24**2)
        out[..., 3] = np.maximum(out[..., 3], -3 + 6 * np.exp(-(distance**2) / 24**2) * fit)
        near = distance[..., 0] < 20
        out[near, :, :3] = np.where(np.arange(3) == s.kind, 3.0, -3.0)
        out[near, :, 4] = (s.x - CELL_X[near])[:, None] / ANCHOR_SIZES
        out[near, :, 5] = (s.y - CELL_Y[near])[:, None] / ANCHOR_SIZES
        out[near, :, 6] = out[near, :, 7] = np.log(s.size / ANCHOR_SIZES)
    return out


def fit_last_layer(features: np.ndarray, wanted: np.ndarray) -> dict[str, np.ndarray]:
    """Weights and bias of conv12 from features [cells, 768] and targets [cells, ANCHORS, 8], by ridge regression."""
    mean, deviation = features.mean(0), features.std(0) + 1e-6
    x = np.c_[(features - mean) / deviation, np.ones(len(features))]
    seen = ~np.isnan(wanted[:, 0, 0])
    weight = 1 + 8 * (wanted[..., 3].max(1) > -2)  # shapes are rare: let their cells count more
    solution = np.empty((x.shape[1], ANCHORS, 8))
    solution[:, :, 3] = ridge(x, wanted[..., 3], weight)
    rest = [0, 1, 2, 4, 5, 6, 7]
    known = ridge(x[seen], wanted[seen][..., rest].reshape(seen.sum(), -1), np.ones(seen.sum()))
    solution[:, :, rest] = known.reshape(-1, ANCHORS, len(rest))
    parts = solution[:, :, :3], solution[:, :, 3:4], solution[:, :, 4:]  # the order of conv12's channels
    flat = np.concatenate([part.reshape(x.shape[1], -1) for part in parts], axis=1)
    scaled = flat[:-1] / deviation[:, None]
    kernel = np.zeros((flat.shape[1], features.shape[1], 3, 3), np.float32)
    kernel[:, :, 1, 1] = scaled.T
    return {"conv12_wts": kernel, "conv12_bias": (flat[-1] - mean @ scaled).astype(np.float32)}


def ridge(x: np.ndarray, y: np.ndarray, weight: np.ndarray, penalty: float = 100.0) -> np.ndarray:
    """argmin over b of sum(weight * (x b - y)^2) + penalty * |b|^2."""
    weighted = (x * weight[:, None]).T
    return np.linalg.solve(weighted @ x + penalty * np.eye(x.shape[1]), weighted @ y)


def train(model: lightnet.Model, weights: dict[str, np.ndarray], pictures: int) -> dict[str, np.ndarray]:
    """The weights with a fitted last layer."""
    extract = lightnet.compile(model, weights=weights, outputs=[FEATURES])
    rng = np.random.default_rng(0)
    features, wanted = [], []
    for _ in range(pictures):
        picture, shapes = draw(rng, int(rng.integers(4, 9)))
        found = extract({"input": as_input(picture)})[FEATURES]
        features.append(found.reshape(found.shape[1], -1).T.astype(np.float64))
        wanted.append(targets(shapes).reshape(-1, ANCHORS, 8))
    return weights | fit_last_layer(np.concatenate(features), np.concatenate(wanted))


# -- detections ------------------------------------------------------------------------------------------------------


@dataclass
class Detection:
    """A shape that the network found; the box is (left, top, right, bottom) in pixels of its picture."""

    kind: int
    confidence: float
    box: np.ndarray


def detections(outputs: dict[str, np.ndarray], threshold: float = 0.35) -> list[Detection]:
    """The boxes above a confidence, without those that mostly cover a surer one (non-maximum suppression)."""
    boxes = outputs["final_bbox"].reshape(-1, 4) / [SCALE_X, SCALE_Y, SCALE_X, SCALE_Y]
    kept: list[Detection] = []
    for kind, confidence, box in zip(outputs["final_class"], outputs["sort_conf1d"], boxes):
        if confidence >= threshold and all(overlap(box, k.box) < 0.3 for k in kept):
            kept.append(Detection(int(kind), float(confidence), box))
    return kept


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """The intersection as a share of the smaller box."""
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    return float(np.prod(np.maximum(sides, 0)) / max(min(np.prod(a[2:] - a[:2]), np.prod(b[2:] - b[:2])), 1e-6))


def found_for(shape: Shape, found: list[Detection]) -> Detection | None:
    """The detection of a shape: its box's centre lies near the shape's."""
    for d in found:
        x, y = (d.box[:2] + d.box[2:]) / 2
        if np.hypot(x - shape.x, y - shape.y) < shape.size / 4:
            return d
    return None


# -- what is printed -------------------------------------------------------------------------------------------------


def table(title: str, header: list[str], rows: list[list[str]]) -> None:
    """Print a table, with `rich` on a terminal if it is there."""
    if sys.stdout.isatty():
        try:
            from rich.console import Console
            from rich.table import Table
        except ImportError:
            pass
        else:
            pretty = Table(*header, title=title, title_justify="left")
            for row in rows:
                pretty.add_row(*row)
            Console().print(pretty)
            return
    widths = [max(map(len, column)) for column in zip(header, *rows)]
    print(f"\n{title}")
    for row in [header, ["-" * w for w in widths], *rows]:
        print("  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip())


def text_picture(picture: np.ndarray, found: list[Detection]) -> str:
    """The picture in characters, one a cell: what differs from the background, and the boxes."""
    small = picture.reshape(3, ROWS, CELL, COLUMNS, CELL).mean((2, 4))
    contrast = np.abs(small - np.median(small, axis=2, keepdims=True)).max(0)
    cells = [[" .:*#"[min(int(v / 18), 4)] for v in row] for row in contrast]
    for d in found:
        x0, y0, x1, y1 = (int(np.clip(v / CELL, 0, n - 1)) for v, n in zip(d.box, (COLUMNS, ROWS) * 2))
        for x in range(x0, x1 + 1):
            cells[y0][x] = cells[y1][x] = "-"
        for y in range(y0, y1 + 1):
            cells[y][x0] = cells[y][x1] = "|" if y0 < y < y1 else "+"
        for i, character in enumerate(SHAPES[d.kind][: x1 - x0]):
            cells[y0][min(x0 + 1 + i, COLUMNS - 1)] = character
    return "\n".join(("  " + "".join(row)).rstrip() for row in cells)


def write_png(path: Path, picture: np.ndarray, found: list[Detection]) -> None:
    """Write the picture with a white frame around each box (PNG: ISO/IEC 15948)."""
    pixels = np.ascontiguousarray(picture.transpose(1, 2, 0)).astype(np.uint8)
    for d in found:
        x0, y0, x1, y1 = (int(np.clip(v, 0, n - 1)) for v, n in zip(d.box, (WIDTH, HEIGHT) * 2))
        for frame in (
            pixels[y0 : y0 + 3, x0:x1],
            pixels[y1 - 2 : y1 + 1, x0:x1],
            pixels[y0:y1, x0 : x0 + 3],
            pixels[y0:y1, x1 - 2 : x1 + 1],
        ):
            frame[:] = 255
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 2, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    )


def show_compiler(executable: lightnet.Executable, upstream: lightnet.Executable) -> None:
    """Show what the compiler made of the network."""
    plan = executable.plan.plan
    before, after = (executable.ir(stage).count("cpu.kernel(") for stage in ("expand", "combine"))
    functions = executable.ir("lower-cpu").count("func.func @") - 1
    memory = executable.program.memory
    table(
        "What was compiled",
        ["", ""],
        [
            ["kernels before fusion", str(before)],
            ["kernels after fusion", str(after)],
            ["functions of machine code", f"{functions} (equal kernels share one)"],
            ["memory for intermediate tensors", f"{plan.peak:,} bytes"],
            ["its lower bound", f"{plan.bound:,} bytes (ratio {plan.ratio:.3f})"],
            ["memory for weights", f"{memory['static']:,} bytes"],
            ["all of it, as the C implementation plans it", f"{upstream.plan.plan.peak:,} bytes"],
            ["all of it, as planned here", f"{sum(memory.values()):,} bytes"],
        ],
    )
    text = executable.ir("plan").splitlines()
    start = next(i for i, line in enumerate(text) if "cpu.kernel(" in line)
    stop = next(i for i in range(start, len(text)) if text[i].startswith("    }"))
    print("\nThe first kernel, planned:")
    print("\n".join(line[4:] for line in text[start : stop + 1]))


def main() -> None:
    """Compile, fit the last layer, look at a picture and say what happened."""
    parser = argparse.ArgumentParser(description="SqueezeDet finds shapes in a picture.")
    parser.add_argument("--seed", type=int, default=1, help="another picture")
    parser.add_argument("--pictures", type=int, default=40, help="pictures to fit the last layer to")
    parser.add_argument("-o", "--output", type=Path, default=Path("build"), help="folder for the pictures (build)")
    args = parser.parse_args()

    model = lightnet.load(NET)
    print(f"Fitting the last layer of {NET.name} to {args.pictures} drawn pictures ...", flush=True)
    start = time.perf_counter()
    weights = train(model, random_weights(model, 0), args.pictures)
    fitted = time.perf_counter()
    executable = lightnet.compile(model, weights=weights)
    executable.prepare()
    compiled = time.perf_counter()

    picture, shapes = draw(np.random.default_rng([args.seed, 1]), 6)
    feeds = {"input": as_input(picture)}
    executable(feeds)  # touches all memory once
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        outputs = executable(feeds)
        times.append(time.perf_counter() - begin)
    found = detections(outputs)

    print(f"\n{text_picture(picture, found)}")
    rows = []
    for s in shapes:
        d = found_for(s, found)
        there = f"{SHAPES[s.kind]} at {s.x:.0f}, {s.y:.0f}, size {s.size:.0f}"
        if d is None:
            rows.append([there, "nothing", ""])
            continue
        x, y = (d.box[:2] + d.box[2:]) / 2
        rows.append(
            [there, f"{SHAPES[d.kind]} at {x:.0f}, {y:.0f}, size {d.box[2] - d.box[0]:.0f}", f"{d.confidence:.2f}"]
        )
    table("What is in the picture, and what the network sees", ["there is", "found", "confidence"], rows)
    right = sum((d := found_for(s, found)) is not None and d.kind == s.kind for s in shapes)
    print(f"{right} of {len(shapes)} right")

    show_compiler(executable, lightnet.compile(model, plan="upstream"))
    print(
        f"\nfitting {fitted - start:.1f} s, compiling {compiled - fitted:.2f} s, "
        f"a run {1000 * min(times):.1f} ms (best of {len(times)}, one thread)"
    )
    args.output.mkdir(parents=True, exist_ok=True)
    write_png(args.output / "squeezedet.png", picture, found)
    (args.output / "squeezedet-plan.html").write_text(executable.plan.html(), "utf-8")
    print(
        f"see {args.output / 'squeezedet.png'} (the boxes) and {args.output / 'squeezedet-plan.html'} (the memory plan)"
    )


if __name__ == "__main__":
    main()
