/* The controls of "Play with attention".

   Each is made from a laboratory (play.js) and is {element, show}: the element changes the state
   by lab.change, and show() makes it tell the state, whoever changed that. */

(function () {
  "use strict";

  const play = globalThis.attentionPlay;
  const { LIMITS, TEXT, choice, el, frame, option } = play;

  function options(texts) {
    return Object.entries(texts).map(([value, text]) => option(value, text));
  }

  /* A field for a number from `least` to `most`. What is none is told, and changes nothing. */
  function numberField(lab, label, { least, most, whole = false, get, set, name = null }) {
    const isGood = (x) => x >= least && x <= most && (!whole || Number.isInteger(x));
    const input = el("input", {
      type: "number",
      min: least,
      max: most,
      step: whole ? 1 : "any",
      class: name,
      inputmode: whole ? "numeric" : "decimal",
      "aria-label": label,
      oninput: () => {
        const value = input.value === "" ? NaN : Number(input.value);
        input.setAttribute("aria-invalid", String(!isGood(value)));
        if (isGood(value)) lab.change(() => set(Number(value.toFixed(6))));
        else lab.sayLater(`${label}: a number from ${least} to ${most}, please.`);
      },
      onblur: () => {
        input.removeAttribute("aria-invalid");
        show();
      },
    });
    const show = () => {
      const typing = document.activeElement === input && Number(input.value) === get();
      if (!typing) input.value = String(get());
    };
    return { element: input, show };
  }

  function examples(lab) {
    const isWrong = ({ state }) => state.mistake !== "none" || state.scale !== "root";
    const groups = Object.entries({ "The chapters": false, Mistakes: true }).map(([label, wrong]) => {
      const list = play.PRESETS.filter((preset) => isWrong(preset) === wrong);
      return el("optgroup", { label }, ...list.map(({ id, title }) => option(id, title)));
    });
    const field = choice("Example", groups, (id) => lab.load(id));
    const again = { type: "button", onclick: () => lab.load(lab.state.preset) };
    const look = el("p", { class: "play-look" });
    const row = el("div", { class: "play-row" }, field.element, el("button", again, "Start again"));
    return {
      element: el("div", { class: "play-examples" }, row, look),
      show: () => {
        const preset = play.PRESETS.find(({ id }) => id === lab.state.preset);
        field.select.value = preset ? preset.id : "";
        look.hidden = !preset;
        if (!preset) return;
        const [page, name] = preset.page;
        const heading = el("strong", {}, "What to look at. ");
        look.replaceChildren(heading, `${preset.look} (`, el("a", { href: page }, name), ")");
      },
    };
  }

  /* A dial on a logarithmic scale, and a field for the number itself. */
  function temperature(lab) {
    const field = numberField(lab, "Temperature", {
      least: play.COLDEST,
      most: play.HOTTEST,
      get: () => lab.state.temperature,
      set: (value) => (lab.state.temperature = value),
      name: "play-wide",
    });
    const turn = () => (lab.state.temperature = Number((10 ** dial.value).toPrecision(2)));
    const dial = el("input", {
      type: "range",
      min: -2,
      max: 2,
      step: 0.05,
      "aria-label": "Temperature, as a dial",
      oninput: () => lab.change(turn),
    });
    const name = el("span", { "aria-hidden": "true" }, "Temperature T");
    return {
      element: el("div", { class: "play-field" }, name, dial, field.element),
      show: () => {
        field.show();
        dial.setAttribute("aria-valuetext", String(lab.state.temperature));
        if (document.activeElement !== dial) dial.value = Math.log10(lab.state.temperature);
      },
    };
  }

  function chooser(lab, label, texts, key) {
    const field = choice(label, options(texts), (value) =>
      lab.change(() => (lab.state[key] = value))
    );
    return { element: field.element, show: () => (field.select.value = lab.state[key]) };
  }

  function scale(lab) {
    const parts = [
      chooser(lab, "Unit of q", TEXT.units, "unit"),
      chooser(lab, "Scale", TEXT.scales, "scale"),
    ];
    return {
      element: el("span", { class: "play-pair" }, ...parts.map((part) => part.element)),
      show: () => parts.forEach((part) => part.show()),
    };
  }

  function mistake(lab) {
    return chooser(lab, "How it is computed", TEXT.mistakes, "mistake");
  }

  function heads(lab) {
    const set = (value) => lab.change(() => (lab.state.heads = Number(value)));
    const field = choice("Heads", [], set);
    const hint = el("small", { class: "play-hint" });
    return {
      element: el("div", {}, field.element, hint),
      show: () => {
        const [m, e] = [lab.state.features.length, lab.state.carried.length];
        const counts = Array.from({ length: m }, (_, n) => n + 1);
        const fitting = counts.filter((h) => m % h === 0 && e % h === 0);
        field.select.replaceChildren(...fitting.map((h) => option(h, String(h))));
        field.select.value = String(lab.state.heads);
        const alone = `${m} features of q and k and ${e} of v: one head alone fits.`;
        hint.textContent = fitting.length > 1 ? "" : alone;
      },
    };
  }

  function tick(lab, label, get, set) {
    const edit = () => lab.change(() => set(input.checked));
    const input = el("input", { type: "checkbox", onchange: edit });
    return {
      element: el("label", { class: "play-tick" }, input, label),
      show: () => (input.checked = get()),
    };
  }

  function causal(lab) {
    return tick(lab, "causal", () => lab.state.causal, (on) => (lab.state.causal = on));
  }

  function drawn(lab) {
    const drawing = () => play.maskOf({ ...lab.state, drawn: null });
    const set = (on) => (lab.state.drawn = on ? drawing() : null);
    return tick(lab, "drawn", () => lab.state.drawn !== null, set);
  }

  /* A mask that is on when its number is not null: the fields for it are there when it is on. */
  function numbered(lab, key, start, box, rest) {
    const set = (on) => (lab.state[key] = on ? start() : null);
    const part = tick(lab, key, () => lab.state[key] !== null, set);
    const more = el("span", { class: "play-more" }, box.element, ...rest);
    return {
      element: el("div", { class: "play-line" }, part.element, more),
      show: () => {
        part.show();
        more.hidden = lab.state[key] === null;
        if (!more.hidden) box.show();
      },
    };
  }

  function padding(lab) {
    const j = () => lab.state.keys.length;
    const box = numberField(lab, "Padding: how many keys are words", {
      least: 0,
      most: LIMITS.positions,
      whole: true,
      get: () => lab.state.padding,
      set: (value) => (lab.state.padding = Math.min(value, j())),
    });
    const side = chooser(lab, "on the", { right: "right", left: "left" }, "side");
    const start = () => Math.max(j() - 2, 0);
    const part = numbered(lab, "padding", start, box, [" words, padding ", side.element]);
    return { element: part.element, show: () => [part, side].forEach((it) => it.show()) };
  }

  function near(lab) {
    const box = numberField(lab, "Window: how many keys before", {
      least: 0,
      most: LIMITS.positions,
      whole: true,
      get: () => lab.state.window,
      set: (value) => (lab.state.window = value),
    });
    return numbered(lab, "window", () => 1, box, [" before"]);
  }

  function mask(lab) {
    const parts = [causal(lab), padding(lab), near(lab), drawn(lab)];
    const legend = el("legend", {}, "Mask: allowed is what all of these allow");
    return {
      element: el("fieldset", { class: "play-mask" }, legend, ...parts.map((it) => it.element)),
      show: () => parts.forEach((part) => part.show()),
    };
  }

  /* The numbers of q, k or v. */
  function matrix(lab, name) {
    const { state } = lab;
    const [what, letters, rows, columns] = {
      q: ["Queries", "i d", state.queries, state.features],
      k: ["Keys", "j d", state.keys, state.features],
      v: ["Values", "j e", state.keys, state.carried],
    }[name];
    const times = name === "q" && state.unit !== "1" ? `, times ${TEXT.units[state.unit]}` : "";
    const note = `axes ${letters}${times}`;
    const made = frame({ caption: `${what} ${name}`, note, rows, columns, heads: state.heads });
    const fields = state[name].flatMap((row, r) =>
      row.map((_, c) => {
        const head = Math.floor((c * state.heads) / row.length);
        const where = state.heads > 1 ? `head ${head}, ${columns[c]}` : columns[c];
        const field = numberField(lab, `${name} of “${rows[r]}”, ${where}`, {
          least: -LIMITS.number,
          most: LIMITS.number,
          get: () => lab.state[name][r][c],
          set: (value) => (lab.state[name][r][c] = value),
        });
        field.element.addEventListener("keydown", step);
        made.cells[r][c].append(field.element);
        return field;
      })
    );
    return { element: made.element, show: () => fields.forEach((field) => field.show()) };
  }

  /* Halves by the arrow keys, while anything can be typed. */
  function step(event) {
    const sign = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (!sign) return;
    event.preventDefault();
    const field = event.target;
    const value = Number(field.value) + sign * (event.shiftKey ? 5 : 0.5);
    const inside = Math.min(Math.max(value, -LIMITS.number), LIMITS.number);
    field.value = String(Number(inside.toFixed(6)));
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }

  function words(lab) {
    const fields = Object.entries({ Queries: "queries", Keys: "keys" }).map(([label, which]) => {
      const edit = () => rename(lab, which, input.value);
      const input = el("input", {
        type: "text",
        spellcheck: "false",
        autocomplete: "off",
        onchange: edit,
      });
      const element = el("label", { class: "play-field" }, el("span", {}, label), input);
      const show = () => (input.value = lab.state[which].join(" "));
      return { element, show };
    });
    const most = LIMITS.positions;
    const hint = `One to ${most} words each, with spaces between. A new word begins with zeros.`;
    const elements = fields.map((field) => field.element);
    const small = el("small", { class: "play-hint" }, hint);
    return {
      element: el("div", { class: "play-words" }, ...elements, small),
      show: () => fields.forEach((field) => field.show()),
    };
  }

  function namesIn(text) {
    const clean = (word) => [...word.replace(/[_~\p{C}]/gu, "")].slice(0, LIMITS.name).join("");
    const names = text.trim().split(/\s+/).map(clean);
    return names.filter(play.isName).slice(0, LIMITS.positions);
  }

  /* Where the words are both queries and keys, they stay so. */
  function rename(lab, which, text) {
    const names = namesIn(text);
    if (!names.length) {
      lab.show();
      lab.say("At least one word, please.");
      return;
    }
    const { state } = lab;
    const self = state.queries.join(" ") === state.keys.join(" ");
    const [i, j] = [state.queries.length, state.keys.length];
    lab.change(() => {
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
    });
  }

  /* Rows follow their names, so that words in another order keep their numbers. */
  function follow(old, names, matrices) {
    const free = new Set(old.keys());
    const places = names.map((name) => {
      const place = old.findIndex((other, index) => other === name && free.has(index));
      free.delete(place);
      return place;
    });
    const renamed = (n) => names.length === old.length && free.has(n);
    return matrices.map((rows) =>
      places.map((place, n) => {
        if (place >= 0) return rows[place];
        return renamed(n) ? rows[n] : rows[0].map(() => 0);
      })
    );
  }

  function link(lab) {
    const attributes = { type: "text", readonly: true, hidden: true, "aria-label": "The link" };
    const field = el("input", { ...attributes, onfocus: () => field.select() });
    const copy = async () => {
      try {
        await navigator.clipboard.writeText(lab.address());
        lab.say("The link is copied.");
      } catch {
        field.value = lab.address();
        field.hidden = false;
        field.focus();
        lab.say("This browser does not let a page copy. The link is in the field, selected.");
      }
    };
    const button = el("button", { type: "button", onclick: copy }, "Copy link");
    const hint = el("small", { class: "play-hint" }, "It holds every number on this page.");
    return { element: el("div", { class: "play-row" }, button, field, hint), show: () => {} };
  }

  play.controls = { examples, heads, link, mask, matrix, mistake, scale, temperature, words };
})();
