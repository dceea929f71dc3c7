/**
 * Texts that a page reads, and the entities that it saves.
 */

/** @typedef {import("./recognizer.js").PredictedEntity} PredictedEntity */

/**
 * Returns the texts of a file, or of what was typed.
 * @param {string} content
 * @param {string} name The name of the file. With `.jsonl` each line is JSON with a "text". It is
 *   "" for what was typed.
 * @param {boolean} isByLine Whether each line is a text of its own, as in JSONL. Lines of white
 *   space are not texts then.
 * @returns {string[]}
 * @throws {Error} If a line of JSONL has no text.
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
 * @param {string} place The file and the line, for the error.
 * @returns {string}
 * @throws {Error} If it is not JSON, or has no text.
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
 * Returns texts and their entities as JSONL, as `costner annotate` writes them. Offsets count
 * characters, as Python does.
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
 * Returns a function from offsets in UTF-16 units of a text to offsets in characters, of which some
 * have two units.
 * @param {string} text
 * @returns {(unit: number) => number}
 */
export function characterPlaces(text) {
  if (!/[\ud800-\udbff]/.test(text)) {
    return (unit) => unit; // no character has two
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
 * Returns a probability in percent. Only 0 and 1 become 0 % and 100 %.
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
