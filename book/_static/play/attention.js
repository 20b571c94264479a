/* The arithmetic of "Play with attention": pure functions, no page.

   A matrix is an array of rows. The letters are the book's: i query, j key, h head, d and e
   features; m is the features of all heads together. A mask is true where query i may attend
   to key j. tests/browser compares all of this with mini_attention in a real browser. */

(function () {
  "use strict";

  /* i d, d e -> i e */
  function product(a, b) {
    const columns = transpose(b);
    return a.map((row) => columns.map((column) => dot(row, column)));
  }

  function dot(a, b) {
    return a.reduce((sum, x, index) => sum + x * b[index], 0);
  }

  /* Of at least one row. */
  function transpose(a) {
    return a[0].map((_, column) => a.map((row) => row[column]));
  }

  function zip(a, b, join) {
    return a.map((row, r) => row.map((x, c) => join(x, b[r][c])));
  }

  function table(rows, columns, value) {
    return Array.from({ length: rows }, (_, r) =>
      Array.from({ length: columns }, (_, c) => value(r, c))
    );
  }

  /* Masks */

  function everything(i, j) {
    return table(i, j, () => true);
  }

  /* With i != j the last query stands at the last key, as in decoding. */
  function causalMask(i, j) {
    return windowMask(i, j, Infinity);
  }

  function windowMask(i, j, before) {
    return table(i, j, (query, key) => {
      const distance = query + j - i - key;
      return distance >= 0 && distance <= before;
    });
  }

  /* Hides columns: of the j keys only `length` are words. */
  function paddingMask(length, i, j, side) {
    return table(i, j, (_, key) => (side === "left" ? key >= j - length : key < length));
  }

  function both(a, b) {
    return zip(a, b, (x, y) => x && y);
  }

  function inverted(mask) {
    return mask.map((row) => row.map((x) => !x));
  }

  /* The masks that a state asks for, joined: allowed is what all of them allow. */
  function maskOf(state) {
    const i = state.q.length;
    const j = state.k.length;
    const masks = [everything(i, j)];
    if (state.causal) masks.push(causalMask(i, j));
    if (state.padding !== null) masks.push(paddingMask(state.padding, i, j, state.side));
    if (state.window !== null) masks.push(windowMask(i, j, state.window));
    if (state.drawn !== null) masks.push(state.drawn);
    return masks.reduce(both);
  }

  /* The formula */

  /* A row in which nothing is allowed has weights 0. The largest score is subtracted first, so
     that nothing overflows. */
  function softmax(row) {
    const largest = Math.max(...row);
    if (largest === -Infinity) return row.map(() => 0);
    const powers = row.map((score) => Math.exp(score - largest));
    const sum = powers.reduce((a, b) => a + b, 0);
    return powers.map((power) => power / sum);
  }

  function hide(scores, mask) {
    return zip(scores, mask, (score, allowed) => (allowed ? score : -Infinity));
  }

  /* q i d, k j d, v j e, mask i j, factor a number -> every step from the scores to the output.
     The mistakes have the names that mini_attention.mistakes has for them. */
  function attend(q, k, v, mask, factor, mistake) {
    const scores = product(q, transpose(k)).map((row) => row.map((x) => x * factor));
    let masked = hide(scores, mistake === "mask inverted" ? inverted(mask) : mask);
    if (mistake === "mask multiplied") masked = zip(scores, mask, (x, yes) => (yes ? x : 0));
    if (mistake === "mask after softmax") masked = scores;
    let weights = masked.map(softmax);
    if (mistake === "mask after softmax") weights = zip(weights, mask, (x, yes) => (yes ? x : 0));
    if (mistake === "softmax over queries") weights = transpose(transpose(masked).map(softmax));
    if (mistake === "softmax twice") weights = weights.map(softmax);
    return { scores, masked, weights, output: product(weights, v) };
  }

  /* Heads */

  /* n (h d) -> h n d */
  function splitHeads(x, h) {
    const d = x[0].length / h;
    return Array.from({ length: h }, (_, head) =>
      x.map((row) => row.slice(head * d, (head + 1) * d))
    );
  }

  /* h n e -> n (h e) */
  function mergeHeads(heads) {
    return heads[0].map((_, n) => heads.flatMap((head) => head[n]));
  }

  /* What a view does: the numbers stay in the order in which they lie in memory. */
  function view(numbers, rows, columns) {
    return table(rows, columns, (r, c) => numbers[r * columns + c]);
  }

  function splitByView(x, h) {
    const n = x.length;
    const d = x[0].length / h;
    const all = view(x.flat(), h * n, d);
    return Array.from({ length: h }, (_, head) => all.slice(head * n, (head + 1) * n));
  }

  function mergeByView(heads) {
    const n = heads[0].length;
    return view(heads.flat(2), n, (heads.flat(2).length / n));
  }

  /* The whole */

  const UNITS = { 1: 1, ln2: Math.LN2, root2ln2: Math.SQRT2 * Math.LN2 };

  /* From the features m of the model and the d of a head. */
  const SCALES = {
    root: (d) => 1 / Math.sqrt(d),
    none: () => 1,
    model: (d, m) => 1 / Math.sqrt(m),
    up: (d) => Math.sqrt(d),
  };

  const MISTAKES = [
    "none",
    "softmax over queries",
    "softmax twice",
    "mask inverted",
    "mask multiplied",
    "mask after softmax",
    "split by view",
    "merged by view",
    "attends over heads",
  ];

  /* Why a state can't be computed, in the words of the package; null if it can. */
  function problem(state) {
    const sizes = { "The features of queries and keys": state.k[0].length };
    sizes["The features of values"] = state.v[0].length;
    for (const [name, size] of Object.entries(sizes)) {
      if (size % state.heads) {
        return `${name} (${size}) must be divisible by the number of heads (${state.heads}).`;
      }
    }
    if (state.mistake === "attends over heads" && state.q.length !== state.k.length) {
      return (
        "This mistake needs as many queries as keys: with " +
        `${state.q.length} and ${state.k.length} it raises an error, and gives itself away.`
      );
    }
    return null;
  }

  function factorOf(state) {
    const m = state.k[0].length;
    const scale = SCALES[state.scale](m / state.heads, m);
    return (UNITS[state.unit] * scale) / state.temperature;
  }

  /* -> {mask i j, factor, parts, output i (h e)}. A part is one softmax table: one head, or one
     position where the mistake compares heads with each other. */
  function compute(state) {
    const h = state.heads;
    const mask = maskOf(state);
    const factor = factorOf(state);
    const overHeads = state.mistake === "attends over heads";
    const split = state.mistake === "split by view" ? splitByView : splitHeads;
    let [q, k, v] = [state.q, state.k, state.v].map((x) => split(x, h));
    if (overHeads) {
      // From h n d to n h d: positions and heads change places.
      [q, k, v] = [q, k, v].map((x) => x[0].map((_, n) => x.map((head) => head[n])));
    }
    const seen = overHeads ? everything(h, h) : mask;
    const parts = q.map((_, part) => ({
      allowed: seen,
      ...attend(q[part], k[part], v[part], seen, factor, state.mistake),
    }));
    const outputs = parts.map((part) => part.output);
    const byView = ["split by view", "merged by view"].includes(state.mistake);
    let output = byView ? mergeByView(outputs) : mergeHeads(outputs);
    if (overHeads) output = outputs.map((heads) => heads.flat());
    return { mask, factor, parts, output };
  }

  /* The book's two decimals: 1/8 is 0.12 whatever the last bit of the softmax is, as in Python. */
  function twoDecimals(x) {
    if (!Number.isFinite(x)) return x < 0 ? "−∞" : String(x);
    const tidy = Number(x.toFixed(6));
    const hundredths = Math.abs(tidy) * 100;
    const tie = Number.isInteger(tidy * 8) && !Number.isInteger(tidy * 4);
    const size = tie ? (2 * Math.round(hundredths / 2)) / 100 : Math.abs(tidy);
    const text = size.toFixed(2);
    return tidy < 0 && Number(text) !== 0 ? `−${text}` : text;
  }

  /* Matplotlib's "Blues", which the book's maps have: weight 0 to 1 -> [red, green, blue]. */
  const BLUES = [
    [247, 251, 255],
    [222, 235, 247],
    [198, 219, 239],
    [158, 202, 225],
    [107, 174, 214],
    [66, 146, 198],
    [33, 113, 181],
    [8, 81, 156],
    [8, 48, 107],
  ];

  function colour(weight) {
    const place = Math.min(Math.max(weight, 0), 1) * (BLUES.length - 1);
    const left = Math.min(Math.floor(place), BLUES.length - 2);
    return BLUES[left].map((x, c) => Math.round(x + (place - left) * (BLUES[left + 1][c] - x)));
  }

  /* Black or white, whichever stands out more (WCAG's luminance). */
  function readableOn(rgb) {
    const [r, g, b] = rgb.map((c) => ((c / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "black" : "white";
  }

  globalThis.attentionPlay = {
    MISTAKES,
    SCALES,
    UNITS,
    attend,
    causalMask,
    colour,
    compute,
    factorOf,
    maskOf,
    mergeByView,
    mergeHeads,
    paddingMask,
    problem,
    readableOn,
    softmax,
    splitByView,
    splitHeads,
    twoDecimals,
    windowMask,
  };
})();
