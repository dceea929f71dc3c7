/**
 * The linear chain: the best path, and the probabilities of tags and entities.
 *
 * A text has N tokens. It is one sequence or, if the pipeline cuts texts at line breaks, several,
 * each with a chain of its own. There are K tags. The score of a path y of T tokens is
 *
 *     s(y) = start[y_1] + sum_t E[t, y_t] + sum_t M[y_{t-1}, y_t] + end[y_T],
 *
 * its probability p(y) = exp(s(y)) / Z. A forbidden tag or transition has the score minus infinity.
 *
 * The messages are the sums over the paths up to a token, and from a token on:
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
 * @property {ChainScores} chain The other scores, which are the same for all texts.
 * @property {number[]} bounds The first token of each sequence, then N.
 */

/**
 * What the tags of a chain mean: see `Tags` in tags.py. Label -1 is none.
 * @typedef {Object} Tags
 * @property {string[]} labels The names of the labels.
 * @property {number[]} label_of The label of each tag; -1 outside of entities. Length: K
 * @property {number[]} opening The tags that begin an entity.
 * @property {number[]} continuing The tags that continue the entity of the previous token.
 * @property {number[]} closing The tags that an entity may end with.
 * @property {number[]} at_border The tags that only the first or last token of an entity has.
 * @property {number[]} collapsed_of What each tag counts as in annotation, which has a single O.
 *   Length: K
 * @property {[number, number][]} inside The transitions inside an entity, [from, to].
 * @property {[number, number][]} transitions The possible transitions, [from, to].
 * @property {number[]} start The possible first tags.
 * @property {number[]} end The possible last tags.
 */

/**
 * An entity: its first token, the token after its last, and the index of its label.
 * @typedef {{begin: number, end: number, label: number}} Entity
 */

/**
 * The messages of a token are scaled so that their sum is 1. A number below this may have lost
 * digits, or be 0. Then the messages of the sequence are computed as logarithms, which takes
 * longer.
 */
const SMALLEST = 1e-200;

/** The largest scale at which messages of both directions are multiplied: see `marginal`. */
const LARGEST_SCALE = -Math.log(SMALLEST);

/** The scores of transitions, of the first tag and of the last. */
export class ChainScores {
  /**
   * @param {Float64Array} transitions M, [from, to]. Shape: (K, K)
   * @param {Float64Array} start The scores of the first tag of a sequence. Shape: (K,)
   * @param {Float64Array} end The scores of its last tag. Shape: (K,)
   */
  constructor(transitions, start, end) {
    this.nTags = start.length;
    this.transitions = transitions;
    this.start = start;
    this.end = end;
    this.largestTransition = largestOf(transitions);
    /** exp(M - largest of M), with a row for each tag before. Shape: (K, K) */
    this.expFrom = transitions.map((score) => Math.exp(score - this.largestTransition));
    /** The same with a row for each tag after. Shape: (K, K) */
    this.expInto = transpose(this.expFrom, this.nTags);
  }

  /**
   * Returns the scores, with minus infinity for forbidden tags and transitions.
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
 * The temperature by which scores are divided before probabilities are computed: above 1, these are
 * less certain. The emissions of the tags of a label may have another one.
 *
 *     p(y) = exp(s(y) / temperature) / Z
 */
export class Temperature {
  /**
   * @param {{overall: number, labels: Record<string, number>}} settings The temperature, and
   *   the temperatures of single labels.
   * @param {Tags} tags
   * @param {ChainScores} chain The scores of the model, which are divided here once.
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
 * Returns the path with the highest score, by Viterbi's recursion. From the last token of a
 * sequence back to the first, it takes the tag with the lowest index where several are equally
 * good.
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
  // The tag before each tag on the best path to it. Shape: (N, K)
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
 * Writes the path of a sequence that ends with a tag, from its last token to its first.
 * @param {Int32Array} tagBefore The tag before each tag on the best path to it. Shape: (N, K)
 * @param {number} first The first token of the sequence.
 * @param {number} past The token after its last.
 * @param {number} lastTag The tag of its last token.
 * @param {Int32Array} path Gets the tags of the sequence. Shape: (N,)
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
 * Returns the sequences of a text that have tokens: of each the first token, and the token after
 * its last.
 * @param {number[]} bounds The first token of each sequence, then N.
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
 * The distribution of paths: the messages of both directions, and what follows from them.
 *
 * The messages of a token are numbers with a scale: log alpha_t[k] = log(alpha[k]) + alphaScale. If
 * a number of a sequence is below `SMALLEST`, though its tag is possible there, the messages of the
 * sequence are logarithms.
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
    /** Their scales, as logarithms. Shape: (N,) */
    this.alphaScale = new Float64Array(this.nTokens);
    this.betaScale = new Float64Array(this.nTokens);
    /** Whether the messages of each token are logarithms, as 0 or 1. Shape: (N,) */
    this.isLog = new Uint8Array(this.nTokens);
    /** log Z of the sequence of each token. Shape: (N,) */
    this.logZ = new Float64Array(this.nTokens);
    /** The token after the last one of the sequence of each token. Shape: (N,) */
    this.past = new Int32Array(this.nTokens);
    for (const [first, past] of sequencesOf(bounds)) {
      this.fillSequence(first, past);
    }
  }

  /**
   * Computes the messages of one sequence.
   * @param {number} first Its first token.
   * @param {number} past The token after its last.
   * @throws {Error} If it has no possible path.
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
   * Computes alpha for a sequence, from its first token to its last. It stops where a number is too
   * small.
   * @param {number} first Its first token.
   * @param {number} past The token after its last.
   * @returns {boolean} Whether no number was too small.
   */
  fillForward(first, past) {
    const { nTags, alpha, alphaScale } = this;
    const { emissions, chain } = this.potentials;
    let scale = 0; // of the messages of the token, as a logarithm
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
   * Computes beta for a sequence, from its last token to its first. It stops where a number is too
   * small.
   * @param {number} first Its first token.
   * @param {number} past The token after its last.
   * @returns {boolean} Whether no number was too small.
   */
  fillBackward(first, past) {
    const { nTags, beta, betaScale } = this;
    const { emissions, chain } = this.potentials;
    // exp(E[t+1]) beta_{t+1}, up to a scale. Shape: (K,)
    const weightsOfNext = new Float64Array(nTags);
    let scale = 0; // of the messages of the token, as a logarithm
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
   * Returns whether a tag is impossible at a token because of the tokens before it: no possible
   * path of the sequence up to the token ends with the tag. Its alpha is 0 then.
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
   * Returns whether a tag is impossible at a token because of the tokens after it: no possible path
   * from the token to the end of the sequence begins with the tag. Its beta is 0 then.
   * @param {number} token
   * @param {number} tag
   * @param {number} past The token after the last one of the sequence.
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
   * Computes the messages of a sequence as logarithms, instead of numbers with a scale.
   * @param {number} first Its first token.
   * @param {number} past The token after its last.
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
   * Returns log alpha of a tag at a token.
   * @param {number} token
   * @param {number} tag
   * @returns {number}
   */
  logAlpha(token, tag) {
    const message = this.alpha[token * this.nTags + tag];
    return this.isLog[token] ? message : Math.log(message) + this.alphaScale[token];
  }

  /**
   * Returns log beta of a tag at a token.
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
    // The scale of the product of both messages. The products of all tags sum to exp(-scale), so at
    // a larger scale they may all be too small.
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
 * @param {Float64Array} source Has the numbers.
 * @param {number} from Where they begin in it.
 * @param {Float64Array} target Gets the product.
 * @param {number} to Where it begins in it.
 */
function multiply(matrix, source, from, target, to) {
  const size = Math.sqrt(matrix.length);
  let place = 0; // in the matrix, row after row
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
 * Divides a row of numbers by their sum, in place.
 * @param {Float64Array} numbers
 * @param {number} first Where the row begins.
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
 * Returns the largest number, minus infinity if there are none.
 * @param {Float64Array} numbers
 * @returns {number}
 */
function largestOf(numbers) {
  return numbers.reduce((a, b) => Math.max(a, b), -Infinity);
}

/**
 * Exchanges the rows and columns of a square matrix.
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
