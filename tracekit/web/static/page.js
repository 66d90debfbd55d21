"use strict";

// The panel is replaced while a job runs, so the event listeners are on the document.

const wanted = (chip, words) => words.every((word) => chip.dataset.words.includes(word));

document.addEventListener("input", (event) => {
  const list = document.getElementById(event.target.dataset.filter);
  if (!list) return;
  const words = event.target.value.toLowerCase().split(/[\s_-]+/).filter(Boolean);
  let shown = 0;
  for (const chip of list.querySelectorAll("[data-words]")) {
    const fits = wanted(chip, words);
    chip.hidden = !fits && !chip.querySelector("input").checked;
    shown += fits;
  }
  for (const family of list.querySelectorAll(".family")) family.hidden = !family.querySelector(".chip:not([hidden])");
  list.querySelector("[data-families]").open = words.length > 0;
  document.getElementById("no-gpu").hidden = shown > 0;
});

document.addEventListener("keydown", (event) => {
  const list = event.key === "Enter" && document.getElementById(event.target.dataset.filter);
  if (!list) return;
  event.preventDefault(); // or the form would be sent with nothing chosen
  const left = list.querySelectorAll("[data-words]:not([hidden]) [type=checkbox]:not(:checked)");
  if (left.length === 1) left[0].click();
});

document.addEventListener("click", async (event) => {
  const field = document.getElementById(event.target.dataset.copy);
  if (!field) return;
  field.select();
  try {
    await navigator.clipboard.writeText(field.value);
  } catch {
    document.execCommand("copy"); // without https there is no clipboard object
  }
  event.target.textContent = "Copied";
});

document.addEventListener("change", (event) => event.target.form?.matches("[data-at-once]") && event.target.form.submit());

document.addEventListener("submit", (event) => {
  const deletes = event.target.action.endsWith("/delete");
  if (deletes && !confirm("Delete the report and its traces?")) event.preventDefault();
});

const pair = () => {
  const button = document.getElementById("compare");
  if (button) button.disabled = document.querySelectorAll("[name=job]:checked").length !== 2;
};
document.addEventListener("change", pair);
pair();

document.addEventListener("input", (event) => {
  const shown = event.target.type === "range" && event.target.closest("label").querySelector("output");
  if (!shown) return;
  const value = Number(event.target.value);
  shown.value = Number((shown.dataset.power === "true" ? 2 ** value : value).toPrecision(3));
  event.target.setAttribute("aria-valuetext", shown.value);
});

// What was wrong is where the reader goes on.
document.addEventListener("htmx:afterSettle", () => document.getElementById("mistakes")?.focus());

const LOOPBACK = ["127.0.0.1", "localhost", "[::1]"];
const absolute = () => {
  const field = document.getElementById("link");
  if (!field) return;
  field.value = new URL(field.value, location.href).href;
  document.getElementById("link-reach").hidden = !LOOPBACK.includes(location.hostname);
};
document.addEventListener("htmx:afterSettle", absolute);
absolute();

// Files of the chosen folder that this browser didn't send.
const showUnsent = () => {
  const unsent = document.getElementById("not-sent");
  if (!unsent) return;
  unsent.textContent = sessionStorage.getItem(`not sent ${unsent.dataset.job}`) ?? "";
  unsent.hidden = !unsent.textContent;
};
document.addEventListener("htmx:afterSettle", showUnsent);
showUnsent();

// Details that the user opened or closed stay so while the panel is replaced.
let unfolded = [];
const folds = () => [...document.querySelectorAll("section.found details")];
document.addEventListener("htmx:beforeSwap", () => (unfolded = folds().map((fold) => fold.open)));
document.addEventListener("htmx:afterSettle", () => folds().forEach((fold, place) => (fold.open = unfolded[place] ?? fold.open)));
