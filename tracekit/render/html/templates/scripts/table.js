// Tables that sort, filter and let columns be chosen. Rows of a <tbody> stay in it; a first row of class "group" leads it.
const isNumber = (text) => text !== undefined && text !== "" && Number.isFinite(Number(text));
function readCell(row, column) {
  const cell = row.cells[column];
  return cell?.dataset.v ?? cell?.textContent.trim() ?? "";
}
function compareCells(a, b, down) {
  const missing = Number(!a || a === "–") - Number(!b || b === "–");
  if (missing) return missing; // what isn't known comes last, up and down
  const order = isNumber(a) && isNumber(b) ? a - b : a.localeCompare(b, "en", { numeric: true });
  return down ? -order : order;
}
function sortTable(table, column, down) {
  const order = (rows) => rows.sort((a, b) => compareCells(readCell(a, column), readCell(b, column), down));
  const bodies = [...table.tBodies].filter((body) => body.dataset.fixed === undefined);
  for (const body of bodies) {
    const rows = [...body.rows];
    const lead = rows.filter((row) => row.classList.contains("group"));
    const rest = rows.filter((row) => row.classList.contains("rest"));
    body.append(...lead, ...order(rows.filter((row) => !lead.includes(row) && !rest.includes(row))), ...rest);
  }
  if (bodies.length > 1) table.append(...bodies.sort((a, b) => compareCells(readCell(a.rows[0], column), readCell(b.rows[0], column), down)));
  all("thead th", table).forEach((heading) => heading.removeAttribute("aria-sort"));
  table.tHead.rows[0].cells[column].setAttribute("aria-sort", down ? "descending" : "ascending");
}
function makeSortable(table) {
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    const button = make("button", { type: "button" }, ...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const sorted = heading.getAttribute("aria-sort");
      sortTable(table, column, sorted ? sorted === "ascending" : heading.dataset.first === "most");
    });
  });
}
// A phone shows rows as cards, without headings to click.
function makeSortChooser(tools, table) {
  const headings = [...table.tHead.rows[0].cells];
  const options = headings.map((heading, column) => make("option", { value: column, textContent: `by ${heading.textContent}` }));
  const chooser = make("select", { className: "sorts", ariaLabel: "Order" }, ...options);
  chooser.addEventListener("input", () => sortTable(table, Number(chooser.value), headings[chooser.value].dataset.first === "most"));
  tools.append(chooser);
}

function makeFilters(tools, table) {
  const search = tools.querySelector("[data-search]");
  if (!search) return;
  const texts = new Map(all("tbody:not([data-fixed]) tr:not(.group):not(.rest)", table).map((row) => [row, `${row.parentNode.dataset.family ?? ""} ${row.textContent}`.toLowerCase()]));
  const filters = all("[data-filter]", tools);
  const apply = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = filters.filter((filter) => filter.value);
    const isAll = !words.length && !chosen.length;
    let count = 0;
    for (const [row, text] of texts) {
      const at = (key) => row.dataset[key] ?? row.parentNode.dataset[key];
      row.hidden = !(words.every((word) => text.includes(word)) && chosen.every((one) => at(one.dataset.filter) === one.value));
      count += !row.hidden;
    }
    for (const body of table.tBodies) body.hidden = body.dataset.fixed === undefined && ![...body.rows].some((row) => texts.has(row) && !row.hidden);
    table.classList.toggle("filtered", !isAll);
    tools.querySelector("[data-found]").textContent = isAll ? "" : count === 1 ? "1 row" : `${count} rows`;
  };
  [search, ...filters].forEach((control) => control.addEventListener("input", apply));
  search.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    search.value = "";
    search.blur();
    apply();
  });
  table.clearFilters = () => { search.value = ""; filters.forEach((filter) => { filter.value = ""; }); apply(); };
}

function showColumn(table, column, isShown) {
  for (const row of table.rows) if (row.cells[column] && row.cells[column].colSpan === 1) row.cells[column].hidden = !isShown;
}
function makeColumnChooser(tools, table) {
  const headings = [...table.tHead.rows[0].cells];
  const boxes = headings.slice(1).map((heading, i) => {
    const box = make("input", { type: "checkbox", checked: heading.dataset.optional === undefined });
    box.addEventListener("change", () => showColumn(table, i + 1, box.checked));
    if (!box.checked) showColumn(table, i + 1, false);
    return make("label", {}, box, " " + heading.textContent);
  });
  tools.append(make("details", { className: "columns" }, make("summary", { textContent: "Columns" }), make("div", {}, ...boxes)));
}

for (const tools of all("[data-tools]")) {
  const table = document.getElementById(tools.dataset.tools);
  makeColumnChooser(tools, table);
  makeFilters(tools, table);
  if (table.classList.contains("targets")) makeSortChooser(tools, table);
  makeSortable(table);
  tools.hidden = false;
}
