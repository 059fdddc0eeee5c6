// Moving around in a picture: dragging, zooming, and the strip beside it that shows all of it.

/**
 * A camera over `canvas`, an element around an SVG with the group `view` in it. `size()` gives the picture's width and height.
 * `moved` says whether the last press of the pointer was a drag.
 */
function makeCamera(canvas, view, size) {
  const dots = drawn("g");
  const seen = drawn("rect", { class: "seen" });
  const map = drawn(
    "svg",
    { class: "map", preserveAspectRatio: "none", onpointerdown: jump, onpointermove: jump },
    dots,
    seen,
  );
  const camera = { map, moved: false, zoom, fit, readable, center, shows, redraw };
  let at = { x: 0, y: 0, k: 1 }; // a point p of the picture stands at (at.x, at.y) + p * at.k

  function apply() {
    view.setAttribute("transform", `translate(${at.x} ${at.y}) scale(${at.k})`);
    const box = {
      x: -at.x / at.k,
      y: -at.y / at.k,
      width: canvas.clientWidth / at.k,
      height: canvas.clientHeight / at.k,
    };
    for (const [name, value] of Object.entries(box)) seen.setAttribute(name, value);
  }

  /** Show another picture, with these rectangles in the strip: elements. The strip is there where the picture is high. */
  function redraw(rectangles) {
    const { width, height } = size();
    map.setAttribute("viewBox", `0 0 ${Math.max(width, 1)} ${Math.max(height, 1)}`);
    map.toggleAttribute("hidden", height < canvas.clientHeight);
    dots.replaceChildren(...rectangles);
  }

  /** Go where the strip is pressed. */
  function jump(e) {
    if (!e.buttons) return;
    const box = map.getBoundingClientRect();
    at.y = canvas.clientHeight / 2 - ((e.clientY - box.top) / box.height) * size().height * at.k;
    apply();
  }

  function zoom(factor, px = canvas.clientWidth / 2, py = canvas.clientHeight / 2) {
    const k = Math.min(Math.max(at.k * factor, 0.02), 6);
    at = { k, x: px - ((px - at.x) * k) / at.k, y: py - ((py - at.y) * k) / at.k };
    apply();
  }

  function fit() {
    const { width, height } = size();
    const across = (canvas.clientWidth - 40) / Math.max(width, 1);
    const k = Math.min(across, (canvas.clientHeight - 40) / Math.max(height, 1), 1.4);
    at = { k, x: (canvas.clientWidth - width * k) / 2, y: 20 };
    apply();
  }

  /** The whole picture where that can be read, else it from the point (x, 0) on. */
  function readable(x) {
    fit();
    if (at.k >= 0.75) return;
    at = { k: 1, x: canvas.clientWidth / 2 - x, y: 24 };
    apply();
  }

  function center(x, y) {
    const k = Math.max(at.k, 0.8);
    at = { k, x: canvas.clientWidth / 2 - x * k, y: canvas.clientHeight / 2 - y * k };
    apply();
  }

  function shows(x, y) {
    const [px, py] = [x * at.k + at.x, y * at.k + at.y];
    return px >= 0 && py >= 0 && px <= canvas.clientWidth && py <= canvas.clientHeight;
  }

  let drag = null;
  canvas.addEventListener("pointerdown", (e) => {
    if (e.button !== 0) return;
    drag = { x: e.clientX - at.x, y: e.clientY - at.y, id: e.pointerId };
    camera.moved = false;
  });
  canvas.addEventListener("pointermove", (e) => {
    if (!drag) return;
    const [x, y] = [e.clientX - drag.x, e.clientY - drag.y];
    if (!camera.moved) {
      if (Math.hypot(x - at.x, y - at.y) < 4) return; // a hand that shakes
      camera.moved = true;
      canvas.setPointerCapture(drag.id);
      canvas.classList.add("dragging");
    }
    at = { ...at, x, y };
    apply();
  });
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, () => {
      drag = null;
      canvas.classList.remove("dragging");
    });
  }
  const turned = (e) => {
    e.preventDefault();
    const box = canvas.getBoundingClientRect();
    zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0016)), e.clientX - box.left, e.clientY - box.top);
  };
  canvas.addEventListener("wheel", turned, { passive: false });
  return camera;
}
