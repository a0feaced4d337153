"use strict";
// The graph around an instruction: what it reads stands above it, who reads it below.

const [NEAR, FAR] = [6, 4]; // boxes of a row: of many neighbours those with the largest results

const users = rows.name.map(() => []);
rows.operands.forEach((operands, row) => operands.forEach((operand) => users[operand].push(row)));

const graph = {
  depth: 2,
  center: -1,

  start() {
    find("depth").append(...[1, 2, 3].map((depth) => {
      const button = make("button", { type: "button", "aria-pressed": String(depth === this.depth), title: `${depth} steps` }, String(depth));
      button.addEventListener("click", () => {
        this.depth = depth;
        for (const other of find("depth").children) other.setAttribute("aria-pressed", String(other === button));
        this.show(this.center);
      });
      return button;
    }));
  },

  show(row) {
    this.center = row;
    if (row < 0) return;
    const { level, left } = this.around(row);
    const edges = [...level.keys()].flatMap((to) => rows.operands[to].filter((from) => level.has(from)).map((from) => [from, to]));
    this.push(level, edges);
    const heights = [...new Set(level.values())].sort((a, b) => a - b);
    const lines = heights.map((height) => [...level.keys()].filter((other) => level.get(other) === height));
    find("graphnote").textContent = left ? `${left} more are not drawn` : "";
    const picture = this.picture(lines, edges);
    picture.style.minWidth = `${0.6 * picture.getAttribute("width")}px`;
    find("graph").replaceChildren(picture);
    find("graph").scrollLeft = (find("graph").scrollWidth - find("graph").clientWidth) / 2;
  },

  // Levels by breadth-first search in both directions.
  around(row) {
    const level = new Map([[row, 0]]);
    let left = 0;
    for (const [sign, next] of [[-1, rows.operands], [1, users]]) {
      let edge = [row];
      for (let distance = 1; distance <= this.depth; distance += 1) {
        const near = [...new Set(edge.flatMap((from) => next[from]))].filter((other) => !level.has(other));
        const found = near.sort((a, b) => rows.size[b] - rows.size[a]).slice(0, distance === 1 ? NEAR : FAR);
        left += near.length - found.length;
        found.forEach((other) => level.set(other, sign * distance));
        edge = found;
      }
    }
    return { level, left };
  },

  // Every instruction below all its operands.
  push(level, edges) {
    for (let round = 0, moved = true; moved && round < level.size; round += 1) {
      moved = false;
      for (const [from, to] of edges) {
        if (level.get(to) > level.get(from)) continue;
        level.set(to, level.get(from) + 1);
        moved = true;
      }
    }
  },

  picture(lines, edges) {
    const { corner, routes, width, height } = arrange(lines, edges);
    const tip = draw("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto" },
      draw("path", { d: "M0 0L8 4L0 8z" }));
    return draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height }, draw("defs", {}, tip),
      ...routes.map(({ edge, points }) => this.edge(edge, points)),
      ...[...corner].map(([row, place]) => this.node(row, place)));
  },

  edge(edge, points) {
    let path = `M${points[0][0]} ${points[0][1]}`;
    for (let i = 1; i < points.length; i += 1) {
      const [[x1, y1], [x2, y2]] = [points[i - 1], points[i]];
      const middle = (y1 + y2) / 2;
      path += x1 === x2 ? `L${x2} ${y2}` : `C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}`;
    }
    return draw("path", { class: edge.includes(this.center) ? "edge own" : "edge", d: path, "marker-end": "url(#tip)" });
  },

  node(row, [x, y]) {
    const node = draw("g", { class: row === this.center ? "node center" : "node", "data-row": row, "data-kind": text("kind", row), transform: `translate(${x} ${y})` },
      draw("title", {}, `${rows.name[row]}\n${text("shape", row)}\n${text("stack", row)}`),
      draw("rect", { class: "box", width: BOX.width, height: BOX.height, rx: 5 }),
      draw("rect", { class: "tab", width: 5, height: BOX.height, rx: 2 }),
      draw("text", { x: 12, y: 17 }, cut(text("what", row) + (text("layer", row) ? ` · ${text("layer", row)}` : ""), 21)),
      draw("text", { class: "small", x: 12, y: 33 }, cut(`${text("shape", row)}  ${si(rows.size[row], "B")}`, 25)));
    node.addEventListener("click", () => choose(row));
    return node;
  },
};
