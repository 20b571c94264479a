/* "Play with attention": every element of the class attention-play becomes a small laboratory.

   data-preset names the example it begins with, data-show the parts it has (see PARTS); without
   data-show it is the whole page, which also reads and writes the state in its address. What stood
   inside stays where there is no script: the tables of the page, a sentence with a link elsewhere.

   The other files, in the order in which they need each other: attention.js computes, presets.js
   has the examples, link.js reads and writes addresses, words.js has the words, elements.js and
   controls.js and results.js what is seen. */

(function () {
  "use strict";

  const play = globalThis.attentionPlay;
  const { TABLES, controls, el } = play;

  const BAR = ["temperature", "scale", "heads", "mistake", "mask"]; // controls in one box
  const MATRICES = ["q", "k", "v"];
  const PARTS = ["examples", ...BAR, ...MATRICES, "words", ...Object.keys(TABLES), "explain", "link"];
  const PAUSE = 500; // milliseconds without a change before it is announced
  const PAGE = "play.html";
  const LEGEND =
    "Rows i are queries, columns j are keys. Hatched: masked. A bar under a number: your last " +
    "step changed it.";

  function begin(id) {
    const preset = play.PRESETS.find((it) => it.id === id) || play.PRESETS[0];
    return { ...structuredClone(preset.state), preset: preset.id };
  }

  /* What the tables are made for: while it is the same, their cells are only filled anew. */
  function shapeOf({ queries, keys, features, carried, heads, unit, mistake }) {
    return JSON.stringify([queries, keys, features, carried, heads, unit, mistake]);
  }

  function mount(root) {
    const whole = root.dataset.show === undefined;
    const wanted = whole ? PARTS : root.dataset.show.split(/\s+/);
    const first = root.dataset.preset;

    let announced = null; // what the reader was last told of
    let reason = ""; // what is to be said before what changed
    let timer = 0;
    let touched = false; // an address is left alone until the reader has done something
    let shape = "";
    let inputs = [];
    let tables = [];

    const lab = { state: begin(first), result: null, change, load, say, sayLater, show, address };

    const said = el("p", { class: "play-said", role: "status", "aria-live": "polite" });
    const trouble = el("p", { class: "play-trouble", hidden: true });
    const editors = el("div", { class: "play-tables" });
    const results = el("div", { class: "play-tables" });
    const made = new Map(
      PARTS.filter((part) => wanted.includes(part) && (part in controls || part === "explain")).map(
        (part) => [part, (controls[part] || play.explain)(lab)]
      )
    );
    const elementOf = (part) => (made.has(part) ? made.get(part).element : null);

    function change(edit, why = "") {
      touched = true;
      reason = why;
      edit();
      update(true);
    }

    function load(id) {
      touched = true;
      lab.state = begin(id || first);
      const preset = play.PRESETS.find((it) => it.id === lab.state.preset);
      arrive(`The example “${preset.title}” is shown.`);
    }

    /* Another state altogether: what it differs in from the last one is no news. */
    function arrive(why) {
      reason = why;
      announced = null;
      update(false);
      announced = play.snapshot(lab.state, lab.result);
    }

    function update(mark) {
      const problem = play.problem(lab.state);
      trouble.textContent = problem || "";
      trouble.hidden = problem === null;
      results.hidden = problem !== null;
      const same = shape === shapeOf(lab.state);
      if (!same) build(problem === null);
      if (problem === null) {
        lab.result = play.compute(lab.state);
        tables.forEach((table) => table.show(lab.result, mark && same));
      }
      show();
      clearTimeout(timer);
      timer = setTimeout(settle, PAUSE);
    }

    function build(possible) {
      shape = possible ? shapeOf(lab.state) : "";
      const named = MATRICES.filter((name) => wanted.includes(name));
      inputs = named.map((name) => controls.matrix(lab, name));
      const boxes = inputs.map((input) => input.element);
      editors.replaceChildren(...boxes, ...[elementOf("words")].filter(Boolean));
      if (!possible) return;
      const stages = Object.keys(TABLES).filter((name) => wanted.includes(name));
      tables = stages.map((name) => TABLES[name](lab));
      const shown = stages.map((name, n) =>
        el("div", { class: `play-stage play-stage-${name}` }, ...tables[n].elements)
      );
      results.replaceChildren(...shown);
    }

    function show() {
      made.forEach((part) => part.show());
      inputs.forEach((input) => input.show());
    }

    /* Said at once, or when the reader has paused. */
    function say(text) {
      clearTimeout(timer);
      said.textContent = text;
    }

    function sayLater(text) {
      clearTimeout(timer);
      timer = setTimeout(() => say(text), PAUSE);
    }

    function settle() {
      const now = play.snapshot(lab.state, lab.result);
      const same = JSON.stringify(now) === JSON.stringify(announced);
      const changed = same && reason ? "" : play.news(announced, now);
      say([reason, changed].filter(Boolean).join(" "));
      announced = now;
      reason = "";
      if (whole && touched) history.replaceState(null, "", `#${play.encode(lab.state)}`);
    }

    function address() {
      return `${location.href.split("#")[0]}#${play.encode(lab.state)}`;
    }

    function readAddress() {
      const text = location.hash.slice(1);
      if (!text || document.getElementById(text)) return;
      try {
        lab.state = play.decode(text);
        arrive("What the link holds is shown.");
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        lab.state = begin(first);
        arrive(`This link can't be used: ${error.message}. Here is the first example instead.`);
      }
    }

    /* A piece's link to the page carries what the reader has made of it. It is made when it is
       wanted: the theme takes the fragment of any link that it finds for the name of a heading. */
    function carry() {
      for (const link of root.querySelectorAll("a[href]")) {
        const [page] = link.getAttribute("href").split("#");
        if (page.split("/").pop() !== PAGE) continue;
        link.setAttribute("href", `${page}#${play.encode(lab.state)}`);
      }
    }

    arrive("");
    clearTimeout(timer); // nothing has happened yet that a reader should be told
    const bar = BAR.map(elementOf).filter(Boolean);
    const piece = el(
      "div",
      { class: "play-piece", role: "group", "aria-label": "Play with attention" },
      elementOf("examples"),
      bar.length ? el("div", { class: "play-controls" }, ...bar) : null,
      trouble,
      editors.hasChildNodes() ? editors : null,
      results,
      el("p", { class: "play-hint" }, LEGEND),
      elementOf("explain"),
      elementOf("link"),
      said
    );
    if (whole) {
      root.replaceChildren(piece);
      readAddress();
      addEventListener("hashchange", readAddress);
    } else {
      root.prepend(piece);
      for (const wish of ["pointerdown", "focusin"]) root.addEventListener(wish, carry);
    }
  }

  function start() {
    document.querySelectorAll(".attention-play").forEach(mount);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
