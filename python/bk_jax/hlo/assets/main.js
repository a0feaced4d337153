"use strict";
// What happens when something is clicked, and the start.

function choose(row, place = rows.place[row]) {
  table.choose(row);
  chart.choose(row);
  graph.show(row);
  showDetails(row);
  showAlive(place);
  history.replaceState(null, "", `#${encodeURIComponent(rows.name[row])}`);
}

function showDetails(row) {
  const runs = rows.runs[row];
  const facts = [
    ["operation", `${text("what", row)} (${text("kind", row)})`],
    ["result", `${text("shape", row)}, ${si(rows.size[row], "B")}`],
    ["layer", text("layer", row)],
    ["cost", `${si(rows.flops[row], "flop")}, ${si(rows.moved[row], "B")} read and written${runs === 1 ? "" : ` in ${runs} runs`}`],
    ["stands in", text("where", row)],
    ["name stack", text("stack", row)],
    ["source", text("source", row).split("/").slice(-2).join("/")],
    ["attributes", text("config", row)],
  ];
  const lines = facts.filter(([, fact]) => fact && fact !== "{}").map(([title, fact]) => make("tr", {}, make("th", {}, title), make("td", {}, fact)));
  const kind = text("kind", row);
  const head = make("h2", { "data-kind": kind }, make("span", { class: "dot" }), rows.name[row]);
  find("details").replaceChildren(head, make("table", {}, make("tbody", {}, ...lines)));
}

function showAlive(place) {
  const section = find("alive");
  section.hidden = place < 0;
  if (place < 0) return;
  const found = alive(place);
  const total = found.reduce((sum, buffer) => sum + buffer[1], 0);
  const most = found.length ? found[0][1] : 1;
  const list = make("ol", {}, ...found.slice(0, 12).map(([row, nbytes]) => {
    const bar = make("div", { class: "length" });
    bar.style.width = `${(100 * nbytes) / most}%`;
    const line = make("li", {}, make("span", {}, row < 0 ? "?" : rows.name[row]), make("span", { class: "right" }, si(nbytes, "B")), bar);
    if (row >= 0) line.addEventListener("click", () => choose(row));
    return line;
  }));
  const more = found.length > 12 ? `, the largest 12` : "";
  section.replaceChildren(make("h2", {}, `Live at ${place}: ${found.length} buffers, ${si(total, "B")}${more}`), list);
}

function showHead() {
  document.title = `${data.title} · bk-hlo`;
  find("title").textContent = data.title;
  const stage = data.stage ? `${data.stage} XLA's optimizations` : "";
  find("origin").textContent = [stage, data.source].filter(Boolean).join(" · ");
  const memory = data.memory.temporaries === undefined ? [] : [["temporaries", si(data.memory.temporaries, "B")]];
  const cards = [
    ["instructions", String(data.instructions)], ["examples", data.examples === null ? "?" : String(data.examples)],
    ["bk calls", String(data.calls)], ["flop", si(data.flops)], ["read and written", si(data.nbytes, "B")], ...memory,
  ];
  find("cards").append(...cards.map(([title, value]) =>
    make("div", title === "bk calls" ? { class: "bk" } : {}, make("dt", {}, title), make("dd", {}, value))));
}

function start() {
  showHead();
  chart.resize();
  chart.rest();
  table.start();
  graph.start();
  chart.svg.addEventListener("mousemove", (event) => chart.hover(event));
  chart.svg.addEventListener("mouseleave", () => chart.rest());
  chart.svg.addEventListener("click", (event) => {
    const point = chart.point(event.clientX - chart.svg.getBoundingClientRect().left);
    if (data.time.row[point] >= 0) choose(data.time.row[point]);
  });
  window.addEventListener("resize", () => {
    chart.resize();
    table.render();
    if (table.chosen >= 0) chart.choose(table.chosen);
  });
  const named = rows.name.indexOf(decodeURIComponent(location.hash.slice(1)));
  const call = rows.kind.findIndex((kind) => data.strings[kind] === "bk call");
  const largest = data.time.row[data.time.live.indexOf(Math.max(...data.time.live))];
  const first = [named, call, largest ?? -1, 0].find((row) => row >= 0);
  if (rows.name.length) choose(first);
}

start();
