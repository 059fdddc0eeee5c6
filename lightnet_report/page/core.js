// What every tab uses: the data, elements from text, figures, and the state in the URL's fragment.

const DATA = JSON.parse(document.getElementById("data").textContent);
const TABS = []; // {name, title, build(section) -> show(state)}

/** Objects with these (space-separated) names for the values of each row; the data has rows, which are shorter. */
function records(names, rows) {
  const fields = names.split(" ");
  return rows.map((values) => Object.fromEntries(fields.map((name, i) => [name, values[i]])));
}

/** An element with attributes (`on…` are listeners, `style` an object of custom properties) and children; text is never markup. */
function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function drawn(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, v] of Object.entries(value)) element.style.setProperty(key, v);
    else element.setAttribute(name, value);
  }
  element.append(
    ...children
      .flat()
      .filter((child) => child !== null && child !== undefined)
      .map((child) => (child instanceof Node ? child : shownText(child))),
  );
  return element;
}

/** Text of a model as a person can read it: control characters, and what turns the direction of writing, are replaced. */
function shownText(text) {
  return String(text).replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
    "\ufffd",
  );
}

/** Three significant digits, and never an exponent of a number above one. */
function digits(x) {
  return x >= 999.5 ? x.toFixed(0) : x.toPrecision(3);
}

function bytes(n) {
  for (const [unit, size] of [
    ["GiB", 2 ** 30],
    ["MiB", 2 ** 20],
    ["KiB", 2 ** 10],
  ])
    if (n >= size) return `${digits(n / size)} ${unit}`;
  return `${n} B`;
}

function count(n, unit = "") {
  for (const [prefix, size] of [
    ["T", 1e12],
    ["G", 1e9],
    ["M", 1e6],
    ["k", 1e3],
  ])
    if (n >= size) return `${digits(n / size)} ${prefix}${unit}`;
  return `${Number.isInteger(n) ? n : digits(n)} ${unit}`.trim();
}

function seconds(s) {
  return s >= 1 ? `${s.toFixed(2)} s` : s >= 1e-3 ? `${digits(s * 1e3)} ms` : `${digits(s * 1e6)} µs`;
}

/** A hue for a name: equal names, equal colours. */
function hue(name) {
  let h = 7;
  for (const c of name) h = (h * 31 + c.codePointAt(0)) % 9973;
  return (h * 137.5) % 360;
}

function state() {
  const found = {};
  for (const part of location.hash.slice(1).split("&")) {
    const [key, value] = part.split("=", 2);
    try {
      if (key) found[key] = decodeURIComponent(value ?? "");
    } catch {
      /* a broken escape is no state */
    }
  }
  return found;
}

/** Change some parts of the state; null removes one. A new tab makes a step in the browser's history. */
function go(changes) {
  const next = { ...state(), ...changes };
  const text = Object.entries(next)
    .filter(([, v]) => v !== null && v !== undefined && v !== "")
    .map(([k, v]) => `${k}=${encodeURIComponent(v)}`)
    .join("&");
  if ("tab" in changes) location.hash = text;
  else location.replace(`#${text}`);
}

function stageNumber(s, fallback) {
  const n = Number.parseInt(s.stage ?? "", 10);
  if (Number.isInteger(n)) return Math.min(Math.max(n, 0), DATA.stages.length - 1);
  const named = s.stage
    ? DATA.stages.findIndex((stage) => stage.name === s.stage || stage.name.startsWith(`${s.stage}{`))
    : -1;
  return named >= 0 ? named : fallback;
}

/** A select of the stages, with buttons for the neighbours. */
function stagePicker(first) {
  const choice = make(
    "select",
    { title: "stage ([ and ] go to the neighbours)", onchange: () => go({ stage: choice.value }) },
    DATA.stages.map((stage, k) =>
      k < first ? null : make("option", { value: k }, `${k}  ${stage.name.replace(/\{.*/, "")}`),
    ),
  );
  const move = (d) => go({ stage: Math.min(Math.max(Number(choice.value) + d, first), DATA.stages.length - 1) });
  return {
    choice,
    move,
    parts: [
      make("button", { onclick: () => move(-1), title: "[" }, "◀"),
      choice,
      make("button", { onclick: () => move(1), title: "]" }, "▶"),
    ],
  };
}

function tip(event, text) {
  const box = document.getElementById("tip");
  box.hidden = !text;
  if (!text) return;
  box.textContent = shownText(text);
  const { width, height } = box.getBoundingClientRect();
  box.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  box.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18}px`;
}

function why(text) {
  return make("div", { class: "why" }, text);
}

/** A table whose columns sort by a click. Columns: [title, cell(row), value(row) or null, is text]. */
function sortable(columns, rows, attributes = () => ({})) {
  const body = make("tbody");
  let order = rows.slice();
  let last = null;
  const fill = () =>
    body.replaceChildren(
      ...order.map((row) =>
        make(
          "tr",
          attributes(row),
          columns.map(([, cell, , text]) => {
            const shown = cell(row);
            return make(
              "td",
              { class: text && "text", title: text && typeof shown === "string" ? shownText(shown) : null },
              shown,
            );
          }),
        ),
      ),
    );
  const sort = (value) => {
    const sign = last === value ? -1 : 1;
    last = sign < 0 ? null : value;
    order.sort((a, b) => {
      const x = value(a),
        y = value(b);
      return sign * (typeof x === "string" ? x.localeCompare(y) : y - x);
    });
    fill();
  };
  const head = columns.map(([title, , value, text]) =>
    make("th", { class: text && "text", "data-sort": value ? "" : null, onclick: value && (() => sort(value)) }, title),
  );
  fill();
  return make("table", {}, make("thead", {}, make("tr", {}, head)), body);
}
