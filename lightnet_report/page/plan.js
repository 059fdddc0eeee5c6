// The memory plan over time: a rectangle for each buffer, from the op that makes it to the last that reads it.

TABS.push({
  name: "plan",
  title: "Memory plan",
  build(section) {
    const plans = Object.entries(DATA.plans).map(([space, plan]) => {
      const buffers = records("name offset size live", plan.buffers);
      return { ...plan, space, buffers };
    });
    if (!plans.length) {
      section.append(why("No memory is planned: the pipeline has no `plan`, or the target needs none."));
      return () => {};
    }
    const option = (value, text) => make("option", { value }, text);
    const choice = make(
      "select",
      {},
      plans.map((p) => option(p.space, p.space)),
    );
    const wide = make(
      "select",
      {},
      [1, 2, 4, 8].map((k) => option(k, `width × ${k}`)),
    );
    choice.addEventListener("change", () => go({ space: choice.value, buffer: null }));
    wide.addEventListener("change", () => go({ wide: wide.value === "1" ? null : wide.value }));
    const about = make("span");
    const live = make("span", { class: "soft" });
    const picture = make("div", { style: { "overflow-x": "auto" } });
    const list = make("div");
    section.append(
      make("div", { class: "bar" }, choice, wide, about, make("span", { class: "grow" }), live),
      make("div", { class: "scroll" }, picture, list),
    );
    let last = "";
    return (s) => {
      const plan = plans.find((p) => p.space === s.space) ?? plans.find((p) => p.space === "arena") ?? plans[0];
      const key = `${plan.space} ${s.wide} ${s.buffer} ${section.clientWidth} ${innerHeight}`;
      if (key === last) return;
      last = key;
      choice.value = plan.space;
      wide.value = ["2", "4", "8"].includes(s.wide) ? s.wide : "1";
      const sizes = `peak ${bytes(plan.peak)}, lower bound ${bytes(plan.bound)}, ratio ${plan.ratio.toFixed(4)}`;
      about.textContent = `${sizes}, ${plan.buffers.length} buffers`;
      const width = Math.max(section.clientWidth - 56, 600) * Number(wide.value);
      picture.replaceChildren(planPicture(plan, width, Math.max(innerHeight * 0.62, 320), s.buffer, live));
      list.replaceChildren(make("h2", {}, "Buffers"), planTable(plan, s.buffer));
    };
  },
});

/** Pixels around the plot. */
const PLOT = { left: 84, right: 10, top: 12, bottom: 36 };

/** The picture; `on` is the name of the buffer to mark, `live` an element that says what is live where the pointer is. */
function planPicture(plan, width, height, on, live) {
  const ends = plan.buffers.flatMap((b) => b.live);
  const first = Math.min(...ends.map((e) => e[0]));
  const last = Math.max(...ends.map((e) => e[1]));
  const top = Math.max(plan.peak, plan.bound, 1);
  const [across, up] = [width - PLOT.left - PLOT.right, height - PLOT.top - PLOT.bottom];
  const x = (t) => PLOT.left + ((t - first) / Math.max(last - first, 1)) * across;
  const y = (n) => height - PLOT.bottom - (n / top) * up;
  const line = (kind, n) => drawn("line", { class: kind, x1: PLOT.left, x2: width - PLOT.right, y1: y(n), y2: y(n) });
  const text = (x, y, anchor, content, kind) => drawn("text", { x, y, "text-anchor": anchor, class: kind }, content);

  const parts = [];
  let step = 1;
  while (top / step > 8) step *= 2;
  for (let n = 0; n <= top; n += step) parts.push(line("grid", n), text(PLOT.left - 6, y(n) + 4, "end", bytes(n)));
  const tick = roundStep((last - first) / Math.max(width / 90, 1));
  for (let t = Math.ceil(first / tick) * tick; t <= last; t += tick) parts.push(text(x(t), height - 18, "middle", t));
  parts.push(text(PLOT.left, height - 4, "start", "time, in positions of ops →   the line: bytes that are live"));
  for (const b of plan.buffers) parts.push(...bufferShapes(plan, b, x, y, b.name === on));
  parts.push(drawn("path", { class: "load", d: loadLine(plan, x, y) }), line("bound", plan.bound));
  parts.push(text(width - PLOT.right, height - 4, "end", `- - lower bound ${bytes(plan.bound)}`, "bound-text"));

  const now = drawn("line", { class: "now", y1: PLOT.top, y2: height - PLOT.bottom, visibility: "hidden" });
  const svg = drawn("svg", { class: "plan", width, height, viewBox: `0 0 ${width} ${height}` }, parts, now);
  svg.addEventListener("pointermove", (e) => {
    const right = e.clientX - svg.getBoundingClientRect().left - PLOT.left;
    const t = Math.floor(first + (right / across) * (last - first));
    if (t < first || t >= last) return;
    for (const [name, value] of [
      ["x1", x(t + 0.5)],
      ["x2", x(t + 0.5)],
      ["visibility", "visible"],
    ])
      now.setAttribute(name, value);
    live.textContent = liveText(plan, t);
  });
  return svg;
}

/** 1, 2 or 5 times a power of ten, at least `step`. */
function roundStep(step) {
  const power = 10 ** Math.floor(Math.log10(Math.max(step, 1)));
  return [1, 2, 5, 10].map((k) => k * power).find((k) => k >= step);
}

function bufferShapes(plan, b, x, y, on) {
  return b.live.flatMap(([from, to]) => {
    const [w, h] = [x(to) - x(from), y(b.offset) - y(b.offset + b.size)];
    const rectangle = drawn("rect", {
      class: on ? "b on" : "b",
      style: { "--h": hue(b.name) },
      x: x(from),
      y: y(b.offset + b.size),
      width: Math.max(w, 1),
      height: Math.max(h, 1),
      onclick: () => go({ buffer: b.name }),
      onpointermove: (e) => tip(e, bufferText(plan, b)),
      onpointerleave: (e) => tip(e, ""),
    });
    if (h <= 14 || w <= 7 * (b.name.length + 1)) return [rectangle];
    const middle = { x: x(from) + w / 2, y: y(b.offset + b.size / 2) + 4, "text-anchor": "middle" };
    return [rectangle, drawn("text", middle, b.name)];
  });
}

/** The bytes that are live, as steps over time. */
function loadLine(plan, x, y) {
  const change = new Map();
  const add = (t, n) => change.set(t, (change.get(t) ?? 0) + n);
  for (const b of plan.buffers) {
    for (const [from, to] of b.live) {
      add(from, b.size);
      add(to, -b.size);
    }
  }
  let load = 0;
  let path = "";
  for (const t of [...change.keys()].sort((p, q) => p - q)) {
    path += path ? `H${x(t)}` : `M${x(t)} ${y(0)}`;
    load += change.get(t);
    path += `V${y(load)}`;
  }
  return path;
}

function liveText(plan, t) {
  const there = plan.buffers.filter((b) => b.live.some(([from, to]) => from <= t && t < to));
  const sum = there.reduce((total, b) => total + b.size, 0);
  return `op ${opAt(plan, t)}: ${bytes(sum)} live in ${there.length} buffers`;
}

function opAt(plan, t) {
  return plan.ops[t] ? `${t} (${shownText(plan.ops[t])})` : `${t}`;
}

function bufferText(plan, b) {
  const lives = b.live.map(([from, to]) => `live from op ${opAt(plan, from)} to ${opAt(plan, to - 1)}`);
  return [b.name, `bytes ${b.offset} to ${b.offset + b.size}, ${bytes(b.size)}`, ...lives].join("\n");
}

function planTable(plan, on) {
  const number = (n) => n.toLocaleString("en");
  const begin = (b) => b.live[0][0];
  const end = (b) => b.live.at(-1)[1];
  const columns = [
    ["buffer", (b) => b.name, (b) => b.name, true],
    ["offset", (b) => number(b.offset), (b) => b.offset],
    ["size", (b) => number(b.size), (b) => b.size],
    ["from", (b) => String(begin(b)), begin],
    ["to", (b) => String(end(b)), end],
    ["first op", (b) => plan.ops[begin(b)] ?? "", null, true],
  ];
  const row = (b) => ({ "data-go": "", class: b.name === on ? "on" : null, onclick: () => go({ buffer: b.name }) });
  return sortable(columns, plan.buffers, row);
}
