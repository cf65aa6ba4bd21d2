"use strict";
// Small helpers of the explorer and the watcher.

function clamp(value, count) {
  return Math.min(Math.max(value, 0), count - 1);
}

function element(tag, properties = {}) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) key === "role" ? made.setAttribute(key, value) : (made[key] = value);
  return made;
}

function words(data, which) {
  const many = (noun) => `${noun}s`;
  return {
    row: data.row,
    column: data.column,
    "row-title": capital(data.row),
    "column-title": capital(data.column),
    rows: many(data.row),
    columns: many(data.column),
    grid: data.columns > 1 ? "Whole grid" : "All images",
    "hold-column": `Hold the ${data.column}`,
    "hold-row": `Hold the ${data.row}`,
    blend: `Blend two ${many(data.row)}`,
  }[which];
}

function capital(text) {
  return text[0].toUpperCase() + text.slice(1);
}

/** Arrow keys move among radio buttons or tabs, as the ARIA practices have it. */
function roving(box, items, choose) {
  box.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const list = items();
    const at = list.indexOf(event.target.closest("[role]"));
    if (at < 0) return;
    let next = by ? (at + by + list.length) % list.length : { Home: 0, End: list.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    choose(list[next]);
    items()[next].focus();
  });
}

function theme() {
  const order = ["auto", "light", "dark"];
  const button = document.getElementById("theme");
  let at = 0;
  button.hidden = false;
  button.addEventListener("click", () => {
    at = (at + 1) % order.length;
    if (order[at] === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = order[at];
    button.textContent = `Theme: ${order[at]}`;
  });
}
