// The rewrites one by one, in order: which pattern, where, before and after.

TABS.push({
  name: "rewrites",
  title: "Rewrites",
  build(section) {
    const steps = records("number pass pattern where root before after required", DATA.rewrites);
    if (!steps.length) {
      section.append(why("No pattern was applied."));
      return () => {};
    }
    const times = new Map();
    for (const r of steps) times.set(r.pattern, (times.get(r.pattern) ?? 0) + 1);
    const pattern = make(
      "select",
      { onchange: () => go({ pattern: pattern.value, step: null }) },
      make("option", { value: "" }, `every pattern (${steps.length})`),
      [...times].map(([name, n]) => make("option", { value: name }, `${name} (${n})`)),
    );
    const find = make("input", { type: "search", placeholder: "op, tensor or text  ( / )", size: 24 });
    find.addEventListener("change", () => go({ find: find.value, step: null }));
    const about = make("span", { class: "soft" });
    const list = make("div", { class: "list" });
    const view = make("div", { class: "step" });
    const back = make("button", { onclick: () => move(-1), title: "↑ or k" }, "▲");
    const on = make("button", { onclick: () => move(1), title: "↓ or j" }, "▼");
    section.append(
      make("div", { class: "bar" }, back, on, pattern, find, about),
      make("div", { class: "split" }, list, view),
    );

    let shown = []; // the steps that the filter leaves, their elements, and the position of the one that is looked at
    let items = [];
    let current = 0;
    let filter = null;

    function move(d) {
      if (shown.length) go({ step: shown[Math.min(Math.max(current + d, 0), shown.length - 1)].number });
    }
    function filtered(s) {
      const text = (s.find ?? "").toLowerCase();
      const has = (r) =>
        [r.root, r.where, r.pass, ...r.before, ...r.after].some((part) => part.toLowerCase().includes(text));
      shown = steps.filter((r) => (!s.pattern || r.pattern === s.pattern) && (!text || has(r)));
      items = shown.map((r) => {
        const root = make("span", { class: "soft" }, `  ${r.root}`);
        const open = () => go({ step: r.number });
        return make("div", { class: "item", onclick: open }, `${r.number}  `, make("b", {}, r.pattern), root);
      });
      list.replaceChildren(...items);
      const rest = DATA.rewrites_left_out ? `; ${DATA.rewrites_left_out} more are left out` : "";
      about.textContent = `${shown.length} of ${steps.length} rewrites${rest}`;
    }
    function side(title, kind, texts) {
      const parts = texts.map((text) => make("pre", { class: kind }, onLines(text)));
      return [make("h2", {}, title), ...(parts.length ? parts : [make("p", { class: "soft" }, "nothing")])];
    }
    function show(s) {
      if (filter !== `${s.pattern} ${s.find}`) {
        filter = `${s.pattern} ${s.find}`;
        pattern.value = times.has(s.pattern) ? s.pattern : "";
        find.value = s.find ?? "";
        filtered(s);
      }
      items[current]?.classList.remove("on");
      const wanted = shown.findIndex((r) => r.number === Number(s.step));
      current = Math.max(wanted, 0);
      const r = shown[current];
      if (!r) {
        view.replaceChildren(why("None is left by the filter."));
        return;
      }
      items[current].classList.add("on");
      items[current].scrollIntoView({ block: "nearest" });
      const parts = ["pass ", make("b", {}, r.pass), ", on ", make("span", { class: "code" }, r.root)];
      if (r.where) parts.push(`, from ${r.where}`);
      if (r.required) parts.push(", which the pass cannot do without");
      view.replaceChildren(
        make("h2", {}, `${r.number}. ${r.pattern}`),
        make("p", {}, parts),
        ...side("Before", "before", r.before),
        ...side("After", "after", r.after),
      );
    }
    show.key = (e) => {
      const step = { ArrowDown: 1, ArrowRight: 1, j: 1, ArrowUp: -1, ArrowLeft: -1, k: -1 }[e.key];
      if (!step && e.key !== "/") return;
      e.preventDefault();
      if (step) move(step);
      else find.focus();
    };
    return show;
  },
});

/** An op with a body stands on one line; here each op of the body has its own. */
function onLines(text) {
  const start = text.search(/\{ %[\w.$-]+(, %[\w.$-]+)* = /) + 1;
  if (!start) return text;
  const body = text.slice(start).replace(/ (?=%[\w.$-]+(?:, %[\w.$-]+)* = |ln\.yield )/g, "\n    ");
  return text.slice(0, start) + body.replace(/ \}(?=( at| as| work|$))/, "\n}");
}
