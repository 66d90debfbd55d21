// Kernels are folded into their families; the family with most time shows its first ones.
{
  const table = document.getElementById("kernel-table");
  const bodies = [...table.tBodies];
  const SHOWN = 8;
  const setFold = (body, fold) => {
    body.dataset.fold = fold;
    body.querySelector(".fold").setAttribute("aria-expanded", fold !== "closed");
  };
  for (const body of bodies) {
    const heading = body.rows[0].cells[0];
    const anchor = heading.querySelector(".anchor");
    const button = make("button", { type: "button", className: "fold" }, ...[...heading.childNodes].filter((node) => node !== anchor));
    heading.prepend(button);
    button.addEventListener("click", () => setFold(body, body.dataset.fold === "closed" ? "first" : "closed"));
    const members = [...body.rows].filter((row) => row.dataset.k !== undefined).length;
    if (members > SHOWN) {
      const cell = make("td", { colSpan: 99 }, makeButton(`show ${members - SHOWN} more`, () => setFold(body, "open")));
      body.append(make("tr", { className: "rest more" }, cell));
    }
    setFold(body, "closed");
  }
  if (bodies.length) setFold(bodies[0], "first");
  const unfold = document.getElementById("unfold");
  unfold.addEventListener("click", () => {
    const isOpen = bodies.every((body) => body.dataset.fold === "open");
    bodies.forEach((body) => setFold(body, isOpen ? "closed" : "open"));
    unfold.textContent = isOpen ? "Unfold all" : "Fold all";
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
    event.preventDefault();
    const search = document.querySelector("[data-tools=kernel-table] [data-search]");
    search.focus();
    search.scrollIntoView({ block: "center" });
  });
}
