"use strict";
// The table: only the rows that can be seen exist in the document.

const ROW = 24; // pixels, as in the style
const COLUMNS = [
  { id: "place", title: "#", number: true },
  { id: "name", title: "name" },
  { id: "what", title: "operation", interned: true },
  { id: "shape", title: "result", interned: true },
  { id: "layer", title: "layer", interned: true },
  { id: "runs", title: "runs", number: true },
  { id: "size", title: "bytes", number: true, unit: "B" },
  { id: "flops", title: "flop", number: true, unit: "" },
  { id: "moved", title: "moved", number: true, unit: "B" },
];
const KINDS = ["bk call", "dot", "convolution", "custom call", "collective", "reduction", "movement", "elementwise", "free"];

const table = {
  shown: [],
  order: { column: COLUMNS[0], down: false },
  kind: null,
  chosen: -1,

  start() {
    this.words = rows.name.map((name, row) =>
      [name, ...["what", "kind", "shape", "layer", "stack", "where"].map((column) => text(column, row))].join(" ").toLowerCase());
    find("heads").append(...COLUMNS.map((column) => this.head(column)));
    find("body").addEventListener("scroll", () => this.render(), { passive: true });
    find("search").addEventListener("input", () => this.update());
    find("inside").addEventListener("change", () => this.update());
    find("table").addEventListener("keydown", (event) => this.key(event));
    this.chips();
    this.update();
  },

  head(column) {
    const head = make("div", { role: "columnheader", class: column.number ? "right" : "", "data-column": column.id }, column.title);
    head.addEventListener("click", () => {
      const again = this.order.column === column;
      this.order = { column, down: again ? !this.order.down : Boolean(column.number) && column.id !== "place" };
      this.update();
    });
    return head;
  },

  chips() {
    const counts = new Map();
    rows.kind.forEach((kind, row) => rows.place[row] >= 0 && counts.set(data.strings[kind], (counts.get(data.strings[kind]) || 0) + 1));
    find("kinds").append(...KINDS.filter((kind) => counts.has(kind)).map((kind) => {
      const chip = make("button", { "data-kind": kind, "aria-pressed": "false", type: "button" },
        make("span", { class: "dot" }), kind, make("span", { class: "count" }, String(counts.get(kind))));
      chip.addEventListener("click", () => {
        this.kind = this.kind === kind ? null : kind;
        for (const other of find("kinds").children) other.setAttribute("aria-pressed", String(other.dataset.kind === this.kind));
        this.update();
      });
      return chip;
    }));
  },

  // Filters and sorts; equal rows stay in the order in which they run.
  update() {
    const words = find("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const inside = find("inside").checked;
    this.shown = [];
    for (let row = 0; row < rows.name.length; row += 1) {
      if (!inside && rows.place[row] < 0) continue;
      if (this.kind !== null && text("kind", row) !== this.kind) continue;
      if (words.every((word) => this.words[row].includes(word))) this.shown.push(row);
    }
    this.sort();
    const left = data.instructions - rows.name.length;
    find("count").textContent = `${this.shown.length} of ${rows.name.length}${left ? `; ${left} left out of this page` : ""}`;
    find("spacer").style.height = `${this.shown.length * ROW}px`;
    find("body").scrollTop = 0;
    this.render();
  },

  sort() {
    const { column, down } = this.order;
    const key = column.interned ? (row) => text(column.id, row) : (row) => rows[column.id][row];
    const sign = down ? -1 : 1;
    const last = (row) => (column.id === "place" && rows.place[row] < 0 ? 1 : 0);
    const compare = (a, b) => (key(a) < key(b) ? -1 : Number(key(a) > key(b)));
    this.shown.sort((a, b) => last(a) - last(b) || sign * compare(a, b) || a - b);
    for (const head of find("heads").children) {
      if (head.dataset.column === column.id) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
  },

  render() {
    const body = find("body");
    const first = Math.max(0, Math.floor(body.scrollTop / ROW) - 5);
    const last = Math.min(this.shown.length, Math.ceil((body.scrollTop + body.clientHeight) / ROW) + 5);
    const made = [];
    for (let at = first; at < last; at += 1) made.push(this.line(this.shown[at], at));
    body.replaceChildren(find("spacer"), ...made);
  },

  line(row, at) {
    const line = make("div", { class: row === this.chosen ? "row chosen" : "row", role: "row", "data-row": row, "data-kind": text("kind", row) },
      ...COLUMNS.map((column) => this.cell(column, row)));
    line.style.top = `${at * ROW}px`;
    line.addEventListener("click", () => choose(row));
    return line;
  },

  cell(column, row) {
    if (column.id === "place") return make("div", { class: "right faint" }, rows.place[row] < 0 ? "" : String(rows.place[row]));
    if (column.number) {
      const value = rows[column.id][row];
      const faint = value === 0 || (column.id === "runs" && value === 1);
      return make("div", { class: faint ? "right faint" : "right" }, column.unit === undefined ? String(value) : si(value, column.unit));
    }
    const words = column.interned ? text(column.id, row) : rows[column.id][row];
    const cell = make("div", { class: column.id, title: words });
    if (column.id === "what") cell.append(make("span", { class: "dot" }));
    cell.append(words);
    return cell;
  },

  choose(row) {
    this.chosen = row;
    const at = this.shown.indexOf(row);
    const body = find("body");
    const visible = at * ROW >= body.scrollTop && (at + 1) * ROW <= body.scrollTop + body.clientHeight;
    if (at >= 0 && !visible) body.scrollTop = Math.max(0, at * ROW - body.clientHeight / 2);
    this.render();
  },

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.target === find("search") || !this.shown.length) return;
    event.preventDefault();
    const at = this.shown.indexOf(this.chosen) + step;
    choose(this.shown[Math.min(Math.max(at, 0), this.shown.length - 1)]);
  },
};
