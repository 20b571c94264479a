/* The words of "Play with attention": names of choices, of rows and columns, and the sentence that
   says what a step has changed. */

(function () {
  "use strict";

  const play = globalThis.attentionPlay;
  const { twoDecimals } = play;

  const TEXT = {
    units: { 1: "1", ln2: "ln 2", root2ln2: "√2 ln 2" },
    scales: {
      root: "1/√d, the formula",
      none: "1, no scale",
      model: "1/√d_model, a mistake with heads",
      up: "√d, a mistake",
    },
    mistakes: {
      none: "right",
      "softmax over queries": "softmax over the queries",
      "softmax twice": "softmax applied twice",
      "mask inverted": "mask with the sense inverted",
      "mask multiplied": "scores multiplied by the mask",
      "mask after softmax": "mask after the softmax",
      "split by view": "heads split by a view",
      "merged by view": "heads merged by a view",
      "attends over heads": "one transpose too many: heads attend to heads",
    },
  };

  /* Which word and which of its features each row of a "head" holds that a view has cut. */
  function slices(names, features, h) {
    const d = features / h;
    const all = names.flatMap((name) =>
      Array.from({ length: h }, (_, part) =>
        d === 1 ? `${name} ${part}` : `${name} ${part * d}–${(part + 1) * d - 1}`
      )
    );
    return Array.from({ length: h }, (_, head) =>
      all.slice(head * names.length, (head + 1) * names.length)
    );
  }

  /* The name of each part of a result, and of its rows and columns. */
  function labels(state) {
    const h = state.heads;
    const heads = Array.from({ length: h }, (_, head) => `head ${head}`);
    if (state.mistake === "attends over heads") {
      return state.keys.map((name) => ({ name: `“${name}”`, rows: heads, columns: heads }));
    }
    const cut = state.mistake === "split by view" && h > 1;
    const [rows, columns] = [state.queries, state.keys].map((names) =>
      cut ? slices(names, state.features.length, h) : heads.map(() => names)
    );
    return heads.map((name, head) => ({
      name: h > 1 ? name : "",
      rows: rows[head],
      columns: columns[head],
    }));
  }

  function quoted(names) {
    return names.map((name) => `“${name}”`).join(", ");
  }

  /* What a reader may want to be told about: the rows of weights and of the output, as shown. */
  function snapshot(state, result) {
    const problem = play.problem(state);
    if (problem !== null) return { problem };
    const rows = labels(state).flatMap((part, p) =>
      part.rows.map((name, r) => ({
        name: part.name ? `“${name}” in ${part.name}` : `“${name}”`,
        columns: part.columns,
        weights: result.parts[p].weights[r],
        text: result.parts[p].weights[r].map(twoDecimals).join(" "),
      }))
    );
    const output = result.output.map((row) => row.map(twoDecimals).join(" "));
    return { rows, output, queries: state.queries };
  }

  /* One short sentence about what is new; nothing where the two can't be compared. */
  function news(before, now) {
    if (now.problem) return now.problem;
    if (before.problem || before.rows.length !== now.rows.length) return "";
    const moved = now.rows.filter((row, r) => row.text !== before.rows[r].text);
    if (moved.length) {
      const more = moved.length > 1 ? `${moved.length} rows of weights changed. ` : "";
      return more + mostOf(moved[0]);
    }
    const outputs = now.queries.filter((_, r) => now.output[r] !== before.output[r]);
    if (outputs.length) return `Weights stay; the output changed for ${quoted(outputs)}.`;
    return "No weight and no output changed.";
  }

  function mostOf(row) {
    const largest = Math.max(...row.weights);
    if (largest === 0) return `${row.name} has nothing to look at: weights 0, output 0.`;
    const places = row.weights.flatMap((x, n) => (largest - x < 1e-9 ? [n] : []));
    const names = quoted(places.map((place) => row.columns[place]));
    const each = places.length > 1 ? "each " : "";
    return `${row.name} now gives most to ${names}: ${each}${twoDecimals(largest)}.`;
  }

  Object.assign(play, { TEXT, labels, news, snapshot });
})();
