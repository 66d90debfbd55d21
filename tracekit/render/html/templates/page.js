"use strict";
(() => {
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("data").textContent);

  // Theme: the system's until the button changes it. A sandboxed page has no storage.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try { chosen = localStorage.getItem("tracekit-theme"); } catch { /* sandboxed */ }
  const apply = (theme) => { root.dataset.theme = theme; };
  apply(chosen || (dark.matches ? "dark" : "light"));

  // Charts take their colours from the style sheet.
  const probe = document.createElement("i");
  document.querySelector(".report").append(probe);
  const colour = (name) => { probe.style.color = `var(${name})`; return getComputedStyle(probe).color; };
  function themed(layout) {
    const axis = { gridcolor: colour("--line"), zerolinecolor: colour("--line"), linecolor: colour("--line"), automargin: true };
    return {
      ...layout,
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("--ink") },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 10, r: 20, t: 10, b: 10 },
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, itemsizing: "constant", font: { size: 12 } },
      hoverlabel: { bgcolor: colour("--panel"), bordercolor: colour("--line"), font: { color: colour("--ink"), size: 13 }, align: "left" },
      xaxis: { ...layout.xaxis, ...axis }, yaxis: { ...layout.yaxis, ...axis },
    };
  }
  const charts = [...document.querySelectorAll("[data-figure]")];
  const PAPER_PX = 680; // what A4 and Letter have between their margins
  function draw(width) {
    for (const element of charts) {
      const figure = data.figures[element.dataset.figure];
      Plotly.react(element, figure.data, { ...themed(figure.layout), width }, { responsive: true, displayModeBar: false });
    }
  }
  draw();
  const retheme = (theme) => { apply(theme); draw(); };
  document.getElementById("theme").addEventListener("click", () => {
    const next = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("tracekit-theme", next); } catch { /* sandboxed */ }
    chosen = next;
    retheme(next);
  });
  dark.addEventListener("change", () => { if (!chosen) retheme(dark.matches ? "dark" : "light"); });
  // The browser lays out the printed page after this event, so the charts get its width here.
  addEventListener("beforeprint", () => { apply("light"); draw(PAPER_PX); });
  addEventListener("afterprint", () => {
    retheme(chosen || (dark.matches ? "dark" : "light"));
    charts.forEach((element) => Plotly.Plots.resize(element));
  });

  // Format numbers as tracekit does.
  const digits = (x) => Math.abs(x) >= 99.95 ? Math.round(x).toLocaleString("en-US") : x.toFixed(Math.abs(x) >= 9.995 ? 1 : 2);
  const duration = (us) => Math.abs(us) < 0.005 ? "0" : us >= 999.5e3 ? digits(us / 1e6) + " s" : us >= 999.5 ? digits(us / 1e3) + " ms" : digits(us) + " µs";
  const counted = (x) => Number.isInteger(x) ? x.toLocaleString("en-US") : digits(x);
  const percent = (x) => (x !== 0 && Math.abs(x) < 0.95 ? x.toFixed(1) : x.toFixed(0)) + " %";

  // The kernel table: family, shape, kernel.
  const rows = data.kernels.map(([family, op, dtype, shape, name, count, time, share, roof, limiter, predicted, limiters, methods, tiles, tilesThere]) => ({
    family, op, dtype, shape, name, count, time, share, roof, limiter, predicted, limiters, methods, tiles, tilesThere,
    text: [family, op, dtype, shape, name].join(" ").toLowerCase(),
  }));
  const body = document.querySelector("#kernel-table tbody");
  if (!body) return;
  const SHOWN = 8;
  const open = new Set();
  const full = new Set();
  let sort = { key: "time", down: true };
  let wanted = "";

  function mostly(members, pick) {
    const times = new Map();
    for (const row of members) times.set(pick(row), (times.get(pick(row)) || 0) + row.time);
    return [...times].sort((a, b) => b[1] - a[1])[0][0];
  }
  const alone = (row) => row.members.length === 1 ? row.members[0] : {};
  function told(members) {
    const methods = new Set(members.flatMap((row) => row.methods));
    if (methods.size > 1) methods.delete("measured");
    return methods.size > 1 ? "mixed" : [...methods].join();
  }
  function merged(members, key) {
    const sum = (pick) => members.reduce((total, row) => total + pick(row), 0);
    const time = sum((row) => row.time);
    const bounded = members.filter((row) => row.roof !== null);
    const boundedTime = bounded.reduce((total, row) => total + row.time, 0);
    return {
      key, members, name: members[0].op || members[0].name, count: sum((row) => row.count), time, share: sum((row) => row.share),
      roof: boundedTime ? bounded.reduce((total, row) => total + row.roof * row.time, 0) / boundedTime : null,
      bounded: time ? 100 * boundedTime / time : 0,
      limiter: mostly(members, (row) => row.limiter),
      predicted: data.gpus.map((_, i) => sum((row) => row.predicted[i])),
      method: told(members),
    };
  }
  function grouped(members, key) {
    const groups = new Map();
    for (const row of members) {
      const name = key(row);
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(row);
    }
    return [...groups].map(([name, group]) => merged(group, name));
  }
  function value(row) {
    if (sort.key === "roof") return row.roof ?? -1;
    if (/^t\d/.test(sort.key)) return row.predicted[Number(sort.key.slice(1))];
    return row[sort.key] ?? "";
  }
  function ordered(groups) {
    const sign = sort.down ? -1 : 1;
    return groups.sort((a, b) => {
      const x = value(a), y = value(b);
      return sign * (typeof x === "string" ? x.localeCompare(y) : x - y) || b.time - a.time;
    });
  }
  function cell(text, kind, title) {
    const td = document.createElement("td");
    td.className = kind;
    td.textContent = text;
    if (title) td.title = title;
    return td;
  }
  function line(level, row, label, folds, whole) {
    const tr = document.createElement("tr");
    tr.className = "l" + level;
    const first = document.createElement("td");
    if (folds) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "fold";
      button.setAttribute("aria-expanded", open.has(folds) || wanted !== "");
      button.dataset.fold = folds;
      button.append(...label);
      first.append(button);
    } else first.append(...label);
    tr.append(first, cell(counted(row.count), "n", row.count + " per step"), cell(duration(row.time), "n", [row.time.toFixed(3) + " µs", alone(row).tiles].filter(Boolean).join(", ")));
    const share = cell(percent(row.share), "n", row.share.toFixed(3) + " %");
    const meter = document.createElement("span");
    meter.className = "meter";
    const fill = document.createElement("i");
    fill.style.width = Math.min(100 * row.share / whole, 100) + "%";
    fill.style.setProperty("--c", data.colours[row.members[0].family]);
    meter.append(fill);
    share.append(meter);
    tr.append(share, cell(row.roof === null ? "–" : percent(row.roof), "n", row.bounded < 99.5 ? "over " + percent(row.bounded) + " of the time, whose work is known" : ""));
    tr.append(cell(row.limiter || "–", "w", row.members.length > 1 ? "where most of the time goes" : ""));
    row.predicted.forEach((time, i) => {
      const { limiters, tilesThere } = alone(row);
      const td = cell(duration(time), "n", [time.toFixed(3) + " µs", limiters && "bound by " + limiters[i], tilesThere && tilesThere[i]].filter(Boolean).join(", "));
      const faster = document.createElement("span");
      faster.className = "faster";
      faster.textContent = time > 0 ? (row.time / time).toFixed(2) + "×" : "";
      td.append(faster);
      tr.append(td);
    });
    if (data.gpus.length) tr.append(cell(row.method, "w"));
    return tr;
  }
  function swatch(family) {
    const mark = document.createElement("i");
    mark.className = "swatch";
    mark.style.setProperty("--c", data.colours[family]);
    return mark;
  }
  function small(text) {
    const element = document.createElement("small");
    element.textContent = element.title = text;
    return element;
  }
  function code(text) {
    const element = document.createElement("code");
    element.textContent = text;
    return element;
  }
  function more(key, left) {
    const tr = document.createElement("tr");
    tr.className = "more";
    const td = document.createElement("td");
    td.colSpan = 7 + data.gpus.length;
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.more = key;
    button.textContent = "show " + left + " more";
    td.append(button);
    tr.append(td);
    return tr;
  }
  function render() {
    const found = wanted ? rows.filter((row) => wanted.split(" ").every((word) => row.text.includes(word))) : rows;
    const lines = [];
    const byFamily = grouped(found, (row) => row.family).map((group) => ({ ...group, name: group.key }));
    const families = ordered(byFamily);
    const whole = Math.max(...families.map((family) => family.share), 1e-9);
    for (const family of families) {
      lines.push(line(0, family, [swatch(family.key), family.key], family.key, whole));
      if (!open.has(family.key) && !wanted) continue;
      const shapes = ordered(grouped(family.members, (row) => [family.key, row.op, row.dtype, row.shape].join("\u0001")));
      const shown = full.has(family.key) ? shapes : shapes.slice(0, SHOWN);
      for (const shape of shown) {
        const head = shape.members[0];
        const kernels = shape.members.length === 1 ? "1 kernel" : shape.members.length + " kernels";
        const label = [head.op || head.name, small([head.dtype, head.shape, kernels].filter(Boolean).join(" · "))];
        lines.push(line(1, shape, label, shape.key, whole));
        if (!open.has(shape.key)) continue;
        for (const row of ordered(shape.members.map((member) => ({ ...merged([member], ""), name: member.name })))) {
          lines.push(line(2, row, [code(row.members[0].name)], null, whole));
        }
      }
      if (shapes.length > shown.length) lines.push(more(family.key, shapes.length - shown.length));
    }
    body.replaceChildren(...lines);
    const time = found.reduce((total, row) => total + row.time, 0);
    document.getElementById("found").textContent = wanted ? found.length + " kernels, " + duration(time) : "";
    for (const button of document.querySelectorAll("#kernel-table [data-sort]")) {
      const th = button.closest("th");
      if (button.dataset.sort === sort.key) th.setAttribute("aria-sort", sort.down ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    }
  }
  document.getElementById("kernel-table").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const { sort: key, fold, more: all } = button.dataset;
    if (key) sort = { key, down: sort.key === key ? !sort.down : !["name", "limiter", "method"].includes(key) };
    if (fold && !open.delete(fold)) open.add(fold);
    if (all) full.add(all);
    render();
  });
  const search = document.getElementById("search");
  search.addEventListener("input", () => { wanted = search.value.trim().toLowerCase().replace(/\s+/g, " "); render(); });
  search.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    search.value = wanted = "";
    search.blur();
    render();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea")) return;
    event.preventDefault();
    search.focus();
    search.scrollIntoView({ block: "center" });
  });
  document.getElementById("unfold").addEventListener("click", (event) => {
    const families = rows.map((row) => row.family);
    if (families.every((family) => open.has(family))) open.clear();
    else families.forEach((family) => open.add(family));
    event.target.textContent = open.size ? "Fold all" : "Unfold all";
    render();
  });
  if (rows.length) open.add(grouped(rows, (row) => row.family).sort((a, b) => b.time - a.time)[0].key);
  render();
})();
