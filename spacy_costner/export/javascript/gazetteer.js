/**
 * The phrases of a gazetteer, and where they are in a text. See `features/gazetteers.py`.
 *
 * A phrase is found by its words in lower case. Of phrases that overlap, the longest is found, and
 * of equally long ones the first.
 */

/** @typedef {import("./words.js").Word} Word */

/**
 * A word of phrases, with the words that follow it in them, and whether a phrase ends with it.
 * @typedef {{next: Map<string, PhraseNode>, endsPhrase: boolean}} PhraseNode
 */

/**
 * Makes a tree of phrases. The words of each lead from the root to a node that ends a phrase.
 * @param {string[][]} phrases The words of each phrase, in lower case.
 * @returns {PhraseNode}
 */
export function makePhraseTree(phrases) {
  const root = makeNode();
  for (const words of phrases) {
    let node = root;
    for (const word of words) {
      let next = node.next.get(word);
      if (next === undefined) {
        next = makeNode();
        node.next.set(word, next);
      }
      node = next;
    }
    node.endsPhrase = true;
  }
  return root;
}

/** @returns {PhraseNode} */
function makeNode() {
  return { next: new Map(), endsPhrase: false };
}

/**
 * Finds phrases in a text.
 * @param {PhraseNode} tree
 * @param {Word[]} words The words of the text.
 * @returns {string[]} The position of each token in its phrase: B, I, L or U; "" outside of
 *   phrases.
 */
export function findPhrases(tree, words) {
  const spans = [];
  for (let begin = 0; begin < words.length; begin++) {
    let node = tree.next.get(words[begin].lower);
    for (let end = begin + 1; node !== undefined; end++) {
      if (node.endsPhrase) {
        spans.push({ begin, end });
      }
      node = end < words.length ? node.next.get(words[end].lower) : undefined;
    }
  }
  // The longest first, and of equally long ones the first in the text.
  spans.sort((a, b) => b.end - b.begin - (a.end - a.begin) || a.begin - b.begin);

  const positions = new Array(words.length).fill("");
  for (const { begin, end } of spans) {
    // The spans before this one are at least as long. If it overlaps with one of them, its first or
    // its last token is in it.
    if (positions[begin] !== "" || positions[end - 1] !== "") {
      continue;
    }
    if (end - begin === 1) {
      positions[begin] = "U";
      continue;
    }
    positions.fill("I", begin, end);
    positions[begin] = "B";
    positions[end - 1] = "L";
  }
  return positions;
}
