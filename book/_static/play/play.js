/* "Play with attention": every element of the class attention-play becomes a small laboratory.

   data-preset names the example it begins with, data-show the parts it has (see PARTS); without
   data-show it is the whole page, which also reads and writes the state in its address. What stood
   inside stays where there is no script: the table of the page, a sentence with a link elsewhere. */

(function () {
  "use strict";

  const play = globalThis.attentionPlay;
  const { twoDecimals } = play;

  const PARTS = [
    "examples",
    "words",
    "q",
    "k",
    "v",
    "scale",
    "temperature",
    "heads",
    "mistake",
    "mask",
    "scores",
    "masked",
    "weights",
    "output",
    "explain",
    "link",
  ];
  const PAUSE = 500; // milliseconds without a change before it is announced
  const PAGE = "play.html";

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

  /* Elements */

  function el(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value === true) element.setAttribute(name, "");
      else if (value !== false && value !== null) element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null));
    return element;
  }

  function option(value, text, disabled = false) {
    return el("option", { value, disabled }, text);
  }

  function choice(label, options, onchange) {
    const select = el("select", { onchange: () => onchange(select.value) }, ...options);
    return { element: el("label", { class: "play-field" }, el("span", {}, label), select), select };
  }

  /* A box that scrolls by itself, and by keyboard where there is something to scroll. */
  function scrolling(table, name) {
    const box = el("div", { class: "play-scroll" }, table);
    const watch = new ResizeObserver(() => {
      const wide = box.scrollWidth > box.clientWidth + 1;
      for (const [key, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", name]]) {
        if (wide) box.setAttribute(key, value);
        else box.removeAttribute(key);
      }
    });
    watch.observe(box);
    watch.observe(table);
    return box;
  }

  function headerRow(corner, columns) {
    const cells = columns.map((name) => el("th", { scope: "col" }, name));
    return el("tr", {}, el("td", { class: "play-corner" }, corner), ...cells);
  }

  /* -> {element, cells}: a table with headers, whose cells are filled later. */
  function frame({ caption, note, corner, rows, columns, groups, extra, role }) {
    const cells = rows.map(() => columns.map(() => el("td", {})));
    const sums = extra ? rows.map(() => el("td", { class: "play-sum" })) : [];
    const head = [headerRow(corner, extra ? [...columns, extra] : columns)];
    if (groups > 1) {
      const span = columns.length / groups;
      const names = Array.from({ length: groups }, (_, head) =>
        el("th", { scope: "colgroup", colspan: span, class: "play-group" }, `head ${head}`)
      );
      head.unshift(el("tr", {}, el("td", {}), ...names));
    }
    const body = rows.map((name, r) =>
      el("tr", {}, el("th", { scope: "row" }, name), ...cells[r], ...(extra ? [sums[r]] : []))
    );
    const title = el("caption", {}, caption, note ? el("small", {}, ` ${note}`) : null);
    const table = el("table", { class: "play-table", role: role || null }, title);
    if (role) table.setAttribute("aria-label", caption);
    table.append(el("thead", {}, ...head), el("tbody", {}, ...body));
    return { element: scrolling(table, caption), table, cells, sums };
  }

  function write(cell, text, mark) {
    const changed = cell.firstChild?.textContent !== text;
    cell.classList.toggle("play-changed", changed && mark);
    if (changed) cell.replaceChildren(el("span", {}, text));
  }

  function hatch(cell, hidden) {
    cell.classList.toggle("play-hidden", hidden);
    cell.querySelector(".play-unseen")?.remove();
    if (hidden) cell.append(el("span", { class: "play-unseen" }, " masked"));
  }

  function paint(cell, weight) {
    const rgb = play.colour(weight);
    cell.style.backgroundColor = `rgb(${rgb.join(" ")})`;
    cell.style.color = play.readableOn(rgb);
  }

  /* Which position and features a row of a "head" is made of that a view has cut. */
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

  /* The names of the rows and columns of each part, and of the part itself. */
  function labels(state) {
    const h = state.heads;
    const heads = Array.from({ length: h }, (_, head) => `head ${head}`);
    if (state.mistake === "attends over heads") {
      return state.keys.map((name) => ({ name: `“${name}”`, rows: heads, columns: heads }));
    }
    const cut = state.mistake === "split by view" && h > 1;
    const rows = cut ? slices(state.queries, state.features.length, h) : null;
    const columns = cut ? slices(state.keys, state.features.length, h) : null;
    return heads.map((name, head) => ({
      name: h > 1 ? name : "",
      rows: cut ? rows[head] : state.queries,
      columns: cut ? columns[head] : state.keys,
    }));
  }

  function quoted(names) {
    return names.map((name) => `“${name}”`).join(", ");
  }

  function copyOf(state) {
    return structuredClone(state);
  }

  function begin(preset) {
    return { ...copyOf(preset.state), preset: preset.id };
  }

  /* The laboratory */

  function mount(root, number) {
    const whole = root.dataset.show === undefined;
    const shown = whole ? PARTS : root.dataset.show.split(/\s+/);
    const has = (part) => shown.includes(part);
    const presetOf = (id) => play.PRESETS.find((preset) => preset.id === id);
    const first = presetOf(root.dataset.preset) || play.PRESETS[0];
    const id = (name) => `play-${number}-${name}`;

    let state = begin(first);
    let result = null;
    let announced = null; // what the reader was last told of
    let timer = 0;
    let touched = false; // an address is left alone until the reader has done something
    let reason = ""; // what else to say with the next announcement
    let frames = {}; // the tables of results
    let framed = ""; // the names that they were made for
    const pair = { part: 0, i: 0, j: 0 };

    const said = el("p", { class: "play-said", role: "status", "aria-live": "polite" });
    const trouble = el("p", { class: "play-trouble", hidden: true });
    const look = el("p", { class: "play-look" });
    const editors = el("div", { class: "play-tables" });
    const results = el("div", { class: "play-tables" });
    const explained = el("ol", { class: "play-steps" });

    /* Controls: each knows how to show the state. */
    const controls = [];

    function add(control) {
      controls.push(control);
      return control.element;
    }

    function change(edit, why = "") {
      touched = true;
      edit();
      reason = why;
      update(true);
    }

    function numberField(label, { least, most, step, get, set, width }) {
      const input = el("input", {
        type: "number",
        min: least,
        max: most,
        step,
        class: width || null,
        "aria-label": label,
        inputmode: "decimal",
        oninput: () => {
          const value = input.value === "" ? NaN : Number(input.value);
          const good = value >= least && value <= most && (step !== 1 || Number.isInteger(value));
          input.setAttribute("aria-invalid", String(!good));
          if (good) change(() => set(Number(value.toFixed(6))));
          else sayLater(`${label}: a number from ${least} to ${most}, please.`);
        },
        onblur: () => {
          input.removeAttribute("aria-invalid");
          show();
        },
      });
      const show = () => {
        if (document.activeElement !== input || Number(input.value) !== get()) {
          input.value = String(get());
        }
      };
      return { element: input, show };
    }

    function exampleControl() {
      const groups = [false, true].map((wrong) => {
        const isWrong = (s) => s.mistake !== "none" || s.scale !== "root";
        const list = play.PRESETS.filter((preset) => isWrong(preset.state) === wrong);
        const options = list.map((preset) => option(preset.id, preset.title));
        return el("optgroup", { label: wrong ? "Mistakes" : "The chapters" }, ...options);
      });
      const field = choice("Example", groups, (value) => load(presetOf(value)));
      const again = el("button", { type: "button", onclick: () => load(current()) }, "Start again");
      return {
        element: el("div", { class: "play-row" }, field.element, again),
        show: () => {
          field.select.value = state.preset || "";
        },
      };
    }

    function current() {
      return presetOf(state.preset) || first;
    }

    function load(preset) {
      touched = true;
      state = begin(preset);
      Object.assign(pair, { part: 0, i: 0, j: 0 });
      reason = `The example “${preset.title}” is shown.`;
      announced = null;
      update(false);
    }

    function scaleControl() {
      const unit = choice("Unit of q", list(TEXT.units), (value) =>
        change(() => (state.unit = value))
      );
      const scale = choice("Scale", list(TEXT.scales), (value) =>
        change(() => (state.scale = value))
      );
      return {
        element: el("span", { class: "play-pair" }, unit.element, scale.element),
        show: () => {
          unit.select.value = state.unit;
          scale.select.value = state.scale;
        },
      };
    }

    function list(texts) {
      return Object.entries(texts).map(([value, text]) => option(value, text));
    }

    /* A dial on a logarithmic scale, and a field for the number itself. */
    function temperatureControl() {
      const field = numberField("Temperature", {
        least: play.COLDEST,
        most: play.HOTTEST,
        step: "any",
        width: "play-wide",
        get: () => state.temperature,
        set: (value) => (state.temperature = value),
      });
      const dial = el("input", {
        type: "range",
        min: -2,
        max: 2,
        step: 0.05,
        "aria-label": "Temperature, as a dial",
        oninput: () =>
          change(() => (state.temperature = Number((10 ** dial.value).toPrecision(2)))),
      });
      const name = el("span", { "aria-hidden": "true" }, "Temperature T");
      return {
        element: el("div", { class: "play-field play-dial" }, name, dial, field.element),
        show: () => {
          field.show();
          dial.setAttribute("aria-valuetext", String(state.temperature));
          if (document.activeElement !== dial) dial.value = Math.log10(state.temperature);
        },
      };
    }

    function headsControl() {
      const field = choice("Heads", [], (value) => change(() => (state.heads = Number(value))));
      const hint = el("small", { class: "play-hint" });
      return {
        element: el("div", {}, field.element, hint),
        show: () => {
          const [m, e] = [state.features.length, state.carried.length];
          const fits = Array.from({ length: m }, (_, h) => h + 1).filter((h) => !(m % h || e % h));
          field.select.replaceChildren(...fits.map((h) => option(h, String(h))));
          field.select.value = String(state.heads);
          hint.textContent =
            fits.length > 1 ? "" : `${m} features of q and k and ${e} of v: one head alone fits.`;
        },
      };
    }

    function mistakeControl() {
      const field = choice("How it is computed", list(TEXT.mistakes), (value) =>
        change(() => (state.mistake = value))
      );
      return {
        element: field.element,
        show: () => {
          field.select.value = state.mistake;
        },
      };
    }

    function tick(label, get, set) {
      const input = el("input", {
        type: "checkbox",
        onchange: () => change(() => set(input.checked)),
      });
      const show = () => {
        input.checked = get();
      };
      return { element: el("label", { class: "play-tick" }, input, label), show };
    }

    function maskControl() {
      const j = () => state.keys.length;
      const parts = [
        tick("causal", () => state.causal, (on) => (state.causal = on)),
        tick(
          "padding",
          () => state.padding !== null,
          (on) => (state.padding = on ? Math.max(j() - 2, 0) : null)
        ),
        tick("window", () => state.window !== null, (on) => (state.window = on ? 1 : null)),
        tick("drawn", () => state.drawn !== null, (on) => (state.drawn = on ? drawing() : null)),
      ];
      const words = numberField("Padding: how many keys are words", {
        least: 0,
        most: play.LIMITS.positions,
        step: 1,
        get: () => state.padding,
        set: (value) => (state.padding = Math.min(value, j())),
      });
      const before = numberField("Window: how many keys before", {
        least: 0,
        most: play.LIMITS.positions,
        step: 1,
        get: () => state.window,
        set: (value) => (state.window = value),
      });
      const side = choice("on the", [option("right", "right"), option("left", "left")], (value) =>
        change(() => (state.side = value))
      );
      const more = (...children) => el("span", { class: "play-more" }, ...children);
      const padding = more(words.element, " words, padding ", side.element);
      const near = more(before.element, " before");
      const rows = [[parts[0]], [parts[1], padding], [parts[2], near], [parts[3]]];
      const lines = rows.map(([part, rest]) =>
        el("div", { class: "play-line" }, part.element, rest || null)
      );
      const legend = el("legend", {}, "Mask: allowed is what all of these allow");
      return {
        element: el("fieldset", { class: "play-mask" }, legend, ...lines),
        show: () => {
          parts.forEach((part) => part.show());
          padding.hidden = state.padding === null;
          near.hidden = state.window === null;
          if (state.padding !== null) words.show();
          if (state.window !== null) before.show();
          side.select.value = state.side;
        },
      };
    }

    function drawing() {
      return play.maskOf({ ...state, drawn: null });
    }

    function wordsControl() {
      const fields = [
        ["Queries", "queries", "q"],
        ["Keys", "keys", "k"],
      ].map(([label, names]) => {
        const input = el("input", {
          type: "text",
          spellcheck: "false",
          autocomplete: "off",
          onchange: () => rename(names, input.value),
        });
        const element = el("label", { class: "play-field play-text" }, el("span", {}, label), input);
        const show = () => {
          if (document.activeElement !== input) input.value = state[names].join(" ");
        };
        return { element, show };
      });
      const most = play.LIMITS.positions;
      const hint = `One to ${most} words each, with spaces between. A new word begins with zeros.`;
      return {
        element: el(
          "div",
          { class: "play-words" },
          ...fields.map((field) => field.element),
          el("small", { class: "play-hint" }, hint)
        ),
        show: () => fields.forEach((field) => field.show()),
      };
    }

    /* Rows follow their names, so that reordered words keep their numbers. */
    function rename(which, text) {
      const clean = (word) => [...word.replace(/[_~\p{C}]/gu, "")];
      const names = text
        .trim()
        .split(/\s+/)
        .map((word) => clean(word).slice(0, play.LIMITS.name).join(""))
        .filter(play.isName)
        .slice(0, play.LIMITS.positions);
      if (!names.length) {
        say("At least one word, please.");
        controls.forEach((control) => control.show());
        return;
      }
      const self = state.queries.join(" ") === state.keys.join(" ");
      change(() => {
        const [i, j] = [state.queries.length, state.keys.length];
        if (self || which === "queries") {
          [state.q] = follow(state.queries, names, [state.q]);
          state.queries = names;
        }
        if (self || which === "keys") {
          [state.k, state.v] = follow(state.keys, names, [state.k, state.v]);
          state.keys = names;
        }
        if (state.queries.length !== i || state.keys.length !== j) state.drawn = null;
        if (state.padding !== null) state.padding = Math.min(state.padding, state.keys.length);
        Object.assign(pair, { part: 0, i: 0, j: 0 });
      });
    }

    function follow(old, names, matrices) {
      const free = new Set(old.keys());
      const found = names.map((name) => {
        const place = old.findIndex((other, index) => other === name && free.has(index));
        free.delete(place);
        return place;
      });
      return matrices.map((matrix) =>
        found.map((place, n) => {
          if (place >= 0) return matrix[place];
          const renamed = names.length === old.length && free.has(n);
          return renamed ? matrix[n] : matrix[0].map(() => 0);
        })
      );
    }

    function linkControl() {
      const field = el("input", {
        type: "text",
        readonly: true,
        "aria-label": "The link",
        hidden: true,
        onfocus: () => field.select(),
      });
      const button = el("button", { type: "button", onclick: () => copy(field) }, "Copy link");
      const hint = el("small", { class: "play-hint" }, "It holds every number on this page.");
      return { element: el("div", { class: "play-row" }, button, field, hint), show: () => {} };
    }

    function address() {
      return `${location.href.split("#")[0]}#${play.encode(state)}`;
    }

    async function copy(field) {
      try {
        await navigator.clipboard.writeText(address());
        say("The link is copied.");
      } catch {
        field.value = address();
        field.hidden = false;
        field.focus();
        say("This browser does not let a page copy. The link is in the field, selected.");
      }
    }

    /* q, k and v */

    function editor(name, letters, matrix, rows, columns) {
      const groups = state.heads;
      const times = name === "q" && state.unit !== "1" ? `, times ${TEXT.units[state.unit]}` : "";
      const note = `axes ${letters}${times}`;
      const what = { q: "Queries", k: "Keys", v: "Values" }[name];
      const made = frame({ caption: `${what} ${name}`, note, corner: "", rows, columns, groups });
      const fields = matrix.map((row, r) =>
        row.map((_, c) => {
          const head = groups > 1 ? `head ${Math.floor((c * groups) / row.length)}, ` : "";
          const field = numberField(`${name} of “${rows[r]}”, ${head}${columns[c]}`, {
            least: -play.LIMITS.number,
            most: play.LIMITS.number,
            step: "any",
            get: () => state[name][r][c],
            set: (value) => (state[name][r][c] = value),
          });
          field.element.addEventListener("keydown", step);
          made.cells[r][c].append(field.element);
          return field;
        })
      );
      return { element: made.element, show: () => fields.flat().forEach((field) => field.show()) };
    }

    /* Halves by the arrow keys; "any" as the step lets a reader type what they like. */
    function step(event) {
      const sign = { ArrowUp: 1, ArrowDown: -1 }[event.key];
      if (!sign) return;
      event.preventDefault();
      const field = event.target;
      const value = Number(field.value) + sign * (event.shiftKey ? 5 : 0.5);
      const most = play.LIMITS.number;
      field.value = String(Number(Math.min(Math.max(value, -most), most).toFixed(6)));
      field.dispatchEvent(new Event("input", { bubbles: true }));
    }

    let inputs = [];

    function buildEditors() {
      const all = [
        ["q", "i d", state.q, state.queries, state.features],
        ["k", "j d", state.k, state.keys, state.features],
        ["v", "j e", state.v, state.keys, state.carried],
      ];
      inputs = all.filter(([name]) => has(name)).map((args) => editor(...args));
      const elements = inputs.map((input) => input.element);
      editors.replaceChildren(...elements, ...(words ? [words] : []));
    }

    /* Results */

    function points(score) {
      return twoDecimals(state.unit === "1" ? score : score / Math.LN2);
    }

    function buildResults() {
      const parts = labels(state);
      const inPoints = state.unit === "1" ? "" : "in points";
      const corner = state.mistake === "attends over heads" ? "" : "i ↓ j →";
      const each = (what, options) =>
        parts.map(({ name, rows, columns }) =>
          frame({
            caption: name ? `${what} · ${name}` : what,
            corner,
            rows,
            columns,
            ...options,
          })
        );
      frames = {
        scores: has("scores") ? each("Scores", { note: inPoints }) : [],
        mask: has("mask") ? [maskGrid()] : [],
        masked: has("masked") ? each("Masked scores", { note: inPoints }) : [],
        weights: has("weights") ? each("Weights", { extra: "sum" }) : [],
        output: has("output")
          ? [
              frame({
                caption: "Output",
                note: "axes i e",
                corner: "",
                rows: state.queries,
                columns: state.carried,
                groups: state.heads,
              }),
            ]
          : [],
      };
      const stages = Object.entries(frames).filter(([, tables]) => tables.length);
      results.replaceChildren(
        ...stages.map(([name, tables]) =>
          el(
            "div",
            { class: `play-stage play-stage-${name}` },
            ...tables.map((table) => table.element)
          )
        )
      );
    }

    /* One toggle for each pair. The arrow keys go from cell to cell, Tab leaves the grid. */
    function maskGrid() {
      const made = frame({
        caption: "Mask",
        note: "1: may attend",
        corner: "i ↓ j →",
        rows: state.queries,
        columns: state.keys,
        role: "grid",
      });
      const buttons = made.cells.map((row, i) =>
        row.map((cell, j) => {
          const button = el("button", {
            type: "button",
            tabindex: i === 0 && j === 0 ? "0" : "-1",
            onclick: () => toggle(i, j),
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
      return { ...made, buttons };
    }

    function move(event, buttons, i, j) {
      const [di, dj] =
        {
          ArrowUp: [-1, 0],
          ArrowDown: [1, 0],
          ArrowLeft: [0, -1],
          ArrowRight: [0, 1],
          Home: [0, -Infinity],
          End: [0, Infinity],
        }[event.key] || [];
      if (di === undefined) return;
      event.preventDefault();
      const clamp = (x, most) => Math.min(Math.max(x, 0), most);
      const row = buttons[clamp(i + di, buttons.length - 1)];
      row[clamp(j + dj, row.length - 1)].focus();
    }

    /* What is on the page becomes the drawing, so that the pair is as the reader wants it. */
    function toggle(i, j) {
      change(() => {
        const drawn = play.maskOf(state);
        drawn[i][j] = !drawn[i][j];
        Object.assign(state, { causal: false, padding: null, window: null, drawn });
      }, `“${state.queries[i]}” ${play.maskOf(state)[i][j] ? "may not" : "may"} attend to “${state.keys[j]}” now.`);
    }

    function showMask(grid) {
      grid.buttons.forEach((row, i) =>
        row.forEach((button, j) => {
          const allowed = result.mask[i][j];
          button.textContent = allowed ? "1" : "0";
          button.setAttribute("aria-pressed", String(allowed));
          button.setAttribute(
            "aria-label",
            `“${state.queries[i]}” may attend to “${state.keys[j]}”`
          );
          button.parentElement.classList.toggle("play-hidden", !allowed);
        })
      );
    }

    function showTable(made, values, allowed, text, mark) {
      made.cells.forEach((row, r) =>
        row.forEach((cell, c) => {
          write(cell, text(values[r][c]), mark);
          if (allowed) hatch(cell, !allowed[r][c]);
        })
      );
    }

    function showResults(mark) {
      result.parts.forEach((part, p) => {
        const { scores, masked, weights } = frames;
        if (scores.length) showTable(scores[p], part.scores, null, points, mark);
        if (masked.length) showTable(masked[p], part.masked, part.allowed, points, mark);
        if (!weights.length) return;
        showTable(weights[p], part.weights, part.allowed, twoDecimals, mark);
        part.weights.forEach((row, r) => {
          row.forEach((weight, c) => paint(weights[p].cells[r][c], weight));
          write(weights[p].sums[r], twoDecimals(row.reduce((a, b) => a + b, 0)), mark);
        });
      });
      if (frames.mask.length) showMask(frames.mask[0]);
      if (frames.output.length) {
        showTable(frames.output[0], result.output, null, twoDecimals, mark);
      }
    }

    /* One pair, worked out */

    function explainControl() {
      const field = (label, key) =>
        choice(label, [], (value) => {
          pair[key] = Number(value);
          explain();
        });
      const fields = [field("Query", "i"), field("Key", "j"), field("Head", "part")];
      const row = el("div", { class: "play-row" }, ...fields.map((f) => f.element));
      const element = el(
        "fieldset",
        { class: "play-explain" },
        el("legend", {}, "One pair, worked out"),
        row,
        explained
      );
      return {
        element,
        show: () => {
          element.hidden = state.mistake !== "none";
          pair.part = Math.min(pair.part, state.heads - 1);
          const heads = Array.from({ length: state.heads }, (_, head) => String(head));
          [state.queries, state.keys, heads].forEach((names, f) => {
            const select = fields[f].select;
            select.replaceChildren(...names.map((name, n) => option(n, name)));
            select.value = String([pair.i, pair.j, pair.part][f]);
          });
          fields[2].element.hidden = state.heads === 1;
        },
      };
    }

    function explain() {
      if (!has("explain") || state.mistake !== "none") return;
      const { i, j, part } = pair;
      const d = state.features.length / state.heads;
      const own = (row) => row.slice(part * d, (part + 1) * d);
      const [q, k] = [own(state.q[i]), own(state.k[j])];
      const plain = (x) => String(Number(x.toFixed(3))).replace("-", "−");
      const factors = q.map((x, n) => `${x < 0 ? `(${plain(x)})` : plain(x)} · ${plain(k[n])}`);
      const product = q.reduce((sum, x, n) => sum + x * k[n], 0);
      const inPoints = state.unit !== "1";
      const factor = inPoints ? result.factor / Math.LN2 : result.factor;
      const row = result.parts[part];
      const base = inPoints ? 2 : Math.E;
      const shares = row.masked[i].map((x) => base ** (inPoints ? x / Math.LN2 : x));
      const sum = shares.reduce((a, b) => a + b, 0);
      const lines = [
        `Product: ${factors.join(" + ")} = ${plain(product)}`,
        `Score: ${plain(product)} · ${plain(factor)} = ${points(row.scores[i][j])}` +
          (inPoints ? " points" : ""),
      ];
      if (!result.mask[i][j]) {
        lines.push("The mask hides this pair: the score becomes −∞, the share 0.");
      }
      if (sum < 1e6) {
        const power = `${inPoints ? "2" : "e"} to the power of the score`;
        lines.push(`Share: ${power} is ${twoDecimals(shares[j])}, of ${twoDecimals(sum)} in all`);
      }
      lines.push(`Weight: ${twoDecimals(row.weights[i][j])}`);
      explained.replaceChildren(...lines.map((line) => el("li", {}, line)));
    }

    /* Update: show everything, then say what changed */

    function update(mark) {
      const problem = play.problem(state);
      trouble.hidden = problem === null;
      trouble.textContent = problem || "";
      results.hidden = problem !== null;
      const key = JSON.stringify([
        state.queries,
        state.keys,
        state.features,
        state.carried,
        state.heads,
        state.unit,
        state.mistake,
      ]);
      const same = key === framed;
      if (!same) buildEditors();
      if (problem === null) {
        result = play.compute(state);
        if (!same) buildResults();
        showResults(mark && same);
        framed = key;
      } else {
        framed = "";
      }
      controls.forEach((control) => control.show());
      inputs.forEach((input) => input.show());
      if (problem === null) explain();
      showLook();
      clearTimeout(timer);
      timer = setTimeout(settle, PAUSE);
    }

    function showLook() {
      const preset = presetOf(state.preset);
      look.hidden = !preset || !has("examples");
      if (look.hidden) return;
      const [page, name] = preset.page;
      look.replaceChildren(
        el("strong", {}, "What to look at. "),
        `${preset.look} (`,
        el("a", { href: page }, name),
        ")"
      );
    }

    function say(text) {
      clearTimeout(timer);
      said.textContent = text;
    }

    function sayLater(text) {
      clearTimeout(timer);
      timer = setTimeout(() => say(text), PAUSE);
    }

    function settle() {
      say([reason, news()].filter(Boolean).join(" "));
      reason = "";
      announced = snapshot();
      if (whole && touched) history.replaceState(null, "", `#${play.encode(state)}`);
    }

    /* A piece's link to the page carries what the reader has made of it. It is made when it is
       wanted: the theme takes the fragment of any link that it finds for the name of a heading. */
    function openHere() {
      for (const link of root.querySelectorAll("a[href]")) {
        const [page] = link.getAttribute("href").split("#");
        if (page.split("/").pop() === PAGE) link.setAttribute("href", `${page}#${play.encode(state)}`);
      }
    }

    function snapshot() {
      const problem = play.problem(state);
      if (problem !== null) return { problem };
      const rows = labels(state).flatMap((part, p) =>
        part.rows.map((name, r) => ({
          name: part.name ? `“${name}” in ${part.name}` : `“${name}”`,
          columns: part.columns,
          weights: result.parts[p].weights[r].map(twoDecimals),
          numbers: result.parts[p].weights[r],
        }))
      );
      return { rows, output: result.output.map((row) => row.map(twoDecimals).join(" ")) };
    }

    /* One short sentence about what is new since the last one. */
    function news() {
      const now = snapshot();
      if (now.problem) return now.problem;
      if (!announced || announced.problem || announced.rows.length !== now.rows.length) return "";
      const moved = now.rows.filter(
        (row, r) => row.weights.join(" ") !== announced.rows[r].weights.join(" ")
      );
      const outputs = state.queries.filter((_, r) => now.output[r] !== announced.output[r]);
      if (moved.length) {
        const more = moved.length > 1 ? `${moved.length} rows of weights changed. ` : "";
        return more + most(moved[0]);
      }
      if (outputs.length) return `Weights stay; the output changed for ${quoted(outputs)}.`;
      return reason ? "" : "No weight and no output changed.";
    }

    function most(row) {
      const largest = Math.max(...row.numbers);
      if (largest === 0) return `${row.name} has nothing to look at: weights 0, output 0.`;
      const places = row.numbers.flatMap((x, n) => (largest - x < 1e-9 ? [n] : []));
      const words = quoted(places.map((place) => row.columns[place]));
      const each = places.length > 1 ? "each " : "";
      return `${row.name} now gives most to ${words}: ${each}${twoDecimals(largest)}.`;
    }

    /* The address */

    function fromAddress() {
      const text = location.hash.slice(1);
      if (!text || document.getElementById(text)) return;
      try {
        state = play.decode(text);
        reason = "What the link holds is shown.";
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        state = begin(first);
        reason = `This link can't be used: ${error.message}. Here is the first example instead.`;
      }
      announced = null;
      Object.assign(pair, { part: 0, i: 0, j: 0 });
    }

    /* Put together */

    const exampleBar = has("examples") ? add(exampleControl()) : null;
    const bar = [
      has("temperature") ? add(temperatureControl()) : null,
      has("scale") ? add(scaleControl()) : null,
      has("heads") ? add(headsControl()) : null,
      has("mistake") ? add(mistakeControl()) : null,
      has("mask") ? add(maskControl()) : null,
    ].filter(Boolean);
    const words = has("words") ? add(wordsControl()) : null;
    const explanation = has("explain") ? add(explainControl()) : null;
    const share = has("link") ? add(linkControl()) : null;
    const legend = el(
      "p",
      { class: "play-hint" },
      "Rows i are queries, columns j are keys. Hatched: masked. A bar under a number: your last " +
        "step changed it."
    );
    const piece = el(
      "div",
      { class: "play-piece", role: "group", "aria-label": "Play with attention", id: id("piece") },
      exampleBar,
      look,
      bar.length ? el("div", { class: "play-controls" }, ...bar) : null,
      trouble,
      has("q") || has("k") || has("v") ? editors : null,
      results,
      legend,
      explanation,
      share,
      said
    );
    if (whole) {
      root.replaceChildren(piece);
      addEventListener("hashchange", () => {
        fromAddress();
        update(false);
      });
      fromAddress();
    } else {
      root.prepend(piece);
      for (const wish of ["pointerdown", "focusin"]) root.addEventListener(wish, openHere);
    }
    update(false);
    if (!reason) clearTimeout(timer); // nothing has happened that a reader should be told
    announced = snapshot();
  }

  function start() {
    document.querySelectorAll(".attention-play").forEach(mount);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
