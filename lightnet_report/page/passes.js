// The first tab: what each pass did, in figures.

TABS.push({
  name: "passes",
  title: "Passes",
  build(section) {
    const rows = [];
    if (DATA.stats.input)
      rows.push({ name: "(input)", stage: 0, seconds: 0, after: DATA.stats.input, rewrites: {}, changed: {} });
    DATA.stats.passes.forEach((p, k) => rows.push({ ...p, name: p.pass, stage: k + 1 }));
    const longest = Math.max(...rows.map((r) => r.seconds), 1e-9);
    const total = (r) => Object.values(r.rewrites).reduce((a, b) => a + b, 0);
    const after = (f) => (r) => (r.after ? f(r.after) : 0);
    const shown = (f, form) => (r) => (r.after ? (f(r.after) ? form(f(r.after)) : "") : "failed");
    const changes = (r) =>
      Object.entries(r.changed)
        .slice(0, 3)
        .map(([op, [was, now]]) => `${op} ${was} → ${now}`)
        .join(", ") + (Object.keys(r.changed).length > 3 ? ", …" : "");
    const columns = [
      ["pass", (r) => r.name, null, true],
      ["ops", shown((m) => m.ops, String), after((m) => m.ops)],
      ["tensors", shown((m) => m.tensor_bytes, bytes), after((m) => m.tensor_bytes)],
      [
        "static",
        shown((m) => m.memory.static ?? m.static_bytes, bytes),
        after((m) => m.memory.static ?? m.static_bytes),
      ],
      ["arena", shown((m) => m.memory.arena ?? 0, bytes), after((m) => m.memory.arena ?? 0)],
      ["flops", shown((m) => m.flops, count), after((m) => m.flops)],
      ["launches", shown((m) => m.launches, String), after((m) => m.launches)],
      ["rewrites", (r) => String(total(r) || ""), total],
      ["time", (r) => (r.stage ? seconds(r.seconds) : ""), (r) => r.seconds],
      [
        "",
        (r) =>
          make(
            "div",
            { class: "time", style: { width: "12vw", "min-width": "90px" } },
            make("i", { style: { width: `${(100 * r.seconds) / longest}%` } }),
          ),
        null,
      ],
      ["ops that changed", changes, null, true],
    ];
    const patterns = rows.flatMap((r) =>
      Object.entries(r.rewrites).map(([pattern, times]) => ({ pass: r.name, pattern, times })),
    );
    const goto = (r) => ({ "data-go": "", onclick: () => go({ tab: r.stage ? "diff" : "graph", stage: r.stage }) });
    section.append(
      make(
        "div",
        { class: "scroll" },
        make(
          "p",
          { class: "soft" },
          "Each line is a pass; a click shows what it changed. Times include what it costs to record the rewrites.",
        ),
        sortable(columns, rows, goto),
        patterns.length
          ? [
              make("h2", {}, "Rewrites by pattern"),
              sortable(
                [
                  ["pass", (r) => r.pass, (r) => r.pass, true],
                  ["pattern", (r) => r.pattern, (r) => r.pattern, true],
                  ["rewrites", (r) => String(r.times), (r) => r.times],
                ],
                patterns,
                (r) => ({
                  "data-go": "",
                  onclick: () => go({ tab: "rewrites", pattern: r.pattern, step: null, find: null }),
                }),
              ),
            ]
          : null,
      ),
    );
    return () => {};
  },
});
