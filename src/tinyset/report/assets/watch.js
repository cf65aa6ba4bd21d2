"use strict";
// Asks its own server once a second where the run is, and draws it.

const part = (name) => document.querySelector(`[data-part="${name}"]`);
const NS = "http://www.w3.org/2000/svg";
let shown = null;

function span(seconds) {
  if (seconds === null) return "–";
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${String(s % 60).padStart(2, "0")} s`;
  return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")} min`;
}

function short(value) {
  if (value === null) return "–";
  return Math.abs(value) >= 1000 || (value !== 0 && Math.abs(value) < 0.001) ? value.toExponential(2) : value.toPrecision(3);
}

function mark(tag, attributes, text) {
  const made = document.createElementNS(NS, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function curve(points, steps) {
  const svg = part("curve");
  if (points.length < 2) return svg.replaceChildren();
  const values = points.map(([, y]) => y);
  const log = Math.min(...values) > 0 && Math.max(...values) > 8 * Math.min(...values);
  const scale = log ? Math.log10 : (v) => v;
  const [low, high] = [scale(Math.min(...values)), scale(Math.max(...values))];
  const x = (v) => 52 + (v / Math.max(1, steps - 1)) * 376;
  const y = (v) => 220 - ((scale(v) - low) / (high - low || 1)) * 204;
  const parts = [0, 1, 2, 3].map((k) => low + ((high - low) * k) / 3).flatMap((level) => {
    const value = log ? 10 ** level : level;
    const at = y(value);
    return [mark("line", { class: "grid", x1: 52, x2: 428, y1: at, y2: at }), mark("text", { x: 46, y: at + 4, "text-anchor": "end" }, short(value))];
  });
  parts.push(mark("text", { x: 240, y: 252, "text-anchor": "middle" }, log ? "step (loss on a log scale)" : "step"));
  for (const step of [0, steps - 1]) parts.push(mark("text", { x: x(step), y: 236, "text-anchor": step ? "end" : "start" }, step));
  parts.push(mark("polyline", { class: "line s0", points: points.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(" ") }));
  svg.replaceChildren(...parts);
  svg.setAttribute("aria-label", `Loss by step, from ${short(values[0])} to ${short(values.at(-1))}`);
}

const SAID = {
  preparing: "Preparing: auto-encoder, embedding bank.",
  working: "Working.",
  silent: "No new step for a while: the run may have been stopped.",
  finished: "Finished.",
  "stopped early": "Stopped before its last step; the artifact is there.",
};

function show(state) {
  document.title = `${Math.round((100 * state.done) / Math.max(1, state.steps))} % ${state.name} – tinyset watch`;
  part("name").textContent = state.name;
  part("status").textContent = SAID[state.status] ?? state.status;
  part("progress").max = Math.max(1, state.steps);
  part("progress").value = state.done;
  part("done").textContent = state.done.toLocaleString("en");
  part("steps").textContent = `of ${state.steps.toLocaleString("en")}`;
  part("loss").textContent = short(state.loss);
  part("eta").textContent = ["finished", "stopped early"].includes(state.status) ? "–" : span(state.eta_s);
  part("pace").textContent = state.seconds_per_step === null ? "–" : state.seconds_per_step.toPrecision(3);
  curve(state.curve, state.steps);
  if (state.picture && state.picture !== shown) {
    shown = state.picture;
    part("samples").src = `/picture.png?${encodeURIComponent(shown)}`;
    part("samples").hidden = false;
    part("none").hidden = true;
    part("of").textContent = shown === "artifact" ? "of the finished set" : `after step ${parseInt(shown.replace(/\D+/, ""), 10)}`;
  }
}

async function follow() {
  try {
    const answer = await fetch("/state", { cache: "no-store" });
    if (answer.ok) show(await answer.json());
    else part("status").textContent = "The run's folder cannot be read.";
  } catch {
    part("status").textContent = "The watcher has ended: start `tinyset watch` again.";
  }
  setTimeout(follow, 1000);
}

theme();
follow();
