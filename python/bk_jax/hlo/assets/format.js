"use strict";
// Small things that every part uses: numbers for people, elements, and the data of the page.

const data = JSON.parse(document.getElementById("data").textContent);
const rows = data.rows;
const text = (column, row) => data.strings[rows[column][row]];

// 1234567, "B" -> "1.23 MB"
function si(value, unit = "") {
  const prefixes = ["", "k", "M", "G", "T", "P"];
  let power = 0;
  while (Math.abs(value) >= 999.5 && power < prefixes.length - 1) {
    value /= 1000;
    power += 1;
  }
  return `${Number(value.toPrecision(3))} ${prefixes[power]}${unit}`.trim();
}

function find(id) {
  return document.getElementById(id);
}

// An element with attributes and children; strings become text, never markup.
function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function cut(string, length) {
  return string.length <= length ? string : `${string.slice(0, length - 1)}…`;
}
