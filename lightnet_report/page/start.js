// The tabs, built when they are first shown, and the theme.

{
  document.getElementById("title").textContent = shownText(DATA.title);
  const main = document.getElementById("main"),
    bar = document.getElementById("tabs");
  if (DATA.error) main.before(make("div", { class: "failure" }, DATA.error));
  const buttons = new Map(),
    sections = new Map();
  for (const tab of TABS) {
    const button = make("button", { role: "tab", onclick: () => go({ tab: tab.name }) }, tab.title);
    bar.append(button);
    buttons.set(tab.name, button);
  }
  const current = () => TABS.find((t) => t.name === state().tab) ?? TABS[0];
  const show = () => {
    const tab = current();
    for (const [name, { section }] of sections) section.hidden = name !== tab.name;
    for (const [name, button] of buttons) button.setAttribute("aria-selected", name === tab.name);
    if (!sections.has(tab.name)) {
      const section = make("section", { id: tab.name });
      main.append(section);
      sections.set(tab.name, { section, show: tab.build(section) });
    }
    document.getElementById("tip").hidden = true;
    sections.get(tab.name).show(state());
  };
  addEventListener("hashchange", show);
  addEventListener("resize", () => {
    if (current().name === "plan") show();
  });
  addEventListener("keydown", (e) => {
    if (e.target.matches("input, select") || e.ctrlKey || e.metaKey || e.altKey) return;
    if (/^[1-9]$/.test(e.key) && TABS[e.key - 1]) go({ tab: TABS[e.key - 1].name });
    sections.get(current().name)?.show.key?.(e);
  });
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement,
      dark = root.style.colorScheme
        ? root.style.colorScheme === "dark"
        : matchMedia("(prefers-color-scheme: dark)").matches;
    root.style.colorScheme = dark ? "light" : "dark";
  });
  if (["dark", "light"].includes(state().theme)) document.documentElement.style.colorScheme = state().theme;
  show();
}
