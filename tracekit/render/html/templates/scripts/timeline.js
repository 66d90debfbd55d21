// The timeline: a target is chosen, findings and kernels show where they are, and a block leads to its kernel's row.
{
  const tools = document.querySelector("[data-timeline]");
  const svg = document.querySelector("[data-figure=timeline] svg");
  const paths = svg ? all("path[data-k]", svg) : [];
  const titles = new Map(all("path > title", svg ?? report).map((title) => [title.parentNode.dataset.k, title.textContent]));
  const rows = new Map(all("tr[data-k]").map((row) => [row.dataset.k, row]));
  const drawn = new Set(paths.map((path) => path.dataset.k));
  for (const path of paths) {
    if (path.firstElementChild || !titles.has(path.dataset.k)) continue;
    const title = document.createElementNS(svg.namespaceURI, "title");
    title.textContent = titles.get(path.dataset.k);
    path.append(title);
  }

  function chooseTarget(number) {
    for (const run of all("[data-here]", svg)) {
      run.toggleAttribute("hidden", run.dataset.run !== number);
      if (run.dataset.run !== number) continue;
      for (const group of all("[data-run='0'] [data-scale]", svg)) {
        group.setAttribute("transform", group.getAttribute("transform").replace(/scale\([^)]*\)/, `scale(${run.dataset.here} 1)`));
      }
    }
  }
  function mark(kernels, what) {
    svg.classList.toggle("dimmed", kernels.size > 0);
    paths.forEach((path) => path.classList.toggle("lit", kernels.has(path.dataset.k)));
    document.getElementById("timeline-marked").textContent = what;
    document.getElementById("timeline-clear").hidden = !kernels.size;
  }
  function show(kernels, what) {
    mark(kernels, `Marked: ${what}`);
    document.getElementById("timeline").scrollIntoView({ block: "start" });
  }

  if (svg) {
    tools.hidden = false;
    document.getElementById("timeline-target")?.addEventListener("change", (event) => chooseTarget(event.target.value));
    document.getElementById("timeline-clear").addEventListener("click", () => mark(new Set(), ""));
    svg.addEventListener("click", (event) => {
      const row = rows.get(event.target.dataset?.k);
      if (row) location.hash = row.id;
    });
    for (const [kernel, row] of rows) {
      if (!drawn.has(kernel)) continue;
      const name = row.cells[0].firstChild.textContent.trim();
      const button = makeButton("", () => show(new Set([kernel]), name), "Show in the timeline");
      button.className = "copy in-timeline";
      row.querySelector(".anchor").after(button);
    }
    for (const finding of all("li[data-kernels]")) {
      const kernels = new Set(finding.dataset.kernels.split(" ").filter((kernel) => drawn.has(kernel)));
      if (kernels.size) finding.querySelector("[data-acts]").append(makeButton("Show in the timeline", () => show(kernels, "the finding's kernels")));
    }
  }
}
