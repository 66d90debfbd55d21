"use strict";

const element = (id) => document.getElementById(id);
const drop = element("drop");
const limits = { bytes: Number(drop.dataset.mostBytes), files: Number(drop.dataset.mostFiles) };
// As _TRACE_NAME of tracekit/ingest/source.py.
const TRACE = /\.(json|sqlite|db|pftrace|perfetto-trace|xplane\.pb|et)(\.(gz|gzip|zst|zip))?$|\.(zip|gz|zst)$/i;
// A restarting server may take minutes to respond.
const RETRIES_MS = [0, 1000, 3000, 5000, 10000, 20000, 30000, 60000, 60000];
const SIMULTANEOUS = 3;

const NAMED = 3;

let transfers = [];
let notSent = "";

class Transfer {
  constructor(file, name) {
    this.file = file;
    this.name = name;
    this.row = document.createElement("li");
    this.bar = document.createElement("progress");
    this.state = document.createElement("span");
    const label = document.createElement("span");
    label.textContent = name;
    this.row.append(label, this.bar, this.state);
    element("list").append(this.row);
    this.show("waiting", 0);
  }

  show(text, part) {
    this.row.classList.remove("broken");
    this.state.textContent = text;
    if (part !== undefined) this.bar.value = part;
  }

  // The bar keeps showing what has arrived.
  interrupt() {
    if (this.id) return;
    this.row.classList.add("broken");
    this.state.textContent = this.upload || this.packed ? "interrupted" : "not sent yet";
  }

  async data() {
    const begin = new Uint8Array(await this.file.slice(0, 4).arrayBuffer());
    const packed = (begin[0] === 0x1f && begin[1] === 0x8b) || (begin[0] === 0x28 && begin[1] === 0xb5) || (begin[0] === 0x50 && begin[1] === 0x4b);
    if (packed || !this.file.size || typeof CompressionStream === "undefined") return this.file;
    this.show("compressing");
    return new Response(this.file.stream().pipeThrough(new CompressionStream("gzip"))).blob();
  }

  async send() {
    this.packed ??= await this.data();
    if (this.packed.size > limits.bytes) throw new Error(`${this.name} is larger than ${size(limits.bytes)}, the most that this server takes.`);
    await new Promise((done, failed) => {
      this.upload = new tus.Upload(this.packed, {
        endpoint: "/api/v1/uploads",
        metadata: { filename: this.name },
        retryDelays: RETRIES_MS,
        removeFingerprintOnSuccess: true,
        fingerprint: async () => ["tracekit", this.name, this.file.size, this.file.lastModified, this.packed.size].join("|"),
        onShouldRetry: (error) => {
          const again = tus.defaultOptions.onShouldRetry(error); // not while the browser is offline
          if (again) this.show("the connection broke; trying again");
          return again;
        },
        onProgress: (sent, all) => this.show(`${size(sent)} of ${size(all)}`, all ? sent / all : 1),
        onSuccess: done,
        onError: failed,
      });
      this.upload.findPreviousUploads().then((previous) => {
        if (previous.length) this.upload.resumeFromPreviousUpload(previous[0]);
        this.upload.start();
      }, failed);
    });
    this.id = this.upload.url.split("/").pop();
    this.show("received", 1);
  }
}

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let at = 0;
  for (; bytes >= 1024 && at < 3; at++) bytes /= 1024;
  return `${bytes.toFixed(at && bytes < 100 ? 1 : 0)} ${units[at]}`;
}

function trouble(text) {
  element("transfer").hidden = false;
  element("trouble").hidden = false;
  element("trouble").textContent = text;
}

function said(error) {
  const body = error.originalResponse?.getBody();
  try {
    const { message, hint } = JSON.parse(body).error;
    return `${message} ${hint}`;
  } catch {
    const isBroken = error.originalRequest || error instanceof TypeError; // fetch reports a lost connection as this
    if (!isBroken) return error.message;
    const reason = navigator.onLine ? "The server can't be reached." : "This computer is offline.";
    return `${reason} What has arrived is kept: Resume goes on from there.`;
  }
}

// Files of a folder whose names are no trace names aren't sent; the job's page lists them, as this page is left soon.
function leaveOut(names) {
  if (!names.length) return;
  const more = names.length > NAMED ? ` and ${names.length - NAMED} more` : "";
  notSent = `${names.length} ${names.length === 1 ? "file" : "files"} not sent, no trace by name: ${names.slice(0, NAMED).join(", ")}${more}.`;
  element("left").textContent = notSent;
  element("left").hidden = false;
}

function begin(entries) {
  const kept = entries.length > 1 ? entries.filter((entry) => TRACE.test(entry.name)) : entries;
  const shown = entries.filter((entry) => !kept.includes(entry) && !entry.name.split("/").pop().startsWith("."));
  if (!kept.length) return trouble("There are no traces in it: their names end in .json, .sqlite, .db, .pftrace, .xplane.pb or .et, also with .gz or .zst, or in .zip.");
  if (kept.length > limits.files) return trouble(`${kept.length} files are more than ${limits.files}, the most that this server takes.`);
  drop.hidden = true;
  element("transfer").hidden = false;
  kept.sort((one, other) => one.name.localeCompare(other.name, undefined, { numeric: true }));
  leaveOut(shown.map((entry) => entry.name));
  transfers = kept.map((entry) => new Transfer(entry.file, entry.name));
  run();
}

async function run() {
  element("trouble").hidden = true;
  element("resume").hidden = true;
  const waiting = transfers.filter((transfer) => !transfer.id);
  const lane = async () => {
    for (let next; (next = waiting.shift()); ) await next.send();
  };
  const lanes = Array.from({ length: SIMULTANEOUS }, lane);
  try {
    await Promise.all(lanes);
    const answer = await fetch("/api/v1/jobs", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ uploads: transfers.map((transfer) => transfer.id) }),
    });
    const job = await answer.json();
    if (!answer.ok) throw new Error(`${job.error.message} ${job.error.hint}`);
    if (notSent) sessionStorage.setItem(`not sent ${job.id}`, notSent);
    location.assign(`/jobs/${job.id}`);
  } catch (error) {
    trouble(said(error));
    waiting.length = 0;
    await Promise.allSettled(lanes); // or what is still on its way would be sent a second time
    for (const transfer of transfers) transfer.interrupt();
    element("resume").hidden = false;
  }
}

async function cancel() {
  await Promise.allSettled(transfers.map((transfer) => transfer.upload?.abort(true)));
  location.reload();
}

// A dropped folder is a tree of entries; each directory is read in batches.
async function walk(entry, path = "") {
  if (entry.isFile) {
    const file = await new Promise((done, failed) => entry.file(done, failed));
    return [{ file, name: path + entry.name }];
  }
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    const portion = await new Promise((done, failed) => reader.readEntries(done, failed));
    if (!portion.length) return found;
    for (const child of portion) found.push(...(await walk(child, `${path}${entry.name}/`)));
  }
}

const listed = (input) => [...input.files].map((file) => ({ file, name: file.webkitRelativePath || file.name }));

element("files").addEventListener("change", (event) => begin(listed(event.target)));
element("folder").addEventListener("change", (event) => begin(listed(event.target)));
element("resume").addEventListener("click", run);
addEventListener("online", () => element("resume").hidden || run());
element("cancel").addEventListener("click", cancel);
drop.addEventListener("dragover", (event) => {
  event.preventDefault();
  drop.classList.add("over");
});
drop.addEventListener("dragleave", () => drop.classList.remove("over"));
drop.addEventListener("drop", async (event) => {
  event.preventDefault();
  const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry()).filter(Boolean);
  begin((await Promise.all(entries.map((entry) => walk(entry)))).flat());
});
