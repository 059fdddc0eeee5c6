// The graph at each stage: pan and zoom, search, and the details of a node.

TABS.push({
  name: "graph",
  title: "Graph",
  build(section) {
    const picker = stagePicker(0);
    const find = make("input", { type: "search", placeholder: "find an op or tensor  ( / )", size: 24 });
    const found = make("span", { class: "soft" });
    const view = drawn("g");
    const canvas = make("div", { class: "canvas" }, drawn("svg", {}, drawn("defs", {}, arrowHead()), view));
    const side = make("div", { class: "side" });
    let stage = -1;
    let graph = { width: 0, height: 0, nodes: [], edges: [] };
    let nodes = []; // the elements of the nodes, of the edges, and the numbers of the nodes that the search has found
    let edges = [];
    let hits = [];
    let nextHit = 0;
    let chosen = -1;
    const camera = makeCamera(canvas, view, () => graph);
    const readable = () => camera.readable(graph.nodes.length ? topmost(graph.nodes).x : 0);
    const button = (text, title, onclick) => make("button", { title, onclick }, text);
    section.append(
      make(
        "div",
        { class: "bar" },
        picker.parts,
        find,
        found,
        make("span", { class: "grow" }),
        button("+", "nearer ( + )", () => camera.zoom(1.3)),
        button("−", "farther ( - )", () => camera.zoom(1 / 1.3)),
        button("whole graph", "", camera.fit),
        button("readable", "", readable),
      ),
      make("div", { class: "split" }, camera.map, canvas, side),
    );

    function draw() {
      nodes = graph.nodes.map((n, k) => drawNode(n, () => camera.moved || go({ op: n.title, node: k })));
      edges = drawEdges(graph);
      view.replaceChildren(...edges, ...nodes);
      camera.redraw(graph.nodes.map((n) => drawn("rect", { style: { "--h": nodeColour(n) }, ...nodeBox(n) })));
      readable();
    }

    // -- finding

    function search(text) {
      const wanted = text.trim().toLowerCase();
      const has = (n) => {
        const tensors = [...n.results, ...n.weights].map((t) => t[0]);
        return [n.title, n.optype, ...n.inner.flat(), ...tensors].some((s) => s.toLowerCase().includes(wanted));
      };
      hits = wanted ? graph.nodes.flatMap((n, k) => (has(n) ? [k] : [])) : [];
      nextHit = 0;
      nodes.forEach((element) => element.classList.remove("hit"));
      hits.forEach((k) => nodes[k].classList.add("hit"));
      found.textContent = wanted ? `${hits.length} found${hits.length > 1 ? " (Enter: next)" : ""}` : "";
    }
    const centerOn = (k) => camera.center(graph.nodes[k].x, graph.nodes[k].y);
    find.addEventListener("input", () => {
      search(find.value);
      if (hits.length) centerOn(hits[0]);
    });
    find.addEventListener("keydown", (e) => {
      if (e.key !== "Enter" || !hits.length) return;
      go({ op: graph.nodes[hits[nextHit]].title, node: hits[nextHit] });
      nextHit = (nextHit + 1) % hits.length;
    });

    /** The node that the state names: by number if the title agrees, else by title, tensor, or an op in a kernel. */
    function named(s) {
      if (!s.op) return -1;
      if (graph.nodes[s.node]?.title === s.op) return Number(s.node);
      const ways = [
        (n) => n.title === s.op,
        (n) => n.results.some((r) => r[0] === s.op),
        (n) => n.inner.some((inner) => inner.slice(1).includes(s.op)),
      ];
      return ways.map((way) => graph.nodes.findIndex(way)).find((k) => k >= 0) ?? -1;
    }

    // -- what is chosen

    function select(k) {
      nodes.forEach((element, i) => element.classList.toggle("on", i === k));
      edges.forEach((element, i) => {
        element.classList.toggle("in", graph.edges[i].to === k);
        element.classList.toggle("out", graph.edges[i].from === k);
      });
      side.replaceChildren(...(k < 0 ? overview() : nodeDetails(stage, k)));
    }
    function overview() {
      const more = graph.left_out ? ` ${graph.left_out} more ops are left out.` : "";
      const how =
        "A click on a node shows its text, place and types. Drag to move, turn the wheel to zoom. " +
        "Weights are no nodes: the ops that read them list them.";
      return [
        make("p", { class: "soft" }, `${graph.nodes.length} nodes, ${graph.edges.length} edges.${more}`),
        make("p", { class: "soft" }, graph.nodes.length ? how : "There is nothing to draw at this stage."),
      ];
    }

    function show(s) {
      const last = DATA.stages.findLastIndex((x) => !x.name.startsWith("lower-"));
      const next = stageNumber(s, Math.max(last, 0));
      const changed = next !== stage;
      if (changed) {
        stage = next;
        picker.choice.value = stage;
        const before = graph;
        graph = graphOf(stage);
        if (graph !== before) draw();
        search(find.value);
      }
      if (s.find !== undefined && find.value !== s.find) {
        find.value = s.find;
        search(find.value);
      }
      const k = named(s);
      select(k);
      if (k >= 0 && (changed || (k !== chosen && !camera.shows(graph.nodes[k].x, graph.nodes[k].y)))) centerOn(k);
      chosen = k;
    }
    const keys = {
      "/": (e) => (e.preventDefault(), find.focus()),
      "[": () => picker.move(-1),
      "]": () => picker.move(1),
      "+": () => camera.zoom(1.3),
      "-": () => camera.zoom(1 / 1.3),
      Escape: () => go({ op: null, node: null }),
    };
    show.key = (e) => keys[e.key]?.(e);
    return DATA.stages.length ? show : () => side.replaceChildren(why("There is no stage."));
  },
});

function topmost(nodes) {
  return nodes.reduce((a, b) => (b.y < a.y ? b : a));
}

function arrowHead() {
  const size = { viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 10, markerHeight: 10 };
  const attributes = { id: "arrow", ...size, markerUnits: "userSpaceOnUse", orient: "auto" };
  return drawn("marker", attributes, drawn("path", { d: "M0 0L8 4L0 8z", class: "arrow" }));
}
