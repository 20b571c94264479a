/* The examples of "Play with attention": the chapters' own numbers, and mistakes that people make.

   Queries are in units of ln 2, as in chapter 1, so that a score of one point doubles a share.
   `look` says in a sentence or two what to look at; `page` is the chapter it comes from. */

(function () {
  "use strict";

  const WORDS = ["cat", "chased", "mouse", "then", "slept"];
  const FEATURES = ["thing", "action", "link", "lively"];
  const CARRIED = ["thing", "action", "lively"];
  const X = [
    [1, 0, 0, 2],
    [0, 1, 0, 2],
    [1, 0, 0, 1],
    [0, 0, 1, 0],
    [0, 1, 0, 1],
  ];
  const WHO = [2, -2, 0, 2];
  const WHAT = [-2, 2, 0, 2];
  const NOTHING = [0, 0, 0, 0];

  const PLAIN = {
    unit: "ln2",
    scale: "root",
    temperature: 1,
    heads: 1,
    causal: false,
    padding: null,
    side: "right",
    window: null,
    drawn: null,
    mistake: "none",
  };

  function handedOver(x) {
    return x.map(([thing, action, , lively]) => [thing, action, lively]);
  }

  /* Chapter 1: two questions from outside. */
  const QUESTIONS = {
    ...PLAIN,
    queries: ["who?", "what?"],
    keys: WORDS,
    features: FEATURES,
    carried: CARRIED,
    q: [WHO, WHAT],
    k: X,
    v: handedOver(X),
  };

  /* Chapter 2: things ask "what happened?", actions ask "who?", a link asks nothing. */
  const SENTENCE = { ...QUESTIONS, queries: WORDS, q: [WHAT, WHO, WHAT, NOTHING, WHO] };

  /* Chapter 3: two heads of two features each, in its unit of the root of 2 times ln 2. */
  const HEADS = {
    ...PLAIN,
    unit: "root2ln2",
    heads: 2,
    queries: WORDS,
    keys: WORDS,
    features: ["thing", "action", "thing", "action"],
    carried: ["thing", "lively", "thing", "lively"],
    q: X.map(([thing, action]) => [thing, action, thing, action]),
    k: [
      [1, 3, 0, 0],
      [3, 1, 0, -2],
      [0, 2, 0, 1],
      [0, 0, 0, -2],
      [2, 0, 0, -1],
    ],
    v: X.map(([thing, , , lively]) => [thing, lively, thing, lively]),
  };

  /* Chapter 4: a shorter sentence, filled up to five positions. */
  const PAD = ["pad", "pad", "pad"];
  const ZEROS = PAD.map(() => NOTHING);

  function padded(names, x, q) {
    return { ...SENTENCE, queries: names, keys: names, q, k: x, v: handedOver(x) };
  }

  const SHORT = padded(["mouse", "slept", ...PAD], [X[2], X[4], ...ZEROS], [WHAT, WHO, ...ZEROS]);
  const LEFT = padded([...PAD, "mouse", "slept"], [...ZEROS, X[2], X[4]], [...ZEROS, WHAT, WHO]);

  const FORMULA = ["01_attention_formula.html", "Chapter 1"];
  const ONE_HEAD = ["02_single_head_attention.html", "Chapter 2"];
  const MANY_HEADS = ["03_multi_head_attention.html", "Chapter 3"];
  const MIXED_UP = ["03b_how_heads_get_mixed_up.html", "Chapter 3b"];
  const MASKS = ["04_masking.html", "Chapter 4"];

  const PRESETS = [
    {
      id: "formula",
      title: "Two questions, five words",
      page: FORMULA,
      look:
        "“who?” gives “cat” 8 of its 16 shares, half of its weight. Change one of its numbers: " +
        "its row moves, and the row of “what?” does not.",
      state: QUESTIONS,
    },
    {
      id: "cold",
      title: "A cold look-up",
      page: FORMULA,
      look:
        "At a temperature of 0.05 the best match takes everything. Turn it up to 100, and each " +
        "of the five keys gets a fifth. On the way “mouse” rises and falls again.",
      state: { ...QUESTIONS, temperature: 0.05 },
    },
    {
      id: "sentence",
      title: "Every word asks",
      page: ONE_HEAD,
      look:
        "Verbs look for things and things for verbs. “then” asks nothing: all its scores are 0, " +
        "and it looks everywhere alike.",
      state: SENTENCE,
    },
    {
      id: "heads",
      title: "Two heads",
      page: MANY_HEADS,
      look:
        "“chased” looks most at “cat” in head 0 and most at “mouse” in head 1. With one head " +
        "the scores of the two are added, and it asks both questions in one breath.",
      state: HEADS,
    },
    {
      id: "causal",
      title: "No word sees the future",
      page: MASKS,
      look:
        "“cat” can see itself alone, so its output is its own value. “chased” divides the whole " +
        "among two words: 8 and 2 of 10 shares.",
      state: { ...SENTENCE, causal: true },
    },
    {
      id: "padding",
      title: "Padding hides keys",
      page: MASKS,
      look:
        "Whole columns are hidden, rows are not. Put 100 into a key or value of “pad”: nothing " +
        "of it reaches the words. Then untick the padding mask.",
      state: { ...SHORT, padding: 2 },
    },
    {
      id: "both",
      title: "Causal and padding in one",
      page: MASKS,
      look:
        "A pair is allowed when both masks say yes. The rows of “pad” still have somewhere to " +
        "look, and nobody reads their answers.",
      state: { ...SHORT, causal: true, padding: 2 },
    },
    {
      id: "window",
      title: "A window",
      page: MASKS,
      look:
        "Each word sees itself and one word before it. Widen the window to 4: that is the causal " +
        "mask of five words.",
      state: { ...SENTENCE, window: 1 },
    },
    {
      id: "empty",
      title: "Rows with nothing to see",
      page: MASKS,
      look:
        "With the padding on the left, the first three rows have no key left. Their weights and " +
        "outputs are 0, and not “not a number”.",
      state: { ...LEFT, causal: true, padding: 2, side: "left" },
    },
    {
      id: "softmax-over-queries",
      title: "Softmax over the queries",
      page: FORMULA,
      look:
        "Now columns sum to 1 and rows do not. Change a number of “who?”: the row of “what?” " +
        "moves too, although its question is the same.",
      state: { ...QUESTIONS, mistake: "softmax over queries" },
    },
    {
      id: "softmax-twice",
      title: "Softmax applied twice",
      page: FORMULA,
      look:
        "Rows sum to 1, and everything is nearly alike: a second softmax takes the weights, all " +
        "between 0 and 1, for scores. “cat” falls from 0.50 to 0.27.",
      state: { ...QUESTIONS, mistake: "softmax twice" },
    },
    {
      id: "scaled-by-model-width",
      title: "Scaled by d_model",
      page: MANY_HEADS,
      look:
        "The scores are divided by the root of all 4 features, where a head has 2: “chased” " +
        "gives “cat” less than half. With one head there is no difference.",
      state: { ...HEADS, scale: "model" },
    },
    {
      id: "mask-multiplied",
      title: "Scores multiplied by the mask",
      page: MASKS,
      look:
        "A score of 0 is a share of 1, not nothing: hatched cells hold weight, and “cat” gives " +
        "0.67 to its future.",
      state: { ...SENTENCE, causal: true, mistake: "mask multiplied" },
    },
    {
      id: "mask-after-softmax",
      title: "Mask after the softmax",
      page: MASKS,
      look:
        "Hatched cells are clean, but the row of “cat” sums to 0.12. And it leaks: change the " +
        "key of “slept”, and the first rows move.",
      state: { ...SENTENCE, causal: true, mistake: "mask after softmax" },
    },
    {
      id: "mask-inverted",
      title: "Mask with the sense inverted",
      page: MASKS,
      look:
        "True is read as “hide”: each word sees the future and nothing else, and “slept”, the " +
        "last one, sees nothing at all.",
      state: { ...SENTENCE, causal: true, mistake: "mask inverted" },
    },
    {
      id: "split-by-view",
      title: "Heads split by a view",
      page: MIXED_UP,
      look:
        "Read the names of the rows: “head” 0 has the first half of the sentence, all features " +
        "of it, and the cut goes through “mouse”. Change “slept”: the output of “cat” stays.",
      state: { ...HEADS, mistake: "split by view" },
    },
    {
      id: "attends-over-heads",
      title: "One transpose too many",
      page: MIXED_UP,
      look:
        "Inside each word the heads are compared with each other, and no word meets another. " +
        "Change “cat”: no other row of the output moves.",
      state: { ...HEADS, mistake: "attends over heads" },
    },
    {
      id: "merged-by-view",
      title: "Heads merged by a view",
      page: MIXED_UP,
      look:
        "The weights are right and the output is shuffled: the row of “cat” holds what “cat” and " +
        "“chased” found in head 0. Compare with “Two heads”.",
      state: { ...HEADS, mistake: "merged by view" },
    },
  ];

  Object.assign(globalThis.attentionPlay, { PRESETS });
})();
