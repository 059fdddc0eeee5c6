// What passes left, and why, and what each way would have taken: one row a remark.

TABS.push({
  name: "remarks",
  title: "Remarks",
  build(section) {
    const remarks = records("kind pass op where text ways", DATA.remarks);
    if (!remarks.length) {
      section.append(why("No remarks were asked for, or there was nothing to remark."));
      return () => {};
    }
    const chooser = (key, title) => {
      const times = new Map();
      for (const r of remarks) times.set(r[key], (times.get(r[key]) ?? 0) + 1);
      const select = make(
        "select",
        { onchange: () => go({ [key]: select.value }) },
        make("option", { value: "" }, `${title} (${remarks.length})`),
        [...times].map(([name, n]) => make("option", { value: name }, `${name} (${n})`)),
      );
      return { select, times };
    };
    const kind = chooser("kind", "every kind");
    const pass = chooser("pass", "every pass");
    const find = make("input", { type: "search", placeholder: "op, tensor or text  ( / )", size: 24 });
    find.addEventListener("change", () => go({ find: find.value }));
    const about = make("span", { class: "soft" });
    const list = make("div", { class: "scroll" });
    section.append(make("div", { class: "bar" }, kind.select, pass.select, find, about), list);

    const fastest = (r) => (r.ways.length ? Math.min(...r.ways.map(([, time]) => time)) : 0);
    const columns = [
      ["kind", (r) => r.kind, (r) => r.kind, true],
      ["pass", (r) => r.pass, (r) => r.pass, true],
      ["op", (r) => r.op, (r) => r.op, true],
      ["from", (r) => r.where, (r) => r.where, true],
      ["remark", (r) => r.text, null, true],
      ["least", (r) => (r.ways.length ? seconds(fastest(r) * 1e-9) : ""), fastest],
    ];
    const open = (r) => go({ tab: "graph", op: r.op.split(", ")[0], node: null, stage: null });
    function show(s) {
      const text = (s.find ?? "").toLowerCase();
      for (const [key, { select, times }] of [["kind", kind], ["pass", pass]])
        select.value = times.has(s[key]) ? s[key] : "";
      find.value = s.find ?? "";
      const has = (r) => [r.op, r.where, r.text].some((part) => part.toLowerCase().includes(text));
      const shown = remarks.filter(
        (r) => (!kind.select.value || r.kind === kind.select.value) &&
          (!pass.select.value || r.pass === pass.select.value) && (!text || has(r)),
      );
      list.replaceChildren(sortable(columns, shown, (r) => ({ "data-go": "", onclick: () => open(r) })));
      const rest = DATA.remarks_left_out ? `; ${DATA.remarks_left_out} more are left out` : "";
      about.textContent = `${shown.length} of ${remarks.length} remarks${rest}`;
    }
    show.key = (e) => {
      if (e.key !== "/") return;
      e.preventDefault();
      find.focus();
    };
    return show;
  },
});
