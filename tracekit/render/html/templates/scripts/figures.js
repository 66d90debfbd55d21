// Figures can be saved as SVG and PNG, and their values as CSV.
const PNG_SCALE = 2;

// A file has no style sheet of the page: its colours and font are written into it.
function exportSvg(svg) {
  const copy = svg.cloneNode(true);
  const style = getComputedStyle(svg);
  const [, , width, height] = svg.getAttribute("viewBox").split(" ");
  const paper = getComputedStyle(report).backgroundColor;
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  copy.setAttribute("style", `color: ${style.color}; font-family: ${style.fontFamily}; background: ${paper}`);
  all("[hidden]", copy).forEach((element) => element.remove());
  return new XMLSerializer().serializeToString(copy);
}
function savePng(name, svg) {
  const image = new Image();
  image.onload = () => {
    const canvas = make("canvas", { width: image.width * PNG_SCALE, height: image.height * PNG_SCALE });
    const pen = canvas.getContext("2d");
    pen.fillStyle = getComputedStyle(report).backgroundColor;
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => saveFile(name, blob, "image/png"));
  };
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(exportSvg(svg));
}
// The timeline's values are in its picture.
function listBlocks(svg) {
  const lines = ["timeline,lane,begin,length,quarters busy,kernel"];
  const quote = (text) => `"${text.replace(/"/g, '""')}"`;
  for (const path of all("[data-run]:not([hidden]) path[data-k]", svg)) {
    const run = path.closest("[data-run]").querySelector("text").textContent;
    const lane = path.closest("[data-scale]").previousElementSibling.textContent;
    const name = path.querySelector("title")?.textContent ?? "";
    for (const [, begin, top, length] of path.getAttribute("d").matchAll(/M(\d+) (\d+)h(\d+)/g)) {
      lines.push([quote(run), quote(lane), begin, length, (16 - top) / 4, quote(name)].join(","));
    }
  }
  return lines.join("\n") + "\n";
}
for (const figure of all("figure[data-figure]")) {
  const name = figure.dataset.figure;
  const svg = figure.querySelector("svg");
  const title = svg.getAttribute("aria-label");
  figure.querySelector("[data-acts]").append(
    makeButton("SVG", () => saveFile(`${name}.svg`, exportSvg(svg), "image/svg+xml"), `SVG: save “${title}”`),
    makeButton("PNG", () => savePng(`${name}.png`, svg), `PNG: save “${title}”`),
    makeButton("CSV", () => saveFile(`${name}.csv`, data.csv[name] ?? listBlocks(svg), "text/csv"), `CSV: save the data of “${title}”`),
  );
}
