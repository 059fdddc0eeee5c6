// What a pass changed in the text of the module. Lines are numbers of the table of lines, so that comparing them is cheap.

/** The edits from `a` to `b` as [sign, line]: patience diff (anchors are lines that both have once), small rests by dynamic programming. */
function lineDiff(a, b) {
  const edits = [];
  const rest = (a0, a1, b0, b1) => {
    while (a0 < a1 && b0 < b1 && a[a0] === b[b0]) {
      edits.push([" ", a[a0]]);
      a0++;
      b0++;
    }
    let same = 0;
    while (a0 < a1 - same && b0 < b1 - same && a[a1 - 1 - same] === b[b1 - 1 - same]) same++;
    a1 -= same;
    b1 -= same;
    if (a0 === a1 || b0 === b1) between(a0, a1, b0, b1);
    else {
      const anchors = uniqueCommon(a, a0, a1, b, b0, b1);
      if (anchors.length) {
        for (const [i, j] of anchors) {
          rest(a0, i, b0, j);
          edits.push([" ", a[i]]);
          a0 = i + 1;
          b0 = j + 1;
        }
        rest(a0, a1, b0, b1);
      } else if ((a1 - a0) * (b1 - b0) <= 1e6) exact(a0, a1, b0, b1);
      else between(a0, a1, b0, b1);
    }
    for (let k = 0; k < same; k++) edits.push([" ", a[a1 + k]]);
  };
  const between = (a0, a1, b0, b1) => {
    for (let i = a0; i < a1; i++) edits.push(["-", a[i]]);
    for (let j = b0; j < b1; j++) edits.push(["+", b[j]]);
  };
  const exact = (a0, a1, b0, b1) => {
    // a longest common subsequence
    const n = a1 - a0,
      m = b1 - b0,
      best = new Int32Array((n + 1) * (m + 1));
    for (let i = n - 1; i >= 0; i--)
      for (let j = m - 1; j >= 0; j--)
        best[i * (m + 1) + j] =
          a[a0 + i] === b[b0 + j]
            ? best[(i + 1) * (m + 1) + j + 1] + 1
            : Math.max(best[(i + 1) * (m + 1) + j], best[i * (m + 1) + j + 1]);
    let i = 0,
      j = 0;
    while (i < n || j < m) {
      if (i < n && j < m && a[a0 + i] === b[b0 + j]) {
        edits.push([" ", a[a0 + i]]);
        i++;
        j++;
      } else if (j === m || (i < n && best[(i + 1) * (m + 1) + j] >= best[i * (m + 1) + j + 1]))
        edits.push(["-", a[a0 + i++]]);
      else edits.push(["+", b[b0 + j++]]);
    }
  };
  rest(0, a.length, 0, b.length);
  return edits;
}

/** Pairs of positions of the lines that stand once in both ranges, the longest run of them that is in order in both. */
function uniqueCommon(a, a0, a1, b, b0, b1) {
  const once = (list, from, to) => {
    const seen = new Map();
    for (let i = from; i < to; i++) seen.set(list[i], seen.has(list[i]) ? -1 : i);
    return seen;
  };
  const inB = once(b, b0, b1),
    piles = [],
    before = new Map();
  for (const [line, i] of once(a, a0, a1)) {
    const j = i >= 0 ? (inB.get(line) ?? -1) : -1;
    if (j < 0) continue;
    let low = 0,
      high = piles.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (piles[middle][1] < j) low = middle + 1;
      else high = middle;
    }
    const pair = [i, j];
    before.set(pair, low ? piles[low - 1] : null);
    piles[low] = pair;
  }
  const run = [];
  for (let pair = piles[piles.length - 1]; pair; pair = before.get(pair)) run.push(pair);
  return run.reverse();
}

TABS.push({
  name: "diff",
  title: "Differences",
  build(section) {
    const CONTEXT = 3,
      MOST = 3000;
    const picker = stagePicker(1);
    const all = make("input", { type: "checkbox", onchange: () => go({ all: all.checked ? 1 : null }) });
    const about = make("span", { class: "soft" });
    const lines = make("div", { class: "lines" });
    const scroll = make("div", { class: "scroll" }, lines);
    section.append(make("div", { class: "bar" }, picker.parts, make("label", {}, all, " every line"), about), scroll);

    function row(kind, i, j, sign, content) {
      return make(
        "div",
        { class: `line ${kind}` },
        make("span", {}, i),
        make("span", {}, j),
        make("span", {}, sign),
        make("span", {}, content),
      );
    }
    /** The text of a changed line, with what differs from its partner marked. */
    function marked(text, partner) {
      if (partner === undefined) return text;
      let start = 0;
      while (start < text.length && start < partner.length && text[start] === partner[start]) start++;
      let end = 0;
      while (
        end < text.length - start &&
        end < partner.length - start &&
        text[text.length - 1 - end] === partner[partner.length - 1 - end]
      )
        end++;
      if (start + end < 0.3 * text.length) return text;
      return [text.slice(0, start), make("b", {}, text.slice(start, text.length - end)), text.slice(text.length - end)];
    }
    function rows(edits, every) {
      const near = new Uint8Array(edits.length);
      edits.forEach(([sign], k) => {
        if (sign !== " ") near.fill(1, Math.max(0, k - CONTEXT), k + CONTEXT + 1);
      });
      const found = [];
      let i = 0,
        j = 0,
        hidden = 0;
      const gap = () => {
        if (hidden) found.push(row("gap", "", "", "", `⋯ ${hidden} equal lines`));
        hidden = 0;
      };
      for (let k = 0; k < edits.length; k++) {
        const [sign, line] = edits[k];
        i += sign !== "+";
        j += sign !== "-";
        if (!every && !near[k]) {
          hidden++;
          continue;
        }
        gap();
        if (found.length >= MOST) {
          found.push(row("gap", "", "", "", `⋯ ${edits.length - k} more lines`));
          return found;
        }
        const text = DATA.lines[line];
        if (sign === " ") found.push(row("same", i, j, "", text));
        else
          found.push(
            row(
              sign === "+" ? "add" : "del",
              sign === "-" ? i : "",
              sign === "+" ? j : "",
              sign,
              marked(text, partnerOf(edits, k)),
            ),
          );
      }
      gap();
      return found;
    }
    /** The line that took the place of line `k`, in a group of as many removed as added lines. */
    function partnerOf(edits, k) {
      const sign = edits[k][0];
      let first = k,
        end = k;
      while (first > 0 && edits[first - 1][0] === sign) first--;
      while (end < edits.length && edits[end][0] === sign) end++;
      const count = end - first;
      const other = sign === "-" ? end : first - count;
      for (let m = 0; m < count; m++) if (edits[other + m]?.[0] !== (sign === "-" ? "+" : "-")) return undefined;
      if (edits[sign === "-" ? other + count : other - 1]?.[0] === (sign === "-" ? "+" : "-")) return undefined;
      return DATA.lines[edits[other + k - first][1]];
    }
    let last = "";
    const show = (s) => {
      if (DATA.stages.length < 2) {
        lines.replaceChildren(why("There is one stage only: no pass ran."));
        return;
      }
      const stage = Math.max(stageNumber(s, 1), 1);
      all.checked = Boolean(s.all);
      if (last === `${stage} ${all.checked}`) return;
      last = `${stage} ${all.checked}`;
      picker.choice.value = stage;
      const edits = lineDiff(DATA.stages[stage - 1].text, DATA.stages[stage].text);
      const [less, more] = ["-", "+"].map((sign) => edits.filter((e) => e[0] === sign).length);
      about.textContent = less + more ? `${less} lines went, ${more} came` : "this pass changed nothing";
      lines.replaceChildren(...rows(edits, all.checked));
      scroll.scrollTo(0, 0);
    };
    show.key = (e) => {
      if (e.key === "[") picker.move(-1);
      if (e.key === "]") picker.move(1);
    };
    return show;
  },
});
