/**
 * The texts that a page reads, and the entities that it saves.
 */

/** @typedef {import("./recognizer.js").PredictedEntity} PredictedEntity */

/**
 * Returns the texts of a file or the text field.
 * @param {string} content
 * @param {string} name The name of the file, or "" for the text field. In a `.jsonl` file, each
 *   line is a JSON object with a "text".
 * @param {boolean} isByLine Whether each line is a separate text, as in JSONL. If so, lines that
 *   consist of whitespace are skipped.
 * @returns {string[]}
 * @throws {Error} If a line of a JSONL file contains no text.
 */
export function readTexts(content, name, isByLine) {
  const isJson = name.toLowerCase().endsWith(".jsonl");
  if (!isJson && !isByLine) {
    return content === "" ? [] : [content];
  }
  /** @type {string[]} */
  const texts = [];
  content.split(/\r?\n/).forEach((line, i) => {
    if (line.trim() !== "") {
      texts.push(isJson ? textOfJson(line, `${name}, line ${i + 1}`) : line);
    }
  });
  return texts;
}

/**
 * Returns the text of a line of JSONL.
 * @param {string} line
 * @param {string} place The file and line in error messages.
 * @returns {string}
 * @throws {Error} If the line isn't valid JSON or contains no text.
 */
function textOfJson(line, place) {
  let text;
  try {
    text = JSON.parse(line)?.text;
  } catch {
    throw new Error(`${place}: expected JSON, got ${line.slice(0, 40)}`);
  }
  if (typeof text !== "string") {
    throw new Error(`${place}: expected an object with a "text", got ${line.slice(0, 40)}`);
  }
  return text;
}

/**
 * Converts texts and their entities to JSONL, in the format of `costner annotate`. Offsets are in
 * characters, as in Python.
 * @param {string[]} texts
 * @param {{entities: PredictedEntity[], guaranteed?: PredictedEntity[]}[]} docs
 * @returns {string}
 */
export function toJsonLines(texts, docs) {
  const lines = docs.map(({ entities, guaranteed }, i) => {
    const text = texts[i];
    const places = characterPlaces(text);
    const toSpan = (/** @type {PredictedEntity} */ { start, end, label, score }) => ({
      start: places(start),
      end: places(end),
      label,
      score,
    });
    const record = { text, entities: entities.map(toSpan) };
    const others = guaranteed === undefined ? {} : { guaranteed: guaranteed.map(toSpan) };
    return `${JSON.stringify({ ...record, ...others })}\n`;
  });
  return lines.join("");
}

/**
 * Returns a function that converts offsets in UTF-16 units to offsets in characters, which may
 * consist of two units.
 * @param {string} text
 * @returns {(unit: number) => number}
 */
export function characterPlaces(text) {
  if (!/[\ud800-\udbff]/.test(text)) {
    return (unit) => unit; // no character consists of two units
  }
  const places = new Int32Array(text.length + 1);
  let unit = 0;
  let nCharacters = 0;
  for (const character of text) {
    places.fill(nCharacters, unit, unit + character.length);
    unit += character.length;
    nCharacters += 1;
  }
  places[text.length] = nCharacters;
  return (unit) => places[unit];
}

/**
 * Formats a probability in percent. Only exactly 0 and 1 are formatted as 0 % and 100 %.
 * @param {number} share
 * @returns {string}
 */
export function probability(share) {
  if (share > 0 && share <= 0.005) {
    return "< 1 %";
  }
  if (share >= 0.995 && share < 1) {
    return "> 99 %";
  }
  return `${Math.round(100 * share)} %`;
}
