/**
 * Converts words to emissions, i.e. the score of each tag at each token.
 *
 * A column is a kind of token value, e.g. the lowercase word. It has a slot for each of its
 * offsets: the slot at offset -1 uses the values of the previous token. The combination of a slot
 * and a value is a feature with a row of weights, one for each tag:
 *
 *     row = first row of the slot + id of the value
 *     emissions[t] = sum over columns, their offsets o and the values v of token t + o
 *                    weights[row(column, o, v)]
 *
 * The contribution of a word at each offset is summed once and cached. See `features/lookup.py` and
 * `ml/word_sums.py`. Columns whose values depend only on the word are called word columns. In
 * shapes, N is the number of tokens and K the number of tags.
 */

import { isAllLower, isAllUpper } from "./characters.js";
import { findPhrases, makePhraseTree } from "./gazetteer.js";
import { groupOccurrences, nearestOccurrences, shareIds } from "./occurrences.js";
import { ATTRIBUTES, makeWord, WORD_COLUMNS } from "./words.js";

/** @typedef {import("./words.js").Word} Word */

/** The maximum number of features, which limits the memory usage for damaged files. */
const MOST_ROWS = 2 ** 26;

/** The size of the word cache. If it is full, it is cleared before the next text. */
const MOST_WORDS = 1 << 16;

/**
 * The words of a text.
 * @typedef {Object} Doc
 * @property {string} text
 * @property {Word[]} words
 * @property {WordEntry[]} entries The cached data of each word.
 */

/**
 * The cached data of a word: the ids of its values in each word column, and their contribution to
 * scores at each offset, for each pass.
 * @typedef {{word: Word, ids: ArrayLike<number>[], sums: Map<Emissions, Float64Array>}} WordEntry
 */

/**
 * The ids of the values of tokens, keyed by token. Tokens without values are omitted.
 * @typedef {Map<number, ArrayLike<number>>} IdsOfTokens
 */

/**
 * A column with its weight rows.
 * @typedef {Object} Column
 * @property {any} data The description of the column in the model file.
 * @property {number[]} offsets
 * @property {number[]} firstRows The first row of the slot at each offset.
 */

/** The columns of a model, used to look up the ids of the values of words and tokens. */
export class Features {
  /**
   * @param {any[]} columns The columns of the model file with their arrays, as created by
   *   `describe_column` in export/features.py.
   * @param {Record<string, number>} symbols The numbers of spaCy's symbols by name. See hashing.js.
   * @throws {Error} If the kind of a column is unknown or there are too many features.
   */
  constructor(columns, symbols) {
    this.symbols = new Map(Object.entries(symbols));
    /** @type {Column[]} */
    this.wordColumns = [];
    /** @type {Column[]} */
    this.docColumns = [];
    /** @type {Column[]} */
    this.labelColumns = [];
    this.nRows = 0;
    for (const data of columns) {
      /** @type {Column} */
      const column = { data, offsets: data.offsets, firstRows: [] };
      for (const _ of column.offsets) {
        column.firstRows.push(this.nRows);
        this.nRows += data.n_values;
      }
      if (Object.hasOwn(WORD_COLUMNS, data.kind)) {
        this.wordColumns.push(column);
      } else if (Object.hasOwn(DOC_COLUMNS, data.kind)) {
        this.docColumns.push(column);
      } else if (data.kind === "document") {
        this.labelColumns.push(column);
      } else {
        throw new Error(`model file: unknown kind of feature: ${data.kind}`);
      }
    }

    // Don't use `>`, because a damaged file may result in NaN.
    if (!(this.nRows <= MOST_ROWS)) {
      throw new Error(`model file: expected at most ${MOST_ROWS} features, got ${this.nRows}`);
    }

    // All offsets of word columns, in order.
    const offsets = this.wordColumns.flatMap((column) => column.offsets);
    this.wordOffsets = [...new Set(offsets)].sort((a, b) => a - b);
    this.findWordIds = this.wordColumns.map(({ data }) =>
      WORD_COLUMNS[data.kind](data, this.symbols),
    );
    // Create these functions last, because some of them use the ids of a word column.
    this.findDocIds = this.docColumns.map(({ data }) => DOC_COLUMNS[data.kind](data, this));
    /** @type {Map<string, WordEntry>} */
    this.entries = new Map();
  }

  /**
   * Creates a doc from the words of a text.
   * @param {string} text
   * @param {string[]} words
   * @returns {Doc}
   */
  read(text, words) {
    if (this.entries.size > MOST_WORDS) {
      this.entries.clear();
    }
    const entries = words.map(this.entryOf, this);
    return { text, words: entries.map((entry) => entry.word), entries };
  }

  /**
   * Returns the cached data of a word. A new word is looked up in all word columns.
   * @param {string} text The text of the word.
   * @returns {WordEntry}
   */
  entryOf(text) {
    let entry = this.entries.get(text);
    if (entry === undefined) {
      const word = makeWord(text);
      const ids = this.findWordIds.map((findIds) => findIds(word));
      entry = { word, ids, sums: new Map() };
      this.entries.set(text, entry);
    }
    return entry;
  }

  /**
   * Creates a function that returns the id of a word's value in a column, or -1 if there is no
   * value. The column must be a word column with at most one value per word.
   * @param {string} name The name of the column.
   * @returns {(entry: WordEntry) => number}
   * @throws {Error} If there is no such column.
   */
  makeIdFinder(name) {
    const index = this.wordColumns.findIndex(({ data }) => data.name === name);
    if (index < 0) {
      throw new Error(`model file: expected a column ${name}, found none`);
    }
    return (entry) => entry.ids[index][0] ?? -1;
  }

  /**
   * Returns the ids of the values of tokens in the columns that depend on the text.
   * @param {Doc} doc
   * @returns {IdsOfTokens[]} The ids in each of these columns.
   */
  findInDoc(doc) {
    return this.findDocIds.map((findIds) => findIds(doc));
  }

  /**
   * Returns the groups of tokens that use each other's labels, for each label column: capitalized
   * words and words with a digit that occur several times.
   * @param {Doc} doc
   * @returns {number[][][]} The tokens of each group, for each column.
   */
  groupTokens(doc) {
    return this.labelColumns.map(({ data }) =>
      groupOccurrences(
        doc.words,
        ATTRIBUTES[data.attribute],
        (word) => word.isCapitalised || word.hasDigit,
      ),
    );
  }

  /**
   * Returns the ids of the labels that the first pass predicts for the other occurrences of words.
   * @param {number[][][]} groups The result of `groupTokens`.
   * @param {Float64Array} probabilities The probabilities of O and each label.
   *   Shape: (N, labels + 1)
   * @param {string[]} labels The labels of the first pass, with O first.
   * @returns {IdsOfTokens[]} The ids in each label column.
   */
  findLabels(groups, probabilities, labels) {
    return this.labelColumns.map(({ data }, i) =>
      findLabelsElsewhere(groups[i], probabilities, labels, data),
    );
  }
}

/** The feature weights of a pass, which are summed to compute emissions. */
export class Emissions {
  /**
   * @param {Features} features
   * @param {Int32Array} rowIds The index in `weights` of each feature's row, or -1 if all weights
   *   are 0. Length: features
   * @param {Float64Array} weights The distinct rows. Shape: (rows, K)
   * @param {number} nTags K.
   */
  constructor(features, rowIds, weights, nTags) {
    this.features = features;
    this.rowIds = rowIds;
    this.weights = weights;
    this.nTags = nTags;
  }

  /**
   * Returns the part of the emissions that depends only on the words: the sum of the weights of
   * each token's word and the words around it. The returned array is a new array.
   * @param {Doc} doc
   * @returns {Float64Array} Shape: (N, K)
   */
  scoreWords(doc) {
    const { nTags } = this;
    const { wordOffsets } = this.features;
    const nTokens = doc.words.length;
    const emissions = new Float64Array(nTokens * nTags);
    for (let token = 0; token < nTokens; token++) {
      const sums = this.sumsOf(doc.entries[token]);
      for (let i = 0; i < wordOffsets.length; i++) {
        // The token that uses the word at this offset. For example, at offset -1, a token uses the
        // previous word, so the word contributes to the next token.
        const observer = token - wordOffsets[i];
        if (observer >= 0 && observer < nTokens) {
          const from = i * nTags;
          const to = observer * nTags;
          for (let k = 0; k < nTags; k++) {
            emissions[to + k] += sums[from + k];
          }
        }
      }
    }
    return emissions;
  }

  /**
   * Returns the contribution of a word to the scores of tokens at each offset.
   * @param {WordEntry} entry
   * @returns {Float64Array} Shape: (offsets, K)
   */
  sumsOf(entry) {
    let sums = entry.sums.get(this);
    if (sums === undefined) {
      const { wordOffsets, wordColumns } = this.features;
      sums = new Float64Array(wordOffsets.length * this.nTags);
      for (let c = 0; c < wordColumns.length; c++) {
        const { offsets, firstRows } = wordColumns[c];
        for (let i = 0; i < offsets.length; i++) {
          const row = wordOffsets.indexOf(offsets[i]);
          this.addRows(sums, row, firstRows[i], entry.ids[c]);
        }
      }
      entry.sums.set(this, sums);
    }
    return sums;
  }

  /**
   * Adds the weights of token values to emissions in place.
   * @param {Float64Array} emissions Shape: (N, K)
   * @param {Column[]} columns
   * @param {IdsOfTokens[]} idsOfColumns The ids of tokens in each column.
   */
  addValues(emissions, columns, idsOfColumns) {
    const nTokens = emissions.length / this.nTags;
    columns.forEach(({ offsets, firstRows }, c) => {
      for (const [token, ids] of idsOfColumns[c]) {
        for (let i = 0; i < offsets.length; i++) {
          const observer = token - offsets[i];
          if (observer >= 0 && observer < nTokens) {
            this.addRows(emissions, observer, firstRows[i], ids);
          }
        }
      }
    });
  }

  /**
   * Adds the weights of values in a slot to a row of scores in place.
   * @param {Float64Array} scores Shape: (rows, K)
   * @param {number} row The row of scores.
   * @param {number} firstRow The first weight row of the slot.
   * @param {ArrayLike<number>} ids The ids of the values.
   */
  addRows(scores, row, firstRow, ids) {
    const { nTags, rowIds, weights } = this;
    const to = row * nTags;
    for (let i = 0; i < ids.length; i++) {
      const from = rowIds[firstRow + ids[i]] * nTags;
      if (from < 0) {
        continue; // all weights are 0
      }
      for (let k = 0; k < nTags; k++) {
        scores[to + k] += weights[from + k];
      }
    }
  }
}

/**
 * The kinds of columns whose values depend on the text. Each function creates the function that
 * looks up the ids of the values.
 * @type {Record<string, (column: any, features: Features) => (doc: Doc) => IdsOfTokens>}
 */
const DOC_COLUMNS = {
  /** The values of another column at the current and the next token. */
  pairs(column, features) {
    const idOf = features.makeIdFinder(column.base);
    // Encode a pair of ids as one number. It is exact, because ids are below `MOST_ROWS`, so it is
    // below 2^52.
    const joinPair = (/** @type {number} */ left, /** @type {number} */ right) =>
      left * MOST_ROWS + right;
    const idOfPair = new Map();
    for (let i = 0; i < column.left.length; i++) {
      idOfPair.set(joinPair(column.left[i], column.right[i]), i);
    }
    return ({ entries }) => {
      const ids = new Map();
      for (let token = 0; token + 1 < entries.length; token++) {
        const leftId = idOf(entries[token]);
        const rightId = idOf(entries[token + 1]);
        if (leftId < 0 || rightId < 0) {
          continue; // at least one of them has no value
        }
        const id = idOfPair.get(joinPair(leftId, rightId));
        if (id !== undefined) {
          ids.set(token, [id]);
        }
      }
      return ids;
    };
  },

  /** The lowercase word, in texts that are entirely in lower or upper case. */
  caseless(column) {
    const idOfValue = new Map(
      column.values.map((/** @type {string} */ value, /** @type {number} */ id) => [value, id]),
    );
    return ({ text, words }) => {
      const ids = new Map();
      if (isAllLower(text) || isAllUpper(text)) {
        words.forEach(({ lower }, token) => {
          if (idOfValue.has(lower)) {
            ids.set(token, [idOfValue.get(lower)]);
          }
        });
      }
      return ids;
    };
  },

  /** The position of the token in a phrase of the gazetteer: B, I, L or U. */
  gazetteer(column) {
    const tree = makePhraseTree(column.phrases);
    return ({ words }) => {
      const ids = new Map();
      findPhrases(tree, words).forEach((position, token) => {
        const id = column.values.indexOf(position);
        if (id >= 0) {
          ids.set(token, [id]);
        }
      });
      return ids;
    };
  },

  /** The values of another column next to the nearest other occurrences of a capitalized word. */
  elsewhere(column, features) {
    const idOf = features.makeIdFinder(column.base);
    const valueOf = ATTRIBUTES[column.base];
    return ({ words, entries }) => {
      const ids = new Map();
      for (const tokens of groupOccurrences(words, valueOf, (word) => word.isCapitalised)) {
        tokens.forEach((token, place) => {
          const neighbourIds = new Set();
          for (const occurrence of nearestOccurrences(tokens, place, column.n_nearest)) {
            const neighbour = entries[occurrence + column.side];
            // Undefined if the occurrence is at the beginning or end of the text.
            if (neighbour !== undefined) {
              neighbourIds.add(idOf(neighbour));
            }
          }
          neighbourIds.delete(-1); // neighbours without a value
          ids.set(token, [...neighbourIds]);
        });
      }
      return ids;
    };
  },
};

/**
 * Returns the ids of features for the mean probability of each label at the other occurrences of a
 * token's word. See `shareIds`.
 * @param {number[][]} groups The tokens of each group.
 * @param {Float64Array} probabilities The probabilities of O and each label, predicted by the first
 *   pass. Shape: (N, labels + 1)
 * @param {string[]} labels The labels of the first pass, with O first.
 * @param {{labels: string[], width: number}} column The labels of the training data, with O first,
 *   and the maximum number of ids per token.
 * @returns {IdsOfTokens}
 */
function findLabelsElsewhere(groups, probabilities, labels, column) {
  // Ids are based on the order of the training labels, so reorder the probabilities. The index of a
  // label that is missing in the first pass is -1, and its probability is 0.
  const places = column.labels.map((label) => labels.indexOf(label));
  const probability = (/** @type {number} */ token, /** @type {number} */ place) =>
    place < 0 ? 0 : probabilities[token * labels.length + place];

  const ids = new Map();
  for (const tokens of groups) {
    const sums = places.map((place) =>
      tokens.reduce((sum, token) => sum + probability(token, place), 0),
    );
    for (const token of tokens) {
      // The sum over the other occurrences is the sum of the group minus the token itself.
      const sumsElsewhere = sums.map((sum, i) => sum - probability(token, places[i]));
      ids.set(token, shareIds(sumsElsewhere, column.width));
    }
  }
  return ids;
}
