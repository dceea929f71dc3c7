/**
 * The linear chain: the best path, and the probabilities of tags and entities.
 *
 * A text has N tokens and a chain for each of its sequences, which are cut at line breaks. There
 * are K tags. The score of a path y of T tokens is
 *
 *     s(y) = start[y_1] + sum_t E[t, y_t] + sum_t M[y_{t-1}, y_t] + end[y_T],
 *
 * its probability p(y) = exp(s(y)) / Z. A forbidden tag or transition has the score minus infinity.
 *
 * The messages are logarithms, so that neither long texts nor large scores underflow:
 *
 *     alpha_t[j] = log sum_i exp(alpha_{t-1}[i] + M[i, j]) + E[t, j],    alpha_1 = start + E[1]
 *     beta_t[i]  = log sum_j exp(M[i, j] + E[t+1, j] + beta_{t+1}[j]),   beta_T = end
 *     log Z      = log sum_j exp(alpha_T[j] + end[j])
 *     p(y_t = k) = exp(alpha_t[k] + beta_t[k] - log Z)
 */

/**
 * The scores of a text.
 * @typedef {Object} Potentials
 * @property {number} nTags K.
 * @property {Float64Array} emissions E. Shape: (N, K)
 * @property {Float64Array} transitions M, [from, to]. Shape: (K, K)
 * @property {Float64Array} start Shape: (K,)
 * @property {Float64Array} end Shape: (K,)
 * @property {number[]} bounds The first token of each sequence, then N.
 */

/**
 * What the tags of a chain mean. Label -1 is none.
 * @typedef {Object} Tags
 * @property {string[]} labels
 * @property {number[]} label_of The label of each tag; -1 outside of entities. Length: K
 * @property {number[]} opening The tags that begin an entity.
 * @property {number[]} continuing The tags that go on with the entity of the token before.
 * @property {number[]} closing The tags that an entity may end with.
 * @property {number[]} at_border The tags that only the first or last token of an entity has.
 * @property {number[]} collapsed_of What each tag counts as, with a single O. Length: K
 * @property {[number, number][]} inside The transitions inside an entity, [from, to].
 * @property {[number, number][]} transitions The possible transitions, [from, to].
 * @property {number[]} start The possible first tags.
 * @property {number[]} end The possible last tags.
 */

/**
 * An entity of tokens.
 * @typedef {{begin: number, end: number, label: number}} Entity
 */

/** Sums of exponentials below this are computed anew, as some of their terms may be lost. */
const SMALLEST_SUM = 1e-290;

/**
 * Returns the scores with those of forbidden tags and transitions as minus infinity.
 * @param {Potentials} potentials
 * @param {Tags} tags
 * @returns {Potentials}
 */
export function constrain(potentials, tags) {
  const { nTags } = potentials;
  const transitions = new Float64Array(nTags * nTags).fill(-Infinity);
  for (const [from, to] of tags.transitions) {
    transitions[from * nTags + to] = potentials.transitions[from * nTags + to];
  }
  const start = new Float64Array(nTags).fill(-Infinity);
  for (const tag of tags.start) {
    start[tag] = potentials.start[tag];
  }
  const end = new Float64Array(nTags).fill(-Infinity);
  for (const tag of tags.end) {
    end[tag] = potentials.end[tag];
  }
  return { ...potentials, transitions, start, end };
}

/**
 * Returns scores divided by a temperature: above 1, the probabilities are less certain. Emissions
 * may have another one for the tags of a label.
 *
 *     p(y) = exp(s(y) / temperature) / Z
 *
 * @param {Potentials} potentials
 * @param {Tags} tags
 * @param {{overall: number, labels: Record<string, number>}} temperature
 * @returns {Potentials}
 */
export function temper(potentials, tags, temperature) {
  const { overall, labels } = temperature;
  const ofTags = tags.label_of.map((label) => {
    const name = label < 0 ? "" : tags.labels[label];
    return label >= 0 && Object.hasOwn(labels, name) ? labels[name] : overall;
  });
  const divide = (/** @type {number} */ score) => score / overall;
  return {
    ...potentials,
    emissions: potentials.emissions.map((score, i) => score / ofTags[i % ofTags.length]),
    transitions: potentials.transitions.map(divide),
    start: potentials.start.map(divide),
    end: potentials.end.map(divide),
  };
}

/**
 * Returns the path with the highest score, by Viterbi's recursion. Of equal ones, it is the one
 * whose last tag is the first of the tags, and so on.
 *
 *     delta_t[j] = max_i (delta_{t-1}[i] + M[i, j]) + E[t, j]
 *
 * @param {Potentials} potentials
 * @returns {Int32Array} The tag of each token. Shape: (N,)
 */
export function bestPath(potentials) {
  const { nTags, emissions, transitions, start, end, bounds } = potentials;
  const nTokens = emissions.length / nTags;
  const path = new Int32Array(nTokens);
  // The tag before each tag on the best path to it. Shape: (N, K)
  const tagBefore = new Int32Array(nTokens * nTags);
  let delta = new Float64Array(nTags);
  let deltaBefore = new Float64Array(nTags);
  for (let s = 0; s + 1 < bounds.length; s++) {
    const first = bounds[s];
    const past = bounds[s + 1];
    if (first === past) {
      continue;
    }
    for (let j = 0; j < nTags; j++) {
      delta[j] = start[j] + emissions[first * nTags + j];
    }
    for (let token = first + 1; token < past; token++) {
      [deltaBefore, delta] = [delta, deltaBefore];
      const row = token * nTags;
      delta.fill(-Infinity);
      for (let i = 0; i < nTags; i++) {
        for (let j = 0; j < nTags; j++) {
          const score = deltaBefore[i] + transitions[i * nTags + j];
          if (score > delta[j]) {
            delta[j] = score;
            tagBefore[row + j] = i;
          }
        }
      }
      for (let j = 0; j < nTags; j++) {
        delta[j] += emissions[row + j];
      }
    }
    for (let j = 0; j < nTags; j++) {
      delta[j] += end[j];
    }

    let tag = indexOfMax(delta);
    for (let token = past - 1; token >= first; token--) {
      path[token] = tag;
      tag = tagBefore[token * nTags + tag];
    }
  }
  return path;
}

/** The distribution of paths: the messages of both directions, and what follows from them. */
export class ForwardBackward {
  /**
   * @param {Potentials} potentials
   * @throws {Error} If a sequence has no possible path.
   */
  constructor(potentials) {
    const { nTags, emissions, transitions, bounds } = potentials;
    this.potentials = potentials;
    this.nTags = nTags;
    this.nTokens = emissions.length / nTags;
    /** The messages, in logarithms. Shape: (N, K) */
    this.alpha = new Float64Array(emissions.length);
    this.beta = new Float64Array(emissions.length);
    /** log Z of the sequence of each token. Shape: (N,) */
    this.logZ = new Float64Array(this.nTokens);
    /** The token after the last one of the sequence of each token. Shape: (N,) */
    this.past = new Int32Array(this.nTokens);

    // The sums of the recursions are products of vectors and matrices of exponentials.
    const forwardSums = new LogSums(nTags, transitions);
    const backwardSums = new LogSums(nTags, transpose(transitions, nTags));
    for (let s = 0; s + 1 < bounds.length; s++) {
      if (bounds[s] < bounds[s + 1]) {
        this.fillSequence(bounds[s], bounds[s + 1], forwardSums, backwardSums);
      }
    }
  }

  /**
   * Computes the messages of one sequence.
   * @param {number} first Its first token.
   * @param {number} past The token after its last.
   * @param {LogSums} forwardSums
   * @param {LogSums} backwardSums
   */
  fillSequence(first, past, forwardSums, backwardSums) {
    const { nTags, alpha, beta } = this;
    const { emissions, start, end } = this.potentials;
    for (let k = 0; k < nTags; k++) {
      alpha[first * nTags + k] = start[k] + emissions[first * nTags + k];
    }
    for (let token = first + 1; token < past; token++) {
      const row = token * nTags;
      const sums = forwardSums.of(alpha.subarray(row - nTags, row));
      for (let k = 0; k < nTags; k++) {
        alpha[row + k] = sums[k] + emissions[row + k];
      }
    }

    beta.set(end, (past - 1) * nTags);
    const ahead = new Float64Array(nTags); // E + beta of the token after
    for (let token = past - 2; token >= first; token--) {
      const next = (token + 1) * nTags;
      for (let k = 0; k < nTags; k++) {
        ahead[k] = emissions[next + k] + beta[next + k];
      }
      beta.set(backwardSums.of(ahead), token * nTags);
    }

    const last = (past - 1) * nTags;
    const finals = end.map((score, k) => alpha[last + k] + score);
    const logZ = logSum(finals);
    if (!Number.isFinite(logZ)) {
      throw new Error(`scores of tokens ${first} to ${past}: expected a possible path, found none`);
    }
    this.logZ.fill(logZ, first, past);
    this.past.fill(past, first, past);
  }

  /**
   * Returns the probability of each tag at each token.
   * @returns {Float64Array} Shape: (N, K)
   */
  marginals() {
    const { nTags, alpha, beta, logZ } = this;
    const marginals = new Float64Array(alpha.length);
    for (let i = 0; i < marginals.length; i++) {
      marginals[i] = Math.exp(alpha[i] + beta[i] - logZ[Math.floor(i / nTags)]);
    }
    return marginals;
  }
}

/**
 * The sums of a recursion, for one matrix:
 *
 *     sums[j] = log sum_i exp(x[i] + matrix[i, j])
 */
class LogSums {
  /**
   * @param {number} nTags K.
   * @param {Float64Array} matrix Shape: (K, K)
   */
  constructor(nTags, matrix) {
    this.nTags = nTags;
    this.matrix = matrix;
    // Scaled so that its largest element is 1.
    this.largest = matrix.reduce((a, b) => Math.max(a, b), -Infinity);
    this.exponentials = matrix.map((score) => Math.exp(score - this.largest));
    this.sums = new Float64Array(nTags);
  }

  /**
   * @param {Float64Array} x Shape: (K,)
   * @returns {Float64Array} The sums, which the next call overwrites. Shape: (K,)
   */
  of(x) {
    const { nTags, matrix, exponentials, sums } = this;
    let largest = -Infinity;
    for (let i = 0; i < nTags; i++) {
      largest = Math.max(largest, x[i]);
    }
    if (largest === -Infinity) {
      return sums.fill(-Infinity);
    }

    sums.fill(0);
    for (let i = 0; i < nTags; i++) {
      const factor = Math.exp(x[i] - largest);
      if (factor > 0) {
        const row = i * nTags;
        for (let j = 0; j < nTags; j++) {
          sums[j] += factor * exponentials[row + j];
        }
      }
    }
    for (let j = 0; j < nTags; j++) {
      if (sums[j] >= SMALLEST_SUM) {
        sums[j] = Math.log(sums[j]) + largest + this.largest;
      } else {
        // All its terms are tiny beside the largest element of x: compute them without that.
        sums[j] = logSum(x.map((score, i) => score + matrix[i * nTags + j]));
      }
    }
    return sums;
  }
}

/**
 * Returns the logarithm of the sum of the exponentials of numbers.
 * @param {Float64Array} numbers
 * @returns {number}
 */
export function logSum(numbers) {
  let largest = -Infinity;
  for (const number of numbers) {
    largest = Math.max(largest, number);
  }
  if (largest === -Infinity) {
    return -Infinity;
  }
  let sum = 0;
  for (const number of numbers) {
    sum += Math.exp(number - largest);
  }
  return Math.log(sum) + largest;
}

/**
 * @param {Float64Array} matrix Shape: (n, n)
 * @param {number} n
 * @returns {Float64Array}
 */
function transpose(matrix, n) {
  return matrix.map((_, i) => matrix[(i % n) * n + Math.floor(i / n)]);
}

/**
 * Returns the index of the largest number, the first of equal ones.
 * @param {Float64Array} numbers
 * @returns {number}
 */
function indexOfMax(numbers) {
  let best = 0;
  for (let i = 1; i < numbers.length; i++) {
    if (numbers[i] > numbers[best]) {
      best = i;
    }
  }
  return best;
}
