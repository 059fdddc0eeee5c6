// Nodes and edges of a graph, where the layout has put them, and what there is to say about a node.

const NODE_FIELDS = "x y w h kind title optype where results weights inner notes group";
const LONGEST = 34; // characters of a line in a node, and inner ops that it lists: html.py measures nodes by them
const INNER = 12;

/** The graph of a stage, with nodes as objects and edges as {from, to, tensor, bends}; the same object for equal graphs. */
function graphOf(stage) {
  const own = DATA.stages[stage].graph;
  if (typeof own === "number") return graphOf(own);
  if (!own.ready) {
    own.nodes = records(NODE_FIELDS, own.nodes);
    own.edges = records("from to tensor bends", own.edges);
    own.ready = true;
  }
  return own;
}

function tensorText([name, type, place]) {
  return [name, type, place && `@ ${place}`].filter(Boolean).join(" ");
}

/** Equal ops look equal; a kernel as its first op, a launch as what its function is named after. */
function nodeColour(n) {
  if (n.inner.length) return hue(n.inner[0][0]);
  return hue(n.optype === "tile.launch" ? n.title.split("_")[0] : n.optype);
}

function nodeBox(n) {
  return { x: n.x - n.w / 2, y: n.y - n.h / 2, width: n.w, height: n.h };
}

function drawNode(n, onclick) {
  const inner = n.inner.slice(0, INNER).map(([op, title]) => (title ? `${op} ${title}` : op));
  if (n.inner.length > INNER) inner.push(`… ${n.inner.length - INNER} more`);
  const rows = [[n.title, "name"], ...(inner.length ? inner : [n.optype]).map((text) => [text, ""])];
  if (n.results.length) rows.push([n.results[0][1], "type"]);
  const box = nodeBox(n);
  const lines = rows.map(([text, kind], row) => {
    const shown = text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text;
    return drawn("text", { x: box.x + 9, y: box.y + 21 + 17 * row, class: kind }, shown);
  });
  const attributes = { class: `node ${n.kind}`, style: { "--h": nodeColour(n) }, onclick };
  return drawn("g", attributes, drawn("rect", { ...box, rx: 6 }), lines);
}

/** Curves from the bottom of a node, through the bends, to the top of another. */
function drawEdges(graph) {
  const starts = ports(graph, "from", (e) => (e.bends.length ? e.bends[0][0] : graph.nodes[e.to].x));
  const ends = ports(graph, "to", (e) => (e.bends.length ? e.bends.at(-1)[0] : graph.nodes[e.from].x));
  return graph.edges.map(({ from, to, tensor, bends }, k) => {
    const [p, q] = [graph.nodes[from], graph.nodes[to]];
    const points = [[starts[k], p.y + p.h / 2], ...bends, [ends[k], q.y - q.h / 2 - 1]];
    let path = `M${points[0][0]} ${points[0][1]}`;
    for (let i = 1; i < points.length; i++) {
      const [[x, y], [x2, y2]] = [points[i - 1], points[i]];
      path += `C${x} ${(y + y2) / 2} ${x2} ${(y + y2) / 2} ${x2} ${y2}`;
    }
    const far = !bends.length && q.y - p.y > 2000; // too long for bends: it may cross nodes
    return drawn("path", {
      class: far ? "edge far" : "edge",
      d: path,
      "marker-end": "url(#arrow)",
      onpointermove: (e) => tip(e, tensorText(tensor)),
      onpointerleave: (e) => tip(e, ""),
    });
  });
}

/** Where each edge meets its node `end` (from or to): spread over the node's width, by where the edges come from or go to. */
function ports(graph, end, other) {
  const lists = graph.nodes.map(() => []);
  graph.edges.forEach((edge, k) => lists[edge[end]].push([other(edge), k]));
  const found = [];
  lists.forEach((list, number) => {
    const n = graph.nodes[number];
    const step = Math.min(16, (n.w - 20) / Math.max(list.length, 1));
    list.sort((p, q) => p[0] - q[0] || p[1] - q[1]);
    list.forEach(([, k], i) => {
      found[k] = n.x + (i - (list.length - 1) / 2) * step;
    });
  });
  return found;
}

/** What stands beside the graph about node `k`: its op, place, neighbours and text. */
function nodeDetails(stage, k) {
  const graph = graphOf(stage);
  const n = graph.nodes[k];
  const pairs = [
    ["op", n.optype],
    ["function", n.group && `@${n.group}`],
    ["source", n.where || "unknown"],
  ];
  pairs.push(...n.notes.map((text) => ["choice", text]));
  const into = graph.edges.filter((e) => e.to === k).map((e) => [e.from, e.tensor]);
  const out = graph.edges.filter((e) => e.from === k).map((e) => [e.to, e.tensor]);
  const linked = ([i, tensor]) => {
    const other = graph.nodes[i];
    const link = make("a", { onclick: () => go({ op: other.title, node: i }) }, other.title);
    return make("div", {}, link, make("span", { class: "soft" }, `  ${tensorText(tensor)}`));
  };
  const weights = n.weights.map((t) => make("div", { class: "soft" }, `weight ${tensorText(t)}`));
  const part = (title, content) => (content.length ? [make("h2", {}, title), ...content] : []);
  return [
    make("h2", {}, n.title),
    make(
      "dl",
      {},
      pairs.filter(([, value]) => value).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]),
    ),
    ...part(
      "Makes",
      n.results.map((t) => make("div", {}, tensorText(t))),
    ),
    ...part("Reads", [...into.map(linked), ...weights]),
    ...part("Read by", out.map(linked)),
    ...nodeText(DATA.stages[stage], k),
  ];
}

/** The lines of the module that are a node. */
function nodeText(stage, k) {
  const [first, last] = stage.spans[k];
  if (last <= first) return [];
  const text = stage.text.slice(first, last).map((i) => DATA.lines[i]);
  const indent = Math.min(...text.filter((t) => t.trim()).map((t) => t.length - t.trimStart().length));
  return [make("h2", {}, `Text (line ${first + 1})`), make("pre", {}, text.map((t) => t.slice(indent)).join("\n"))];
}
