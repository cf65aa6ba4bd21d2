"use strict";
// What the whole page needs: the chosen row of results, copying, and the start of the explorer.

function chosen(select) {
  const boxes = [...document.querySelectorAll(`[data-for="${select.id}"]`)];
  const show = () => boxes.forEach((box) => (box.hidden = box.dataset.value !== select.value));
  select.addEventListener("change", show);
  show();
}

function copies(button) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.previousElementSibling.textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
}

theme();
document.querySelectorAll("select[data-chooses]").forEach(chosen);
document.querySelectorAll("button[data-copies]").forEach(copies);
const sets = document.getElementById("sets");
if (sets) window.explorer = new Explorer(document.getElementById("explorer"), JSON.parse(sets.textContent));
