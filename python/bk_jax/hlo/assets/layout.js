"use strict";
// Layout in rows, as in layout.py: an edge that crosses a row has a narrow place of its own in it.

const BOX = { width: 158, height: 42, gapX: 14, gapY: 34, lane: 12, margin: 8 };

function arrange(lines, edges) {
  const lineOf = new Map(lines.flatMap((line, number) => line.map((row) => [row, number])));
  const all = lines.map((line) => [...line]);
  const chains = edges.map(([from, to]) => {
    const chain = [from];
    for (let number = lineOf.get(from) + 1; number < lineOf.get(to); number += 1) {
      const lane = { number };
      chain.push(lane);
      all[number].push(lane);
    }
    return [...chain, to];
  });
  order(all, chains);
  const size = (node) => (typeof node === "number" ? BOX.width : BOX.lane);
  const length = (line) => line.reduce((sum, node) => sum + size(node), 0) + BOX.gapX * (line.length - 1);
  const width = Math.max(...all.map(length)) + 2 * BOX.margin;
  const top = (number) => BOX.margin + number * (BOX.height + BOX.gapY);
  const left = new Map();
  for (const line of all) {
    let at = (width - length(line)) / 2;
    for (const node of line) {
      left.set(node, at);
      at += size(node) + BOX.gapX;
    }
  }
  const middle = (node) => left.get(node) + size(node) / 2;
  const routes = chains.map((chain, i) => {
    const [from, to] = edges[i];
    const lanes = chain.slice(1, -1).flatMap((lane) => [[middle(lane), top(lane.number)], [middle(lane), top(lane.number) + BOX.height]]);
    return { edge: edges[i], points: [[middle(from), top(lineOf.get(from)) + BOX.height], ...lanes, [middle(to), top(lineOf.get(to))]] };
  });
  const corner = new Map([...lineOf].map(([row, number]) => [row, [left.get(row), top(number)]]));
  return { corner, routes, width, height: top(lines.length) - BOX.gapY + BOX.margin };
}

// Orders each line by the mean place of neighbours: downwards, upwards, and downwards again.
function order(lines, chains) {
  const above = new Map();
  const below = new Map();
  const add = (map, key, value) => map.set(key, [...(map.get(key) || []), value]);
  for (const chain of chains) {
    for (let i = 1; i < chain.length; i += 1) {
      add(above, chain[i], chain[i - 1]);
      add(below, chain[i - 1], chain[i]);
    }
  }
  const at = new Map();
  const settle = (line) => line.forEach((node, i) => at.set(node, i - (line.length - 1) / 2));
  lines.forEach(settle);
  for (const [sequence, near] of [[lines, above], [[...lines].reverse(), below], [lines, above]]) {
    for (const line of sequence) {
      const mean = (nodes) => nodes.reduce((sum, node) => sum + at.get(node), 0) / nodes.length;
      const pull = new Map(line.map((node) => [node, near.has(node) ? mean(near.get(node)) : at.get(node)]));
      line.sort((a, b) => pull.get(a) - pull.get(b));
      settle(line);
    }
  }
}
