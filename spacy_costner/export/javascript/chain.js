/**
 * The linear chain: the best path, and the probabilities of tags and entities.
 *
 * A text has N tokens. It consists of a single sequence or, if the pipeline splits texts at line
 * breaks, of several sequences with independent chains. There are K tags. The score of a path y of
 * T tokens is
 *
 *     s(y) = start[y_1] + sum_t E[t, y_t] + sum_t M[y_{t-1}, y_t] + end[y_T],
 *
 * and its probability is p(y) = exp(s(y)) / Z. The score of a forbidden tag or transition is minus
 * infinity.
 *
 * The messages are sums over all paths up to, and starting from, a token:
 *
 *     alpha_t[j] = exp(E[t, j]) sum_i alpha_{t-1}[i] exp(M[i, j]),     alpha_1 = exp(start + E[1])
 *     beta_t[i]  = sum_j exp(M[i, j] + E[t+1, j]) beta_{t+1}[j],       beta_T = exp(end)
 *     Z          = sum_j alpha_T[j] exp(end[j])
 *     p(y_t = k) = alpha_t[k] beta_t[k] / Z
 */

/**
 * The scores of a text.
 * @typedef {Object} Potentials
 * @property {Float64Array} emissions E. Shape: (N, K)
 * @property {ChainScores} chain All other scores, which are the same for all texts.
 * @property {number[]} bounds The first token of each sequence, followed by N.
 */

/**
 * The meaning of the chain tags. See `Tags` in tags.py. Label -1 means no label.
 * @typedef {Object} Tags
 * @property {string[]} labels The names of the labels.
 * @property {number[]} label_of The label of each tag, -1 outside of entities. Length: K
 * @property {number[]} opening The tags that begin an entity.
 * @property {number[]} continuing The tags that continue the entity of the previous token.
 * @property {number[]} closing The tags that may end an entity.
 * @property {number[]} at_border The tags used only for the first or last token of an entity.
 * @property {number[]} collapsed_of The annotation tag that corresponds to each tag. Annotations
 *   use a single O. Length: K
 * @property {[number, number][]} inside The transitions within an entity, [from, to].
 * @property {[number, number][]} transitions The possible transitions, [from, to].
 * @property {number[]} start The possible first tags.
 * @property {number[]} end The possible last tags.
 */

/**
 * An entity: its first token, the token after its last token, and its label index.
 * @typedef {{begin: number, end: number, label: number}} Entity
 */

/**
 * The smallest accurate message. The messages of a token are scaled to a sum of 1. Values below
 * this limit may have lost precision or be 0. If so, the messages of the sequence are computed in
 * log space, which is slower.
 */
const SMALLEST = 1e-200;

/** The maximum scale for multiplying the messages of both directions. See `marginal`. */
const LARGEST_SCALE = -Math.log(SMALLEST);

/** The scores of transitions, first tags and last tags. */
export class ChainScores {
  /**
   * @param {Float64Array} transitions M, [from, to]. Shape: (K, K)
   * @param {Float64Array} start The scores of the first tag of a sequence. Shape: (K,)
   * @param {Float64Array} end The scores of the last tag of a sequence. Shape: (K,)
   */
  constructor(transitions, start, end) {
    this.nTags = start.length;
    this.transitions = transitions;
    this.start = start;
    this.end = end;
    this.largestTransition = largestOf(transitions);
    /** exp(M - max(M)), with one row per previous tag. Shape: (K, K) */
    this.expFrom = transitions.map((score) => Math.exp(score - this.largestTransition));
    /** The transpose, with one row per next tag. Shape: (K, K) */
    this.expInto = transpose(this.expFrom, this.nTags);
  }

  /**
   * Returns the scores with forbidden tags and transitions set to minus infinity.
   * @param {Tags} tags
   * @returns {ChainScores}
   */
  constrain(tags) {
    const { nTags } = this;
    const transitions = new Float64Array(nTags * nTags).fill(-Infinity);
    for (const [from, to] of tags.transitions) {
      transitions[from * nTags + to] = this.transitions[from * nTags + to];
    }
    const start = new Float64Array(nTags).fill(-Infinity);
    for (const tag of tags.start) {
      start[tag] = this.start[tag];
    }
    const end = new Float64Array(nTags).fill(-Infinity);
    for (const tag of tags.end) {
      end[tag] = this.end[tag];
    }
    return new ChainScores(transitions, start, end);
  }

  /**
   * Returns the scores divided by a number.
   * @param {number} divisor
   * @returns {ChainScores}
   */
  dividedBy(divisor) {
    const divide = (/** @type {number} */ score) => score / divisor;
    return new ChainScores(
      this.transitions.map(divide),
      this.start.map(divide),
      this.end.map(divide),
    );
  }
}

/**
 * The temperature that scores are divided by before probabilities are computed. Temperatures above
 * 1 make probabilities less certain. The emissions of individual labels can have a different
 * temperature.
 *
 *     p(y) = exp(s(y) / temperature) / Z
 */
export class Temperature {
  /**
   * @param {{overall: number, labels: Record<string, number>}} settings The overall temperature and
   *   the temperatures of individual labels.
   * @param {Tags} tags
   * @param {ChainScores} chain The scores of the model. They are divided only once.
   */
  constructor({ overall, labels }, tags, chain) {
    this.chain = chain.dividedBy(overall);
    this.temperatureOfTag = tags.label_of.map((label) => {
      const name = tags.labels[label];
      return label >= 0 && Object.hasOwn(labels, name) ? labels[name] : overall;
    });
  }

  /**
   * Returns the scores of a text at this temperature.
   * @param {Potentials} potentials
   * @returns {Potentials}
   */
  temper({ emissions, bounds }) {
    const { temperatureOfTag } = this;
    const nTags = temperatureOfTag.length;
    const tempered = new Float64Array(emissions.length);
    for (let row = 0; row < emissions.length; row += nTags) {
      for (let k = 0; k < nTags; k++) {
        tempered[row + k] = emissions[row + k] / temperatureOfTag[k];
      }
    }
    return { emissions: tempered, chain: this.chain, bounds };
  }
}

/**
 * Returns the path with the highest score (Viterbi). Ties are broken from the last token of a
 * sequence to the first, in favor of the lowest tag index.
 *
 *     delta_1[j] = start[j] + E[1, j]
 *     delta_t[j] = max_i (delta_{t-1}[i] + M[i, j]) + E[t, j]
 *
 * @param {Potentials} potentials
 * @returns {Int32Array} The tag of each token. Shape: (N,)
 */
export function bestPath({ emissions, chain, bounds }) {
  const { nTags, transitions, start, end } = chain;
  const nTokens = emissions.length / nTags;
  const path = new Int32Array(nTokens);
  // The previous tag on the best path to each tag. Shape: (N, K)
  const tagBefore = new Int32Array(nTokens * nTags);
  let delta = new Float64Array(nTags);
  let deltaBefore = new Float64Array(nTags);
  for (const [first, past] of sequencesOf(bounds)) {
    for (let j = 0; j < nTags; j++) {
      delta[j] = start[j] + emissions[first * nTags + j];
    }
    for (let token = first + 1; token < past; token++) {
      [deltaBefore, delta] = [delta, deltaBefore];
      const row = token * nTags;
      for (let j = 0; j < nTags; j++) {
        let best = -Infinity;
        for (let i = 0; i < nTags; i++) {
          const score = deltaBefore[i] + transitions[i * nTags + j];
          if (score > best) {
            best = score;
            tagBefore[row + j] = i;
          }
        }
        delta[j] = best + emissions[row + j];
      }
    }
    for (let j = 0; j < nTags; j++) {
      delta[j] += end[j];
    }
    const lastTag = indexOfMax(delta);
    followBack(tagBefore, first, past, lastTag, path);
  }
  return path;
}

/**
 * Traces back the path of a sequence from its last tag.
 * @param {Int32Array} tagBefore The previous tag on the best path to each tag. Shape: (N, K)
 * @param {number} first The first token of the sequence.
 * @param {number} past The token after the last token of the sequence.
 * @param {number} lastTag The tag of the last token.
 * @param {Int32Array} path The output array for the tags of the sequence. Shape: (N,)
 */
export function followBack(tagBefore, first, past, lastTag, path) {
  const nTags = tagBefore.length / path.length;
  let tag = lastTag;
  for (let token = past - 1; token >= first; token--) {
    path[token] = tag;
    tag = tagBefore[token * nTags + tag];
  }
}

/**
 * Returns the first token, and the token after the last token, of each non-empty sequence of a
 * text.
 * @param {number[]} bounds The first token of each sequence, followed by N.
 * @returns {[number, number][]}
 */
export function sequencesOf(bounds) {
  /** @type {[number, number][]} */
  const sequences = [];
  for (let i = 0; i + 1 < bounds.length; i++) {
    if (bounds[i] < bounds[i + 1]) {
      sequences.push([bounds[i], bounds[i + 1]]);
    }
  }
  return sequences;
}

/**
 * The distribution over paths: the messages of both directions, and the probabilities derived from
 * them.
 *
 * The messages of a token are stored with a scale: log alpha_t[k] = log(alpha[k]) + alphaScale. If
 * any message of a sequence is below `SMALLEST` although its tag is possible, the messages of the
 * sequence are stored as logarithms.
 */
export class ForwardBackward {
  /**
   * @param {Potentials} potentials
   * @throws {Error} If a sequence has no possible path.
   */
  constructor(potentials) {
    const { emissions, chain, bounds } = potentials;
    this.potentials = potentials;
    this.nTags = chain.nTags;
    this.nTokens = emissions.length / this.nTags;
    /** The messages. Shape: (N, K) */
    this.alpha = new Float64Array(emissions.length);
    this.beta = new Float64Array(emissions.length);
    /** The scales of the messages, as logarithms. Shape: (N,) */
    this.alphaScale = new Float64Array(this.nTokens);
    this.betaScale = new Float64Array(this.nTokens);
    /** Whether the messages of each token are logarithms, as 0 or 1. Shape: (N,) */
    this.isLog = new Uint8Array(this.nTokens);
    /** log Z of each token's sequence. Shape: (N,) */
    this.logZ = new Float64Array(this.nTokens);
    /** The token after the last token of each token's sequence. Shape: (N,) */
    this.past = new Int32Array(this.nTokens);
    for (const [first, past] of sequencesOf(bounds)) {
      this.fillSequence(first, past);
    }
  }

  /**
   * Computes the messages of a sequence.
   * @param {number} first The first token.
   * @param {number} past The token after the last token.
   * @throws {Error} If the sequence has no possible path.
   */
  fillSequence(first, past) {
    const isDone = this.fillForward(first, past) && this.fillBackward(first, past);
    if (!isDone) {
      this.fillLogs(first, past);
    }
    const { end } = this.potentials.chain;
    const logZ = logSum(end.map((score, k) => this.logAlpha(past - 1, k) + score));
    if (!Number.isFinite(logZ)) {
      throw new Error(`scores of tokens ${first} to ${past}: expected a possible path, found none`);
    }
    this.logZ.fill(logZ, first, past);
    this.past.fill(past, first, past);
  }

  /**
   * Computes alpha for a sequence, from the first token to the last. Stops if a message is too
   * small.
   * @param {number} first The first token.
   * @param {number} past The token after the last token.
   * @returns {boolean} False if a message was too small.
   */
  fillForward(first, past) {
    const { nTags, alpha, alphaScale } = this;
    const { emissions, chain } = this.potentials;
    let scale = 0; // the scale of the token's messages, as a logarithm
    for (let token = first; token < past; token++) {
      const row = token * nTags;
      if (token === first) {
        const largestStart = largestOf(chain.start);
        for (let k = 0; k < nTags; k++) {
          alpha[row + k] = Math.exp(chain.start[k] - largestStart);
        }
        scale = largestStart;
      } else {
        multiply(chain.expInto, alpha, row - nTags, alpha, row);
        scale += chain.largestTransition;
      }

      let largest = -Infinity;
      for (let k = row; k < row + nTags; k++) {
        largest = Math.max(largest, emissions[k]);
      }
      for (let k = row; k < row + nTags; k++) {
        alpha[k] *= Math.exp(emissions[k] - largest);
      }
      scale += largest + Math.log(normalize(alpha, row, nTags));
      alphaScale[token] = scale;
      for (let k = 0; k < nTags; k++) {
        if (!(alpha[row + k] >= SMALLEST) && !this.isBlockedBefore(token, k, first)) {
          return false;
        }
      }
    }
    return true;
  }

  /**
   * Computes beta for a sequence, from the last token to the first. Stops if a message is too
   * small.
   * @param {number} first The first token.
   * @param {number} past The token after the last token.
   * @returns {boolean} False if a message was too small.
   */
  fillBackward(first, past) {
    const { nTags, beta, betaScale } = this;
    const { emissions, chain } = this.potentials;
    // exp(E[t+1]) beta_{t+1}, up to a scale. Shape: (K,)
    const weightsOfNext = new Float64Array(nTags);
    let scale = 0; // the scale of the token's messages, as a logarithm
    for (let token = past - 1; token >= first; token--) {
      const row = token * nTags;
      if (token === past - 1) {
        const largestEnd = largestOf(chain.end);
        for (let k = 0; k < nTags; k++) {
          beta[row + k] = Math.exp(chain.end[k] - largestEnd);
        }
        scale = largestEnd;
      } else {
        const next = row + nTags;
        let largest = -Infinity;
        for (let k = next; k < next + nTags; k++) {
          largest = Math.max(largest, emissions[k]);
        }
        for (let k = 0; k < nTags; k++) {
          weightsOfNext[k] = Math.exp(emissions[next + k] - largest) * beta[next + k];
        }
        multiply(chain.expFrom, weightsOfNext, 0, beta, row);
        scale += largest + chain.largestTransition;
      }

      scale += Math.log(normalize(beta, row, nTags));
      betaScale[token] = scale;
      for (let k = 0; k < nTags; k++) {
        if (!(beta[row + k] >= SMALLEST) && !this.isBlockedAfter(token, k, past)) {
          return false;
        }
      }
    }
    return true;
  }

  /**
   * Checks whether a tag is impossible at a token because of the previous tokens, i.e. no possible
   * path up to the token ends with the tag. If so, its alpha is 0.
   * @param {number} token
   * @param {number} tag
   * @param {number} first The first token of the sequence.
   * @returns {boolean}
   */
  isBlockedBefore(token, tag, first) {
    const { nTags, alpha } = this;
    const { emissions, chain } = this.potentials;
    if (emissions[token * nTags + tag] === -Infinity) {
      return true;
    }
    if (token === first) {
      return chain.start[tag] === -Infinity;
    }
    for (let from = 0; from < nTags; from++) {
      const isPossible = chain.transitions[from * nTags + tag] > -Infinity;
      if (isPossible && alpha[(token - 1) * nTags + from] > 0) {
        return false;
      }
    }
    return true;
  }

  /**
   * Checks whether a tag is impossible at a token because of the following tokens, i.e. no possible
   * path from the token to the end of the sequence begins with the tag. If so, its beta is 0.
   * @param {number} token
   * @param {number} tag
   * @param {number} past The token after the last token of the sequence.
   * @returns {boolean}
   */
  isBlockedAfter(token, tag, past) {
    const { nTags, beta } = this;
    const { emissions, chain } = this.potentials;
    if (token === past - 1) {
      return chain.end[tag] === -Infinity;
    }
    for (let to = 0; to < nTags; to++) {
      const next = (token + 1) * nTags + to;
      const isPossible = chain.transitions[tag * nTags + to] + emissions[next] > -Infinity;
      if (isPossible && beta[next] > 0) {
        return false;
      }
    }
    return true;
  }

  /**
   * Computes the messages of a sequence as logarithms instead of scaled numbers.
   * @param {number} first The first token.
   * @param {number} past The token after the last token.
   */
  fillLogs(first, past) {
    const { nTags, alpha, beta } = this;
    const { emissions, chain } = this.potentials;
    const terms = new Float64Array(nTags);
    for (let token = first; token < past; token++) {
      for (let k = 0; k < nTags; k++) {
        let sum = chain.start[k];
        if (token > first) {
          for (let from = 0; from < nTags; from++) {
            const before = alpha[(token - 1) * nTags + from];
            terms[from] = before + chain.transitions[from * nTags + k];
          }
          sum = logSum(terms);
        }
        alpha[token * nTags + k] = sum + emissions[token * nTags + k];
      }
    }
    for (let token = past - 1; token >= first; token--) {
      for (let k = 0; k < nTags; k++) {
        let sum = chain.end[k];
        if (token < past - 1) {
          for (let to = 0; to < nTags; to++) {
            const next = (token + 1) * nTags + to;
            terms[to] = chain.transitions[k * nTags + to] + emissions[next] + beta[next];
          }
          sum = logSum(terms);
        }
        beta[token * nTags + k] = sum;
      }
    }
    this.isLog.fill(1, first, past);
    this.alphaScale.fill(0, first, past);
    this.betaScale.fill(0, first, past);
  }

  /**
   * Returns log alpha for a tag at a token.
   * @param {number} token
   * @param {number} tag
   * @returns {number}
   */
  logAlpha(token, tag) {
    const message = this.alpha[token * this.nTags + tag];
    return this.isLog[token] ? message : Math.log(message) + this.alphaScale[token];
  }

  /**
   * Returns log beta for a tag at a token.
   * @param {number} token
   * @param {number} tag
   * @returns {number}
   */
  logBeta(token, tag) {
    const message = this.beta[token * this.nTags + tag];
    return this.isLog[token] ? message : Math.log(message) + this.betaScale[token];
  }

  /**
   * Returns the probability of a tag at a token.
   * @param {number} token
   * @param {number} tag
   * @returns {number}
   */
  marginal(token, tag) {
    const { alpha, beta, alphaScale, betaScale, logZ } = this;
    // The scale of the product of alpha and beta. The products of all tags sum to exp(-scale), so
    // if the scale is too large, all of them may be too small.
    const scale = alphaScale[token] + betaScale[token] - logZ[token];
    if (this.isLog[token] || scale > LARGEST_SCALE) {
      return Math.exp(this.logAlpha(token, tag) + this.logBeta(token, tag) - logZ[token]);
    }
    const place = token * this.nTags + tag;
    return alpha[place] * beta[place] * Math.exp(scale);
  }

  /**
   * Returns the probability of each tag at each token.
   * @returns {Float64Array} Shape: (N, K)
   */
  marginals() {
    const { nTags, nTokens } = this;
    const marginals = new Float64Array(this.alpha.length);
    for (let token = 0; token < nTokens; token++) {
      for (let tag = 0; tag < nTags; tag++) {
        marginals[token * nTags + tag] = this.marginal(token, tag);
      }
    }
    return marginals;
  }
}

/**
 * Multiplies a square matrix by a vector of K numbers.
 * @param {Float64Array} matrix Shape: (K, K)
 * @param {Float64Array} source The array that contains the vector.
 * @param {number} from The index of the vector in `source`.
 * @param {Float64Array} target The output array for the product.
 * @param {number} to The index of the product in `target`.
 */
function multiply(matrix, source, from, target, to) {
  const size = Math.sqrt(matrix.length);
  let place = 0; // in the flattened matrix
  for (let i = 0; i < size; i++) {
    let sum = 0;
    for (let j = from; j < from + size; j++) {
      sum += matrix[place] * source[j];
      place += 1;
    }
    target[to + i] = sum;
  }
}

/**
 * Divides a row of numbers by its sum in place.
 * @param {Float64Array} numbers
 * @param {number} first The index of the row in `numbers`.
 * @param {number} length
 * @returns {number} The sum.
 */
function normalize(numbers, first, length) {
  let sum = 0;
  for (let i = first; i < first + length; i++) {
    sum += numbers[i];
  }
  for (let i = first; i < first + length; i++) {
    numbers[i] /= sum;
  }
  return sum;
}

/**
 * Returns the logarithm of the sum of exponentials.
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
 * Returns the largest number, or minus infinity for an empty array.
 * @param {Float64Array} numbers
 * @returns {number}
 */
function largestOf(numbers) {
  return numbers.reduce((a, b) => Math.max(a, b), -Infinity);
}

/**
 * Transposes a square matrix.
 * @param {Float64Array} matrix Shape: (n, n)
 * @param {number} n
 * @returns {Float64Array}
 */
function transpose(matrix, n) {
  return matrix.map((_, i) => matrix[(i % n) * n + Math.floor(i / n)]);
}

/**
 * Returns the index of the largest number, or the first index if there are ties.
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
