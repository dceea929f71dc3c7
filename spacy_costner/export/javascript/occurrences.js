/**
 * Features of the other occurrences of a word in its text: the words next to them, and the labels
 * that the first pass predicts for them. See `features/elsewhere.py`, `document.py` and
 * `shares.py`.
 *
 * Tokens with the same value of an attribute, e.g. the lowercase word, are occurrences of each
 * other. They form a group.
 */

/** @typedef {import("./words.js").Word} Word */

/** The boundaries between the 8 bins of shares. There is no feature for the lowest bin. */
const SHARE_BORDERS = [0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98];

/** The boundaries between the bins of the number of occurrences of a value. */
const TIMES_BORDERS = [2, 4];

/**
 * Finds the values that occur several times in a text.
 * @param {Word[]} words The words of the text.
 * @param {(word: Word) => string} valueOf Returns the value of a word, or "" for no value.
 * @param {(word: Word) => boolean} takesPart Returns whether to include a word.
 * @returns {number[][]} The tokens of each group in ascending order.
 */
export function groupOccurrences(words, valueOf, takesPart) {
  /** @type {Map<string, number[]>} */
  const tokensOfValue = new Map();
  words.forEach((word, token) => {
    if (!takesPart(word)) {
      return;
    }
    const value = valueOf(word);
    if (value === "") {
      return;
    }
    const tokens = tokensOfValue.get(value);
    if (tokens === undefined) {
      tokensOfValue.set(value, [token]);
    } else {
      tokens.push(token);
    }
  });
  return [...tokensOfValue.values()].filter((tokens) => tokens.length > 1);
}

/**
 * Returns the nearest other occurrences of a token in a group. If two are equally near, the left
 * one comes first.
 * @param {number[]} tokens The tokens of a group in ascending order.
 * @param {number} place The index of the token in `tokens`.
 * @param {number} nNearest The maximum number of occurrences to return.
 * @returns {number[]}
 */
export function nearestOccurrences(tokens, place, nNearest) {
  const nearest = [];
  let left = place - 1;
  let right = place + 1;
  while (nearest.length < nNearest && (left >= 0 || right < tokens.length)) {
    const leftDistance = left >= 0 ? tokens[place] - tokens[left] : Infinity;
    const rightDistance = right < tokens.length ? tokens[right] - tokens[place] : Infinity;
    if (leftDistance <= rightDistance) {
      nearest.push(tokens[left]);
      left -= 1;
    } else {
      nearest.push(tokens[right]);
      right += 1;
    }
  }
  return nearest;
}

/**
 * Returns the ids of the features of a value, e.g. a word, based on its label counts. The first id
 * is for the most frequent label, its share and the total count. The other ids are for the label
 * shares.
 *
 *     share of l = n_l / max(1, round(sum_m n_m))
 *
 * @param {ArrayLike<number>} counts The count n_l of each label, or the sum of its probabilities.
 *   Length: labels
 * @param {number} width The maximum number of ids to return.
 * @returns {number[]}
 */
export function shareIds(counts, width) {
  const nLabels = counts.length;
  let sum = 0;
  for (let label = 0; label < nLabels; label++) {
    sum += counts[label];
  }
  const total = roundHalfToEven(sum);

  // The first ids are for shares: one id per label and bin, except for the lowest bin.
  const nBinsAboveLowest = SHARE_BORDERS.length;
  const idsOfShares = [];
  let best = 0;
  for (let label = 0; label < nLabels; label++) {
    const bin = binOf(counts[label] / Math.max(total, 1), SHARE_BORDERS);
    if (bin > 0) {
      idsOfShares.push(label * nBinsAboveLowest + bin - 1);
    }
    if (counts[label] > counts[best]) {
      best = label;
    }
  }

  const ids = [];
  if (total !== 0) {
    // The following ids are for the most frequent label: one id per label, bin of its share and bin
    // of the total, numbered in this order.
    const bestBin = binOf(counts[best] / Math.max(total, 1), SHARE_BORDERS);
    const nBins = nBinsAboveLowest + 1;
    const nTimesBins = TIMES_BORDERS.length + 1;
    const index = (best * nBins + bestBin) * nTimesBins + binOf(total, TIMES_BORDERS);
    ids.push(nLabels * nBinsAboveLowest + index);
  }
  // If there are more than `width` ids, keep the shares of the last labels.
  return ids.concat(idsOfShares.reverse().slice(0, width - 1));
}

/**
 * Returns the bin of a number, i.e. the number of boundaries that are at most the number.
 * @param {number} number
 * @param {number[]} borders
 * @returns {number}
 */
function binOf(number, borders) {
  let bin = 0;
  while (bin < borders.length && number >= borders[bin]) {
    bin += 1;
  }
  return bin;
}

/**
 * Rounds half to even, like NumPy.
 * @param {number} number
 * @returns {number}
 */
function roundHalfToEven(number) {
  const floor = Math.floor(number);
  const rest = number - floor;
  if (rest === 0.5) {
    return floor % 2 === 0 ? floor : floor + 1;
  }
  return Math.round(number);
}
