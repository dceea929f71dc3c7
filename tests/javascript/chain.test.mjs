/** The chain and the probabilities of entities, against all paths of short texts. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { bestPath, ChainScores, ForwardBackward } from "../../spacy_costner/export/javascript/chain.js";
import { withoutOverlap } from "../../spacy_costner/export/javascript/decoding.js";
import {
  decodePath,
  EntityProbabilities,
  trim,
} from "../../spacy_costner/export/javascript/entities.js";

/** IOB2 over two labels: O, B-a, I-a, B-b, I-b. */
const TAGS = {
  labels: ["a", "b"],
  label_of: [-1, 0, 0, 1, 1],
  opening: [1, 3],
  continuing: [2, 4],
  closing: [1, 2, 3, 4],
  at_border: [1, 3],
  collapsed_of: [0, 1, 2, 3, 4],
  inside: [[1, 2], [2, 2], [3, 4], [4, 4]],
  transitions: [
    [0, 0], [0, 1], [0, 3],
    [1, 0], [1, 1], [1, 2], [1, 3],
    [2, 0], [2, 1], [2, 2], [2, 3],
    [3, 0], [3, 1], [3, 3], [3, 4],
    [4, 0], [4, 1], [4, 3], [4, 4],
  ],
  start: [0, 1, 3],
  end: [0, 1, 2, 3, 4],
};
const N_TAGS = 5;
const SPACE = [false, false, true, false, false];

/** Numbers that look random, the same each time. */
function randomNumbers(seed) {
  let state = seed;
  return () => {
    state = (state * 1103515245 + 12345) % 2147483648;
    return state / 2147483648 - 0.5;
  };
}

/** Scores of five tokens in two sequences, the third token of which is whitespace. */
function makePotentials(seed, scale) {
  const random = randomNumbers(seed);
  const numbers = (length) => Float64Array.from({ length }, () => scale * random());
  const emissions = numbers(5 * N_TAGS);
  for (const tag of TAGS.at_border) {
    emissions[2 * N_TAGS + tag] = -Infinity;
  }
  const chain = new ChainScores(numbers(N_TAGS ** 2), numbers(N_TAGS), numbers(N_TAGS));
  return { emissions, chain: chain.constrain(TAGS), bounds: [0, 4, 5] };
}

/** All paths with their scores. */
function enumeratePaths({ emissions, chain, bounds }) {
  const { transitions, start, end } = chain;
  let paths = [{ path: [], score: 0 }];
  const nTokens = bounds.at(-1);
  for (let token = 0; token < nTokens; token++) {
    const longer = [];
    for (const { path, score } of paths) {
      for (let tag = 0; tag < N_TAGS; tag++) {
        let more = emissions[token * N_TAGS + tag];
        more += bounds.includes(token) ? start[tag] : transitions[path.at(-1) * N_TAGS + tag];
        more += bounds.includes(token + 1) ? end[tag] : 0;
        if (more > -Infinity) {
          longer.push({ path: [...path, tag], score: score + more });
        }
      }
    }
    paths = longer;
  }
  const largest = Math.max(...paths.map(({ score }) => score));
  const weights = paths.map(({ score }) => Math.exp(score - largest));
  const total = weights.reduce((a, b) => a + b);
  return paths.map((path, i) => ({ ...path, prob: weights[i] / total }));
}

const keyOf = ({ begin, end, label }) => `${begin} ${end} ${label}`;

/** The probabilities of all entities, from all paths. */
function entityProbs(potentials) {
  const probs = new Map();
  for (const { path, prob } of enumeratePaths(potentials)) {
    const entities = trim(decodePath(path, TAGS, potentials.bounds), SPACE);
    for (const entity of entities) {
      probs.set(keyOf(entity), (probs.get(keyOf(entity)) ?? 0) + prob);
    }
  }
  return probs;
}

const near = (a, b) => assert.ok(Math.abs(a - b) < 1e-9, `${a} is not ${b}`);

for (const scale of [1, 10, 3000]) {
  for (let seed = 1; seed <= 5; seed++) {
    const name = `scores up to ${scale / 2}, seed ${seed}`;
    const potentials = makePotentials(seed, scale);
    const paths = enumeratePaths(potentials);

    test(`the best path of ${name}`, () => {
      const best = paths.reduce((a, b) => (b.score > a.score ? b : a));
      assert.deepEqual([...bestPath(potentials)], best.path);
    });

    test(`marginals of ${name}`, () => {
      const marginals = new ForwardBackward(potentials).marginals();
      const expected = new Float64Array(marginals.length);
      for (const { path, prob } of paths) {
        path.forEach((tag, token) => (expected[token * N_TAGS + tag] += prob));
      }
      marginals.forEach((marginal, i) => near(marginal, expected[i]));
    });

    test(`probabilities of entities of ${name}`, () => {
      const entities = new EntityProbabilities(new ForwardBackward(potentials), TAGS, SPACE);
      const expected = entityProbs(potentials);
      for (let begin = 0; begin < 5; begin++) {
        for (let end = begin + 1; end <= 5; end++) {
          for (const label of [0, 1]) {
            if (SPACE[begin] || SPACE[end - 1]) {
              continue; // no entity begins or ends there
            }
            const entity = { begin, end, label };
            near(entities.probability(entity), expected.get(keyOf(entity)) ?? 0);
          }
        }
      }
    });

    test(`likely entities of ${name}`, () => {
      const entities = new EntityProbabilities(new ForwardBackward(potentials), TAGS, SPACE);
      const found = new Map(entities.likely(0.05).map((entity) => [keyOf(entity), entity.prob]));
      const isLikely = ([, prob]) => prob > 0.05;
      const expected = new Map([...entityProbs(potentials)].filter(isLikely));
      assert.ok(expected.size > 0);
      assert.deepEqual([...found.keys()].sort(), [...expected.keys()].sort());
      for (const [key, prob] of expected) {
        near(found.get(key), prob);
      }
    });
  }
}

test("marginals of tags whose messages differ by hundreds of powers of ten", () => {
  // One token, at which only tag 1 can be both the first and the last of a path. The other tags have
  // so much larger messages of one direction that the product of both of tag 1 is below 1e-308.
  const start = Float64Array.of(458, 0, -Infinity);
  const end = Float64Array.of(-Infinity, 0, 458);
  const chain = new ChainScores(new Float64Array(9), start, end);
  const potentials = { emissions: new Float64Array(3), chain, bounds: [0, 1] };
  assert.deepEqual([...new ForwardBackward(potentials).marginals()], [0, 1, 0]);
});

test("entities without overlap have the largest gain", () => {
  const random = randomNumbers(7);
  for (let round = 0; round < 50; round++) {
    const entities = Array.from({ length: 7 }, () => {
      const begin = Math.floor(8 * (random() + 0.5));
      return { begin, end: begin + 1 + Math.floor(3 * (random() + 0.5)), label: 0 };
    });
    const gains = entities.map(random);
    const gainOf = (chosen) => chosen.reduce((sum, i) => sum + gains[i], 0);
    let best = 0;
    for (let set = 0; set < 2 ** entities.length; set++) {
      const indices = [...entities.keys()].filter((i) => set & (1 << i));
      const overlaps = indices.some((i) =>
        indices.some(
          (j) => i < j && entities[i].begin < entities[j].end && entities[j].begin < entities[i].end,
        ),
      );
      if (!overlaps) {
        best = Math.max(best, gainOf(indices));
      }
    }
    const chosen = withoutOverlap(entities, gains);
    near(gainOf(chosen.map((entity) => entities.indexOf(entity))), best);
  }
});
