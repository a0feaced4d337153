"use strict";
// The chart: bytes that are live at each place of the schedule, above arguments and constants.

const chart = {
  svg: find("chart"),
  left: 64,
  right: 14,
  top: 20,
  bottom: 26,

  get length() {
    return data.time.live.length;
  },

  resize() {
    this.width = Math.max(this.svg.clientWidth, 200);
    this.height = this.svg.clientHeight || 190;
    this.highest = data.time.base + data.time.live.reduce((a, b) => Math.max(a, b), 0);
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.svg.replaceChildren(...this.grid(), this.band(), this.area(), this.calls(), ...this.peak(), this.marks());
  },

  x(point) {
    return this.left + ((point + 0.5) / Math.max(this.length, 1)) * (this.width - this.left - this.right);
  },

  y(bytes) {
    const inner = this.height - this.top - this.bottom;
    return this.height - this.bottom - (bytes / Math.max(this.highest, 1)) * inner;
  },

  point(x) {
    const share = (x - this.left) / (this.width - this.left - this.right);
    return Math.min(Math.max(Math.floor(share * this.length), 0), this.length - 1);
  },

  grid() {
    const lines = [0, 0.25, 0.5, 0.75, 1].map((share) => {
      const y = this.y(share * this.highest);
      return draw(
        "g", {},
        draw("line", { class: "grid", x1: this.left, x2: this.width - this.right, y1: y, y2: y }),
        draw("text", { x: this.left - 8, y: y + 4, "text-anchor": "end" }, si(share * this.highest, "B")),
      );
    });
    const under = this.height - 8;
    const words = data.time.step > 1 ? `${this.length * data.time.step} instructions, ${data.time.step} to a point` : `${this.length} instructions`;
    const axis = draw("text", { x: this.width - this.right, y: under, "text-anchor": "end" }, words);
    const legend = draw("text", { x: this.left, y: under }, "grey: arguments and constants · orange: bk calls");
    return [...lines, axis, legend];
  },

  band() {
    const y = this.y(data.time.base);
    const height = this.height - this.bottom - y;
    return draw("rect", { class: "base", x: this.left, y, width: this.width - this.left - this.right, height });
  },

  // One step for each pixel: the largest of the points that fall on it.
  area() {
    const columns = Math.max(1, Math.min(this.length, Math.floor(this.width - this.left - this.right)));
    let path = `M${this.left} ${this.y(data.time.base)}`;
    for (let column = 0; column < columns; column += 1) {
      const from = Math.floor((column * this.length) / columns);
      const to = Math.max(from + 1, Math.floor(((column + 1) * this.length) / columns));
      const y = this.y(data.time.base + Math.max(...data.time.live.slice(from, to), 0)).toFixed(1);
      path += `L${(this.x(from - 0.5)).toFixed(1)} ${y}L${(this.x(to - 0.5)).toFixed(1)} ${y}`;
    }
    return draw("path", { class: "area", d: `${path}L${this.x(this.length - 0.5)} ${this.y(data.time.base)}Z` });
  },

  calls() {
    const group = draw("g", {});
    const bottom = this.height - this.bottom;
    for (let row = 0; row < rows.name.length; row += 1) {
      if (rows.place[row] < 0 || text("kind", row) !== "bk call") continue;
      const x = this.x(Math.floor(rows.place[row] / data.time.step)).toFixed(1);
      group.append(draw("line", { class: "call", x1: x, x2: x, y1: bottom, y2: bottom + 7 }));
    }
    return group;
  },

  peak() {
    if (!this.length) return [];
    const most = this.highest - data.time.base;
    const point = data.time.live.indexOf(most);
    const [x, y] = [this.x(point), this.y(this.highest)];
    const side = x > this.width / 2 ? "end" : "start";
    const label = `peak ${si(this.highest, "B")}`;
    const words = draw("text", { class: "peak", x: x + (side === "end" ? -8 : 8), y: y - 6, "text-anchor": side }, label);
    return [draw("circle", { class: "peak", cx: x, cy: y, r: 3.5 }), words];
  },

  marks() {
    this.cursor = draw("line", { class: "cursor", y1: this.top, y2: this.height - this.bottom, visibility: "hidden" });
    this.life = draw("rect", { class: "life", y: this.top, height: this.height - this.top - this.bottom, visibility: "hidden" });
    this.line = draw("line", { class: "chosen", y1: this.top, y2: this.height - this.bottom, visibility: "hidden" });
    return draw("g", {}, this.life, this.line, this.cursor);
  },

  // Marks an instruction, and how long its largest result lives.
  choose(row) {
    const place = rows.place[row];
    for (const mark of [this.line, this.life]) mark.setAttribute("visibility", place < 0 ? "hidden" : "visible");
    if (place < 0) return;
    const x = this.x(Math.floor(place / data.time.step));
    this.line.setAttribute("x1", x);
    this.line.setAttribute("x2", x);
    const buffer = data.time.buffers.find((found) => found[0] === row);
    const end = buffer ? this.x(Math.floor(buffer[3] / data.time.step)) : x;
    this.life.setAttribute("x", x);
    this.life.setAttribute("width", Math.max(end - x, 0));
  },

  hover(event) {
    const point = this.point(event.clientX - this.svg.getBoundingClientRect().left);
    const x = this.x(point);
    this.cursor.setAttribute("visibility", "visible");
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
    const row = data.time.row[point];
    const name = row < 0 ? "" : ` · ${rows.name[row]}`;
    find("readout").textContent = `${si(data.time.base + data.time.live[point], "B")} live at ${point * data.time.step}${name}`;
  },

  rest() {
    this.cursor.setAttribute("visibility", "hidden");
    const how = data.time.assigned ? "buffers as XLA assigned them" : "every value in memory of its own: XLA's buffers are not in this file";
    find("readout").textContent = how;
  },
};

// Buffers that live at a place, the largest first.
function alive(place) {
  return data.time.buffers.filter(([, , start, stop]) => start <= place && place <= stop);
}
