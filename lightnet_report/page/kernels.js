// The time of each kernel, beside the least that this machine could take for it.

TABS.push({
  name: "kernels",
  title: "Kernels",
  build(section) {
    if (typeof DATA.kernels === "string") {
      section.append(why(DATA.kernels));
      return () => {};
    }
    const kernels = records("name function ops launches seconds flops bytes bound shapes where", DATA.kernels);
    const sum = (of) => kernels.reduce((total, k) => total + of(k), 0);
    const total = sum((k) => k.seconds) || 1e-12;
    const bound = sum((k) => k.bound);
    const longest = Math.max(...kernels.map((k) => Math.max(k.seconds, k.bound)), 1e-12);
    const percent = (part, whole, digits) => `${((100 * part) / whole).toFixed(digits)} %`;
    const rate = (n, k) => (k.seconds ? n / k.seconds : 0);
    const shownRate = (n, k) => (rate(n, k) ? count(rate(n, k)) : "");
    const bars = (k) =>
      make(
        "div",
        { class: "time" },
        make("i", { style: { width: `${(100 * k.seconds) / longest}%` } }),
        make("u", { style: { left: `${(100 * k.bound) / longest}%` } }),
      );
    const columns = [
      ["kernel", (k) => k.name, (k) => k.name, true],
      ["ops", (k) => k.ops.map((op) => op.split(" ")[0]).join(" "), null, true],
      ["time", (k) => seconds(k.seconds), (k) => k.seconds],
      ["share", (k) => percent(k.seconds, total, 1), (k) => k.seconds],
      ["time and bound", bars, null],
      ["of bound", (k) => (k.seconds ? percent(k.bound, k.seconds, 0) : ""), (k) => rate(k.bound, k)],
      ["FLOP/s", (k) => shownRate(k.flops, k), (k) => rate(k.flops, k)],
      ["B/s", (k) => shownRate(k.bytes, k), (k) => rate(k.bytes, k)],
      ["flops", (k) => count(k.flops), (k) => k.flops],
      ["bytes", (k) => bytes(k.bytes), (k) => k.bytes],
      ["launches", (k) => String(k.launches), (k) => k.launches],
      ["function", (k) => k.function, (k) => k.function, true],
      ["shapes", (k) => k.shapes, null, true],
    ];
    const whole = DATA.whole ? `; a call of the network ${seconds(DATA.whole)}` : "";
    const heading =
      `${kernels.length} kernels, ${seconds(total)}${whole}; ` +
      `bound ${seconds(bound)}, ${percent(bound, total, 0)} of the time`;
    const key = (colour, width) => make("span", { class: "key", style: { background: `var(--${colour})`, width } });
    const legend = [
      key("accent", "14px"),
      "time ",
      key("bound", "3px"),
      "the least that this machine needs (roofline)",
    ];
    const open = (k) => go({ tab: "graph", op: k.name.split(", ")[0], node: null, stage: null });
    section.append(
      make("div", { class: "bar" }, make("span", {}, heading), make("span", { class: "soft" }, legend)),
      make(
        "div",
        { class: "scroll" },
        sortable(
          columns,
          kernels.toSorted((a, b) => b.seconds - a.seconds),
          (k) => ({ "data-go": "", onclick: () => open(k) }),
        ),
        make("p", { class: "soft" }, DATA.machine),
      ),
    );
    return () => {};
  },
});
