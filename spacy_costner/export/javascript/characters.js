/**
 * Character classes as defined by Python and spaCy. A character is a code point, not a UTF-16 unit.
 *
 * `isAlpha`, `isDigit`, `isUpper` and `isLower` are equivalent to the methods of Python's `str`,
 * and the functions for words are equivalent to spaCy's attributes. JavaScript's regular
 * expressions have no property for Python's digits or whitespace. Python and a browser may use
 * different Unicode versions. Newer versions add letters. Of the characters in both Unicode 14 and
 * 17, six differ in whether they are lowercase.
 */

/*! `shapeOf` is ported from spaCy, spacy/lang/lex_attrs.py. Copyright (C) 2016-2024
    ExplosionAI GmbH, 2016 spaCy GmbH, 2015 Matthew Honnibal. MIT License: see the file LICENSE. */

/** Characters with the Unicode property Numeric_Type=Digit that are not decimal digits. */
const OTHER_DIGITS =
  /^[\u00b2\u00b3\u00b9\u1369-\u1371\u19da\u2070\u2074-\u2079\u2080-\u2089\u2460-\u2468\u2474-\u247c\u2488-\u2490\u24ea\u24f5-\u24fd\u24ff\u2776-\u277e\u2780-\u2788\u278a-\u2792\u{10a40}-\u{10a43}\u{10e60}-\u{10e68}\u{11052}-\u{1105a}\u{1f100}-\u{1f10a}]$/u;
const DECIMAL_DIGIT = /^\p{Nd}$/u;
const LETTER = /^\p{L}$/u;
const UPPER = /^\p{Uppercase}$/u;
const LOWER = /^\p{Lowercase}$/u;
const TITLE = /^\p{Lt}$/u;
const PUNCTUATION = /^\p{P}$/u;
const WHITE_SPACE =
  /^[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+$/;

/** Words with at least this many characters have the shape "LONG". */
const LONG = 100;

/** The maximum number of identical consecutive characters in a shape. */
const MOST_EQUAL = 4;

/**
 * Returns the characters of a text.
 * @param {string} text
 * @returns {string[]}
 */
export function charactersOf(text) {
  return Array.from(text);
}

/**
 * @param {string} character
 * @returns {boolean}
 */
export function isAlpha(character) {
  return LETTER.test(character);
}

/**
 * @param {string} character
 * @returns {boolean}
 */
export function isDigit(character) {
  return DECIMAL_DIGIT.test(character) || OTHER_DIGITS.test(character);
}

/**
 * @param {string} character
 * @returns {boolean}
 */
export function isUpper(character) {
  return UPPER.test(character);
}

/**
 * @param {string} character
 * @returns {boolean}
 */
export function isLower(character) {
  return LOWER.test(character);
}

/**
 * Checks whether a character is a titlecase letter, e.g. the digraph Dz as a single character.
 * @param {string} character
 * @returns {boolean}
 */
export function isTitleLetter(character) {
  return TITLE.test(character);
}

/**
 * Checks whether a character is punctuation, based on its Unicode category.
 * @param {string} character
 * @returns {boolean}
 */
export function isPunctuation(character) {
  return PUNCTUATION.test(character);
}

/**
 * Checks whether a word is non-empty and consists of whitespace.
 * @param {string} word
 * @returns {boolean}
 */
export function isSpace(word) {
  return WHITE_SPACE.test(word);
}

/**
 * Checks whether a text contains cased letters and all of them are uppercase.
 * @param {string} text
 * @returns {boolean}
 */
export function isAllUpper(text) {
  let hasUpper = false;
  for (const character of text) {
    if (isLower(character) || isTitleLetter(character)) {
      return false;
    }
    hasUpper = hasUpper || isUpper(character);
  }
  return hasUpper;
}

/**
 * Checks whether a text contains cased letters and all of them are lowercase.
 * @param {string} text
 * @returns {boolean}
 */
export function isAllLower(text) {
  let hasLower = false;
  for (const character of text) {
    if (isUpper(character) || isTitleLetter(character)) {
      return false;
    }
    hasLower = hasLower || isLower(character);
  }
  return hasLower;
}

/**
 * Checks whether each run of cased letters in a word starts with its only capital letter.
 * @param {string} word
 * @returns {boolean}
 */
export function isTitle(word) {
  let isInRun = false;
  let hasRun = false;
  for (const character of word) {
    if (isUpper(character) || isTitleLetter(character)) {
      if (isInRun) {
        return false;
      }
      isInRun = true;
      hasRun = true;
    } else if (isLower(character)) {
      if (!isInRun) {
        return false;
      }
    } else {
      isInRun = false;
    }
  }
  return hasRun;
}

/**
 * Returns the shape of a word as in spaCy: X for uppercase letters, x for other letters, d for
 * digits, and other characters unchanged. Runs of identical characters are truncated to four.
 * @param {string} word
 * @returns {string}
 */
export function shapeOf(word) {
  const characters = charactersOf(word);
  if (characters.length >= LONG) {
    return "LONG";
  }
  let shape = "";
  let last = "";
  let nEqual = 0;
  for (const character of characters) {
    let kind = character;
    if (isAlpha(character)) {
      kind = isUpper(character) ? "X" : "x";
    } else if (isDigit(character)) {
      kind = "d";
    }
    nEqual = kind === last ? nEqual + 1 : 1;
    last = kind;
    if (nEqual <= MOST_EQUAL) {
      shape += kind;
    }
  }
  return shape;
}
