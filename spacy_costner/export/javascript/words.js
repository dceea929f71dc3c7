/**
 * Features of words: what depends on the word alone, not on the text around it.
 *
 * A column is a kind of value, such as the word in lower case. Its values have ids, which count
 * from 0. `WORD_COLUMNS` has a function for each kind, which takes the column of a model file to a
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
 * A word and its attributes that are often needed.
 * @typedef {Object} Word
 * @property {string} text
 * @property {string} lower The word in lower case.
 * @property {string[]} characters
 * @property {boolean} isSpace Whether it is whitespace.
 * @property {boolean} hasBreak Whether it has a line break.
 * @property {boolean} isCapitalised Whether it begins with a capital.
 * @property {boolean} hasDigit
 */

/**
 * Takes a word to the ids of its values in a column.
 * @typedef {(word: Word) => ArrayLike<number>} FindIds
 */

/** @type {ReadonlyArray<number>} */
const NO_IDS = Object.freeze([]);

/**
 * Makes a word of its text.
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
 * Attributes of words, by their names in spaCy.
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
 * Yes-or-no attributes of words: spaCy's, then `TEXT_FLAGS` in features/words.py.
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
// Python also takes the Turkish letters İ and ı for i where case doesn't matter.
const GREEK_WITH_TURKISH_I = GREEK.replaceAll("i", "[i\u0130\u0131]");

/**
 * The types of words that depend on their letters. A word is compared with these first.
 * @type {[string, RegExp][]}
 */
const SPELLINGS = [
  // `(?=[^])`: the empty word, which has no first character, is no numeral.
  ["Roman numeral", /^(?=[^])X{0,3}(?:IX|IV|V?I{0,3})$/u],
  ["Greek letter", new RegExp(`^(?:${GREEK_WITH_TURKISH_I})$`, "iu")],
  ["Greek letter", /^[\u0391-\u03c9]$/u],
  ["base sequence", /^[ACGTU]{4,}$/u],
];

/**
 * Other types, for words in which each capital was replaced by A, each other letter by a, each
 * digit by 0.
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
 * Returns the first type that matches a whole word, "other" if none does.
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
 * Returns the character that replaces a character in `OUTLINES`.
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
 * Makes the function from words to the id of their value, if the column has it.
 * @param {string[]} values The values, in the order of their ids.
 * @param {(word: Word) => string | null} valueOf Returns the value of a word, or null for none.
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
 * Makes the function from the hash of a string to the ids in its row of a table, without -1; null
 * for a hash that has no row.
 * @param {Uint32Array} keys The lowest 32 bits of the hashes, one for each row.
 * @param {Int32Array} table The ids of all rows, -1 for none. Shape: (keys, width)
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
 * The kinds of columns whose values depend on the word alone.
 * @type {Record<string, (column: any, symbols: Map<string, number>) => FindIds>}
 */
export const WORD_COLUMNS = {
  /** The value of an attribute, such as the word in lower case. */
  attribute(column) {
    return findInValues(column.values, ATTRIBUTES[column.attribute]);
  },

  /** The first characters of words with at least this many. */
  prefix(column) {
    const size = column.size;
    return findInValues(column.values, (word) =>
      word.characters.length < size ? null : word.characters.slice(0, size).join(""),
    );
  },

  /** The last characters of words with at least this many. */
  suffix(column) {
    const size = column.size;
    return findInValues(column.values, (word) =>
      word.characters.length < size ? null : word.characters.slice(-size).join(""),
    );
  },

  /** Whether a word has a flag: its value is "yes" then, the only one of the column. */
  flag(column) {
    const hasFlag = FLAGS[column.flag];
    return findInValues(column.values, (word) => (hasFlag(word) ? "yes" : null));
  },

  /** The type of a word, such as "capitals": see `SPELLINGS` and `OUTLINES`. */
  character_type(column) {
    return findInValues(column.values, characterType);
  },

  /** Label memory: how often the value of an attribute had each label in the training data. */
  memory(column, symbols) {
    const attributeOf = ATTRIBUTES[column.attribute];
    const find = findInTable(column.keys, column.table);
    return (word) => find(hashString(attributeOf(word), symbols)) ?? NO_IDS;
  },

  /** The clusters of a word: as it is written or, if it has none, in lower case. */
  clusters(column, symbols) {
    const find = findInTable(column.keys, column.table);
    return (word) =>
      find(hashString(word.text, symbols)) ?? find(hashString(word.lower, symbols)) ?? NO_IDS;
  },
};
