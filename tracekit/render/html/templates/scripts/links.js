// Permanent links: an address opens what hides its place, and marks it. A click on one copies it.
function reveal(id) {
  const place = id && document.getElementById(id);
  if (!place || !report.contains(place)) return;
  for (let element = place; element !== report; element = element.parentElement) {
    if (element.tagName === "DETAILS") element.open = true;
    if (element.dataset.fold) element.dataset.fold = "open";
    if (element.tagName === "TABLE" && place.hidden) element.clearFilters?.();
  }
  all(".marked").forEach((element) => element.classList.remove("marked"));
  place.classList.add("marked");
  place.scrollIntoView({ block: place.tagName === "TR" || place.tagName === "LI" ? "center" : "start" });
}
addEventListener("hashchange", () => reveal(decodeURIComponent(location.hash.slice(1))));
reveal(decodeURIComponent(location.hash.slice(1)));

report.addEventListener("click", (event) => {
  const anchor = event.target.closest(".anchor");
  if (anchor) copyText(anchor, anchor.href);
});

// Each row of a table with an address can be copied for a spreadsheet.
for (const row of all("tr[id]")) {
  const anchor = row.querySelector(".anchor");
  const read = () => [...row.cells].filter((cell) => !cell.hidden).map((cell) => cell.innerText.replace(/\s+/g, " ").trim()).join("\t");
  const copy = makeButton("", () => copyText(copy, read()), "Copy row");
  copy.className = "copy";
  anchor?.after(copy);
}
for (const place of all("[data-copies]")) {
  place.append(makeButton("Copy", (button) => copyText(button, document.getElementById(place.dataset.copies).textContent)));
}
