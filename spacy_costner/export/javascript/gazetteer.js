/**
 * Finds the phrases of a gazetteer in a text. See `features/gazetteers.py`.
 *
 * Phrases are matched by their lowercase words. If phrases overlap, the longest one is used, or the
 * first one if they have the same length.
 */

/** @typedef {import("./words.js").Word} Word */

/**
 * A node in the tree of phrases: the words that may follow, and whether a phrase ends here.
 * @typedef {{next: Map<string, PhraseNode>, endsPhrase: boolean}} PhraseNode
 */

/**
 * Creates a tree of phrases. The words of a phrase lead from the root to a node that ends a phrase.
 * @param {string[][]} phrases The lowercase words of each phrase.
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
 * @returns {string[]} The position of each token in its phrase: B, I, L or U, or "" outside of
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
  // The longest phrases first, then in text order.
  spans.sort((a, b) => b.end - b.begin - (a.end - a.begin) || a.begin - b.begin);

  const positions = new Array(words.length).fill("");
  for (const { begin, end } of spans) {
    // All previous spans are at least as long, so if the span overlaps with one of them, its first
    // or last token is in it.
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
