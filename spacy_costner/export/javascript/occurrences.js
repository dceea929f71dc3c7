/**
 * Features of the other occurrences of a word in its text: the words next to them, and the labels
 * that a first pass predicts for them. See `features/elsewhere.py`, `document.py` and `shares.py`.
 *
 * Tokens that have the same value of an attribute, such as the word in lower case, are occurrences
 * of each other. They form a group.
 */

/** @typedef {import("./words.js").Word} Word */

/** The borders between the 8 bins of shares. A share in the lowest bin is no feature. */
const SHARE_BORDERS = [0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98];

/** The borders between the bins of the number of times that a value was there. */
const TIMES_BORDERS = [2, 4];

/**
 * Finds the values that occur several times in a text.
 * @param {Word[]} words The words of the text.
 * @param {(word: Word) => string} valueOf Returns the value of a word, "" for none.
 * @param {(word: Word) => boolean} takesPart Returns whether the word counts as an occurrence.
 * @returns {number[][]} The tokens of each group, from the left.
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
 * Finds the other occurrences that are nearest to one token of a group. Of two that are equally
 * near, the left one comes first.
 * @param {number[]} tokens The tokens of a group, from the left.
 * @param {number} place The index in `tokens` of the token whose neighbours are searched for.
 * @param {number} nNearest How many to find, at most.
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
 * Returns the ids of the features of a value, such as a word, from how often it had each label:
 * first the id of its most frequent label, together with its share and the number of times that the
 * value was there, then the ids of the shares of labels.
 *
 *     share of l = n_l / max(1, round(sum_m n_m))
 *
 * @param {ArrayLike<number>} counts How often it had each label, n_l, or sums of probabilities.
 *   Length: labels
 * @param {number} width The most ids to return.
 * @returns {number[]}
 */
export function shareIds(counts, width) {
  const nLabels = counts.length;
  let sum = 0;
  for (let label = 0; label < nLabels; label++) {
    sum += counts[label];
  }
  const total = roundHalfToEven(sum);

  // The ids from 0 on are for shares: label after label, one for each bin but the lowest.
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
    // The ids after them are for the most frequent label: one for each label, bin of its share
    // and bin of the total, numbered in this order.
    const bestBin = binOf(counts[best] / Math.max(total, 1), SHARE_BORDERS);
    const nBins = nBinsAboveLowest + 1;
    const nTimesBins = TIMES_BORDERS.length + 1;
    const index = (best * nBins + bestBin) * nTimesBins + binOf(total, TIMES_BORDERS);
    ids.push(nLabels * nBinsAboveLowest + index);
  }
  // If there are more than `width`, the shares of the last labels stay.
  return ids.concat(idsOfShares.reverse().slice(0, width - 1));
}

/**
 * Returns the number of borders that a number reaches.
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
 * Rounds as NumPy does: a half is rounded to the nearest even number.
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
