/**
 * Features that depend only on the word, not on its context.
 *
 * A column is a kind of value, e.g. the lowercase word. Its values have ids, starting from 0.
 * `WORD_COLUMNS` contains a function for each kind, which converts the column of a model file to a
 * function from words to ids. See `features/words.py`, `memory.py` and `clusters.py`.
 */

import {
  charactersOf,
  isAllLower,
  isAllUpper,
  isAlpha,
  isDigit,
  isPunctuation,
  isSpace,
  isTitle,
  isUpper,
  shapeOf,
} from "./characters.js";
import { hashString } from "./hashing.js";

/**
 * A word and its frequently used attributes.
 * @typedef {Object} Word
 * @property {string} text
 * @property {string} lower The lowercase word.
 * @property {string[]} characters
 * @property {boolean} isSpace Whether the word is whitespace.
 * @property {boolean} hasBreak Whether the word contains a line break.
 * @property {boolean} isCapitalised Whether the word starts with a capital letter.
 * @property {boolean} hasDigit
 */

/**
 * Returns the ids of a word's values in a column.
 * @typedef {(word: Word) => ArrayLike<number>} FindIds
 */

/** @type {ReadonlyArray<number>} */
const NO_IDS = Object.freeze([]);

/**
 * Creates a word from its text.
 * @param {string} text
 * @returns {Word}
 */
export function makeWord(text) {
  const characters = charactersOf(text);
  return {
    text,
    lower: text.toLowerCase(),
    characters,
    isSpace: isSpace(text),
    hasBreak: text.includes("\n") || text.includes("\r"),
    isCapitalised: characters.length > 0 && isUpper(characters[0]),
    hasDigit: characters.some(isDigit),
  };
}

/**
 * Word attributes by their spaCy names.
 * @type {Record<string, (word: Word) => string>}
 */
export const ATTRIBUTES = {
  ORTH: (word) => word.text,
  LOWER: (word) => word.lower,
  SHAPE: (word) => shapeOf(word.text),
  PREFIX: (word) => word.characters[0] ?? "",
  SUFFIX: (word) => word.characters.slice(-3).join(""),
};

/**
 * Boolean word attributes: spaCy's attributes, followed by `TEXT_FLAGS` in features/words.py.
 * @type {Record<string, (word: Word) => boolean>}
 */
const FLAGS = {
  IS_ALPHA: (word) => word.characters.every(isAlpha),
  IS_ASCII: (word) => /^[\0-\x7f]*$/.test(word.text),
  IS_DIGIT: (word) => word.characters.every(isDigit),
  IS_LOWER: (word) => isAllLower(word.text),
  IS_PUNCT: (word) => word.characters.every(isPunctuation),
  IS_SPACE: (word) => word.isSpace,
  IS_TITLE: (word) => isTitle(word.text),
  IS_UPPER: (word) => isAllUpper(word.text),
  has_digit: (word) => word.hasDigit,
  has_hyphen: (word) => word.text.includes("-"),
  has_upper: (word) => word.characters.some(isUpper),
  ends_with_period: (word) => word.text.endsWith("."),
  is_first_upper: (word) => word.isCapitalised,
};

const GREEK =
  "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|omicron|pi|rho|" +
  "sigma|tau|upsilon|phi|chi|psi|omega";
// If case is ignored, Python also matches the Turkish letters İ and ı for i.
const GREEK_WITH_TURKISH_I = GREEK.replaceAll("i", "[i\u0130\u0131]");

/**
 * The word types that depend on specific letters. They are checked first.
 * @type {[string, RegExp][]}
 */
const SPELLINGS = [
  // `(?=[^])` excludes the empty word, which is not a numeral.
  ["Roman numeral", /^(?=[^])X{0,3}(?:IX|IV|V?I{0,3})$/u],
  ["Greek letter", new RegExp(`^(?:${GREEK_WITH_TURKISH_I})$`, "iu")],
  ["Greek letter", /^[\u0391-\u03c9]$/u],
  ["base sequence", /^[ACGTU]{4,}$/u],
];

/**
 * The other word types, which are matched against the outline of a word: uppercase letters are
 * replaced with A, other letters with a, and digits with 0.
 * @type {[string, RegExp][]}
 */
const OUTLINES = [
  ["comma", /^,$/u],
  ["full stop", /^(?:\.+|…)$/u],
  ["bracket", /^[[\](){}<>]+$/u],
  ["punctuation", /^[^Aa0]+$/u],
  ["one digit", /^0$/u],
  ["digits", /^0+$/u],
  ["number", /^[-+]?0+(?:[.,:/]0+)+$/u],
  ["one capital", /^A$/u],
  ["capitals", /^A+$/u],
  ["capitalised", /^Aa+$/u],
  ["lower case", /^a+$/u],
  ["mixed case", /^[Aa]+$/u],
  ["letters, then digits", /^[Aa]+[-./]?0+$/u],
  ["digits, then letters", /^0+[-./]?[Aa]+$/u],
];

/**
 * Returns the first type that matches the whole word, or "other" if there is none.
 * @param {Word} word
 * @returns {string}
 */
function characterType(word) {
  for (const [name, pattern] of SPELLINGS) {
    if (pattern.test(word.text)) {
      return name;
    }
  }
  const outline = word.characters.map(outlineOf).join("");
  for (const [name, pattern] of OUTLINES) {
    if (pattern.test(outline)) {
      return name;
    }
  }
  return "other";
}

/**
 * Returns the replacement for a character in `OUTLINES`.
 * @param {string} character
 * @returns {string}
 */
function outlineOf(character) {
  if (isDigit(character)) {
    return "0";
  }
  if (!isAlpha(character)) {
    return character;
  }
  return isUpper(character) ? "A" : "a";
}

/**
 * Creates a function from words to the id of their value, if the value is in the column.
 * @param {string[]} values The values in the order of their ids.
 * @param {(word: Word) => string | null} valueOf Returns the value of a word, or null for no value.
 * @returns {FindIds}
 */
function findInValues(values, valueOf) {
  const idOfValue = new Map(values.map((value, id) => [value, id]));
  return (word) => {
    const value = valueOf(word);
    const id = value === null ? undefined : idOfValue.get(value);
    return id === undefined ? NO_IDS : [id];
  };
}

/**
 * Creates a function from the hash of a string to the ids in its table row, without -1. It returns
 * null for a hash without a row.
 * @param {Uint32Array} keys The lowest 32 bits of the hash for each row.
 * @param {Int32Array} table The ids of all rows, padded with -1. Shape: (keys, width)
 * @returns {(key: number) => ArrayLike<number> | null}
 */
function findInTable(keys, table) {
  const width = keys.length ? table.length / keys.length : 0;
  const rowOfKey = new Map();
  keys.forEach((key, row) => rowOfKey.set(key, row));
  return (key) => {
    const row = rowOfKey.get(key);
    if (row === undefined) {
      return null;
    }
    return table.subarray(row * width, (row + 1) * width).filter((id) => id >= 0);
  };
}

/**
 * The kinds of columns whose values depend only on the word.
 * @type {Record<string, (column: any, symbols: Map<string, number>) => FindIds>}
 */
export const WORD_COLUMNS = {
  /** The value of an attribute, e.g. the lowercase word. */
  attribute(column) {
    return findInValues(column.values, ATTRIBUTES[column.attribute]);
  },

  /** The first characters of a word, if it is long enough. */
  prefix(column) {
    const size = column.size;
    return findInValues(column.values, (word) =>
      word.characters.length < size ? null : word.characters.slice(0, size).join(""),
    );
  },

  /** The last characters of a word, if it is long enough. */
  suffix(column) {
    const size = column.size;
    return findInValues(column.values, (word) =>
      word.characters.length < size ? null : word.characters.slice(-size).join(""),
    );
  },

  /** Whether a word has a flag. The only value of the column is "yes". */
  flag(column) {
    const hasFlag = FLAGS[column.flag];
    return findInValues(column.values, (word) => (hasFlag(word) ? "yes" : null));
  },

  /** The type of a word, e.g. "capitals". See `SPELLINGS` and `OUTLINES`. */
  character_type(column) {
    return findInValues(column.values, characterType);
  },

  /** Label memory: how often an attribute's value had each label in the training data. */
  memory(column, symbols) {
    const attributeOf = ATTRIBUTES[column.attribute];
    const find = findInTable(column.keys, column.table);
    return (word) => find(hashString(attributeOf(word), symbols)) ?? NO_IDS;
  },

  /** The clusters of the original word or, if there are none, of the lowercase word. */
  clusters(column, symbols) {
    const find = findInTable(column.keys, column.table);
    return (word) =>
      find(hashString(word.text, symbols)) ?? find(hashString(word.lower, symbols)) ?? NO_IDS;
  },
};
