/**
 * The page written by `costner page`: a text, its entities, and sliders. Predictions run in a
 * worker. See page_worker.js for the messages.
 *
 * The frame of the page, templates/page.html, defines `data` and `byId`. `data` contains the
 * base64-encoded model file, the script of the worker, the label colors, the miss costs for the
 * slider, and example texts. See `ner_page` in cli/page.py.
 */

import { probability, readTexts, toJsonLines } from "./page_texts.js";

/** @typedef {import("./ner.js").PredictedEntity} PredictedEntity */
/** @typedef {{entities: PredictedEntity[], guaranteed?: PredictedEntity[]}} Doc */

/** The maximum number of characters to show. The saved file contains all of them. */
const MAX_SHOWN = 100_000;
/** The maximum number of characters of a file to load into the text field. */
const MAX_EDITED = 300_000;
/** The maximum number of spans of the guaranteed set to show. */
const MAX_PROMISED = 1000;
/** The delay between the last keystroke and the prediction, in milliseconds. */
const MILLISECONDS_OF_TYPING = 150;

/** @type {Worker} */
let worker;
/** @type {string[]} The texts sent to the worker, from the text field or a file. */
let askedTexts = [];
/** @type {string[]} The displayed texts. */
let texts = [];
/** @type {Doc[]} The predictions for the displayed texts. */
let docs = [];
/** @type {?{name: string, content: string}} The file to use instead of the text field. */
let file = null;
/** @type {?("texts" | "options")} The request to send when the worker has finished. */
let nextRequest = null;
let isReady = false; // whether the worker has loaded the model
let isBusy = false;
let hasTexts = false; // whether the worker has the texts
let isPromised = false; // whether the pipeline has a guarantee
let timer = 0; // the timer since the last keystroke

/**
 * Creates an element.
 * @param {string} name
 * @param {Record<string, any>} properties
 * @param {...(Node | string)} children
 */
function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

/**
 * Shows a message above the entities.
 * @param {string} message
 */
function say(message) {
  byId("said").textContent = message;
}

/**
 * Formats a number with its noun, e.g. "1 entity" or "1,200 entities".
 * @param {number} n
 * @param {string} noun
 * @param {string} plural
 */
function count(n, noun, plural = `${noun}s`) {
  return `${n.toLocaleString("en")} ${n === 1 ? noun : plural}`;
}

// The worker

/** Starts a worker and sends it the model. The worker is busy until the model is loaded. */
function startWorker() {
  const url = URL.createObjectURL(new Blob([data.worker], { type: "text/javascript" }));
  worker = new Worker(url);
  isReady = false;
  hasTexts = false;
  setBusy(true);
  worker.addEventListener("message", (event) => answer(event.data));
  worker.addEventListener("error", (event) => fail(event.message || "The worker can't start."));
  const bytes = Uint8Array.from(atob(data.model), (character) => character.charCodeAt(0));
  worker.postMessage({ kind: "load", bytes }, [bytes.buffer]);
}

/**
 * Handles a message from the worker: shows predictions, progress or an error, and sends the next
 * request, if any.
 * @param {any} message
 */
function answer(message) {
  if (message.kind === "progress") {
    byId("progress").max = message.total;
    byId("progress").value = message.done;
    return;
  }
  setBusy(false);
  if (message.kind === "error") {
    fail(message.message);
    return;
  }
  if (message.kind === "ready") {
    isReady = true;
  } else {
    texts = askedTexts;
    docs = message.docs;
    show(message.nTokens, message.milliseconds);
  }
  if (nextRequest !== null) {
    ask(nextRequest);
  }
}

/**
 * Shows that a request has failed.
 * @param {string} message
 */
function fail(message) {
  setBusy(false);
  say(message);
}

/**
 * Shows whether the worker is busy.
 * @param {boolean} isWorking
 */
function setBusy(isWorking) {
  isBusy = isWorking;
  byId("busy").hidden = !isWorking;
  byId("entities").setAttribute("aria-busy", String(isWorking));
}

/**
 * Requests entities from the worker. If the worker is busy or hasn't loaded the model yet, the
 * request is sent afterwards.
 * @param {"texts" | "options"} what What has changed.
 */
function ask(what) {
  if (isBusy || !isReady) {
    // A request for new texts also includes the new options.
    nextRequest = nextRequest === "texts" ? "texts" : what;
    return;
  }
  nextRequest = null;
  const sendsTexts = what === "texts" || !hasTexts;
  if (sendsTexts && !readField()) {
    return;
  }
  say("");
  byId("progress").removeAttribute("value");
  setBusy(true);
  const request = sendsTexts ? { texts: askedTexts } : {};
  worker.postMessage({ kind: "predict", ...request, options: options() });
  hasTexts = true;
}

/**
 * Sets `askedTexts` to the texts from the file, if any, or from the text field. Shows an error if
 * they can't be read.
 * @returns {boolean} Whether the texts could be read.
 */
function readField() {
  const { name, content } = file ?? { name: "", content: byId("text").value };
  try {
    askedTexts = readTexts(content, name, byId("lines").checked);
    return true;
  } catch (error) {
    fail(error instanceof Error ? error.message : String(error));
    return false;
  }
}

/** Stops the worker and starts a new one. */
function stop() {
  worker.terminate();
  nextRequest = null;
  startWorker();
  say("Stopped.");
  byId("text").focus(); // the button is hidden when the worker is ready
}

// Requests

/** Returns the options selected on the page. See `Options` in ner.d.ts. */
function options() {
  const byThreshold = byId("by-threshold").checked;
  return {
    ...(byThreshold ? { threshold: Number(byId("threshold").value) } : {}),
    guaranteed: isPromised && byId("promised").checked,
  };
}

/** Shows the values of the sliders next to them. */
function showSliders() {
  const cost = data.miss_costs[byId("miss").value];
  const costText =
    cost < 1
      ? `1/${Math.round(1 / cost)} of a false alarm`
      : `${cost} false alarm${cost > 1 ? "s" : ""}`;
  byId("miss-text").textContent = costText;
  byId("miss").setAttribute("aria-valuetext", costText);
  const value = Number(byId("threshold").value).toFixed(2);
  byId("threshold-text").textContent = value;
  byId("threshold").setAttribute("aria-valuetext", value);
}

/** Switches to threshold decoding, using the slider. */
function chooseThreshold() {
  byId("by-threshold").checked = true;
  showSliders();
  ask("options");
}

// Display

/**
 * Shows the predictions: the texts with their entities, up to `MAX_SHOWN` characters, and the
 * entity counts and the guaranteed set for all texts.
 * @param {number} nTokens
 * @param {number} milliseconds The duration of the prediction.
 */
function show(nTokens, milliseconds) {
  let nCharactersLeft = MAX_SHOWN;
  const paragraphs = [];
  for (let i = 0; i < docs.length && nCharactersLeft > 0; i++) {
    paragraphs.push(drawText(texts[i].slice(0, nCharactersLeft), docs[i].entities));
    nCharactersLeft -= texts[i].length;
  }
  byId("entities").replaceChildren(...paragraphs);
  const entities = docs.flatMap((doc) => doc.entities);
  showCounts(entities);
  showPromised();
  const isCut = texts.reduce((sum, text) => sum + text.length, 0) > MAX_SHOWN;
  const facts = [
    count(entities.length, "entity", "entities"),
    count(nTokens, "token"),
    count(texts.length, "text"),
    `${Math.round(milliseconds).toLocaleString("en")} ms`,
  ];
  byId("facts").textContent =
    facts.join(", ") + (isCut ? `. Only the first ${count(MAX_SHOWN, "character")} are shown.` : "");
  byId("save").disabled = texts.length === 0;
}

/**
 * Renders a text with its entities.
 * @param {string} text The text, or its beginning.
 * @param {PredictedEntity[]} entities The entities of the whole text, in order without overlaps.
 */
function drawText(text, entities) {
  const paragraph = make("p", { dir: "auto" });
  let end = 0;
  for (const entity of entities) {
    if (entity.end > text.length) {
      break; // beyond the displayed part
    }
    paragraph.append(text.slice(end, entity.start), drawEntity(text, entity));
    end = entity.end;
  }
  paragraph.append(text.slice(end));
  return paragraph;
}

/**
 * Renders an entity with its label and probability.
 * @param {string} text The text that contains the entity.
 * @param {PredictedEntity} entity
 */
function drawEntity(text, { start, end, label, score }) {
  const percent = make("i", {}, probability(score));
  const name = make("bdi", { className: "label" }, label, " ", percent);
  const mark = make("mark", { className: "entity" }, make("bdi", {}, text.slice(start, end)), name);
  mark.style.backgroundColor = colourOf(label);
  return mark;
}

/**
 * Returns the background color of the entities with a label. Nodes of a label tree use a default
 * color.
 * @param {string} label
 */
function colourOf(label) {
  return Object.hasOwn(data.colours, label) ? data.colours[label] : "#ddd";
}

/**
 * Shows the number of entities per label.
 * @param {PredictedEntity[]} entities
 */
function showCounts(entities) {
  const counts = new Map();
  for (const { label } of entities) {
    counts.set(label, (counts.get(label) ?? 0) + 1);
  }
  const items = [...counts].map(([label, n]) => {
    const mark = make("mark", { className: "entity" }, make("bdi", {}, label));
    mark.style.backgroundColor = colourOf(label);
    return make("li", {}, mark, ` ${n.toLocaleString("en")}`);
  });
  byId("counts").replaceChildren(...items);
}

/**
 * Shows the first spans of the guaranteed set, in text order, and the total number of spans. It is
 * hidden if there is no set.
 */
function showPromised() {
  const isShown = docs.some((doc) => doc.guaranteed !== undefined);
  byId("promised-set").hidden = !isShown;
  if (!isShown) {
    return;
  }
  /** @type {HTMLElement[]} */
  const rows = [];
  docs.forEach((doc, i) => {
    for (const { start, end, label, score } of doc.guaranteed ?? []) {
      const span = make("th", { scope: "row", dir: "auto" }, texts[i].slice(start, end));
      rows.push(make("tr", {}, span, make("td", {}, label), make("td", {}, probability(score))));
    }
  });
  byId("promised-rows").replaceChildren(...rows.slice(0, MAX_PROMISED));
  byId("promised-count").textContent = count(rows.length, "span");
}

// Input and output

/**
 * Loads a file into the text field. Long files and JSONL files are not displayed in the field, and
 * are used until the user types.
 * @param {File} source
 */
async function openFile(source) {
  say(`Reading ${source.name}`);
  let content;
  try {
    content = await source.text();
  } catch {
    // The file is a directory or no longer exists.
    say(`${source.name}: expected a file that can be read`);
    return;
  }
  const isKept = content.length > MAX_EDITED || source.name.toLowerCase().endsWith(".jsonl");
  file = isKept ? { name: source.name, content } : null;
  byId("text").value = isKept ? "" : content;
  byId("file-name").textContent = isKept ? `${source.name}: type to replace it` : "";
  ask("texts");
}

/**
 * Sets the text field to a text, and predicts its entities.
 * @param {string} text
 */
function openText(text) {
  file = null;
  byId("file-name").textContent = "";
  byId("text").value = text;
  ask("texts");
}

/** Saves all texts with their entities and, if displayed, their guaranteed sets. */
function save() {
  const url = URL.createObjectURL(new Blob([toJsonLines(texts, docs)], { type: "text/plain" }));
  make("a", { href: url, download: "entities.jsonl" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // wait for the download to finish
}

byId("text").addEventListener("input", () => {
  file = null;
  byId("file-name").textContent = "";
  clearTimeout(timer);
  timer = setTimeout(() => ask("texts"), MILLISECONDS_OF_TYPING);
});
byId("lines").addEventListener("change", () => ask("texts"));
byId("file").addEventListener("change", () => {
  const [source] = byId("file").files;
  byId("file").value = ""; // allow selecting the same file again
  if (source !== undefined) {
    openFile(source);
  }
});
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  const [source] = event.dataTransfer?.files ?? [];
  if (source !== undefined) {
    openFile(source);
    return;
  }
  const text = event.dataTransfer?.getData("text/plain") ?? "";
  if (text !== "") {
    openText(text);
  }
});
for (const radio of document.querySelectorAll("[name=decoding]")) {
  radio.addEventListener("change", () => ask("options"));
}
byId("threshold").addEventListener("input", chooseThreshold);
// If probabilities are calibrated, this threshold has the lowest expected cost.
byId("miss").addEventListener("input", () => {
  byId("threshold").value = String(1 / (1 + data.miss_costs[byId("miss").value]));
  chooseThreshold();
});
byId("save").addEventListener("click", save);
byId("stop").addEventListener("click", stop);
data.texts.forEach((/** @type {string} */ text, /** @type {number} */ i) => {
  const button = make("button", { type: "button" }, `Example ${i + 1}`);
  button.addEventListener("click", () => openText(text));
  byId("examples").append(button);
});

isPromised = byId("promised") !== null;
if (isPromised) {
  byId("promised").addEventListener("change", () => ask("options"));
}
byId("promised-set").hidden = true; // without scripts, the frame shows hidden elements
byId("save").disabled = true;
showSliders();
startWorker();
// After a reload, the browser may have kept the text.
if (byId("text").value === "" && data.texts.length > 0) {
  byId("text").value = data.texts[0];
}
ask("texts");
