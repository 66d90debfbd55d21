// What the other scripts share.
const report = document.querySelector(".report");
const data = JSON.parse(document.getElementById("report-data").textContent);
const all = (selector, within = report) => [...within.querySelectorAll(selector)];

function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}
function makeButton(text, act, label) {
  const button = make("button", { type: "button", textContent: text });
  if (label) button.setAttribute("aria-label", label);
  button.addEventListener("click", () => act(button));
  return button;
}

// Copies a text; the button is marked for a moment.
async function copyText(button, text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = make("textarea", { value: text }); // plain http has no clipboard object
    report.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  button.classList.add("copied");
  setTimeout(() => button.classList.remove("copied"), 1500);
}
function saveFile(name, content, type) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
