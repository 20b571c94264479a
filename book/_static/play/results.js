/* What "Play with attention" shows: the tables of a result, the mask that is drawn, and one pair
   worked out. Each is made from a laboratory (play.js). */

(function () {
  "use strict";

  const play = globalThis.attentionPlay;
  const { choice, el, frame, hatch, labels, option, paint, twoDecimals, write } = play;

  const CORNER = "i ↓ j →";

  /* Scores count in points of ln 2 where the queries do. */
  function inPoints(state) {
    return state.unit !== "1";
  }

  function shownScore(state, score) {
    return twoDecimals(inPoints(state) ? score / Math.LN2 : score);
  }

  function fill(made, values, text, mark, allowed = null) {
    made.cells.forEach((row, r) =>
      row.forEach((cell, c) => {
        write(cell, text(values[r][c]), mark);
        if (allowed) hatch(cell, !allowed[r][c]);
      })
    );
  }

  /* A table for each part of the result, and how to fill it. */
  function perPart(state, caption, options, show) {
    const parts = labels(state);
    const corner = state.mistake === "attends over heads" ? "" : CORNER;
    const tables = parts.map(({ name, rows, columns }) =>
      frame({ caption: name ? `${caption} · ${name}` : caption, corner, rows, columns, ...options })
    );
    return {
      elements: tables.map((table) => table.element),
      show: (result, mark) => tables.forEach((table, p) => show(table, result.parts[p], mark)),
    };
  }

  function scores({ state }) {
    const note = inPoints(state) ? "in points" : "";
    const text = (score) => shownScore(state, score);
    return perPart(state, "Scores", { note }, (table, part, mark) =>
      fill(table, part.scores, text, mark)
    );
  }

  function masked({ state }) {
    const note = inPoints(state) ? "in points" : "";
    const text = (score) => shownScore(state, score);
    return perPart(state, "Masked scores", { note }, (table, part, mark) =>
      fill(table, part.masked, text, mark, part.allowed)
    );
  }

  function weights({ state }) {
    return perPart(state, "Weights", { sum: true }, (table, part, mark) => {
      fill(table, part.weights, twoDecimals, mark, part.allowed);
      part.weights.forEach((row, r) => {
        row.forEach((weight, c) => paint(table.cells[r][c], weight));
        write(table.sums[r], twoDecimals(row.reduce((a, b) => a + b, 0)), mark);
      });
    });
  }

  function output({ state }) {
    const [rows, columns] = [state.queries, state.carried];
    const table = frame({ caption: "Output", note: "axes i e", rows, columns, heads: state.heads });
    const show = (result, mark) => fill(table, result.output, twoDecimals, mark);
    return { elements: [table.element], show };
  }

  /* One toggle for each pair. The arrow keys go from cell to cell, Tab leaves the grid. */
  function mask(lab) {
    const [rows, columns] = [lab.state.queries, lab.state.keys];
    const note = "1: may attend";
    const table = frame({ caption: "Mask", note, corner: CORNER, rows, columns, role: "grid" });
    const buttons = table.cells.map((row, i) =>
      row.map((cell, j) => {
        const button = el("button", {
          type: "button",
          tabindex: i + j === 0 ? "0" : "-1",
          "aria-label": `“${rows[i]}” may attend to “${columns[j]}”`,
          onclick: () => toggle(lab, i, j),
          onkeydown: (event) => move(event, buttons, i, j),
          onfocus: () => {
            buttons.flat().forEach((other) => other.setAttribute("tabindex", "-1"));
            button.setAttribute("tabindex", "0");
          },
        });
        cell.append(button);
        return button;
      })
    );
    const show = (result) =>
      buttons.forEach((row, i) =>
        row.forEach((button, j) => {
          button.setAttribute("aria-pressed", String(result.mask[i][j]));
          button.parentElement.classList.toggle("play-hidden", !result.mask[i][j]);
        })
      );
    return { elements: [table.element], show };
  }

  const MOVES = {
    ArrowUp: [-1, 0],
    ArrowDown: [1, 0],
    ArrowLeft: [0, -1],
    ArrowRight: [0, 1],
    Home: [0, -Infinity],
    End: [0, Infinity],
  };

  function move(event, buttons, i, j) {
    if (!Object.hasOwn(MOVES, event.key)) return;
    event.preventDefault();
    const [di, dj] = MOVES[event.key];
    const inside = (x, count) => Math.min(Math.max(x, 0), count - 1);
    const row = buttons[inside(i + di, buttons.length)];
    row[inside(j + dj, row.length)].focus();
  }

  /* What is on the page becomes the drawing, so that the pair is as the reader wants it. */
  function toggle(lab, i, j) {
    const drawn = play.maskOf(lab.state);
    drawn[i][j] = !drawn[i][j];
    const [query, key] = [lab.state.queries[i], lab.state.keys[j]];
    lab.change(
      () => Object.assign(lab.state, { causal: false, padding: null, window: null, drawn }),
      `“${query}” ${drawn[i][j] ? "may" : "may not"} attend to “${key}” now.`
    );
  }

  /* -> {elements, show(result, mark)} for each table that is wanted; made anew for new names. */
  const TABLES = { scores, mask, masked, weights, output };

  /* One pair, worked out */

  function explain(lab) {
    const pair = { i: 0, j: 0, head: 0 };
    const steps = el("ol", { class: "play-steps" });
    const fields = Object.entries({ Query: "i", Key: "j", Head: "head" }).map(([label, axis]) => {
      const field = choice(label, [], (value) => {
        pair[axis] = Number(value);
        show();
      });
      return { ...field, axis };
    });
    const row = el("div", { class: "play-row" }, ...fields.map((field) => field.element));
    const legend = el("legend", {}, "One pair, worked out");
    const element = el("fieldset", { class: "play-explain" }, legend, row, steps);

    function show() {
      const { state } = lab;
      element.hidden = state.mistake !== "none" || play.problem(state) !== null;
      if (element.hidden) return;
      const heads = Array.from({ length: state.heads }, (_, head) => String(head));
      [state.queries, state.keys, heads].forEach((names, f) => {
        const { axis, select } = fields[f];
        pair[axis] = Math.min(pair[axis], names.length - 1);
        select.replaceChildren(...names.map((name, n) => option(n, name)));
        select.value = String(pair[axis]);
      });
      fields[2].element.hidden = state.heads === 1;
      const lines = workedOut(state, lab.result, pair);
      steps.replaceChildren(...lines.map((line) => el("li", {}, line)));
    }

    return { element, show };
  }

  function plain(x) {
    return String(Number(x.toFixed(3))).replace("-", "−");
  }

  function workedOut(state, result, { i, j, head }) {
    const d = state.features.length / state.heads;
    const [q, k] = [state.q[i], state.k[j]].map((row) => row.slice(head * d, (head + 1) * d));
    const terms = q.map((x, n) => `${x < 0 ? `(${plain(x)})` : plain(x)} · ${plain(k[n])}`);
    const product = plain(q.reduce((sum, x, n) => sum + x * k[n], 0));
    const points = inPoints(state);
    const factor = plain(points ? result.factor / Math.LN2 : result.factor);
    const part = result.parts[head];
    const score = shownScore(state, part.scores[i][j]) + (points ? " points" : "");
    const shares = part.masked[i].map(Math.exp);
    const sum = shares.reduce((a, b) => a + b, 0);
    const power = `${points ? "2" : "e"} to the power of the score`;
    const share = `${power} is ${twoDecimals(shares[j])}, of ${twoDecimals(sum)} in all`;
    return [
      `Product: ${terms.join(" + ")} = ${product}`,
      `Score: ${product} · ${factor} = ${score}`,
      ...(result.mask[i][j] ? [] : ["The mask hides this pair: its score becomes −∞."]),
      ...(sum < 1e6 ? [`Share: ${share}`] : []),
      `Weight: ${twoDecimals(part.weights[i][j])}`,
    ];
  }

  Object.assign(play, { TABLES, explain });
})();
