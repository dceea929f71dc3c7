/**
 * spaCy's rule-based tokenizer (spacy/tokenizer.pyx), created from the result of
 * `describe_tokenizer` in export/tokenizer.py.
 *
 * A text is split where whitespace begins or ends. From each piece, prefixes and suffixes are
 * removed until there are none left, or until the rest is a special case, e.g. "U.S.", or matches
 * `token_match`. The rest is split at infixes. Finally, sequences of tokens that form a special
 * case are replaced with its tokens, e.g. `(?)` or `z. B.`, which were split by affixes or spaces.
 */

/*! Ported from spaCy, spacy/tokenizer.pyx. Copyright (C) 2016-2024 ExplosionAI GmbH,
    2016 spaCy GmbH, 2015 Matthew Honnibal. MIT License: see the file LICENSE. */

/** @typedef {import("./ner.js").Token} Token */

/**
 * @typedef {object} Description Regular expressions are given as their source for the flag `u`.
 * @property {?string} prefix_search
 * @property {?string} suffix_search
 * @property {?string} infix_finditer
 * @property {?string} token_match
 * @property {?string} url_match
 * @property {boolean} infix_can_be_empty Whether the infix can match the empty string.
 * @property {string[][]} rules The tokens of each special case.
 * @property {boolean} faster_heuristics See `addSpecial`.
 */

/**
 * A node in the tree of special cases: the next nodes by token, and whether a special case ends
 * here.
 * @typedef {{next: Map<string, Node>, isEnd: boolean}} Node
 */

/** The maximum number of cached pieces of text, and their maximum length. */
const MAX_CACHED = 50_000;
const MAX_CACHED_LENGTH = 60;

/**
 * Creates a function that splits a text into the tokens of a spaCy Doc.
 * @param {Description} description
 * @returns {(text: string) => Token[]}
 */
export function makeTokenizer(description) {
  const tokenizer = new Tokenizer(description);
  return (text) => tokenizer.tokenize(text);
}

/** A tokenizer created from a description. */
class Tokenizer {
  /** @param {Description} description */
  constructor(description) {
    this.prefix = compile(description.prefix_search, "u");
    this.suffix = compile(description.suffix_search, "u");
    this.infix = compile(description.infix_finditer, "gu");
    this.tokenMatch = compile(description.token_match, "uy");
    this.urlMatch = compile(description.url_match, "uy");
    this.nonEmptyInfix = null;
    if (description.infix_can_be_empty) {
      // Group 1 is the rest of the text before the match. If the rest after the match is the same,
      // the match is empty. The pattern itself contains no capturing groups.
      this.nonEmptyInfix = compile(`(?=([^]*))(?:${description.infix_finditer})(?!\\1$)`, "uy");
    }

    /** @type {Map<string, string[]>} */
    this.specials = new Map();
    this.longestSpecial = 0;
    /** @type {Node} */
    this.matcher = { next: new Map(), isEnd: false };
    /** @type {Map<string, string[]>} */
    this.cache = new Map();
    for (const words of description.rules) {
      this.addSpecial(words, description.faster_heuristics);
    }
  }

  /**
   * Adds a special case. The cache is cleared and then filled with the tokens of the special case's
   * text without looking up special cases. The tokens of the last special case remain in the cache,
   * as in a loaded spaCy pipeline, to get the same tokens for texts with the same pieces.
   * @param {string[]} words The tokens of the special case.
   * @param {boolean} fasterHeuristics Whether to exclude special cases from the tree if they are
   *   not split by affixes or spaces.
   */
  addSpecial(words, fasterHeuristics) {
    const chunk = words.join("");
    this.specials.set(chunk, words);
    this.longestSpecial = Math.max(this.longestSpecial, chunk.length);
    this.cache = new Map();
    const isSplit =
      chunk.includes(" ") ||
      lengthOf(this.prefix, chunk) > 0 ||
      lengthOf(this.suffix, chunk) > 0 ||
      this.findInfixes(chunk).length > 0;
    if (fasterHeuristics && !isSplit) {
      return;
    }
    const tokens = this.splitAtSpaces(chunk, false);
    if (tokens.length === 0) {
      return;
    }
    let node = this.matcher;
    for (const token of tokens) {
      let next = node.next.get(token.text);
      if (next === undefined) {
        next = { next: new Map(), isEnd: false };
        node.next.set(token.text, next);
      }
      node = next;
    }
    node.isEnd = true;
  }

  /**
   * Returns the tokens of a text.
   * @param {string} text
   * @returns {Token[]}
   */
  tokenize(text) {
    const tokens = this.splitAtSpaces(text, true);
    const sequences = this.findSpecials(tokens);
    if (sequences.length === 0) {
      return tokens;
    }
    return this.replaceSpecials(text, tokens, withoutOverlaps(sequences));
  }

  /**
   * Splits a text where whitespace begins or ends, and splits the pieces at affixes. A single space
   * after a piece belongs to its last token. Additional spaces and other whitespace are tokens.
   * @param {string} text
   * @param {boolean} hasSpecials Whether to look up special cases.
   * @returns {Token[]}
   */
  splitAtSpaces(text, hasSpecials) {
    /** @type {Token[]} */
    const tokens = [];
    let start = 0;
    let isInSpace = text.length > 0 && isSpace(text.charCodeAt(0));
    for (let i = 0; i <= text.length; i++) {
      const isAtEnd = i === text.length;
      const code = isAtEnd ? 0 : text.charCodeAt(i);
      if (!isAtEnd && isSpace(code) === isInSpace) {
        continue;
      }
      if (start < i) {
        let end = start;
        for (const word of this.tokensOf(text.slice(start, i), hasSpecials)) {
          tokens.push({ text: word, start: end, end: end + word.length, space: false });
          end += word.length;
        }
      }
      start = i;
      if (code === SPACE) {
        // A piece of text ends here, so there is at least one token.
        tokens[tokens.length - 1].space = true;
        start = i + 1;
      }
      isInSpace = !isInSpace;
    }
    return tokens;
  }

  /**
   * Returns the tokens of a piece of text without whitespace, or of whitespace. The tokens of short
   * pieces are cached.
   * @param {string} piece
   * @param {boolean} hasSpecials
   * @returns {string[]}
   */
  tokensOf(piece, hasSpecials) {
    const stored = this.lookUp(piece, hasSpecials);
    if (stored !== undefined) {
      return stored;
    }
    const tokens = this.splitAffixes(piece, hasSpecials);
    if (this.cache.size < MAX_CACHED && piece.length <= MAX_CACHED_LENGTH) {
      this.cache.set(piece, tokens);
    }
    return tokens;
  }

  /**
   * Returns the tokens of a special case or a cached piece of text.
   * @param {string} piece
   * @param {boolean} hasSpecials
   * @returns {string[] | undefined}
   */
  lookUp(piece, hasSpecials) {
    const special = hasSpecials ? this.specialOf(piece) : undefined;
    if (special !== undefined) {
      return special;
    }
    return piece.length <= MAX_CACHED_LENGTH ? this.cache.get(piece) : undefined;
  }

  /**
   * Returns the tokens of a special case. Texts that are longer than any special case are not
   * looked up, to avoid hashing them.
   * @param {string} piece
   * @returns {string[] | undefined}
   */
  specialOf(piece) {
    return piece.length <= this.longestSpecial ? this.specials.get(piece) : undefined;
  }

  /**
   * Checks whether special cases are enabled and a piece of text is a special case.
   * @param {string} piece
   * @param {boolean} hasSpecials
   */
  isSpecial(piece, hasSpecials) {
    return hasSpecials && this.specialOf(piece) !== undefined;
  }

  /**
   * Removes prefixes and suffixes from a piece of text, one of each at a time, and splits the rest.
   * Stops as soon as the rest without its prefix or without its suffix is a special case.
   * @param {string} piece
   * @param {boolean} hasSpecials
   * @returns {string[]}
   */
  splitAffixes(piece, hasSpecials) {
    const prefixes = [];
    const suffixes = [];
    let rest = piece;
    let lastLength = 0;
    while (rest.length > 0 && rest.length !== lastLength) {
      if (matches(this.tokenMatch, rest) || this.isSpecial(rest, hasSpecials)) {
        break;
      }
      lastLength = rest.length;
      const prefixLength = lengthOf(this.prefix, rest);
      const withoutPrefix = rest.slice(prefixLength);
      if (prefixLength > 0 && this.isSpecial(withoutPrefix, hasSpecials)) {
        prefixes.push(rest.slice(0, prefixLength));
        rest = withoutPrefix;
        break;
      }
      const suffixLength = lengthOf(this.suffix, withoutPrefix);
      const suffixStart = rest.length - suffixLength;
      if (suffixLength > 0 && this.isSpecial(rest.slice(0, suffixStart), hasSpecials)) {
        suffixes.push(rest.slice(suffixStart));
        rest = rest.slice(0, suffixStart);
        break;
      }
      // The suffix was searched after the prefix, so they don't overlap.
      if (prefixLength > 0) {
        prefixes.push(rest.slice(0, prefixLength));
      }
      if (suffixLength > 0) {
        suffixes.push(rest.slice(suffixStart));
      }
      rest = rest.slice(prefixLength, suffixStart);
    }
    return [...prefixes, ...this.splitRest(rest, hasSpecials), ...suffixes.reverse()];
  }

  /**
   * Splits the rest of a piece without its prefixes and suffixes.
   * @param {string} rest
   * @param {boolean} hasSpecials
   * @returns {string[]}
   */
  splitRest(rest, hasSpecials) {
    if (rest === "") {
      return [];
    }
    const stored = this.lookUp(rest, hasSpecials);
    if (stored !== undefined) {
      return stored;
    }
    if (matches(this.tokenMatch, rest) || matches(this.urlMatch, rest)) {
      return [rest];
    }
    const tokens = [];
    let end = 0;
    for (const [infixStart, infixEnd] of this.findInfixes(rest)) {
      if (infixStart === 0) {
        continue; // as in spaCy, an infix at the beginning is not split off
      }
      if (infixStart !== end) {
        tokens.push(rest.slice(end, infixStart));
      }
      if (infixStart !== infixEnd) {
        tokens.push(rest.slice(infixStart, infixEnd));
      }
      end = infixEnd;
    }
    if (end < rest.length) {
      tokens.push(rest.slice(end));
    }
    return tokens;
  }

  /**
   * Finds infixes like Python's `finditer`: after an empty match, it searches for a non-empty match
   * at the same position.
   * @param {string} text
   * @returns {[number, number][]} The start and end of each infix.
   */
  findInfixes(text) {
    /** @type {[number, number][]} */
    const infixes = [];
    if (this.infix === null) {
      return infixes;
    }
    this.infix.lastIndex = 0;
    while (this.infix.lastIndex <= text.length) {
      const match = this.infix.exec(text);
      if (match === null) {
        break;
      }
      const end = match.index + match[0].length;
      infixes.push([match.index, end]);
      if (match.index < end) {
        continue;
      }
      const nonEmptyEnd = endOf(this.nonEmptyInfix, text, end);
      if (nonEmptyEnd > end) {
        infixes.push([end, nonEmptyEnd]);
        this.infix.lastIndex = nonEmptyEnd;
      } else {
        this.infix.lastIndex = end + ((text.codePointAt(end) ?? 0) > 0xffff ? 2 : 1);
      }
    }
    return infixes;
  }

  /**
   * Finds all sequences of tokens that are in the tree of special cases.
   * @param {Token[]} tokens
   * @returns {[number, number][]} The first token, and the token after the last one, of each
   *   sequence.
   */
  findSpecials(tokens) {
    /** @type {[number, number][]} */
    const sequences = [];
    for (let start = 0; start < tokens.length; start++) {
      let node = this.matcher.next.get(tokens[start].text);
      for (let end = start + 1; node !== undefined; end++) {
        if (node.isEnd) {
          sequences.push([start, end]);
        }
        node = end < tokens.length ? node.next.get(tokens[end].text) : undefined;
      }
    }
    return sequences;
  }

  /**
   * Replaces sequences of tokens with the tokens of the special cases they form. A sequence is
   * unchanged if its text, including spaces, differs from the text of the special case.
   * @param {string} text
   * @param {Token[]} tokens
   * @param {[number, number][]} sequences The sequences in text order, without overlaps.
   * @returns {Token[]}
   */
  replaceSpecials(text, tokens, sequences) {
    /** @type {Token[]} */
    const replaced = [];
    let next = 0;
    for (const [start, end] of sequences) {
      const last = tokens[end - 1];
      const words = this.specials.get(text.slice(tokens[start].start, last.end));
      if (words === undefined) {
        continue;
      }
      for (; next < start; next++) {
        replaced.push(tokens[next]);
      }
      let wordStart = tokens[start].start;
      for (const word of words) {
        const wordEnd = wordStart + word.length;
        replaced.push({ text: word, start: wordStart, end: wordEnd, space: false });
        wordStart = wordEnd;
      }
      replaced[replaced.length - 1].space = last.space;
      next = end;
    }
    for (; next < tokens.length; next++) {
      replaced.push(tokens[next]);
    }
    return replaced;
  }
}

/**
 * Selects sequences that don't overlap, preferring longer sequences and then earlier ones. As in
 * spaCy, a sequence that isn't selected still excludes shorter sequences of its tokens.
 * @param {[number, number][]} sequences
 * @returns {[number, number][]} The selected sequences in text order.
 */
function withoutOverlaps(sequences) {
  const order = [...sequences].sort((a, b) => b[1] - b[0] - (a[1] - a[0]) || a[0] - b[0]);
  const takenTokens = new Set();
  /** @type {[number, number][]} */
  const chosen = [];
  for (const [start, end] of order) {
    if (!takenTokens.has(start) && !takenTokens.has(end - 1)) {
      chosen.push([start, end]);
    }
    for (let i = start; i < end; i++) {
      takenTokens.add(i);
    }
  }
  return chosen.sort((a, b) => a[0] - b[0]);
}

const SPACE = 0x20;
const OTHER_SPACES = new Set([0x85, 0xa0, 0x1680, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000]);

/**
 * Checks whether a UTF-16 unit is whitespace according to Python's `str.isspace`, which differs
 * slightly from JavaScript's `\s`.
 * @param {number} code
 */
function isSpace(code) {
  if (code < 0x80) {
    return code === SPACE || (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x1f);
  }
  return (code >= 0x2000 && code <= 0x200a) || OTHER_SPACES.has(code);
}

/**
 * Compiles a regular expression, if any.
 * @param {?string} source
 * @param {string} flags
 */
function compile(source, flags) {
  return source === null ? null : new RegExp(source, flags);
}

/**
 * Returns the length of the first match in a text, or 0 if there is no match.
 * @param {?RegExp} regex
 * @param {string} text
 */
function lengthOf(regex, text) {
  const match = regex === null ? null : regex.exec(text);
  return match === null ? 0 : match[0].length;
}

/**
 * Returns the end of the match that starts at a given position, or -1 if there is no match.
 * @param {?RegExp} regex A regular expression with the flag `y`.
 * @param {string} text
 * @param {number} start
 */
function endOf(regex, text, start) {
  if (regex === null) {
    return -1;
  }
  regex.lastIndex = start;
  return regex.test(text) ? regex.lastIndex : -1;
}

/**
 * Checks whether a regular expression matches at the beginning of a text.
 * @param {?RegExp} regex A regular expression with the flag `y`.
 * @param {string} text
 */
function matches(regex, text) {
  return endOf(regex, text, 0) >= 0;
}
