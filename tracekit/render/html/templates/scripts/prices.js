// Prices that the reader enters: costs, the price below which a target pays, its rank and the answer follow at once.
if (data.pricing) {
  const { here, targets, answers, unit, units, amount } = data.pricing;
  const DEFAULT_MAX_DOLLARS = 10;
  const round = (value, digits) => value.toLocaleString("en-US", { minimumSignificantDigits: digits, maximumSignificantDigits: digits });
  const digitsFor = (figure, digits) => new Set(figure.map((value) => round(value, digits))).size === new Set(figure).size ? digits : digits + 1;
  const likely = (figure, digits = 2) => round(figure[1], digitsFor(figure, digits));
  const range = (figure, digits = 2, sign = "") => [...new Set([figure[0], figure[2]].map((value) => sign + round(value, digitsFor(figure, digits))))].join(" to ");
  const price = (value) => "$" + value.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 3 });
  const FORMS = { likely, range, price, dollars: (figure) => "$" + likely(figure, 3), dollar_range: (figure) => range(figure, 3, "$"), ",": (value) => value.toLocaleString("en-US") };
  const fill = (template, values) => template.replace(/\{(\w+)(?::([^}]*))?\}/g, (_, name, form) => form ? FORMS[form](values[name]) : values[name]);
  const scale = (figure, factor) => figure && figure.map((value) => value * factor);

  // As tracekit.reporting.sections.targets and decision have it.
  const costs = (one) => one.price === null ? null : scale(one.gpu_hours, one.price);
  const breakEven = (one) => here.price === null ? null : scale(one.speedup, here.price * here.rented / one.rented);
  function answer(one) {
    const dollars = costs(one);
    const values = { price: one.price, here: here.name, here_price: here.price, break_even: breakEven(one), unit, units, amount, dollars };
    if (here.price === null || !here.price) return dollars ? fill(answers["costs-alone"], values) : "";
    if (!dollars) return fill(answers["pays-below"], values);
    const ratio = scale(dollars, 1 / (here.gpu_hours * here.price));
    if (ratio[0] <= 1 && ratio[2] >= 1) return fill(answers["costs-undecided"], values);
    if (ratio[1] >= data.pricing.min_ratio_in_times) return fill(answers["costs-times"], { ...values, ratio });
    if (ratio[1] > 1) return fill(answers["costs-more"], { ...values, more_pct: ratio.map((end) => 100 * (end - 1)) });
    return fill(answers["costs-less"], { ...values, less_pct: ratio.map((end) => 100 * (1 - end)).reverse() });
  }
  // As tracekit.reporting.sections.decision has it.
  function isSurelyCheaper(one, other) {
    const [a, b] = [costs(one), costs(other)];
    if ((one.fits === false) !== (other.fits === false)) return other.fits === false;
    if (!a || !b) return Boolean(a) && !b;
    return a[1] < b[1] && Math.log(b[1] / a[1]) > Math.hypot(Math.log(a[2] / a[1]), Math.log(b[1] / b[0]));
  }

  const setCell = (cell, figure) => {
    cell.dataset.v = figure ? figure[1] : "";
    cell.replaceChildren(...(figure ? ["$" + likely(figure, 3), make("small", { textContent: `${round(figure[0], 3)}–${round(figure[2], 3)}` })] : ["–"]));
  };
  function update() {
    const own = document.querySelector("#target-here .dollars");
    if (own) own.textContent = here.price === null ? "–" : "$" + round(here.gpu_hours * here.price, 3);
    for (const one of targets) {
      const row = document.getElementById(one.id);
      row.querySelector(".price").dataset.v = one.price ?? "";
      setCell(row.querySelector(".dollars"), costs(one));
      if (own) setCell(row.querySelector(".pays"), breakEven(one));
      if (data.pricing.is_ranked_by_cost) {
        one.rank = 1 + targets.filter((other) => isSurelyCheaper(other, one)).length;
        row.cells[0].dataset.v = one.rank;
      }
    }
    for (const one of targets) {
      const isShared = targets.some((other) => other !== one && other.rank === one.rank);
      document.getElementById(one.id).cells[0].textContent = isShared ? `${one.rank}=` : one.rank;
    }
    document.getElementById("target-table").classList.toggle("unpriced", here.price === null && targets.every((one) => one.price === null));
    const first = targets.reduce((best, one) => (one.rank < best.rank ? one : best));
    document.getElementById("detail").textContent = `At the prices in the table, ${first.name}: ${answer(first) || "no price."}`;
  }

  function makeInputs(cell, one, name) {
    const most = Math.max(DEFAULT_MAX_DOLLARS, 3 * (one.price ?? 0));
    const label = `Dollars for an hour of ${name}`;
    const number = make("input", { type: "number", min: 0, step: 0.01, value: one.price ?? "", placeholder: "$", ariaLabel: label });
    const slider = make("input", { type: "range", min: 0, max: most, step: 0.01, value: one.price ?? 0, ariaLabel: `${label}, slider` });
    const set = (from, to) => from.addEventListener("input", () => {
      one.price = from.value === "" ? null : Number(from.value);
      to.value = from.value || 0;
      update();
    });
    set(number, slider);
    set(slider, number);
    cell.replaceChildren(number, slider);
  }
  const ownPrice = document.querySelector("#target-here .price"); // A program that never ran has none.
  if (ownPrice) makeInputs(ownPrice, here, here.name);
  for (const one of targets) makeInputs(document.getElementById(one.id).querySelector(".price"), one, one.name);
}
